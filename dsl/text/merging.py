"""Entries of a map: duplicate keys reported, `<<: *base` merged in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..diagnostics import Diagnostic, Note
from ..suggest import quote
from .node import Entry, ListNode, MapNode, Node

__all__ = ["merge_entries"]

Report = Callable[[Diagnostic], None]


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
