"""One row, one number, or a row to write: SQL with parameters."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection
from typing import Any

from ..framework.records import DataRow, fetch_first
from ..framework.site import PageNotFound

__all__ = ["fetch_number", "fetch_row", "make_pattern", "save"]


def fetch_row(db: Connection, sql: str, *values: object) -> DataRow:
    """The first row; `PageNotFound` without one."""
    found = fetch_first(db, sql, *values)
    if found is None:
        raise PageNotFound
    return found


def fetch_number(db: Connection, sql: str, *values: object) -> int:
    return int(db.execute(sql, values).fetchone()[0] or 0)


def save(db: Connection, table: str, values: Mapping[str, Any], key: object = None) -> int:
    """Write a new row, or update the one with this id; returns the id. Table and columns never come from a request."""
    if key is None:
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        cursor = db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))
        return cursor.lastrowid or 0
    names = ", ".join(f"{name} = ?" for name in values)
    db.execute(f"UPDATE {table} SET {names} WHERE id = ?", (*values.values(), key))
    return int(str(key))


def make_pattern(words: str) -> str:
    """A pattern for `LIKE ? ESCAPE '!'` that finds the words anywhere."""
    for special in "!%_":
        words = words.replace(special, f"!{special}")
    return f"%{words}%"
