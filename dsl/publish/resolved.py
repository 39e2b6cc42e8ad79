"""Recipes as plain data that can be written as a recipe again and mean the same.

The recipe itself is given whole, each stage only as far as it differs from what it inherits. Secrets are given as the
`${env:NAME}` that they are read from, which is all that a Recipe knows about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..catalog import Catalog
from ..check.inherit import INHERITED
from ..check.no_effect import list_keys_without_effect
from ..compose.interpolate import escape
from ..model.recipe import Recipe, Stage
from ..model.reflect import Field, Record, Type, Word, record
from ..source import Source, Span
from ..text.node import Path
from .plan_json import encode, encode_free

__all__ = ["resolve_recipe", "to_brief", "to_plain"]

PARTS = ("algorithm", *INHERITED)
"""Parts of a stage that the recipe has too."""


def resolve_recipe(recipe: Recipe, catalog: Catalog) -> dict[str, Any]:
    """The whole recipe; to be checked again as any recipe is."""
    type_ = record(Recipe)
    data: dict[str, Any] = to_plain(recipe, type_)
    data["schedule"] = [_stage(stage, recipe, data) for stage in recipe.schedule]
    written = _Written(data)
    for path, _ in list(list_keys_without_effect(recipe, written, catalog)):
        if path[-1] in list(written.written(*path[:-1])):  # not gone already with the section it is in
            _remove(data, path)
    return data


def to_plain(value: Any, type_: Type) -> Any:
    """A value of a Recipe as a person would write it in full."""
    return encode(value, type_, _leaf)


def _leaf(value: Any, type_: Type) -> Any:
    is_reference = isinstance(type_, Word) and type_.secret
    return value if is_reference else encode_free(value, escape)


def to_brief(value: Any, field: Field) -> Any:
    """A value of a field as a person would write it in short: without defaults."""
    if value is None or not isinstance(field.type, Record):
        return to_plain(value, field.type)
    parts = {
        each.name: to_brief(getattr(value, each.name), each)
        for each in field.type.fields.values()
        if getattr(value, each.name) != each.default
    }
    short = field.type.shorthand
    return parts[short] if short and list(parts) == [short] else parts


# --- what has no effect --------------------------------------------------------------------------------------------


class _Written:
    """Places as if a person had written all of the data."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def key(self, *path: str | int) -> Span:
        return Source("resolved", "").span(0, 0)

    value = key

    def written(self, *section: str | int) -> Iterable[str]:
        node: Any = self._data
        for step in section:
            is_there = isinstance(node, list) or (isinstance(node, Mapping) and step in node)
            node = node[step] if is_there else None
        return list(node) if isinstance(node, Mapping) else ()


def _remove(data: Any, path: Path) -> None:
    node = data
    for step in path[:-1]:
        node = node[step]
    del node[path[-1]]


# --- stages --------------------------------------------------------------------------------------------------------


def _stage(stage: Stage, recipe: Recipe, data: Mapping[str, Any]) -> dict[str, Any]:
    whole = to_plain(stage, record(Stage))
    parts = {name: _difference(whole[name], data[name]) for name in PARTS}
    parts["environments"] |= {name: None for name in recipe.environments if name not in stage.environments}
    if stage.algorithm.use is not recipe.algorithm.use:
        parts["algorithm"] = whole["algorithm"]  # it begins with another preset, not with the recipe's settings
    own = {name: value for name, value in whole.items() if name not in PARTS}
    return own | {name: part for name, part in parts.items() if part}


def _difference(over: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """What must be laid over `base` to get `over`, which has every key of it."""
    return {
        name: _difference(value, base[name])
        if isinstance(value, Mapping) and isinstance(base.get(name), Mapping)
        else value
        for name, value in over.items()
        if name not in base or value != base[name] or type(value) is not type(base[name])
    }
