"""Just what was changed, as tasks say it.

What enters: the changes of an episode, and those that a task asks for. What leaves: whether they are the same, with
nothing else beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .checks import Change, Outcome, Row

__all__ = ["Added", "Edited", "Gone", "Wanted", "just"]


@dataclass(frozen=True, slots=True)
class Added:
    """A new row with these values, whatever its others are."""

    values: Row


@dataclass(frozen=True, slots=True)
class Gone:
    """A row with these values is there no more."""

    values: Row


@dataclass(frozen=True, slots=True)
class Edited:
    """The row with the first values has the second ones now, and all its others as before."""

    which: Row
    values: Row


Wanted: TypeAlias = Mapping[str, Sequence[Added | Gone | Edited]]
"""By site and table, `forum.post`."""


def just(outcome: Outcome, wanted: Wanted) -> bool:
    return set(outcome.changes) == set(wanted) and all(
        _explained(outcome.changes[table], each) for table, each in wanted.items()
    )


def _explained(change: Change, wanted: Sequence[Added | Gone | Edited]) -> bool:
    gone, new = list(change.gone), list(change.new)
    return all(_found(each, gone, new) for each in wanted) and not gone and not new


def _found(wanted: Added | Gone | Edited, gone: list[Row], new: list[Row]) -> bool:
    match wanted:
        case Added(values):
            return _taken(new, values) is not None
        case Gone(values):
            return _taken(gone, values) is not None
        case Edited(which, values):
            old = _taken(gone, which)
            return old is not None and _taken(new, {**old, **values}) is not None


def _taken(listed: list[Row], values: Row) -> Row | None:
    """The first row that has these values, out of the list."""
    for index, row in enumerate(listed):
        if values.items() <= row.items():
            return listed.pop(index)
    return None
