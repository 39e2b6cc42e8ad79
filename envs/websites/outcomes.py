"""Compare what an episode has changed with what a task expects: all of that, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from .checks import RowValues, SiteOutcome, TableChange

__all__ = ["ExpectedChange", "ExpectedChanges", "is_just"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedChange:
    """A row that is added, one that is removed, or, with both, one that is edited; other columns are ignored."""

    removed: RowValues | None = None
    added: RowValues | None = None
    """Of an edited row only what is different: its other columns stay as they were."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Columns of an added row of which the words count and the blanks between them do not."""


ExpectedChanges: TypeAlias = Mapping[str, Sequence[ExpectedChange]]
"""By site and table, `forum.post`."""


def is_just(outcome: SiteOutcome, expected: ExpectedChanges) -> bool:
    return set(outcome.changes) == set(expected) and all(
        _is_explained(outcome.changes[table], each) for table, each in expected.items()
    )


def _is_explained(change: TableChange, expected: Sequence[ExpectedChange]) -> bool:
    removed, added = list(change.removed), list(change.added)
    return all(_take(each, removed, added) for each in expected) and not removed and not added


def _take(expected: ExpectedChange, removed: list[RowValues], added: list[RowValues]) -> bool:
    """Take the rows of one change out of those that are left to be explained."""
    old: RowValues | None = {}
    if expected.removed is not None:
        old = _take_row(removed, expected.removed)
    if expected.added is None or old is None:
        return old is not None
    new = _take_row(added, {**old, **expected.added})
    return new is not None and all(str(new[name]).split() == text.split() for name, text in expected.words.items())


def _take_row(rows: list[RowValues], values: RowValues) -> RowValues | None:
    for index, row in enumerate(rows):
        if values.items() <= row.items():
            return rows.pop(index)
    return None
