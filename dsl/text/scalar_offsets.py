"""Source positions of the characters of a YAML scalar, after quotes, escapes and folds are undone.

This repeats the rules of the parser, which keeps no positions; if the result differs from its value, the Text points at
the whole scalar instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..source import Piece, Source, Span, Text

__all__ = ["unfold"]

Run = tuple[str, int, int]
"""Characters of the value, and the range they come from: as long as they are, or all of it for all of them."""

FOLD = r"[ \t]*(?:\r?\n[ \t]*)+"
ESCAPE = r"\\\r?\n[ \t]*(?:\r?\n[ \t]*)*|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\."
FOLDS = {
    "": re.compile(FOLD),
    "'": re.compile(rf"''|{FOLD}"),
    '"': re.compile(f"{ESCAPE}|{FOLD}", re.DOTALL),
}
"""What stands for other characters, by what opens the scalar."""
ESCAPES = dict(zip('0abt\tnvfe "/\\N_LP', '\0\a\b\t\t\n\v\f\x1b "/\\\x85\xa0\u2028\u2029', strict=True))
HEADER = re.compile(r"[|>][-+0-9]*")
LINE = re.compile(r"([^\r\n]*)(\r?\n|\Z)")


def unfold(source: Source, start: int, end: int, style: str, value: str) -> Text:
    """Map a scalar to its source; `style` is what opens it: a quote, `|`, `>`, or nothing for a plain one."""
    inner = 1 if style in ("'", '"') else 0
    if style not in ("|", ">") and source.text[start + inner : end - inner] == value:
        return Text.exact(Span(source, start + inner, end - inner))
    if style in FOLDS:
        runs = list(_replaced(source.text, start + inner, end - inner, FOLDS[style]))
    else:
        runs = list(_block(source.text, start, end, value))
    if "".join(chars for chars, _, _ in runs) != value:
        return Text.made(value, Span(source, start, end))
    return Text(value, tuple(_pieces(source, runs)) or (Piece(0, Span(source, start, end), False),))


def _pieces(source: Source, runs: list[Run]) -> Iterator[Piece]:
    """Join adjacent runs into one piece."""
    open_run: tuple[int, int] | None = None
    for chars, start, end in runs:
        exact = end - start == len(chars) and source.text[start:end] == chars
        if open_run and exact and open_run[1] == start:
            open_run = (open_run[0], end)
            continue
        if open_run:
            yield Piece(open_run[1] - open_run[0], Span(source, *open_run), True)
        open_run = (start, end) if exact else None
        if not exact and chars:
            yield Piece(len(chars), Span(source, start, end), False)
    if open_run and open_run[0] < open_run[1]:
        yield Piece(open_run[1] - open_run[0], Span(source, *open_run), True)


def _replaced(text: str, start: int, end: int, pattern: re.Pattern[str]) -> Iterator[Run]:
    at = start
    for match in pattern.finditer(text, start, end):
        yield text[at : match.start()], at, match.start()
        yield _undone(match.group()), match.start(), match.end()
        at = match.end()
    yield text[at:end], at, end


def _undone(token: str) -> str:
    """Resolve a fold or an escape."""
    if token == "''":
        return "'"
    if token[0] != "\\":
        breaks = token.count("\n")
        return " " if breaks == 1 else "\n" * (breaks - 1)
    if token[1] in "\r\n":
        return "\n" * (token.count("\n") - 1)
    if token[1] in "xuU":
        code = int(token[2:] or "0", 16)
        return chr(code) if len(token) > 2 and code < 0x110000 else ""
    return ESCAPES.get(token[1], "")


def _block(text: str, start: int, end: int, value: str) -> Iterator[Run]:
    header = HEADER.match(text, start)
    assert header is not None, "a block scalar opens with | or >"
    body = text.find("\n", start, end) + 1
    if not body:
        return
    lines = [(*m.span(1), m.end(2)) for m in LINE.finditer(text, body, end) if m.end() > m.start()]
    yield from _folded_lines(text, _unindented(text, lines, value), header.group())


def _unindented(text: str, lines: list[tuple[int, int, int]], value: str) -> list[tuple[int, int, int]]:
    """Strip the indentation of the block: start, end of the characters, end of the line break."""
    first = next((text[a:b] for a, b, _ in lines if text[a:b].strip(" ")), "")
    kept = value.lstrip("\n")
    # an indentation indicator leaves the first line some spaces of its own; the value shows how many
    indent = len(first) - len(first.lstrip(" ")) - (len(kept) - len(kept.lstrip(" ")))
    return [(min(a + indent, b), b, c) for a, b, c in lines]


def _folded_lines(text: str, lines: list[tuple[int, int, int]], header: str) -> Iterator[Run]:
    """Lines and the breaks between them: kept in `|`, a space in `>` unless blank or indented lines are adjacent."""
    folds = header[0] == ">"
    pending: Run | None = None
    blanks: list[Run] = []
    was_indented = False
    for start, end, after in lines:
        if start == end:
            blanks.append(("\n" if after > end else "", end, after))
            continue
        indented = text[start] in " \t"
        if pending and folds and not was_indented and not indented:
            yield ("" if blanks else " ", *pending[1:])
        elif pending:
            yield pending
        yield from blanks
        yield text[start:end], start, end
        pending, blanks, was_indented = ("\n" if after > end else "", end, after), [], indented
    if pending and "-" not in header:
        yield pending
    if "+" in header:
        yield from blanks
