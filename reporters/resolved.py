"""A resolved recipe as YAML that means the same when it is read again.

The value of an environment variable is written as `${env:NAME}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ..dsl.check.spans import join_path
from ..dsl.compile import LeftOut
from ..dsl.compose.interpolate import escape
from ..dsl.source import Span
from ..dsl.text.node import ListNode, MapNode, Node, ScalarNode, to_data
from ..dsl.text.scalars import Refused, resolve

__all__ = ["resolved_data", "resolved_yaml"]

PLAIN = re.compile(r"[A-Za-z_./~][\w ./()<>=*+~,-]*")
"""Text that needs no quotes, as far as this module must know."""
OLD_WORDS = frozenset(("y", "n", "yes", "no", "on", "off"))
"""Booleans to editors that read YAML 1.1."""
COMMENT_COLUMN = 44
FLOW_WIDTH = 80


def resolved_yaml(tree: MapNode, *, origins: bool = False, left_out: Iterable[LeftOut] = ()) -> str:
    """Write YAML; with `origins`, a comment after each value says where it comes from, and one what was left out."""
    gone = (f"# left out: {join_path(each.path)} from {_origin(each.span)}, as {each.reason}" for each in left_out)
    return "".join(f"{line}\n" for line in (*_lines(tree, "", origins), *(gone if origins else ())))


def _origin(span: Span) -> str:
    return f"{span.source.name}:{span.line}"


def resolved_data(node: Node) -> Any:
    """Plain data, with `${env:NAME}` for environment variables."""
    return to_data(node, _read)


def _read(node: ScalarNode) -> Any:
    if node.redacted is not None:
        return node.redacted
    return escape(node.value) if isinstance(node.value, str) else node.value


def _lines(node: Node, indent: str, origins: bool) -> Iterator[str]:
    if isinstance(node, MapNode):
        for entry in node.entries:
            head = f"{indent}{_text(entry.name)}:"
            flow = _flow(entry.value)
            if flow is not None:
                yield _with_origin(f"{head} {flow}".rstrip(), entry.value, origins)
            else:
                yield head
                yield from _lines(entry.value, indent + "  ", origins)
    elif isinstance(node, ListNode):
        for item in node.items:
            yield from _item_lines(item, indent, origins)


def _item_lines(item: Node, indent: str, origins: bool) -> Iterator[str]:
    flow = _flow(item)
    if flow is not None:
        yield _with_origin(f"{indent}- {flow}", item, origins)
        return
    # the dash takes the place of the first line's indent
    first, *rest = _lines(item, indent + "  ", origins)
    yield f"{indent}- {first.removeprefix(indent + '  ')}"
    yield from rest


def _with_origin(line: str, node: Node, origins: bool) -> str:
    return f"{line.ljust(COMMENT_COLUMN)}  # {_origin(node.span)}" if origins else line


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
