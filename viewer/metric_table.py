"""The rows of `metrics.jsonl` as columns of numbers, which take a tenth of the room, and are kept in the user's cache.

A kept table is thrown away if its format or its file has changed; otherwise it is read on from where it stopped. Rows
hold numbers, and the stage; nothing else in them is shown.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from math import isfinite, isnan, nan
from pathlib import Path
from threading import Lock
from typing import Any

from .json_log import LineReader, Row, number_of, parse_lines

__all__ = ["MetricLog", "MetricTable", "plain"]

_FORMAT = 1
"""Of a kept table."""
_WORTH_KEEPING = 1000
"""Number of new rows from which on a table is kept: fewer are quick to read."""
_MOST_STAGE = 2000
"""Characters of a stage's name."""

_EXACT = 2.0**53

Columns = dict[str, "array[float]"]


class MetricTable:
    """Columns of so many rows; NaN where a row holds no finite number. Columns may grow meanwhile."""

    def __init__(self, count: int, columns: Columns, stages: Sequence[tuple[str | None, int]]) -> None:
        self.count = count
        self._columns = columns
        self._stages = stages

    @classmethod
    def of(cls, rows: Iterable[Row]) -> MetricTable:
        filling = _Filling()
        filling.add(list(rows))
        return filling.table()

    def names(self) -> list[str]:
        """Names of all columns, in the order in which they first appeared in a row."""
        return list(self._columns)

    def column(self, key: str) -> array[float]:
        """The values of all rows."""
        found = self._columns.get(key)
        return array("d", [nan]) * self.count if found is None else found[: self.count]

    def number(self, key: str, row: int) -> float | int | None:
        """A row's number, an int if it is whole; None if there is none."""
        found = self._columns.get(key)
        if found is None or isnan(value := found[row]):
            return None
        return plain(value)

    def last(self, key: str) -> int | None:
        """The last row that holds a number under a key."""
        found = self._columns.get(key)
        return (
            None if found is None else next((at for at in reversed(range(self.count)) if found[at] == found[at]), None)
        )

    def stages(self) -> Iterator[tuple[str | None, int, int]]:
        """Each run of rows of one stage: its name, its first row, and the one after its last."""
        ends = accumulate((length for _, length in self._stages), initial=0)
        for (name, _), (start, end) in zip(self._stages, pairwise(ends), strict=True):
            yield name, start, end

    def stage(self, row: int) -> str | None:
        return next((name for name, start, end in self.stages() if start <= row < end), None)


class _Filling:
    """Columns that rows are added to."""

    def __init__(self, count: int = 0, columns: Columns | None = None, stages: Iterable[list[object]] = ()) -> None:
        self.count = count
        self.columns: Columns = columns or {}
        self.stages = [(None if name is None else str(name), int(str(length))) for name, length in stages]

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows, column by column: most hold the same keys."""
        keys = {key: None for kind in dict.fromkeys(map(tuple, rows)) for key in kind}
        for key in keys:
            numbers = _numbers(rows, key)
            if key not in self.columns and all(map(isnan, numbers)):
                continue
            column = self.columns.setdefault(key, array("d"))
            _fill(column, self.count)
            column.extend(numbers)
        self.count += len(rows)
        for column in self.columns.values():
            _fill(column, self.count)
        for row in rows:
            self._add_stage(row.get("stage"))

    def _add_stage(self, value: object) -> None:
        name = value[:_MOST_STAGE] if isinstance(value, str) else None
        known = self.stages[-1] if self.stages else None
        if known is not None and known[0] == name:
            self.stages[-1] = (name, known[1] + 1)
        else:
            self.stages.append((name, 1))

    def table(self) -> MetricTable:
        return MetricTable(self.count, dict(self.columns), list(self.stages))


def _numbers(rows: Sequence[Row], key: str) -> array[float]:
    """What the rows hold under a key; NaN where that is no finite number."""
    values: list[Any] = [row.get(key) for row in rows]
    if {*map(type, values)} <= {float, int}:
        with suppress(OverflowError):  # a whole number that no float holds
            numbers: array[float] = array("d", values)
            if isfinite(sum(numbers)):
                return numbers
    return array("d", [nan if (value := number_of(row, key)) is None else value for row in rows])


def plain(value: float) -> float | int:
    """A number as it is written: whole where it is whole, and holds all of its digits."""
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


def _fill(column: array[float], count: int) -> None:
    column.extend([nan] * (count - len(column)))


class MetricLog:
    """The table of a growing file, for many threads; kept in a folder for caches, if one is given."""

    def __init__(self, path: Path, cache: Path | None = None) -> None:
        self._path = path
        name = hashlib.sha256(str(path.resolve()).encode(errors="replace")).hexdigest()[:32]
        self._kept = None if cache is None else cache / f"{name}.metrics"
        self._lock = Lock()
        self._reader = LineReader(path)
        self._filling: _Filling | None = None
        self._num_kept = 0

    def table(self) -> MetricTable:
        """Read on; return all rows that are whole."""
        with self._lock:
            filling = self._filling or self._restore()
            is_void, lines = self._reader.read_on()
            if is_void:
                filling, self._num_kept = _Filling(), 0
            for rows in parse_lines(lines):
                filling.add(rows)
            self._filling = filling
            if filling.count - self._num_kept >= _WORTH_KEEPING:
                self._keep(filling)
            return filling.table()

    def _restore(self) -> _Filling:
        """Return what was kept; nothing if it cannot be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            if self._kept is not None:
                head, _, data = self._kept.read_bytes().partition(b"\n")
                about = json.loads(head)
                if about["format"] == [_FORMAT, sys.byteorder]:
                    count, keys = int(about["count"]), [str(key) for key in about["keys"]]
                    filling = _Filling(count, _columns_of(data, count, keys), about["stages"])
                    self._reader = LineReader(
                        self._path, about["inode"], about["position"], bytes.fromhex(about["tail"])
                    )
                    self._num_kept = count
                    return filling
        return _Filling()

    def _keep(self, filling: _Filling) -> None:
        self._num_kept = filling.count
        if self._kept is None:
            return
        about = {
            "format": [_FORMAT, sys.byteorder],
            "count": filling.count,
            "keys": list(filling.columns),
            "stages": filling.stages,
            "inode": self._reader.inode,
            "position": self._reader.position,
            "tail": self._reader.tail.hex(),
        }
        with suppress(OSError):  # then it is read anew the next time
            self._kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _replace(self._kept, [json.dumps(about).encode() + b"\n", *(map(bytes, filling.columns.values()))])


def _columns_of(data: bytes, count: int, keys: Sequence[str]) -> Columns:
    size = 8 * count
    if len(data) != size * len(keys) or len(set(keys)) != len(keys):
        raise ValueError("this table is cut short")
    return {key: array("d", data[size * at : size * (at + 1)]) for at, key in enumerate(keys)}


def _replace(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
