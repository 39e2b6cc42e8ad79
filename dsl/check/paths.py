"""Files and folders that a recipe names: the folders that their paths count from.

A compiled recipe counts every path from its own folder, so that its plan is the same on every machine; a plan that is
run has them joined to that folder, so that it runs from anywhere. Ids of the hub and absolute paths stay as they are.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from ..model.fields import Refers
from ..model.hidden import reveal
from ..model.plan import Plan
from ..model.recipe import Recipe
from ..model.reflect import Record, Series, Table, Type, Word, record
from ..source import Source
from ..text.node import MapNode, Node, Path, ScalarNode
from .inherit import rewrite_children
from .spans import join_path

__all__ = ["anchor_paths", "list_paths", "list_references", "rebase_paths"]

Prefix = Callable[[Source], str]
"""The way from the folder of the recipe to that of another source; empty where they are the same."""


def rebase_paths(tree: MapNode, prefix: Prefix) -> MapNode:
    """A recipe with all its paths counted from its own folder; what needs no change is shared."""
    made = _rebased(tree, record(Recipe), prefix)
    return made if isinstance(made, MapNode) else tree


def _rebased(node: Node, type_: Type, prefix: Prefix) -> Node:
    if not _names_files(type_):
        return node
    inner = partial(_rebased, prefix=prefix)
    match type_, node:
        case Record(shorthand=str(key)), ScalarNode():
            return inner(node, type_.fields[key].type)
        case Word(refers=Refers() as refers), ScalarNode(value=str(value)) if _counts(value, refers):
            return _moved(node, value, prefix(node.span.source), refers)
        case _:
            return rewrite_children(node, type_, inner)


def _moved(node: ScalarNode, value: str, prefix: str, refers: Refers) -> ScalarNode:
    if not prefix:
        return node
    path = posixpath.normpath(posixpath.join(prefix, value))
    path = path if _counts(path, refers) else f"./{path}"
    return replace(node, value=path, redacted=None if node.redacted is None else f"./{prefix}/{node.redacted}")


def anchor_paths(plan: Plan, folder: str) -> Plan:
    """The plan that is run: all its paths joined to `folder`, and what the environment gave in plain text."""

    def anchor(_: Path, value: str, refers: Refers) -> str:
        return posixpath.normpath(posixpath.join(folder, value)) if _counts(value, refers) else value

    made: Plan = _each_path(reveal(plan), record(Plan), (), anchor)
    return made


def list_references(recipe: Recipe) -> Iterator[tuple[Path, str, Refers]]:
    """Every text in a recipe that names a file, a folder, or a model of the hub."""
    return _references(recipe, record(Recipe), ())


def _references(value: Any, type_: Type, at: Path) -> Iterator[tuple[Path, str, Refers]]:
    if value is None:
        return
    match type_:
        case Record():
            for name, inner in _fields_with_files(type_):
                yield from _references(getattr(value, name), inner, (*at, name))
        case Table():
            for name, item in value.items():
                yield from _references(item, type_.item, (*at, name))
        case Series():
            for index, item in enumerate(value):
                yield from _references(item, type_.item, (*at, index))
        case Word(refers=Refers() as refers):
            yield at, value, refers


def list_paths(plan: Plan) -> Sequence[tuple[str, str]]:
    """Every file or folder that a plan names, with its key; what may be an id of the hub is none."""
    found: list[tuple[str, str]] = []

    def note(at: Path, value: str, refers: Refers) -> str:
        if _counts(value, refers) or value.startswith(("/", "~")):
            found.append((join_path(at), value))
        return value

    _each_path(plan, record(Plan), (), note)
    return found


def _each_path(value: Any, type_: Type, at: Path, rewrite: Callable[[Path, str, Refers], str]) -> Any:
    """A value with every text in it that may name a file rewritten, by its key."""
    if value is None or not _names_files(type_):
        return value
    match type_:
        case Record():
            fields = ((name, field.type) for name, field in type_.fields.items() if _names_files(field.type))
            parts = {name: _each_path(getattr(value, name), part, (*at, name), rewrite) for name, part in fields}
            return replace(value, **parts)
        case Table():
            return {name: _each_path(item, type_.item, (*at, name), rewrite) for name, item in value.items()}
        case Series():
            return tuple(_each_path(item, type_.item, (*at, i), rewrite) for i, item in enumerate(value))
        case Word(refers=Refers() as refers):
            return rewrite(at, value, refers)
        case _:
            return value


@cache
def _fields_with_files(type_: Record) -> tuple[tuple[str, Type], ...]:
    return tuple((name, field.type) for name, field in type_.fields.items() if _names_files(field.type))


@cache
def _names_files(type_: Type) -> bool:
    match type_:
        case Record():
            return any(_names_files(field.type) for field in type_.fields.values())
        case Table() | Series():
            return _names_files(type_.item)
        case _:
            return isinstance(type_, Word) and type_.refers is not None


def _counts(value: str, refers: Refers) -> bool:
    """Whether a path counts from a folder at all."""
    return value.startswith(".") if refers.hub else bool(value.strip()) and not value.startswith(("/", "~"))
