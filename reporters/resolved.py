"""A resolved recipe as YAML that means the same when it is read again.

The value of an environment variable is written as `${env:NAME}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from ..dsl.compose.interpolate import escape
from ..dsl.text.scalars import Refused, resolve
from ..dsl.text.tree import ListNode, MapNode, Node, Path, ScalarNode

__all__ = ["resolved_data", "resolved_yaml"]

Origin = Callable[[Path, Node], str]

PLAIN = re.compile(r"[A-Za-z_./~][\w ./()<>=*+~,-]*")
"""Text that needs no quotes, as far as this module must know."""
OLD_WORDS = frozenset(("y", "n", "yes", "no", "on", "off"))
"""Booleans to editors that read YAML 1.1."""
COMMENT_COLUMN = 44
FLOW_WIDTH = 80


def resolved_yaml(tree: MapNode, origin: Origin | None = None) -> str:
    """Write YAML; `origin` gives the comment after each value."""
    return "".join(f"{line}\n" for line in _map_lines(tree, "", (), origin))


def resolved_data(node: Node) -> Any:
    """Plain data, with `${env:NAME}` for environment variables."""
    if isinstance(node, MapNode):
        return {entry.name: resolved_data(entry.value) for entry in node.entries}
    if isinstance(node, ListNode):
        return [resolved_data(item) for item in node.items]
    if node.redacted is not None:
        return node.redacted
    return escape(node.value) if isinstance(node.value, str) else node.value


def _map_lines(node: MapNode, indent: str, path: Path, origin: Origin | None) -> Iterator[str]:
    for entry in node.entries:
        head, below = f"{indent}{_text(entry.name)}:", (*path, entry.name)
        flow = _flow(entry.value)
        if flow is not None:
            yield _with_origin(f"{head} {flow}".rstrip(), entry.value, below, origin)
        else:
            yield head
            yield from _lines(entry.value, indent + "  ", below, origin)


def _lines(node: Node, indent: str, path: Path, origin: Origin | None) -> Iterator[str]:
    if isinstance(node, MapNode):
        yield from _map_lines(node, indent, path, origin)
    elif isinstance(node, ListNode):
        for i, item in enumerate(node.items):
            yield from _item_lines(item, indent, (*path, i), origin)


def _item_lines(item: Node, indent: str, path: Path, origin: Origin | None) -> Iterator[str]:
    flow = _flow(item)
    if flow is not None:
        yield _with_origin(f"{indent}- {flow}", item, path, origin)
        return
    # the dash takes the place of the first line's indent
    first, *rest = _lines(item, indent + "  ", path, origin)
    yield f"{indent}- {first.removeprefix(indent + '  ')}"
    yield from rest


def _with_origin(line: str, node: Node, path: Path, origin: Origin | None) -> str:
    comment = origin(path, node) if origin else ""
    return f"{line.ljust(COMMENT_COLUMN)}  # {comment}" if comment else line


def _flow(node: Node) -> str | None:
    """A scalar, an empty collection, or a short list of scalars on the line of its key."""
    if isinstance(node, ScalarNode):
        return _scalar(node, in_flow=False)
    if isinstance(node, MapNode):
        return None if node.entries else "{}"
    if not all(isinstance(item, ScalarNode) for item in node.items):
        return None
    written = ", ".join(_scalar(item, in_flow=True) for item in node.items if isinstance(item, ScalarNode))
    return f"[{written}]" if len(written) <= FLOW_WIDTH else None


def _scalar(node: ScalarNode, in_flow: bool) -> str:
    if node.redacted is not None:
        return json.dumps(node.redacted, ensure_ascii=False)
    if isinstance(node.value, str):
        return _text(escape(node.value), in_flow)
    # as it was written: 1e-6 stays 1e-6
    written = node.text.value
    return written if written and resolve(written) == node.value else json.dumps(node.value)


def _text(text: str, in_flow: bool = False) -> str:
    """Text, in quotes where YAML would read something else; JSON's quotes are YAML's."""
    return text if _means_itself(text) and not (in_flow and "," in text) else json.dumps(text, ensure_ascii=False)


def _means_itself(text: str) -> bool:
    if not PLAIN.fullmatch(text) or text.endswith(" ") or text.lower() in OLD_WORDS:
        return False
    value = resolve(text)
    return not isinstance(value, Refused) and value == text
