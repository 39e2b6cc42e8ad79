"""What a page says of a whole run: how far it is, evaluations with their intervals, stages, events, where time goes.

Intervals are those that the run itself computed over tasks; nothing is computed again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from .json_log import Row, number_of
from .metrics import curves

__all__ = [
    "describe_ending",
    "describe_plan",
    "evaluations",
    "event_lines",
    "ops_by_stage",
    "stages",
    "summarize_rows",
]

_SPARK_POINTS = 40
_MOST_EVENTS = 5000
_MOST_OPS = 100
"""Of a stage, and stages of a plan: a run has a dozen."""
_EVAL = re.compile(r"eval/(?P<environment>[^/]+)/(?P<prefix>(?:greedy_)?)success")
_SAMPLES = re.compile(r"avg@(\d{1,6})")
_NOT_OPS = ("step",)
"""Under `timing_s/`, and no op."""


def summarize_rows(rows: Sequence[Row]) -> dict[str, Any]:
    """Where a run is, and how well it does by its newest evaluation, or else by what it trains on."""
    last: Row = next((row for row in reversed(rows) if number_of(row, "step") is not None), rows[-1] if rows else {})
    success, interval = _success(rows)
    spark = "rollout/success" if any("rollout/success" in row for row in rows) else "eval/success"
    series = curves(rows, [spark], "step", _SPARK_POINTS)["series"][spark]["last"]
    return {
        "stage": _text(last.get("stage")),
        "step": number_of(last, "step"),
        "total_step": number_of(rows[-1], "total_step") if rows else None,
        "success": success,
        "interval": interval,
        "spark": [value for value in series if value is not None],
        "time": next((time for row in reversed(rows) if (time := number_of(row, "time")) is not None), None),
    }


def _success(rows: Sequence[Row]) -> tuple[float | None, list[float] | None]:
    for key in ("eval/success", "rollout/success"):
        for row in reversed(rows):
            if (value := number_of(row, key)) is not None:
                found = [each for each in _evaluations_of(row) if each["environment"] and each["mode"] == "sampled"]
                # of a mean over several environments a run records no interval
                return value, found[0]["interval"] if key == "eval/success" and len(found) == 1 else None
    return None, None


def evaluations(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Each success that was evaluated; `NAME@8` is an environment at a horizon of 8 turns."""
    return [each for row in rows for each in _evaluations_of(row)]


def _evaluations_of(row: Row) -> Iterator[dict[str, Any]]:
    for key in row:
        found = _EVAL.fullmatch(key)
        if found is None and key != "eval/success":
            continue
        success = number_of(row, key)
        head = key.removesuffix("success")
        low, high = number_of(row, f"{head}ci_low"), number_of(row, f"{head}ci_high")
        if success is not None:
            yield {
                "total_step": number_of(row, "total_step"),
                "environment": found["environment"] if found else None,
                "mode": "greedy" if found and found["prefix"] else "sampled",
                "success": success,
                "interval": None if low is None or high is None else [low, high],
                "episodes": _count_episodes(row, head),
            }


def _count_episodes(row: Row, head: str) -> int | None:
    """Tasks by samples; of an evaluation with faults it is not recorded."""
    tasks, faults = number_of(row, f"{head}tasks"), number_of(row, f"{head}faults")
    if tasks is None or faults:
        return None
    keys = (key.removeprefix(head) for key in row if key.startswith(head))
    samples = next((int(found[1]) for key in keys if (found := _SAMPLES.fullmatch(key))), 1)
    return int(tasks) * samples


def stages(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Each stage with its first and last step."""
    steps = [(_text(row.get("stage")), number_of(row, "total_step")) for row in rows]
    found = list[dict[str, Any]]()
    for name, group in groupby(steps, key=lambda each: each[0]):
        known = [step for _, step in group if step is not None]
        if name is not None and known:
            found.append({"name": name, "from": min(known), "to": max(known)})
    return found


def ops_by_stage(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Each op's share of the seconds of all ops of its stage, the largest first."""
    seconds: dict[str, dict[str, float]] = {}
    for row in rows:
        stage = seconds.setdefault(_text(row.get("stage")) or "", {})
        for key in row:
            kind = key.removeprefix("timing_s/")
            if kind != key and kind not in _NOT_OPS and (value := number_of(row, key)) is not None and value > 0:
                stage[kind] = stage.get(kind, 0.0) + value
    return [
        {"stage": stage, "kind": kind, "share": value / sum(kinds.values())}
        for stage, kinds in seconds.items()
        for kind, value in sorted(kinds.items(), key=lambda each: -each[1])
    ]


def describe_plan(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each stage's ops with their wires; of a plan that cannot be read, none."""
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
    """Whether a process of this machine holds the lock; asked of the kernel, as to try it could stop a run's start."""
    with suppress(OSError):
        status = path.stat()
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        return any(place in line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines())
    return False


def _text(value: object) -> str | None:
    return value[:2000] if isinstance(value, str) else None
