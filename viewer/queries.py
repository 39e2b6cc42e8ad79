"""What pages ask for: episodes by a filter, a page at a time; one whole; its group; a task over the steps of a run.

An answer holds ids and never paths. A total is exact unless a search for words finds very many.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from .index import FACETS, EpisodeIndex
from .reader import read_episode
from .where import add_functions, where_to_sql

__all__ = ["EpisodeFilter", "EpisodeSummary", "Page", "Queries"]

_COUNTED_WITH_WORDS = 10_000
"""Episodes that a search for words counts before it says that there are more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFilter:
    """Which episodes; all of the conditions that are given."""

    environments: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    purposes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    success: bool | None = None
    first_step: int | None = None
    last_step: int | None = None
    where: str = ""
    """An expression of the language, of the names of its scope `recorded`."""
    words: str = ""
    """Words that all appear in the episode's text; the last may be the beginning of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSummary:
    """An episode in a list; None stands for what is not recorded."""

    number: int
    """Its place in the index, from which the next page continues."""
    id: str
    group: str
    purpose: str
    mode: str | None
    step: int
    stage: str
    environment: str
    task: str
    seed: int
    index: int
    horizon: int
    ending: str
    success: bool
    score: float
    reward: float | None
    advantage: float | None
    kept: bool | None
    turns: int
    invalid_turns: int
    sampled_tokens: int
    total_tokens: int | None
    seconds: float
    first_line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some of the episodes that a filter finds."""

    episodes: tuple[EpisodeSummary, ...]
    offset: int
    total: int
    is_exact: bool
    """Whether `total` is the full count, rather than where counting stopped."""


_NAMED = ("purpose", "mode", "stage", "environment", "task", "ending")
_ELSEWHERE = {"group": "member", "index": "place"}
"""Columns whose names are words of SQL."""
_DETAILS = ("id", "member", "seed", "first_line")
_KINDS = {"success": bool, "kept": lambda value: None if value is None else bool(value)}
_ORDERS = {"newest": "DESC", "oldest": "ASC"}


class Queries:
    """Questions to the index of one run."""

    def __init__(self, index: EpisodeIndex) -> None:
        self._index = index
        self._database = index.database
        add_functions(self._database)

    def find(self, wanted: EpisodeFilter, *, offset: int = 0, limit: int = 50, order: str = "newest") -> Page:
        """Find a page of episodes, and how many there are in all."""
        tables, condition, values = _select(wanted)
        # by the row id, which the word index uses too, so that neither is sorted
        key = "words.rowid" if wanted.words else "episodes.number"
        sql = f"SELECT {key} FROM {tables} WHERE {condition} ORDER BY {key} {_ORDERS[order]} LIMIT ? OFFSET ?"
        numbers = [number for (number,) in self._database.execute(sql, (*values, limit, offset))]
        total, is_exact = offset + len(numbers), True
        if len(numbers) == limit or (offset and not numbers):
            total, is_exact = self._count(wanted, tables, condition, values)
        return Page(episodes=self._summaries(numbers), offset=offset, total=total, is_exact=is_exact)

    def _count(self, wanted: EpisodeFilter, tables: str, condition: str, values: Sequence[Any]) -> tuple[int, bool]:
        if wanted == EpisodeFilter():
            return self._index.count, True
        most = _COUNTED_WITH_WORDS if wanted.words else None
        rows = f"SELECT 1 FROM {tables} WHERE {condition}" + ("" if most is None else f" LIMIT {most + 1}")
        (found,) = self._database.execute(f"SELECT count(*) FROM ({rows})", values).fetchone()
        return (found, True) if most is None or found <= most else (most, False)

    def summary(self, id_: str) -> EpisodeSummary | None:
        """The episode of an id; None if there is none."""
        found = self._database.execute("SELECT min(number) FROM details WHERE id = ?", (id_,)).fetchone()[0]
        return None if found is None else self._summaries([found])[0]

    def group(self, group: str) -> tuple[EpisodeSummary, ...]:
        """All recorded episodes of a group, by their place in it."""
        numbers = self._database.execute("SELECT number FROM details WHERE member = ?", (group,)).fetchall()
        return tuple(sorted(self._summaries([number for (number,) in numbers]), key=lambda each: each.index))

    def history(self, environment: str, task: str, limit: int = 1000) -> tuple[EpisodeSummary, ...]:
        """All attempts at a task, by step."""
        wanted = EpisodeFilter(environments=(environment,), tasks=(task,))
        found = self.find(wanted, limit=limit, order="oldest").episodes
        return tuple(sorted(found, key=lambda each: (each.step, each.number)))

    def task_rates(self, purpose: str) -> dict[tuple[str, str], float]:
        """Success by environment and task, of the newest step with episodes of a purpose; sampled ones if there are."""
        numbers = {name: number for number, name in self._database.execute("SELECT number, name FROM names")}
        wanted = numbers.get(purpose, -1)
        (step,) = self._database.execute("SELECT max(step) FROM episodes WHERE purpose = ?", (wanted,)).fetchone()
        # faults say nothing about the agent
        faults = [numbers.get(name, -1) for name in ("env_fault", "unscored", "cancelled")]
        sql = f"""SELECT (SELECT name FROM names WHERE names.number = environment),
            (SELECT name FROM names WHERE names.number = task), avg(success) FROM episodes
            WHERE purpose = ? AND step = ? AND {{}} AND ending NOT IN ({",".join("?" * len(faults))})
            GROUP BY environment, task"""
        for condition, mode in (("mode = ?", numbers.get("sampled", -1)), ("? IS NOT NULL", 0)):
            rows = self._database.execute(sql.format(condition), (wanted, step, mode, *faults)).fetchall()
            if rows:
                return {(environment, task): float(rate) for environment, task, rate in rows}
        return {}

    def record(self, episode: EpisodeSummary) -> dict[str, Any]:
        """The whole episode as it was written, tokens included."""
        return read_episode(*self._index.find_line(episode.number))

    def names(self, column: str) -> tuple[str, ...]:
        """The values of a column of texts, such as `environment`, for a filter to offer."""
        sql = "SELECT name FROM facets JOIN names USING (number) WHERE facet = ? ORDER BY name"
        if column not in FACETS:
            raise KeyError(column)
        return tuple(name for (name,) in self._database.execute(sql, (column,)))

    def _summaries(self, numbers: Sequence[int]) -> tuple[EpisodeSummary, ...]:
        columns = [_column(each.name) for each in fields(EpisodeSummary)]
        slots = ",".join("?" * len(numbers))
        rows = self._database.execute(
            f"SELECT {', '.join(columns)} FROM episodes JOIN details USING (number) WHERE episodes.number IN ({slots})",
            tuple(numbers),
        )
        found = {row[0]: _summary(row) for row in rows}
        return tuple(found[number] for number in numbers)


def _column(name: str) -> str:
    name = _ELSEWHERE.get(name, name)
    if name in _NAMED:
        return f"(SELECT name FROM names WHERE names.number = episodes.{name})"
    return f"{'details' if name in _DETAILS else 'episodes'}.{name}"


def _summary(row: Sequence[Any]) -> EpisodeSummary:
    names = [each.name for each in fields(EpisodeSummary)]
    values: dict[str, Any] = {
        name: _KINDS[name](value) if name in _KINDS else value for name, value in zip(names, row, strict=True)
    }
    return EpisodeSummary(**values)


# --- filters -------------------------------------------------------------------------------------------------------


def _select(wanted: EpisodeFilter) -> tuple[str, str, list[Any]]:
    """Tables, a condition and its parameters."""
    tables, parts, values = "episodes", ["1"], list[Any]()
    for column, names in (
        ("environment", wanted.environments),
        ("task", wanted.tasks),
        ("stage", wanted.stages),
        ("ending", wanted.endings),
        ("purpose", wanted.purposes),
        ("mode", wanted.modes),
    ):
        if names:
            slots = ",".join("?" * len(names))
            parts.append(f"episodes.{column} IN (SELECT number FROM names WHERE name IN ({slots}))")
            values += names
    if wanted.groups:
        slots = ",".join("?" * len(wanted.groups))
        parts.append(f"episodes.number IN (SELECT number FROM details WHERE member IN ({slots}))")
        values += wanted.groups
    for sql, value in (
        ("success = ?", wanted.success),
        ("step >= ?", wanted.first_step),
        ("step <= ?", wanted.last_step),
    ):
        if value is not None:
            parts.append(sql)
            values.append(int(value))
    if wanted.where:
        sql, own = where_to_sql(wanted.where)
        parts.append(sql)
        values += own
    if query := _match(wanted.words):
        tables = "words CROSS JOIN episodes ON episodes.number = words.rowid"
        parts.append("words MATCH ?")
        values.append(query)
    return tables, " AND ".join(parts), values


def _match(words: str) -> str:
    """Words as a query of FTS5, with its operators made ineffective."""
    found = re.findall(r"\w+", words)
    return " ".join(f'"{word}"' for word in found) + "*" * bool(found)
