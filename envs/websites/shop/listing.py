"""Long lists, filtered, sorted and cut into pages by the parameters of a request; senseless parameters are ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sqlite3 import Connection
from typing import TypeAlias

from ..framework.records import DataRow, fetch_all
from ..framework.site import PageRequest, Paging
from .forms import FormField
from .rows import fetch_number, make_pattern

__all__ = ["ListFilter", "Listing", "Sorts", "list_rows"]

Sorts: TypeAlias = Mapping[str, tuple[str, str]]
"""By the name in the address: what is shown, and SQL. The first is the way if none is asked for."""


@dataclass(frozen=True, slots=True)
class ListFilter:
    field: FormField
    sql: str
    """With one `?`; for words, one with `LIKE`."""

    def condition(self, text: str) -> tuple[str, object] | None:
        field = self.field
        if not text or (field.options and text not in dict(field.options)):
            return None
        if "LIKE" in self.sql:
            return f"{self.sql} ESCAPE '!'", make_pattern(text)
        try:
            return self.sql, field.take(text)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    rows: Sequence[DataRow]
    paging: Paging
    filters: Sequence[FormField]
    sorts: Sequence[tuple[str, str]]
    sort: str


def list_rows(
    db: Connection,
    request: PageRequest,
    source: str,
    *,
    filters: Sequence[ListFilter] = (),
    sorts: Sorts,
    size: int,
    where: Sequence[tuple[str, object]] = (),
) -> Listing:
    """Rows of a table or view; the conditions in `where` always hold."""
    asked = [filter_.condition(request.query.get(filter_.field.name, "").strip()) for filter_ in filters]
    conditions = [*where, *(each for each in asked if each)]
    clause = " AND ".join(f"({sql})" for sql, _ in conditions) or "1"
    values = [value for _, value in conditions]
    paging = Paging.of(
        request, size=size, total=fetch_number(db, f"SELECT count(*) FROM {source} WHERE {clause}", *values)
    )
    sort = request.query.get("sort", "")
    sort = sort if sort in sorts else next(iter(sorts))
    sql = f"SELECT * FROM {source} WHERE {clause} ORDER BY {sorts[sort][1]}, id LIMIT ? OFFSET ?"
    return Listing(
        rows=fetch_all(db, sql, *values, size, paging.offset),
        paging=paging,
        filters=[each.field for each in filters],
        sorts=[(name, label) for name, (label, _) in sorts.items()],
        sort=sort,
    )
