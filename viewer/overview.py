"""What a page says about a whole run: how far it is, evaluations with their intervals, stages, events, where time goes.

Intervals are those that the run itself computed over tasks; nothing is computed again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from math import isnan
from pathlib import Path
from typing import Any

from .json_log import Row, number_of
from .metric_table import MetricTable, plain
from .metrics import curves

__all__ = [
    "describe_ending",
    "describe_plan",
    "evaluations",
    "event_lines",
    "ops_by_stage",
    "stages",
    "summarize",
]

_SPARK_POINTS = 40
_MOST_EVENTS = 5000
_MOST_OPS = 100
"""Of a stage, and stages of a plan: a run has a dozen."""
_EVAL = re.compile(r"eval/(?P<environment>[^/]+)/(?P<prefix>(?:greedy_)?)success")
_SAMPLES = re.compile(r"avg@(\d{1,6})")
_NOT_OPS = ("step",)
"""Under `timing_s/`, but not an op."""


def summarize(table: MetricTable) -> dict[str, Any]:
    """How far a run is, and how well it does by its newest evaluation, or else by what it trains on."""
    newest = table.count - 1
    trained = table.last("step")
    last = newest if trained is None else trained
    success, interval = _success(table)
    spark = "eval/success" if table.last("rollout/success") is None else "rollout/success"
    series = curves(table, [spark], "step", _SPARK_POINTS)["series"][spark]["last"]
    time = table.last("time")
    return {
        "stage": table.stage(last),
        "step": None if trained is None else table.number("step", trained),
        "total_step": table.number("total_step", newest) if table.count else None,
        "success": success,
        "interval": interval,
        "spark": [value for value in series if value is not None],
        "time": None if time is None else table.number("time", time),
    }


def _success(table: MetricTable) -> tuple[float | None, list[float] | None]:
    for key in ("eval/success", "rollout/success"):
        if (row := table.last(key)) is not None:
            found = [each for each in _evaluations(table, [row]) if each["environment"] and each["mode"] == "sampled"]
            # a run records no interval for a mean over several environments
            interval = found[0]["interval"] if key == "eval/success" and len(found) == 1 else None
            return table.number(key, row), interval
    return None, None


def evaluations(table: MetricTable) -> list[dict[str, Any]]:
    """Each success that was evaluated; `NAME@8` is an environment at a horizon of 8 turns."""
    rows = {row for key in _success_keys(table) for row, value in enumerate(table.column(key)) if not isnan(value)}
    return list(_evaluations(table, sorted(rows)))


def _success_keys(table: MetricTable) -> list[str]:
    return [key for key in table.names() if key == "eval/success" or _EVAL.fullmatch(key)]


def _evaluations(table: MetricTable, rows: Iterable[int]) -> Iterator[dict[str, Any]]:
    keys = _success_keys(table)
    for row, key in product(rows, keys):
        success = table.number(key, row)
        if success is None:
            continue
        found, head = _EVAL.fullmatch(key), key.removesuffix("success")
        low, high = table.number(f"{head}ci_low", row), table.number(f"{head}ci_high", row)
        yield {
            "total_step": table.number("total_step", row),
            "environment": found["environment"] if found else None,
            "mode": "greedy" if found and found["prefix"] else "sampled",
            "success": success,
            "interval": None if low is None or high is None else [low, high],
            "episodes": _count_episodes(table, row, head),
        }


def _count_episodes(table: MetricTable, row: int, head: str) -> int | None:
    """Tasks by samples; not recorded for an evaluation with faults."""
    tasks, faults = table.number(f"{head}tasks", row), table.number(f"{head}faults", row)
    if tasks is None or faults:
        return None
    keys = (key for key in table.names() if key.startswith(head) and table.number(key, row) is not None)
    samples = next((int(found[1]) for key in keys if (found := _SAMPLES.fullmatch(key.removeprefix(head)))), 1)
    return int(tasks) * samples


def stages(table: MetricTable) -> list[dict[str, Any]]:
    """Each stage with its first and last step."""
    steps = table.column("total_step")
    found = list[dict[str, Any]]()
    for name, start, end in table.stages():
        known = [plain(step) for step in steps[start:end] if not isnan(step)]
        if name is not None and known:
            found.append({"name": name, "from": min(known), "to": max(known)})
    return found


def ops_by_stage(table: MetricTable) -> list[dict[str, Any]]:
    """Each op's share of the seconds of all ops of its stage, the largest first."""
    seconds: dict[str, dict[str, float]] = {}
    kinds = {key: key.removeprefix("timing_s/") for key in table.names() if key.startswith("timing_s/")}
    columns = {kind: table.column(key) for key, kind in kinds.items() if kind not in _NOT_OPS}
    for name, start, end in table.stages():
        stage = seconds.setdefault(name or "", {})
        for kind, column in columns.items():
            if total := sum(value for value in column[start:end] if value > 0):
                stage[kind] = stage.get(kind, 0.0) + total
    return [
        {"stage": stage, "kind": kind, "share": value / sum(shares.values())}
        for stage, shares in seconds.items()
        for kind, value in sorted(shares.items(), key=lambda each: -each[1])
    ]


def describe_plan(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each stage's ops with their wires; none for a plan that cannot be read."""
    try:
        return [
            {"stage": str(stage["settings"]["stage"]), "ops": [_op(op) for op in stage["ops"][:_MOST_OPS]]}
            for stage in plan["stages"][:_MOST_OPS]
        ]
    except (KeyError, TypeError):
        return []


def _op(op: Mapping[str, Any]) -> dict[str, Any]:
    wires = [
        {"op": str(wire["op"]), "type": str(wire["type"]), "previous": wire["previous"] is True}
        for wire in op["inputs"][:_MOST_OPS]
    ]
    every = op["every"] if type(op["every"]) is int else None
    return {"id": str(op["id"]), "kind": str(op["kind"]), "every": every, "inputs": wires}


def event_lines(events: Sequence[Row]) -> list[dict[str, Any]]:
    """The newest events, in order of time."""
    return [
        {
            "time": number_of(event, "time"),
            "total_step": number_of(event, "total_step"),
            "kind": _text(event.get("kind")) or "",
            "text": _text(event.get("text")) or _text(event.get("outcome")) or _text(event.get("action")) or "",
        }
        for event in events[-_MOST_EVENTS:]
    ]


def describe_ending(run: Path, events: Sequence[Row]) -> str | None:
    """How the run ended; `running` while a process holds its lock; None where neither is known."""
    if _is_locked(run / ".lock"):
        return "running"
    outcome = next((event.get("outcome") for event in reversed(events) if event.get("kind") in ("end", "resume")), None)
    return outcome if outcome in ("finished", "interrupted", "guarded", "failed") else None


def _is_locked(path: Path) -> bool:
    """Whether a process of this machine holds the lock; asks the kernel, as trying to lock could stop a run's start."""
    with suppress(OSError):
        status = path.stat()
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        return any(place in line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines())
    return False


def _text(value: object) -> str | None:
    return value[:2000] if isinstance(value, str) else None
