"""What a task is: a template of a site's `tasks.yaml` with one of its variants, and SQL that says what is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from .checks import Databases, SiteOutcome, Truth, is_at, is_right_answer
from .framework.records import DataRow, read_records
from .outcomes import ExpectedChange, ExpectedChanges, is_just
from .paths import PathAction

__all__ = [
    "DRAWN",
    "NEW",
    "PARTS",
    "SEVERAL",
    "WORDS",
    "ChangeKind",
    "ForEach",
    "Query",
    "SiteTask",
    "TableQuery",
    "TaskPath",
    "TaskTemplate",
    "VariantValues",
]

PARTS = ("shopping", "shopping_admin", "forum", "wiki", "tracker")
"""What a task can be about."""
DRAWN = ("train_drawn", "test_drawn")
"""Splits of variants that are drawn from the data."""
SEVERAL = "several"
"""Where it is about more than one of them."""
NEW = "new_"
"""Begins a column with the new value of an edited row; the others say which row it is."""
WORDS = "words_"
"""Begins a column of an added row in which blanks do not count."""

VariantValues: TypeAlias = Mapping[str, str | int]
"""What differs from variant to variant."""


@dataclass(frozen=True, slots=True)
class Query:
    site: str
    sql: str
    """With the names of values and facts after colons."""
    many: bool = False
    """Whether all rows are meant, or the first."""


class ChangeKind(Enum):
    ADDED = "added"
    REMOVED = "removed"
    EDITED = "edited"


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The rows that a task adds to a table, removes from it, or edits there."""

    kind: ChangeKind
    table: str
    """`forum.post`."""
    query: Query


@dataclass(frozen=True, slots=True)
class ForEach:
    """Actions that are repeated for each row of a query, which may be none."""

    name: str
    """Stands for the row's value in the path."""
    query: Query
    path: TaskPath


TaskPath: TypeAlias = Sequence["PathAction | ForEach"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTemplate:
    id: str
    site: str
    """One of `PARTS`, or `SEVERAL`."""
    needs: tuple[str, ...]
    """The parts that it is about."""
    intent: str
    """With values in braces: `How many orders does {customer} have?`"""
    variants: tuple[VariantValues, ...]
    drawn: Query | None
    """More variants: a row for each, of the same values."""
    start: str
    """The address where it begins, with values in braces."""
    facts: Mapping[str, Query]
    """What is looked up in the data, by the name under which it can be used like a value."""
    path: TaskPath
    """All that is to be done but the answer."""
    answer: Query | str | None
    """What the agent must say; `NOT_POSSIBLE` where it cannot be done."""
    url: str | None
    """The address that must be open in the end, with values and facts in braces."""
    free: frozenset[str]
    """Parameters that the address may have besides, such as an order that was not asked for."""
    changes: tuple[TableQuery, ...]
    """All that must be changed; nothing else may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteTask:
    """A template with the values of one variant."""

    id: str
    template: TaskTemplate
    values: VariantValues
    held_out: bool
    """With its whole template, or as one of its drawn variants."""

    @property
    def intent(self) -> str:
        return self.template.intent.format_map(self.values)

    @property
    def start(self) -> str:
        return self.template.start.format_map(self.values)

    def truth(self, databases: Databases) -> Truth | None:
        answer = self.template.answer
        return self._scope(databases).look_up(answer) if isinstance(answer, Query) else answer

    def url(self, databases: Databases) -> str | None:
        url = self.template.url
        return None if url is None else url.format_map(self._scope(databases))

    def path(self, databases: Databases) -> tuple[PathAction, ...]:
        return tuple(_fill_in(self.template.path, self._scope(databases)))

    def changes(self, databases: Databases) -> ExpectedChanges:
        scope = self._scope(databases)
        expected: dict[str, list[ExpectedChange]] = {}
        for each in self.template.changes:
            for row in scope.select(each.query):
                expected.setdefault(each.table, []).append(_expect(each.kind, row))
        return expected

    def done(self, answer: str, url: str, outcome: SiteOutcome) -> bool:
        """Whether all holds that is asked for: what was said, where it ended, what was changed."""
        truth, right_url = self.truth(outcome.before), self.url(outcome.before)
        return (
            (truth is None or is_right_answer(answer, truth))
            and (right_url is None or is_at(url, right_url, self.template.free))
            and is_just(outcome, self.changes(outcome.before))
        )

    def _scope(self, databases: Databases) -> _Scope:
        return _Scope(self.values, self.template.facts, databases)


class _Scope(dict[str, Any]):
    """Values by name, and facts, each looked up when it is first asked for."""

    def __init__(self, values: Mapping[str, object], facts: Mapping[str, Query], databases: Databases) -> None:
        super().__init__(values)
        self._facts = facts
        self._databases = databases

    def __missing__(self, name: str) -> object:
        self[name] = value = self.look_up(self._facts[name])
        return value

    def look_up(self, query: Query) -> Any:
        """The first column: of the first row, or of all rows as a set."""
        found = [next(iter(row.values())) for row in self.select(query)]
        return frozenset(found) if query.many else found[0]

    def select(self, query: Query) -> list[DataRow]:
        return read_records(self._databases[query.site].execute(query.sql, self))

    def with_value(self, name: str, value: object) -> _Scope:
        return _Scope({**self, name: value}, self._facts, self._databases)


def _fill_in(path: TaskPath, scope: _Scope) -> Iterator[PathAction]:
    for each in path:
        if isinstance(each, PathAction):
            yield each.fill_in(scope)
        else:
            for row in scope.select(each.query):
                yield from _fill_in(each.path, scope.with_value(each.name, next(iter(row.values()))))


def _expect(kind: ChangeKind, row: DataRow) -> ExpectedChange:
    match kind:
        case ChangeKind.ADDED:
            words = {name.removeprefix(WORDS): text for name, text in row.items() if name.startswith(WORDS)}
            plain = {name: value for name, value in row.items() if not name.startswith(WORDS)}
            return ExpectedChange(added=plain, words=words)
        case ChangeKind.REMOVED:
            return ExpectedChange(removed=row)
        case ChangeKind.EDITED:
            new = {name.removeprefix(NEW): value for name, value in row.items() if name.startswith(NEW)}
            return ExpectedChange(removed={name: row[name] for name in row if not name.startswith(NEW)}, added=new)
