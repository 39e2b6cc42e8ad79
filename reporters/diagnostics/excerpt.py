"""A source line with carets under a span, safe to print on any terminal.

Tabs and control characters are written out; wide characters take two columns; long lines are cut to a window.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from itertools import accumulate

from ...dsl.source import Span

__all__ = ["Excerpt", "excerpt", "printable"]

TAB = "    "
CUT = "..."
MIN_WIDTH = 20
LEAD = 3 * len(CUT)
"""Columns shown before the span, where a line is cut."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """`text` is the line, `marks` the carets under it."""

    line: int
    text: str
    marks: str


def excerpt(span: Span, width: int) -> Excerpt | None:
    """The first line of a span; None where the source has no text to show."""
    if not span.source.text:
        return None
    line, column = span.source.position(span.start)
    text = span.source.line_text(line)
    start = min(column - 1, len(text))
    end = min(start + max(span.end - span.start, 1), len(text)) if span.end > span.start else start
    first, last = _window(text, start, end, max(width, MIN_WIDTH))
    lead, tail = CUT if first else "", CUT if last < len(text) else ""
    before = lead + printable(text[first:start])
    marked = printable(text[start : min(end, last)])
    marks = " " * columns(before) + "^" * max(columns(marked), 1)
    return Excerpt(line, (lead + printable(text[first:last]) + tail).rstrip(), marks)


def columns(text: str) -> int:
    """Width on a terminal of text without control characters."""
    return sum(map(_columns, text))


def printable(text: str) -> str:
    """Text without characters that a terminal would act on."""
    return "".join(_cell(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cell(character: str) -> str:
    """One character of a source as it is shown."""
    if character == "\t":
        return TAB
    if character.isprintable() or character == " ":
        return character
    # the direction marks among them would show the line in another order than it is read in
    return character.encode("unicode_escape").decode("ascii")


def _window(text: str, start: int, end: int, width: int) -> tuple[int, int]:
    """Start and end of the shown part: the whole line, or a window from a little before the mark."""
    if _fits(text, width):
        return 0, len(text)
    first = 0 if _fits(text[: min(end, start + width // 2)], width - len(CUT)) else max(start - LEAD, 0)
    room = width - (len(CUT) if first else 0)
    return first, len(text) if _fits(text[first:], room) else first + _fitting(text[first:], room - len(CUT))


def _fits(text: str, width: int) -> bool:
    return len(text) <= width and columns(printable(text)) <= width


def _fitting(text: str, room: int) -> int:
    """Number of characters that fit, of a text that is too long."""
    widths = accumulate(columns(_cell(character)) for character in text[:room])
    return sum(width <= room for width in widths)
