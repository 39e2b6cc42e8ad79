"""From the table of a run to curves (low, high and last of each bucket, so that no extreme is lost) and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import isfinite, isnan
from typing import Any

from .metric_table import MetricTable, plain

__all__ = ["AXES", "curves", "curves_csv", "metric_names"]

_PLACES = ("total_step", "stage", "time")
"""What opens a row of the CSV."""


def metric_names(table: MetricTable) -> list[str]:
    """List the keys that hold a number in some row."""
    return sorted({*table.names()} - {"total_step", "time"})


def curves(table: MetricTable, keys: Sequence[str], axis: str, points: int) -> dict[str, Any]:
    """Compute curves of at most so many points; those of one bucket are at its last place."""
    places = AXES[axis](table)
    order = [row for row, at in enumerate(places) if not isnan(at)]
    is_sorted = all(places[row] <= places[after] for row, after in pairwise(order))
    if not is_sorted:
        order.sort(key=places.__getitem__)
    placed = [places[row] for row in order]
    buckets = _buckets(placed, points)
    is_whole = is_sorted and len(order) == table.count
    series = {}
    for key in keys:
        column = table.column(key)
        series[key] = _series(column if is_whole else [column[row] for row in order], buckets)
    return {"x": [plain(placed[end - 1]) for _, end in buckets], "series": series}


def curves_csv(table: MetricTable, keys: Sequence[str]) -> str:
    """Write every row that has one of the keys."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*_PLACES, *map(_cell, keys)])
    for stage, start, end in table.stages():
        for row in range(start, end):
            values = [table.number(key, row) for key in keys]
            if any(value is not None for value in values):
                step, time = table.number("total_step", row), table.number("time", row)
                writer.writerow([step, _cell(stage or ""), time, *values])
    return text.getvalue()


def _buckets(places: Sequence[float], points: int) -> list[tuple[int, int]]:
    """Divide sorted places into ranges; each place has its own if there are few."""
    if not places:
        return []
    if len(set(places)) <= points:
        numbers: list[float] = list(places)
    elif not isfinite(width := (places[-1] - places[0]) / points) or not width:
        # places of a stranger's file that no bucket width divides: by their order
        numbers = [at * points // len(places) for at in range(len(places))]
    else:
        low = places[0]
        numbers = [min(int((at - low) / width), points - 1) for at in places]
    starts = [at for at in range(len(numbers)) if not at or numbers[at] != numbers[at - 1]]
    return list(zip(starts, [*starts[1:], len(numbers)], strict=True))


def _series(values: Sequence[float], buckets: Sequence[tuple[int, int]]) -> dict[str, list[float | None]]:
    low, high, last = list[float | None](), list[float | None](), list[float | None]()
    for start, end in buckets:
        # what does not equal itself is NaN
        known = [value for value in values[start:end] if value == value]
        low.append(min(known, default=None))
        high.append(max(known, default=None))
        last.append(known[-1] if known else None)
    return {"low": low, "high": high, "last": last}


def _cell(value: object) -> str:
    """A text that no spreadsheet takes for a formula."""
    text = str(value)[:200]
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


# --- axes ----------------------------------------------------------------------------------------------------------


def _steps(table: MetricTable) -> Sequence[float]:
    return table.column("total_step")


def _tokens(table: MetricTable) -> Sequence[float]:
    """Tokens that were sampled to train on, up to and with the row."""
    return list(accumulate(0.0 if isnan(value) else value for value in table.column("rollout/tokens")))


def _seconds(table: MetricTable) -> Sequence[float]:
    """Seconds since the first row."""
    times = table.column("time")
    first = next((time for time in times if not isnan(time)), 0.0)
    return [time - first for time in times]


AXES: Mapping[str, Callable[[MetricTable], Sequence[float]]] = {
    "step": _steps,
    "tokens": _tokens,
    "time": _seconds,
}
