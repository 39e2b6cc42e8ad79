"""Files and folders that a recipe names: the folders that their paths are relative to.

In a compiled recipe every path is relative to its own folder, so its plan is the same on every machine; in a plan that
is run, paths are joined to that folder, so it runs from anywhere. Ids of the hub and absolute paths stay as they are.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from ..model.fields import Refers
from ..model.hidden import reveal
from ..model.plan import Plan
from ..model.recipe import Recipe
from ..model.reflect import Free, Record, Series, Table, Type, Word, record
from ..source import Source
from ..text.node import Entry, ListNode, MapNode, Node, Path, ScalarNode, child_nodes, get_entry, with_children
from .inherit import rewrite_children
from .spans import join_path

__all__ = ["PathOptions", "anchor_paths", "list_paths", "list_references", "mark_option_paths", "rebase_paths"]

Prefix = Callable[[Source], str]
"""The path from the folder of the recipe to that of another source; empty if they are the same."""
PathOptions = Callable[[str, Source], Collection[str]]
"""Names of an environment's options that are paths, however they are written; it is named in that source."""
_EXPLICIT = ("./", "../")
"""How text in an environment's options begins that is a path."""


def mark_option_paths(tree: MapNode, paths_of: PathOptions) -> MapNode:
    """A recipe in which the paths among the options of environments begin with `./`, unless they are absolute."""
    worlds = get_entry(tree, "environments")
    uses = {entry.name: _use(entry.value) for entry in _entries(worlds.value if worlds else None)}

    def mark_world(name: str, world: Node) -> Node:
        use = _use(world) or uses.get(name)
        options = get_entry(world, "options") if isinstance(world, MapNode) else None
        if use is None or options is None:
            return world
        paths = paths_of(*use)
        return _change(world, "options", lambda name, value: _marked(value) if name in paths else value)

    stages = get_entry(tree, "schedule")
    made = _change(tree, "environments", mark_world)
    if isinstance(made, MapNode) and stages is not None and isinstance(stages.value, ListNode):
        items = (_change(stage, "environments", mark_world) for stage in stages.value.items)
        whole = with_children(stages.value, items)
        made = with_children(made, (whole if child is stages.value else child for child in child_nodes(made)))
    return made if isinstance(made, MapNode) else tree


def _change(node: Node, key: str, rewrite: Callable[[str, Node], Node]) -> Node:
    """A map with every value in the map at `key` rewritten."""
    entry = get_entry(node, key) if isinstance(node, MapNode) else None
    if entry is None or not isinstance(entry.value, MapNode) or not isinstance(node, MapNode):
        return node
    inner = with_children(entry.value, (rewrite(each.name, each.value) for each in entry.value.entries))
    return with_children(node, (inner if child is entry.value else child for child in child_nodes(node)))


def _entries(node: Node | None) -> tuple[Entry, ...]:
    return node.entries if isinstance(node, MapNode) else ()


def _use(world: Node) -> tuple[str, Source] | None:
    """The environment that a map or its shorthand names, and where."""
    entry = get_entry(world, "use") if isinstance(world, MapNode) else None
    named = entry.value if entry else world
    text = named.value if isinstance(named, ScalarNode) else None
    return (text, named.span.source) if isinstance(text, str) and text else None


def _marked(value: Node) -> Node:
    if not isinstance(value, ScalarNode) or not isinstance(value.value, str):
        return value
    if not value.value.strip() or value.value.startswith((*_EXPLICIT, "/", "~")):
        return value
    return replace(value, value=f"./{value.value}")


def rebase_paths(tree: MapNode, prefix: Prefix) -> MapNode:
    """A recipe with all its paths relative to its own folder; what needs no change is shared."""
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
        case Free(refers=Refers() as refers), ScalarNode(value=str(value)) if value.startswith(_EXPLICIT):
            return _moved(node, value, prefix(node.span.source), refers)
        case Free(), MapNode() | ListNode():
            return with_children(node, (inner(child, type_) for child in child_nodes(node)))
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
    """Every file or folder that a plan names, with its key; what may be an id of the hub does not count."""
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
        case Free(refers=Refers() as refers):
            return _each_path_within(value, at, lambda at, text: rewrite(at, text, refers))
        case _:
            return value


def _each_path_within(value: Any, at: Path, rewrite: Callable[[Path, str], str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _each_path_within(item, (*at, name), rewrite) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_each_path_within(item, (*at, i), rewrite) for i, item in enumerate(value))
    return rewrite(at, value) if isinstance(value, str) and value.startswith(_EXPLICIT) else value


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
            return isinstance(type_, Word | Free) and type_.refers is not None


def _counts(value: str, refers: Refers) -> bool:
    """Whether a path is relative to a folder at all."""
    return value.startswith(".") if refers.hub else bool(value.strip()) and not value.startswith(("/", "~"))
