"""The shop's database: tables of rows of texts, compared by their canonical form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TypeAlias

__all__ = ["Cell", "Database", "Row", "changed_cells", "format_cents", "parse_cents", "score_changes"]

Row: TypeAlias = dict[str, str]
Cell: TypeAlias = tuple[str, str, str]
"""Table, row and field."""


class Database:
    """Tables by name, rows by id, fields by name."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Row]] = {}

    def put(self, table: str, key: str, **fields: str) -> None:
        self._tables.setdefault(table, {}).setdefault(key, {}).update(fields)

    def find(self, table: str, key: str) -> Row | None:
        return self._tables.get(table, {}).get(key)

    def get(self, table: str, key: str) -> Row:
        return self._tables[table][key]

    def select(self, table: str, **fields: str) -> Iterator[tuple[str, Row]]:
        """Rows whose fields have these values, in the order they were made."""
        for key, row in self._tables.get(table, {}).items():
            if all(row[name] == value for name, value in fields.items()):
                yield key, row

    def copy(self) -> Database:
        other = Database()
        other._tables = {table: {key: dict(row) for key, row in rows.items()} for table, rows in self._tables.items()}
        return other

    def cells(self) -> Mapping[Cell, str]:
        """Every value in its canonical form: case and spaces do not count."""
        return {
            (table, key, name): " ".join(value.casefold().split())
            for table, rows in self._tables.items()
            for key, row in rows.items()
            for name, value in row.items()
        }

    def digest(self) -> str:
        """Hash of the canonical form; the order in which rows were made does not count."""
        return sha256(json.dumps(sorted(self.cells().items())).encode()).hexdigest()


def changed_cells(before: Database, after: Database) -> Mapping[Cell, str]:
    """Values that were added or altered; nothing is ever deleted."""
    old = before.cells()
    return {cell: value for cell, value in after.cells().items() if old.get(cell) != value}


def score_changes(made: Mapping[Cell, str], expected: Mapping[Cell, str]) -> tuple[int, int]:
    """How many changes are as expected, and how many are not."""
    right = sum(expected.get(cell) == value for cell, value in made.items())
    return right, len(made) - right


def format_cents(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


def parse_cents(price: str) -> int:
    return int(price.replace(".", ""))
