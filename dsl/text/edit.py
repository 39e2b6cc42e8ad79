"""Merging of trees: maps key by key, while lists, scalars and null replace what was there.

`eval: null` thus turns off what a base turned on. Every node keeps the span of the file it was written in.
"""

from __future__ import annotations

from collections.abc import Callable

from ..source import Text
from .node import Entry, MapNode, Node, Path, ScalarNode

__all__ = ["Shorthand", "drop_entries", "merge", "no_shorthand", "open_shorthand", "set_entry"]

Shorthand = Callable[[Path], str | None]
"""The key that a bare scalar stands for at a path: `use` for `algorithm: grpo`; None where it stands for itself."""


def no_shorthand(_path: Path) -> str | None:
    return None


def merge(base: Node, over: Node, shorthand: Shorthand = no_shorthand, path: Path = ()) -> Node:
    """Merge `over` on top of `base`."""
    if not isinstance(over, MapNode):
        return over
    below = open_shorthand(base, shorthand, path)
    if below is None:
        return over
    entries = {entry.name: entry for entry in below.entries}
    for entry in over.entries:
        old = entries.get(entry.name)
        if old is not None:
            value = merge(old.value, entry.value, shorthand, (*path, entry.name))
            entry = entry if value is entry.value else Entry(key=entry.key, value=value)
        entries[entry.name] = entry
    return MapNode(entries=tuple(entries.values()), span=over.span)


def open_shorthand(node: Node, shorthand: Shorthand, path: Path) -> MapNode | None:
    """Write a node as a map, `algorithm: grpo` as `{use: grpo}`; None if it cannot be one."""
    if isinstance(node, MapNode):
        return node
    key = shorthand(path) if isinstance(node, ScalarNode) and node.value is not None else None
    if key is None:
        return None
    name = ScalarNode(value=key, text=Text.made(key, node.span), span=node.span)
    return MapNode(entries=(Entry(key=name, value=node),), span=node.span)


def set_entry(node: MapNode, entry: Entry) -> MapNode:
    """Replace an entry in place, or add it at the end."""
    entries = {old.name: old for old in node.entries} | {entry.name: entry}
    return MapNode(entries=tuple(entries.values()), span=node.span)


def drop_entries(node: MapNode, *names: str) -> MapNode:
    return MapNode(entries=tuple(entry for entry in node.entries if entry.name not in names), span=node.span)
