"""Entries and items as they were meant: duplicate keys reported, `<<: *base` merged in, what a comma split joined."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..diagnostics import Diagnostic, Note
from ..source import Span, Text
from ..suggest import quote
from .node import Entry, ListNode, MapNode, Node, ScalarNode
from .yaml_traps import torn_by_comma

__all__ = ["is_torn", "merge_entries", "num_unclosed", "repair_pieces", "with_torn_items"]

Report = Callable[[Diagnostic], None]

WORD = re.compile(r"[A-Za-z_]\w*")


def merge_entries(entries: Iterable[Entry], report: Report) -> tuple[Entry, ...]:
    """Merge the entries of a map; own keys win, then earlier maps over later ones."""
    own = _without_duplicates(entries, report)
    return tuple(_taken_in(own, report) if any(_is_merge(entry) for entry in own) else own)


def _without_duplicates(entries: Iterable[Entry], report: Report) -> list[Entry]:
    first: dict[str, Entry] = {}
    for entry in entries:
        before = first.setdefault(entry.name, entry)
        if before is not entry:
            message = f"the key {quote(entry.name)} is written twice"
            notes = (Note("first written here", before.key.span),)
            span = entry.key.span
            report(Diagnostic(code="duplicate-key", message=message, span=span, help="remove one of them", notes=notes))
    return list(first.values())


def _taken_in(own: Iterable[Entry], report: Report) -> Iterator[Entry]:
    taken = {entry.name for entry in own if not _is_merge(entry)}
    for entry in own:
        if not _is_merge(entry):
            yield entry
            continue
        for inherited in _sources(entry.value, report):
            if inherited.name not in taken:
                taken.add(inherited.name)
                yield inherited


def _sources(value: Node, report: Report) -> Iterator[Entry]:
    for node in value.items if isinstance(value, ListNode) else (value,):
        if isinstance(node, MapNode):
            yield from node.entries
        elif not node.span.text.startswith("*"):  # an alias without its anchor has been reported
            message = "'<<' takes a map or a list of maps"
            report(Diagnostic(code="bad-merge", message=message, span=node.span, help="write '<<: *name'"))


def _is_merge(entry: Entry) -> bool:
    return entry.key.plain and entry.key.value == "<<"


# Values that a comma within `{...}` or `[...]` split, joined again as if they had been quoted.


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
