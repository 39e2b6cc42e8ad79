"""Files and folders that a recipe names: the folders that their paths count from.

A compiled recipe counts every path from its own folder, so that its plan is the same on every machine; a plan that is
run has them joined to that folder, so that it runs from anywhere. Ids of the hub and absolute paths stay as they are.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from operator import is_
from typing import Any

from ..model.fields import Refers
from ..model.plan import Plan
from ..model.recipe import Recipe
from ..model.reflect import Record, Series, Table, Type, Word, record
from ..source import Source
from ..text.tree import ListNode, MapNode, Node, ScalarNode
from .inherit import rewrite_entries

__all__ = ["anchor_paths", "list_paths", "rebase_paths"]

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
        case Record(), MapNode():
            fields = type_.fields
            return rewrite_entries(node, lambda name: fields[name].type if name in fields else None, inner)
        case Record(shorthand=str(key)), ScalarNode():
            return inner(node, type_.fields[key].type)
        case Table(), MapNode():
            return rewrite_entries(node, lambda _: type_.item, inner)
        case Series(), ListNode():
            items = tuple(inner(item, type_.item) for item in node.items)
            return node if all(map(is_, items, node.items)) else replace(node, items=items)
        case Word(refers=Refers() as refers), ScalarNode(value=str(value)) if _counts(value, refers):
            return _moved(node, value, prefix(node.span.source), refers)
        case _:
            return node


def _moved(node: ScalarNode, value: str, prefix: str, refers: Refers) -> ScalarNode:
    if not prefix:
        return node
    path = posixpath.normpath(posixpath.join(prefix, value))
    path = path if _counts(path, refers) else f"./{path}"
    return replace(node, value=path, redacted=None if node.redacted is None else f"./{prefix}/{node.redacted}")


def anchor_paths(plan: Plan, folder: str) -> Plan:
    """The plan with all its paths joined to `folder`, for a run that may be started anywhere."""
    made: Plan = _anchored(plan, record(Plan), folder)
    return made


def _anchored(value: Any, type_: Type, folder: str) -> Any:
    if value is None or not _names_files(type_):
        return value
    match type_:
        case Record():
            parts = ((name, field.type) for name, field in type_.fields.items() if _names_files(field.type))
            return replace(value, **{name: _anchored(getattr(value, name), part, folder) for name, part in parts})
        case Table():
            return {name: _anchored(item, type_.item, folder) for name, item in value.items()}
        case Series():
            return tuple(_anchored(item, type_.item, folder) for item in value)
        case Word(refers=Refers() as refers) if _counts(value, refers):
            return posixpath.normpath(posixpath.join(folder, value))
        case _:
            return value


def list_paths(plan: Plan) -> Iterator[tuple[str, str]]:
    """Every file or folder that a plan names, with its key; what may be an id of the hub is none."""
    yield from _named(plan, record(Plan), "")


def _named(value: Any, type_: Type, key: str) -> Iterator[tuple[str, str]]:
    if value is None or not _names_files(type_):
        return
    match type_:
        case Record():
            for name, field in type_.fields.items():
                yield from _named(getattr(value, name), field.type, f"{key}.{name}" if key else name)
        case Table():
            for name, item in value.items():
                yield from _named(item, type_.item, f"{key}.{name}")
        case Series():
            for at, item in enumerate(value):
                yield from _named(item, type_.item, f"{key}[{at}]")
        case Word(refers=Refers() as refers) if _counts(value, refers) or value.startswith(("/", "~")):
            yield key, value
        case _:
            pass


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
