"""From rows of `metrics.jsonl` to curves (low, high and last of each bucket, so that no extreme is lost) and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from .json_log import Row, number_of

__all__ = ["AXES", "curves", "curves_csv", "metric_names"]

_PLACES = ("total_step", "stage", "time")
"""What opens a row of the CSV."""


def metric_names(rows: Sequence[Row]) -> list[str]:
    """List the keys that hold a number in some row."""
    return sorted({key for row in rows for key in row if number_of(row, key) is not None} - {"total_step", "time"})


def curves(rows: Sequence[Row], keys: Sequence[str], axis: str, points: int) -> dict[str, Any]:
    """Compute curves of at most so many points; those of one bucket stand at its last place."""
    placed = [(at, row) for at, row in zip(AXES[axis](rows), rows, strict=True) if at is not None]
    placed.sort(key=lambda each: each[0])
    buckets = _buckets([at for at, _ in placed], points)
    return {
        "x": [placed[end - 1][0] for _, end in buckets],
        "series": {key: _series([number_of(row, key) for _, row in placed], buckets) for key in keys},
    }


def curves_csv(rows: Sequence[Row], keys: Sequence[str]) -> str:
    """Write every row that has one of the keys."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*_PLACES, *map(_cell, keys)])
    for row in rows:
        values = [number_of(row, key) for key in keys]
        if any(value is not None for value in values):
            writer.writerow(
                [number_of(row, "total_step"), _cell(row.get("stage", "")), number_of(row, "time"), *values]
            )
    return text.getvalue()


def _buckets(places: Sequence[float], points: int) -> list[tuple[int, int]]:
    """Divide sorted places into ranges; each place has its own where there are few."""
    if not places:
        return []
    if len(set(places)) <= points:
        numbers: list[float] = list(places)
    elif not isfinite(width := (places[-1] - places[0]) / points) or not width:
        # places of a stranger's file that no width divides: by their order
        numbers = [at * points // len(places) for at in range(len(places))]
    else:
        low = places[0]
        numbers = [min(int((at - low) / width), points - 1) for at in places]
    starts = [at for at in range(len(numbers)) if not at or numbers[at] != numbers[at - 1]]
    return list(zip(starts, [*starts[1:], len(numbers)], strict=True))


def _series(values: Sequence[float | None], buckets: Sequence[tuple[int, int]]) -> dict[str, list[float | None]]:
    low, high, last = list[float | None](), list[float | None](), list[float | None]()
    for start, end in buckets:
        known = [value for value in values[start:end] if value is not None]
        low.append(min(known, default=None))
        high.append(max(known, default=None))
        last.append(known[-1] if known else None)
    return {"low": low, "high": high, "last": last}


def _cell(value: object) -> str:
    """A text that no spreadsheet takes for a formula."""
    text = str(value)[:200]
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


# --- axes ----------------------------------------------------------------------------------------------------------


def _steps(rows: Sequence[Row]) -> list[float | None]:
    return [number_of(row, "total_step") for row in rows]


def _tokens(rows: Sequence[Row]) -> list[float | None]:
    """Tokens that were sampled to train on, up to and with the row."""
    total, places = 0.0, list[float | None]()
    for row in rows:
        total += number_of(row, "rollout/tokens") or 0
        places.append(total)
    return places


def _seconds(rows: Sequence[Row]) -> list[float | None]:
    """Seconds since the first row."""
    times = [number_of(row, "time") for row in rows]
    first = next((time for time in times if time is not None), 0.0)
    return [None if time is None else time - first for time in times]


AXES: Mapping[str, Callable[[Sequence[Row]], list[float | None]]] = {
    "step": _steps,
    "tokens": _tokens,
    "time": _seconds,
}
