"""One row, a number, a row to be written: SQL with parameters."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection
from typing import Any

from ..framework.records import Record, first
from ..framework.site import NotFound

__all__ = ["contains", "existing", "number", "save"]


def existing(db: Connection, sql: str, *values: object) -> Record:
    """The first row; a page asked for without one is not there."""
    found = first(db, sql, *values)
    if found is None:
        raise NotFound
    return found


def number(db: Connection, sql: str, *values: object) -> int:
    return int(db.execute(sql, values).fetchone()[0] or 0)


def save(db: Connection, table: str, values: Mapping[str, Any], key: object = None) -> int:
    """Write a new row, or into that with this id; gives the id. Table and columns are never what somebody sent."""
    if key is None:
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        cursor = db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))
        return cursor.lastrowid or 0
    names = ", ".join(f"{name} = ?" for name in values)
    db.execute(f"UPDATE {table} SET {names} WHERE id = ?", (*values.values(), key))
    return int(str(key))


def contains(words: str) -> str:
    """A pattern for `LIKE ? ESCAPE '!'`."""
    for special in "!%_":
        words = words.replace(special, f"!{special}")
    return f"%{words}%"
