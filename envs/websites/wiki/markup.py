"""The markup of wiki pages: read facts, categories and sections, and render HTML with everything escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import quote

from markupsafe import Markup, escape

__all__ = [
    "Section",
    "build_address",
    "is_in_category",
    "list_categories",
    "list_facts",
    "read_fact",
    "read_fact_value",
    "read_figure",
    "split_sections",
    "strip_marks",
]

_Known = Callable[[str], bool]
"""Whether there is a page of that title."""

_HEADING = re.compile(r"^== *(.+?) *==$", re.MULTILINE)
_CATEGORY = re.compile(r"\[\[Category:([^\[\]|\n]+)\]\]")
_FACT = re.compile(r"^@ ([^:\n]+): (.*)$", re.MULTILINE)
_MARK = re.compile(r"\[\[([^\[\]\n]+)\]\]|'''([^'\n]+)'''")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    number: int
    """From 0 on, which is what comes before the first heading."""
    heading: str
    text: str
    """As it was written, with its heading."""

    def html(self, known: _Known) -> Markup:
        body = _FACT.sub("", _CATEGORY.sub("", _HEADING.sub("", self.text, count=1)))
        blocks = (block for block in re.split(r"\n\s*\n", body) if block.strip())
        return Markup("\n").join(_block(block.strip().split("\n"), known) for block in blocks)


def build_address(title: str, place: str = "wiki") -> str:
    """The path of a page; its history, its talk page and so on have other places."""
    return f"/{place}/{quote(title.replace(' ', '_'), safe='')}"


def split_sections(text: str) -> list[Section]:
    starts = [0, *(found.start() for found in _HEADING.finditer(text) if found.start())]
    parts = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    return [
        Section(number=number, heading=found[1] if (found := _HEADING.match(part)) else "", text=part.strip())
        for number, part in enumerate(parts)
    ]


def list_categories(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in _CATEGORY.findall(text)))


def list_facts(text: str, known: _Known) -> list[tuple[str, Markup]]:
    return [(name, _inline(value, known)) for name, value in _FACT.findall(text)]


def read_fact(text: str, name: str) -> str:
    """A fact in plain words; `LookupError` where there is none."""
    return strip_marks(dict(_FACT.findall(text))[name])


def read_fact_value(text: str, name: str) -> str | int:
    """A fact, as a number if it is one."""
    said = read_fact(text, name)
    return int(said.replace(",", "")) if said.replace(",", "").isdecimal() else said


def read_figure(text: str, name: str) -> int:
    """The number at the beginning of a fact."""
    return int(read_fact(text, name).split()[0].replace(",", ""))


def is_in_category(text: str, name: str) -> bool:
    return name in list_categories(text)


def strip_marks(text: str) -> str:
    """The text without markup."""
    words = _MARK.sub(lambda mark: mark[1] or mark[2], _CATEGORY.sub("", text))
    return " ".join(re.sub(r"^[=*@^|]+|[=^|]+$| [|^] ", " ", words, flags=re.MULTILINE).split())


# --- blocks ---


def _block(lines: Sequence[str], known: _Known) -> Markup:
    """Render adjacent lines: items and rows are grouped, the rest is a paragraph."""
    return Markup("\n").join(_SAID[kind](list(each), known) for kind, each in groupby(lines, _kind))


def _kind(line: str) -> str:
    return {"*": "items", "^": "rows", "|": "rows"}.get(line[:1], "words")


def _items(lines: Sequence[str], known: _Known) -> Markup:
    items = (Markup("<li>{}</li>").format(_inline(line[1:].strip(), known)) for line in lines)
    return Markup("<ul>{}</ul>").format(Markup("").join(items))


def _rows(lines: Sequence[str], known: _Known) -> Markup:
    rows = (Markup("<tr>{}</tr>").format(Markup("").join(_cells(line, known))) for line in lines)
    return Markup("<table>{}</table>").format(Markup("").join(rows))


def _cells(line: str, known: _Known) -> Iterator[Markup]:
    cell = Markup("<th>{}</th>" if line[0] == "^" else "<td>{}</td>")
    for text in line.strip(" |^").split(line[0]):
        yield cell.format(_inline(text.strip(), known))


def _words(lines: Sequence[str], known: _Known) -> Markup:
    return Markup("<p>{}</p>").format(Markup("<br>").join(_inline(line, known) for line in lines))


_SAID = {"items": _items, "rows": _rows, "words": _words}


# --- within a line ---


def _inline(text: str, known: _Known) -> Markup:
    made, at = Markup(), 0
    for mark in _MARK.finditer(text):
        made += escape(text[at : mark.start()]) + (_linked(mark[1].strip(), known) if mark[1] else _bold(mark[2]))
        at = mark.end()
    return made + escape(text[at:])


def _bold(text: str) -> Markup:
    return Markup("<b>{}</b>").format(text)


def _linked(title: str, known: _Known) -> Markup:
    if title.startswith("User:"):
        return Markup('<a href="{}">{}</a>').format(build_address(title[5:], "user"), title[5:])
    if known(title):
        return Markup('<a href="{}">{}</a>').format(build_address(title), title)
    return Markup('<a class="missing" href="{}">{}</a>').format(build_address(title, "edit"), title)
