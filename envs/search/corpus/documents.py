"""Packaged documentation (HTML, plain text, manual pages, dictd dictionaries) as titles and plain text."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path

__all__ = ["Document", "read_dictionary", "read_html", "read_manual", "read_plain"]

Document = tuple[str, str]
"""A title and a text."""

_UNREAD = frozenset({"script", "style", "nav", "head", "footer", "noscript"})
_BLOCKS = frozenset(
    {
        "p",
        "div",
        "li",
        "dt",
        "dd",
        "tr",
        "pre",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "section",
        "table",
        "br",
        "blockquote",
    }
)


# --- HTML ---


class _Page(HTMLParser):
    """Text of a page's body, blocks apart."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.parts: list[str] = []
        self._unread = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._unread += tag in _UNREAD
        self._in_title = tag == "title"
        if tag in _BLOCKS:
            self.parts.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        self._unread = max(0, self._unread - (tag in _UNREAD))
        self._in_title = False
        if tag in _BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._unread:
            self.parts.append(data)


def read_html(file: Path) -> Iterator[Document]:
    page = _Page()
    page.feed(_read(file))
    page.close()
    yield " ".join(page.title.split()) or file.stem, _tidy("".join(page.parts))


# --- text and manual pages ---


def read_plain(file: Path) -> Iterator[Document]:
    text = _read(file)
    title = next((line.strip() for line in text.splitlines() if line.strip(" =-*#")), file.stem)
    yield title[:120], _tidy(text)


_REQUEST = re.compile(r"\A[.'][ \t]*(\w+)[ \t]*(.*)")
_HEADINGS = frozenset({"SH", "SS", "TP", "PP", "P", "LP", "IP", "HP", "sp"})
_SPOKEN = frozenset({"SH", "SS", "B", "I", "BR", "RB", "IR", "RI", "BI", "IB", "IP", "SM", "SB", "MR"})
_ESCAPES = (
    (re.compile(r"\\f(\w|\[\w*\]|\(\w\w)|\\s[-+]?\d|\\[&|^/,%c]|\\\"[^\n]*"), ""),
    (re.compile(r"\\-|\\\(en|\\\(em"), "-"),
)
_SPECIAL: Mapping[str, str] = {
    "\\e": "\\",
    "\\(aq": "'",
    "\\[aq]": "'",
    "\\[dq]": '"',
    "\\[bu]": "*",
    "\\[en]": "-",
    "\\[em]": "-",
    "\\(dq": '"',
    "\\(co": "(c)",
    "\\ ": " ",
    "\\~": " ",
    "\\(bu": "*",
}


def read_manual(file: Path) -> Iterator[Document]:
    """Read a manual page without its typesetting."""
    lines = [_line(line) for line in _read(file).splitlines() if not line.startswith(('.\\"', "'\\\"", ".so"))]
    text = _tidy("\n".join(lines))
    if text:
        yield file.name.removesuffix(".gz"), text


def _line(line: str) -> str:
    request = _REQUEST.match(line)
    if request is not None:
        name, rest = request.groups()
        line = ("\n" if name in _HEADINGS else "") + (rest.replace('"', "") if name in _SPOKEN else "")
    for pattern, plain_text in _ESCAPES:
        line = pattern.sub(plain_text, line)
    for special, plain_text in _SPECIAL.items():
        line = line.replace(special, plain_text)
    return line


# --- dictionaries ---

_DIGITS: Mapping[str, int] = {
    digit: at for at, digit in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
}


def read_dictionary(file: Path) -> Iterator[Document]:
    """Read a dictd dictionary; an entry with several headwords comes once."""
    with gzip.open(file.with_suffix(".dict.dz")) as compressed:
        text = compressed.read()
    rows = [line.split("\t")[:3] for line in file.read_text(encoding="utf-8").splitlines()]
    titles: dict[tuple[int, int], str] = {}
    for title, *place in rows:
        if not title.startswith("00"):  # about the dictionary itself
            titles.setdefault((_number(place[0]), _number(place[1])), title)
    for (start, length), title in sorted(titles.items()):
        yield title, _tidy(text[start : start + length].decode("utf-8", "replace"))


def _number(digits: str) -> int:
    value = 0
    for digit in digits:
        value = 64 * value + _DIGITS[digit]
    return value


# --- both ---


def _read(file: Path) -> str:
    opened: Callable[[Path], bytes] = _unpack if file.suffix == ".gz" else Path.read_bytes
    return opened(file).decode("utf-8", "replace")


def _unpack(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes())


def _tidy(text: str) -> str:
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n[ \t]*\n", text))
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
