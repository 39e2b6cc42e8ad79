"""Layers of a recipe: files, `--set` and the matrix, each laid over the one below; and what one of them changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..frozen import frozen
from ..model.recipe import Recipe
from ..model.reflect import Record, record, type_at
from ..source import Span
from ..text.edit import drop_entries, set_entry
from ..text.node import Entry, ListNode, MapNode, Node, Path, ScalarNode, get_entry, is_null, node_at, with_children

__all__ = ["Layers", "list_changes", "revert"]


@frozen(eq=False)
class Layers:
    """What each part of a recipe is without those that are laid over it."""

    trees: Mapping[str, MapNode]
    """By the identity of a source: the file with its bases, or the recipe with all settings."""
    axes: tuple[Span, ...]
    """Of the matrix, which is laid over everything."""

    settings: frozenset[str]
    """Sources of `--set`."""

    def in_matrix(self, span: Span) -> bool:
        inside = (each for each in self.axes if each.source is span.source)
        return any(each.start <= span.start and span.end <= each.end for each in inside)

    def below(self, span: Span) -> MapNode | None:
        """The layer in which something was written, with all below it; None for the top one and for a preset."""
        is_top = span.source.identity in self.settings and self.in_matrix(span)
        return None if is_top else self.trees.get(span.source.identity)


def list_changes(tree: Node, below: Node, path: Path = ()) -> Iterator[tuple[Path, Span]]:
    """The values that were laid over `below`, each with its place; except those that a recipe must have."""
    if isinstance(tree, MapNode):
        for entry in tree.entries:
            old = get_entry(below, entry.name)
            here = (*path, entry.name)
            if isinstance(entry.value, MapNode) or (isinstance(entry.value, ListNode) and _is_same(entry, old)):
                yield from list_changes(entry.value, old.value if old else _EMPTY, here)
            elif isinstance(entry.value, ListNode) and old is None:
                yield from list_changes(entry.value, _EMPTY, here)
            elif not _is_same(entry, old) and (old is not None or is_null(entry.value) or not _is_required(here)):
                yield here, entry.key.span if is_null(entry.value) else entry.value.span
    elif isinstance(tree, ListNode):
        for index, item in enumerate(tree.items):
            yield from list_changes(item, node_at(below, (index,)) or _EMPTY, (*path, index))


_EMPTY = ListNode(items=(), span=Span(None, 0, 0))  # type: ignore[arg-type]  # stands for nothing, and nowhere


def _is_same(entry: Entry, old: Entry | None) -> bool:
    return old is not None and old.value.span == entry.value.span and type(old.value) is type(entry.value)


def _is_required(path: Path) -> bool:
    above = type_at(record(Recipe), path[:-1])
    field = above.fields.get(str(path[-1])) if isinstance(above, Record) else None
    return field is None or field.required


def revert(tree: MapNode, below: MapNode | None, paths: Sequence[Path]) -> MapNode:
    """The tree with what is below at these paths, or without them where nothing is."""
    for path in paths:
        old = node_at(below, path)
        made = _drop_path(tree, path) if old is None else _replaced(tree, path, old)
        tree = made if isinstance(made, MapNode) else tree
    return tree


def _drop_path(node: Node, path: Path) -> Node:
    """A tree without the entry at a path; for a shorthand value, without all that it stands for."""
    inner = node_at(node, path[:1])
    if inner is None:
        return node
    if len(path) == 1 or isinstance(inner, ScalarNode):
        return drop_entries(node, str(path[0])) if isinstance(node, MapNode) else node
    return _replaced(node, path[:1], _drop_path(inner, path[1:]))


def _replaced(node: Node, path: Path, value: Node) -> Node:
    if not path:
        return value
    entry = get_entry(node, path[0]) if isinstance(path[0], str) else None
    if isinstance(node, MapNode) and entry is not None:
        return set_entry(node, Entry(key=entry.key, value=_replaced(entry.value, path[1:], value)))
    if isinstance(node, ListNode):
        return with_children(
            node, (_replaced(each, path[1:], value) if i == path[0] else each for i, each in enumerate(node.items))
        )
    return node
