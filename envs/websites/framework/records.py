"""Rows of a site's data as dictionaries by column."""

from __future__ import annotations

from sqlite3 import Connection, Cursor
from typing import Any, TypeAlias

__all__ = ["DataRow", "fetch_all", "fetch_first", "fetch_value", "read_records"]

DataRow: TypeAlias = dict[str, Any]


def fetch_all(db: Connection, sql: str, *given: object) -> list[DataRow]:
    return read_records(db.execute(sql, given))


def read_records(found: Cursor) -> list[DataRow]:
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found]


def fetch_first(db: Connection, sql: str, *given: object) -> DataRow | None:
    return next(iter(fetch_all(db, sql, *given)), None)


def fetch_value(db: Connection, sql: str, *given: object) -> Any:
    """The first column of the first row, or None."""
    found = db.execute(sql, given).fetchone()
    return None if found is None else found[0]
