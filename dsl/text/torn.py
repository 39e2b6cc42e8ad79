"""Values that a comma within `{...}` or `[...]` split, joined again as if they had been quoted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..diagnostics import Diagnostic
from ..source import Span, Text
from .node import Node, ScalarNode
from .yaml_traps import torn_by_comma

__all__ = ["is_torn", "num_unclosed", "repair_pieces", "with_torn_items"]

Report = Callable[[Diagnostic], None]

WORD = re.compile(r"[A-Za-z_]\w*")


def is_torn(value: ScalarNode, rest: ScalarNode) -> bool:
    """Whether a comma split `rest` from a value, rather than `rest` being an unfinished entry."""
    is_plain = value.plain and value.value is not None
    return is_plain and (num_unclosed(value) > 0 or not WORD.fullmatch(rest.span.text))


def num_unclosed(node: ScalarNode) -> int:
    return node.text.value.count("(") - node.text.value.count(")")


def repair_pieces(pieces: Sequence[ScalarNode], key: str | None, report: Report) -> ScalarNode:
    first, last = pieces[0].span, pieces[-1].span
    whole = Span(first.source, first.start, last.end)
    report(torn_by_comma(whole, key))
    text = Text.exact(whole)
    return ScalarNode(value=text.value, text=text, span=whole, plain=False)


def with_torn_items(items: Iterable[Node], report: Report) -> Iterator[Node]:
    """Join the items of a list that a comma split within parentheses."""
    pieces: list[ScalarNode] = []
    unclosed = 0
    for item in items:
        if not isinstance(item, ScalarNode) or not item.plain:
            yield from (*pieces, item)
            pieces, unclosed = [], 0
            continue
        unclosed = max(unclosed + num_unclosed(item), 0)
        pieces.append(item)
        if unclosed == 0:
            yield repair_pieces(pieces, None, report) if len(pieces) > 1 else item
            pieces = []
    yield from pieces
