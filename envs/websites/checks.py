"""Compare answers, addresses and data with what is right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from sqlite3 import Connection
from typing import TypeAlias
from urllib.parse import parse_qsl, urlsplit

__all__ = [
    "NOT_POSSIBLE",
    "Databases",
    "RowValues",
    "SiteOutcome",
    "TableChange",
    "Truth",
    "compare_tables",
    "format_truth",
    "is_at",
    "is_right_answer",
]

Databases: TypeAlias = Mapping[str, Connection]
"""Of each site, by its name."""
RowValues: TypeAlias = Mapping[str, object]
Truth: TypeAlias = str | int | float | Set[str] | Sequence[str]
"""What an answer must be: words, a number, or names in any order."""

NOT_POSSIBLE = "N/A"
"""The answer where a task cannot be done."""


# --- answers ---


def is_right_answer(answer: str, truth: Truth) -> bool:
    """Whether an answer is right; case, enclosing quotes and surrounding blanks do not count."""
    if isinstance(truth, str):
        return _normalize(answer) == _normalize(truth)
    if isinstance(truth, int | float):
        number = _read_number(_normalize(answer))
        return number is not None and abs(number - truth) < 1e-6
    names = [each for each in map(_normalize, re.split(r"[,;\n]", answer)) if each]
    return Counter(names) == Counter(map(_normalize, truth))


def format_truth(truth: Truth) -> str:
    """The truth, written as an answer."""
    return str(truth) if isinstance(truth, str | int | float) else ", ".join(sorted(truth))


def _normalize(text: str) -> str:
    text = " ".join(text.split())
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].strip()
    return text.casefold()


def _read_number(text: str) -> float | None:
    """`$1,204.50`, `12 %` and `-3` too."""
    found = re.fullmatch(r"(-?)\s?[$€£]?\s?(-?)((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)\s?%?\.?", text, re.ASCII)
    return None if found is None else float(f"{found[1] or found[2]}{found[3].replace(',', '')}")


# --- addresses ---

_FIRST = ("page", "1")
"""Of a long list, which is what there is without it."""


def is_at(url: str, wanted: str, free: Set[str] = frozenset()) -> bool:
    """Whether an address is the right one; free parameters may be added to it."""
    return _split_url(url, free) == _split_url(wanted, free)


def _split_url(url: str, free: Set[str]) -> tuple[str, str, Mapping[str, str]]:
    """Host, path and parameters as the sites read them: the last of those with one name, and none that are empty."""
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    kept = {name: value for name, value in asked.items() if value and name not in free and (name, value) != _FIRST}
    return parts.netloc, parts.path, kept


# --- data ---


@dataclass(frozen=True, slots=True)
class TableChange:
    """What became of a table; an edited row is among both."""

    removed: tuple[RowValues, ...] = ()
    added: tuple[RowValues, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOutcome:
    """What an episode has made of the sites."""

    before: Databases
    after: Databases
    changes: Mapping[str, TableChange] = field(default_factory=dict)
    """By site and table, `shop.orders`: only those in which something has changed."""


def compare_tables(
    name: str, before: Connection, after: Connection, passing: Set[str] = frozenset()
) -> dict[str, TableChange]:
    """All differences between the tables of a site, except in those that mean nothing."""
    found = {}
    listed = before.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    for (table,) in listed.fetchall():
        if table not in passing and (change := _compare_table(table, before, after)) != TableChange():
            found[f"{name}.{table}"] = change
    return found


def _compare_table(table: str, before: Connection, after: Connection) -> TableChange:
    columns, old = _count_rows(table, before)
    _, new = _count_rows(table, after)
    return TableChange(
        tuple(dict(zip(columns, row, strict=True)) for row in (old - new).elements()),
        tuple(dict(zip(columns, row, strict=True)) for row in (new - old).elements()),
    )


def _count_rows(table: str, db: Connection) -> tuple[list[str], Counter[tuple[object, ...]]]:
    found = db.execute(f'SELECT * FROM "{table}"')
    return [column[0] for column in found.description], Counter(map(tuple, found))
