"""Nodes of a tree, and lookup by path. Frozen: a change makes new nodes along its path and shares the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter, is_
from typing import Any, TypeVar

from ..frozen import frozen
from ..source import Span, Text
from .scalars import ScalarValue

__all__ = [
    "Entry",
    "ListNode",
    "MapNode",
    "Measure",
    "Node",
    "Path",
    "ScalarNode",
    "ScalarValue",
    "child_nodes",
    "get_entry",
    "is_null",
    "node_at",
    "to_data",
    "with_children",
]

Path = tuple[str | int, ...]


@frozen(eq=False)
class ScalarNode:
    """A single value."""

    value: ScalarValue
    text: Text
    """Its characters as text, quotes and escapes undone, each with its place: `node.text.span(3, 7)`."""
    span: Span
    """The whole token, quotes included."""
    plain: bool = True
    """Neither quoted nor a block."""
    redacted: str | None = None
    """What to print and write in its place, with `${env:NAME}` kept; None where nothing came from the environment."""

    @property
    def secret(self) -> bool:
        """Whether any of it came from the environment: never to be printed or written."""
        return self.redacted is not None


@frozen(eq=False)
class Entry:
    """A key and its value."""

    key: ScalarNode
    value: Node

    @property
    def name(self) -> str:
        """The key as text."""
        return self.key.text.value


@frozen(eq=False)
class MapNode:
    """Entries in file order; no key twice."""

    entries: tuple[Entry, ...]
    span: Span


@frozen(eq=False)
class ListNode:
    """Items in file order."""

    items: tuple[Node, ...]
    span: Span


Node = ScalarNode | MapNode | ListNode


def get_entry(node: Node | None, key: str) -> Entry | None:
    """Find the entry of a key; None also if `node` is not a map."""
    if not isinstance(node, MapNode):
        return None
    for entry in node.entries:
        if entry.key.text.value == key:
            return entry
    return None


def node_at(node: Node | None, path: Path) -> Node | None:
    """Find the node at a path; None if there is none."""
    for step in path:
        node = _child(node, step)
    return node


def _child(node: Node | None, step: str | int) -> Node | None:
    if isinstance(step, str):
        entry = get_entry(node, step)
        return entry.value if entry else None
    inside = isinstance(node, ListNode) and 0 <= step < len(node.items)
    return node.items[step] if inside and isinstance(node, ListNode) else None


def to_data(node: Node, read: Callable[[ScalarNode], Any] = attrgetter("value")) -> Any:
    """Convert to plain data without spans: dict, list and scalars."""
    if isinstance(node, MapNode):
        return {entry.name: to_data(entry.value, read) for entry in node.entries}
    return [to_data(item, read) for item in node.items] if isinstance(node, ListNode) else read(node)


class Measure:
    """Counts the nodes of a tree, shared ones each time, and its depth; each node is visited once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, int, int]] = {}
        """By identity; the node is held so that its identity is not reused."""

    def of(self, node: Node) -> tuple[int, int]:
        """Size and depth of a node."""
        if isinstance(node, ScalarNode):
            return 1, 1
        known = self._known.get(id(node))
        if known is None:
            parts = [self.of(child) for child in child_nodes(node)]
            size, depth = 1 + sum(size for size, _ in parts), 1 + max((depth for _, depth in parts), default=0)
            known = self._known[id(node)] = (node, size, depth)
        return known[1:]


def child_nodes(node: Node) -> tuple[Node, ...]:
    if isinstance(node, MapNode):
        return tuple(entry.value for entry in node.entries)
    return node.items if isinstance(node, ListNode) else ()


def is_null(node: Node) -> bool:
    """Whether a node is null, which takes away what a base gave."""
    return isinstance(node, ScalarNode) and node.value is None


B = TypeVar("B", bound=MapNode | ListNode)


def with_children(node: B, children: Iterable[Node]) -> B:
    """Replace the values or items of a node, in order; return the same node if each is what it was."""
    made = tuple(children)
    if all(map(is_, made, child_nodes(node))):
        return node
    if isinstance(node, ListNode):
        return replace(node, items=made)
    pairs = zip(node.entries, made, strict=True)
    entries = tuple(old if new is old.value else Entry(key=old.key, value=new) for old, new in pairs)
    return replace(node, entries=entries)
