"""Rows of a site's data as templates and checks want them: by the names of their columns."""

from __future__ import annotations

from sqlite3 import Connection, Cursor
from typing import Any, TypeAlias

__all__ = ["Record", "first", "one", "rows", "to_records"]

Record: TypeAlias = dict[str, Any]


def rows(db: Connection, sql: str, *given: object) -> list[Record]:
    return to_records(db.execute(sql, given))


def to_records(found: Cursor) -> list[Record]:
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found]


def first(db: Connection, sql: str, *given: object) -> Record | None:
    return next(iter(rows(db, sql, *given)), None)


def one(db: Connection, sql: str, *given: object) -> Any:
    """The first column of the first row."""
    found = db.execute(sql, given).fetchone()
    return None if found is None else found[0]
