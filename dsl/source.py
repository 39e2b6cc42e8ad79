"""Positions in text: a Source is one text, a Span a range of characters in it.

Offsets count characters (code points); lines and columns count from 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from .frozen import frozen

__all__ = ["Piece", "Source", "Span", "Text"]


@dataclass(frozen=True, eq=False)
class Source:
    """One text: a recipe file, a shipped recipe, a `--set` argument, a preset."""

    name: str
    """What a person sees: a path as they wrote it, or `--set #1`, or `preset grpo`."""
    text: str
    included_from: Span | None = None
    """The `extends` value that led here; None for what was named on the command line."""
    key: str | None = None
    """What the Library knows it by: its own references are looked up from there. None stands for `name`."""

    @property
    def identity(self) -> str:
        return self.name if self.key is None else self.key

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        starts = [0]
        at = self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return tuple(starts)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character, both from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        start = self.line_starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start : len(self.text) if end < 0 else end].rstrip("\r")

    def span(self, start: int, end: int) -> Span:
        return Span(self, start, max(start, end))


@frozen(kw_only=False)
class Span:
    """Characters `start` to `end` (exclusive) of a source; empty where something is missing."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    @property
    def end_line(self) -> int:
        return self.source.position(self.end)[0]

    @property
    def end_column(self) -> int:
        return self.source.position(self.end)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"


@frozen(kw_only=False)
class Text:
    """A string with the source position of each of its characters, even after quotes, folds and `${...}` are undone."""

    value: str
    pieces: tuple[Piece, ...]
    """In order, covering `value` without gap; an empty text has one piece of length 0, so it still has a place."""

    @classmethod
    def exact(cls, span: Span) -> Text:
        """The text of a span, each character at its own place."""
        return cls(span.text, (Piece(span.end - span.start, span, True),))

    @classmethod
    def made(cls, value: str, origin: Span) -> Text:
        """Text whose characters all come from one place."""
        return cls(value, (Piece(len(value), origin, False),))

    @classmethod
    def joined(cls, parts: Iterable[Text], empty_at: Span) -> Text:
        """Concatenate texts; `empty_at` is the place of an empty result."""
        parts = tuple(parts)
        pieces = tuple(piece for part in parts for piece in part.pieces if piece.length)
        return cls("".join(part.value for part in parts), pieces or (Piece(0, empty_at, False),))

    def part(self, start: int, end: int) -> Text:
        """`value[start:end]`, with its positions."""
        pieces = tuple(piece.part(low, high) for piece, low, high in self._cut(start, end))
        return Text(self.value[start:end], pieces or (Piece(0, self.span(start, start), False),))

    def span(self, start: int, end: int) -> Span:
        """The span of `value[start:end]`.

        Across pieces: from the first place to the last if they follow each other in one source, as the lines of a block
        do; else the place of the first piece.
        """
        places = [piece.place(low, high) for piece, low, high in self._cut(start, end)]
        if not places:
            return self._point(start)
        first, last = places[0], places[-1]
        in_order = all(a.source is b.source and a.end <= b.start for a, b in pairwise(places))
        return Span(first.source, first.start, last.end if in_order else first.end)

    def _cut(self, start: int, end: int) -> Iterator[tuple[Piece, int, int]]:
        """The pieces within `value[start:end]`, each with the range that is inside."""
        at = 0
        for piece in self.pieces:
            low, high = max(start - at, 0), min(end - at, piece.length)
            if low < high:
                yield piece, low, high
            at += piece.length
            if at >= end:
                return

    def _point(self, offset: int) -> Span:
        """The empty span before the character at `offset`, or after the last one."""
        at = 0
        for piece in self.pieces:
            if offset < at + piece.length:
                place = piece.place(max(offset - at, 0), piece.length)
                return Span(place.source, place.start, place.start)
            at += piece.length
        end = self.pieces[-1].origin
        return Span(end.source, end.end, end.end) if self.value else end


@frozen(kw_only=False)
class Piece:
    """Characters of a Text from one place: one to one from `origin.start` on, or all from `origin`."""

    length: int
    origin: Span
    exact: bool
    """Whether the n-th character stands at `origin.start + n`."""

    def place(self, low: int, high: int) -> Span:
        if not self.exact:
            return self.origin
        return Span(self.origin.source, self.origin.start + low, self.origin.start + high)

    def part(self, low: int, high: int) -> Piece:
        return Piece(high - low, self.place(low, high), self.exact)
