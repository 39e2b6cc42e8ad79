"""YAML text to a tree of nodes in which every key and value knows its span.

The tree is built from parser events, one at a time and without recursion, so that limits on nesting, aliases and size
act before they cost anything. An alias shares the nodes of its anchor, which keep their own spans. Values are read as
YAML 1.2 core types; keys have no meaning yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import Diagnostic
from ..frozen import frozen
from ..source import Piece, Source, Span, Text
from ..suggest import did_you_mean, quote
from .decode import MAX_BYTES, SURROGATE
from .merging import is_torn, merge_entries, num_unclosed, repair_pieces, with_torn_items
from .node import Entry, ListNode, MapNode, Measure, Node, ScalarNode
from .scalar_offsets import unfold
from .scalars import Refused, resolve
from .yaml_traps import (
    MAY_BE_TRAP,
    explain_plain,
    foreign_blank,
    foreign_character,
    refuse,
    without_colon,
)

if TYPE_CHECKING:
    from .parse_errors import Failure

__all__ = ["MAX_ADVICE", "MAX_DEPTH", "MAX_NODES", "MAX_SCALAR", "Parsed", "parse_tree"]

MAX_DEPTH = 64
MAX_NODES = 20_000
"""With every alias counted as often as it is used."""
MAX_ADVICE = 20
"""Looking for what a name should have been takes time, and nobody reads more."""
MAX_SCALAR = 1 << 16
"""Characters in one key or value; longer text belongs in a file of its own."""


@frozen(kw_only=False)
class Parsed:
    """A tree, as far as it could be read, and all diagnostics."""

    root: Node | None
    diagnostics: tuple[Diagnostic, ...]


def parse_tree(source: Source, start: int = 0, *, fast: bool = True) -> Parsed:
    """Parse the text from `start` on; spans still count from the beginning of the source.

    `fast` uses libyaml if it is installed; the pure-Python parser gives the same nodes ten times slower, and refuses
    tabs as separators.
    """
    builder = _Builder(source, start)
    try:
        builder.run(fast)
    except _Stopped:
        return Parsed(None, tuple(builder.diagnostics))
    return Parsed(builder.root, tuple(builder.diagnostics))


class _Stopped(Exception):
    """Ends parsing; the reason is in the diagnostics."""


def _events(source: Source, start: int, fast: bool) -> Iterator[Any]:
    """The events of the parser, and a final Failure if it gave up."""
    import yaml  # costs 20 ms, which `agym --help` should not pay

    loader_type: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader) if fast else yaml.BaseLoader
    try:
        yield from iter(loader_type(source.text[start:]).get_event, None)
    except (yaml.YAMLError, ValueError) as error:
        from .parse_errors import Failure  # not needed for a text without errors

        yield Failure.of(error, start)


PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s|(?<=\s)#[^\n]*)*)+")
"""Anchor and tag, which the parser counts as part of the value."""
TEMPLATE = re.compile(r"\{\{[^{}]*\}\s*\}?")
TAG = re.compile(r"![^\s,]*")


@dataclass(slots=True)
class _Frame:
    """A list or map that is still open."""

    is_map: bool
    flow: bool
    start: int
    anchor: str | None
    before: int
    """Values that were counted before it."""
    items: list[Node] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    key: Node | None = None
    key_end: int = 0
    drop: bool = False
    """The key was refused, and its value is dropped with it."""
    torn: dict[int, list[ScalarNode]] = field(default_factory=dict)
    """By entry: the pieces into which commas tore its value."""
    unclosed: int = 0
    """Parentheses that are open after the last of these pieces."""


class _Builder:
    """Builds nodes from events."""

    def __init__(self, source: Source, start: int) -> None:
        self.source = source
        self.text = source.text
        self.offset = start
        self.root: Node | None = None
        self.diagnostics: list[Diagnostic] = []
        self.frames: list[_Frame] = []
        self.anchors: dict[str, tuple[Node, int] | None] = {}
        """The node of each anchor and the number of its values; None while it is still open."""
        self.count = 0
        self.end = start
        """Where the last token ended."""
        self.last = (start, start, "")
        """The last scalar: its range, and the quote or sign that opened it."""
        self.documents = 0

    def run(self, fast: bool) -> None:
        self.check_text()
        for event in _events(self.source, self.offset, fast):
            handler = HANDLERS.get(type(event).__name__)
            if handler:
                handler(self, event)
        if self.root is None or (isinstance(self.root, ScalarNode) and self.root.plain and not self.root.text.value):
            self.stop("empty-file", "no recipe in this file", self.offset, self.offset, "start with 'agym: 1'")

    def check_text(self) -> None:
        if len(self.text) > MAX_BYTES:
            message = f"the text has {len(self.text):,} characters; the limit is {MAX_BYTES:,}"
            self.stop("too-large", message, 0, 0, "is this a recipe?")
        foreign = foreign_character(self.source, self.offset)
        if foreign:
            self.diagnostics.append(foreign)
            raise _Stopped

    def report(self, code: str, message: str, span: Span, help: str | None = None) -> None:  # noqa: A002
        self.diagnostics.append(Diagnostic(code=code, message=message, span=span, help=help))

    def stop(self, code: str, message: str, start: int, end: int, help: str) -> None:  # noqa: A002
        self.report(code, message, self.source.span(start, end), help)
        raise _Stopped

    # Events

    def fail(self, failure: Failure) -> None:
        from .parse_errors import Seen, explain_failure

        self.diagnostics.append(explain_failure(self.source, failure, Seen(*self.last)))
        raise _Stopped

    def document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            at = self.offset + event.start_mark.index
            self.diagnostics.append(refuse("several-documents", self.source.span(at, at + 3)))
            raise _Stopped

    def scalar(self, event: Any) -> None:
        start, end = self.place(event)
        style = event.style or ""
        if start == end:
            start = end = self.empty_place(start)
        if end - start > MAX_SCALAR:
            message = f"this text has {end - start:,} characters; the limit is {MAX_SCALAR:,}"
            self.stop("too-large", message, start, start + 1, "move it to a file of its own")
        self.add(1)
        self.last = (start, end, style)
        node = self.quoted(start, end, style, event.value) if style else self.plain(start, end, event.value)
        if node.span.end > self.end:
            self.end = node.span.end
        if event.anchor:
            self.anchors[event.anchor] = node, 1
        self.attach(node)

    def quoted(self, start: int, end: int, style: str, value: str) -> ScalarNode:
        text = unfold(self.source, start, end, style, value)
        # the parser counts the blank lines after a block as part of it
        span = Span(self.source, start, start + len(self.text[start:end].rstrip()))
        if style == '"' and SURROGATE.search(value):
            self.diagnostics.append(refuse("bad-escape", span))
            text = Text.made(SURROGATE.sub("?", value), span)
        return ScalarNode(value=text.value, text=text, span=span, plain=False)

    def plain(self, start: int, end: int, value: str) -> ScalarNode:
        # most values of a recipe are plain and on one line, so this path is kept short
        span = Span(self.source, start, end)
        raw = self.text[start:end]
        text = (
            Text(value, (Piece(end - start, span, True),))
            if raw == value
            else unfold(self.source, start, end, "", value)
        )
        if MAY_BE_TRAP.search(raw) and (trap := explain_plain(span, self.on_own_line(start))):
            self.diagnostics.append(trap)
        known = resolve(value)
        if isinstance(known, Refused):
            self.report(known.code, known.message, span, known.help)
            known = value
        return ScalarNode(value=known, text=text, span=span)

    def on_own_line(self, start: int) -> bool:
        """Whether a value is on a later line than its key, or is the whole text."""
        if not self.frames:
            return self.offset == 0
        frame = self.frames[-1]
        return frame.is_map and not frame.flow and frame.key is not None and "\n" in self.text[frame.key_end : start]

    def empty_place(self, start: int) -> int:
        """The place of a missing value: after the colon of its key."""
        frame = self.frames[-1] if self.frames else None
        if frame is None or not frame.is_map or frame.key is None:
            return start
        return self.colon_after(frame.key_end) or frame.key_end

    def colon_after(self, key_end: int) -> int | None:
        match = COLON.match(self.text, key_end)
        return match.end() if match else None

    def alias(self, event: Any) -> None:
        start, end = self.offset + event.start_mark.index, self.offset + event.end_mark.index
        span = Span(self.source, start, end)
        self.end, self.last = end, (start, end, "*")
        anchor = self.anchors.get(event.anchor)
        if event.anchor not in self.anchors:
            known = did_you_mean(event.anchor, self.anchors) if len(self.diagnostics) < MAX_ADVICE else None
            self.report("unknown-alias", f"no anchor '&{event.anchor}' above this alias", span, known)
        elif anchor is None:
            self.report("recursive-alias", f"'*{event.anchor}' is inside the value it refers to", span)
        frame = self.frames[-1] if self.frames else None
        if frame and frame.is_map and frame.key is None:
            self.report("key-type", "expected a key, got an alias", span, "write the key out")
            frame.key, frame.key_end, frame.drop = self.nothing(span), end, True
        elif anchor is None:
            self.attach(self.nothing(span))
        else:
            node, size = anchor
            self.add(size)
            if len(self.frames) + Measure().of(node)[1] - 1 > MAX_DEPTH:
                self.too_deep(self.end)
            self.attach(node)

    def nothing(self, span: Span) -> ScalarNode:
        return ScalarNode(value=None, text=Text.made("", span), span=span)

    def open(self, event: Any) -> None:
        start, _ = self.place(event)
        flow = bool(event.flow_style) and self.text[start : start + 1] in ("{", "[")
        is_map = type(event).__name__ == "MappingStartEvent"
        if len(self.frames) >= MAX_DEPTH:
            self.too_deep(start)
        self.add(1)
        if event.anchor:
            self.anchors[event.anchor] = None
        self.frames.append(_Frame(is_map, flow, start, event.anchor, self.count - 1))
        self.end = start + flow

    def close(self, event: Any) -> None:
        frame = self.frames.pop()
        if frame.flow:
            self.end = self.offset + event.end_mark.index
        span = Span(self.source, frame.start, max(frame.start, self.end))
        node: Node = self.map_node(frame, span) if frame.is_map else self.list_node(frame, span)
        if frame.anchor:
            self.anchors[frame.anchor] = node, self.count - frame.before
        self.attach(node)

    # Parts

    def place(self, event: Any) -> tuple[int, int]:
        """The range of a value without its anchor; a tag is reported."""
        start, end = self.offset + event.start_mark.index, self.offset + event.end_mark.index
        if event.anchor or event.tag:
            properties = PROPERTIES.match(self.text, start)
            value_start = properties.end() if properties else start
            if event.tag:
                self.diagnostics.append(refuse("yaml-tag", self.tag_span(start)))
            start = min(value_start, end) if end > start else value_start
        return start, end

    def tag_span(self, start: int) -> Span:
        tag = TAG.search(self.text, start)
        return self.source.span(*tag.span()) if tag else self.source.span(start, start + 1)

    def add(self, size: int) -> None:
        self.count += size
        if self.count > MAX_NODES:
            message = f"more than {MAX_NODES:,} values, counting each use of an alias"
            self.stop("too-large", message, self.end, self.end, "split it, or remove aliases of aliases")

    def attach(self, node: Node) -> None:
        """Add a finished node to the list or map around it."""
        if not self.frames:
            self.root = node
            return
        frame = self.frames[-1]
        if not frame.is_map:
            frame.items.append(node)
        elif frame.key is None:
            self.take_key(frame, node)
        else:
            self.take_value(frame, frame.key, node)

    def too_deep(self, at: int) -> None:
        message = f"nested more than {MAX_DEPTH} levels deep"
        self.stop("too-deep", message, at, at + 1, "a recipe needs at most ten levels")

    def take_key(self, frame: _Frame, node: Node) -> None:
        frame.key, frame.key_end, frame.drop = node, self.end, not isinstance(node, ScalarNode)
        if frame.drop:
            template = TEMPLATE.match(self.text, max(node.span.start - 1, 0))
            advice = 'write "${vars.NAME}" for a variable' if template else "write the key as text"
            span = self.source.span(*template.span()) if template else node.span
            self.report("key-type", "expected text as a key, got a list or map", span, advice)
        elif isinstance(node, ScalarNode) and node.plain and (blank := foreign_blank(node.span)):
            self.diagnostics.append(blank)
            text = node.text.part(0, blank.span.start - node.span.start)
            # `key:` and its value cannot be separated behind such a blank
            frame.key, frame.drop = replace(node, value=text.value, text=text), text.value.endswith(":")

    def take_value(self, frame: _Frame, key: Node, value: Node) -> None:
        dropped, frame.key = frame.drop, None
        if dropped or not isinstance(key, ScalarNode):
            return
        if frame.flow and self.colon_after(frame.key_end) is None:
            self.without_value(frame, key)
        elif isinstance(key.value, str):
            frame.entries.append(Entry(key=key, value=value))
        else:
            what = quote(key.text.value) if key.text.value else "nothing"
            self.report("key-type", f"expected text as a key, got {what}", key.span, "quote the key")

    def without_value(self, frame: _Frame, key: ScalarNode) -> None:
        """Handle `{until: step >= 100, x}`: the rest of a split value, or an unfinished entry."""
        if self.text[frame.start - 1 : frame.start] == "{":
            return  # `{{ x }}`: the map around it reports that it has a map for a key
        index = len(frame.entries) - 1
        pieces = frame.torn.get(index)
        if pieces and frame.unclosed > 0:
            pieces.append(key)
            frame.unclosed += num_unclosed(key)
            return
        value = frame.entries[-1].value if frame.entries and not pieces else None
        if isinstance(value, ScalarNode) and is_torn(value, key):
            frame.torn[index] = [value, key]
            frame.unclosed = num_unclosed(value) + num_unclosed(key)
        else:
            self.diagnostics.append(without_colon(key.span))

    def list_node(self, frame: _Frame, span: Span) -> ListNode:
        items: Iterable[Node] = frame.items
        if frame.flow and "(" in self.text[span.start : span.end]:
            items = with_torn_items(items, self.diagnostics.append)
        return ListNode(items=tuple(items), span=span)

    def map_node(self, frame: _Frame, span: Span) -> MapNode:
        for index, pieces in frame.torn.items():
            entry = frame.entries[index]
            frame.entries[index] = replace(entry, value=repair_pieces(pieces, entry.name, self.diagnostics.append))
        return MapNode(entries=merge_entries(frame.entries, self.diagnostics.append), span=span)


COLON = re.compile(r"\s*(?:#[^\n]*\n\s*)*:")

HANDLERS: dict[str, Callable[[_Builder, Any], None]] = {
    "Failure": _Builder.fail,
    "DocumentStartEvent": _Builder.document,
    "ScalarEvent": _Builder.scalar,
    "AliasEvent": _Builder.alias,
    "SequenceStartEvent": _Builder.open,
    "MappingStartEvent": _Builder.open,
    "SequenceEndEvent": _Builder.close,
    "MappingEndEvent": _Builder.close,
}
