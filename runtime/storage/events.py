"""`events.jsonl`: what happened to a run, one line per event, of all its resumes; never rewritten."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..reporting import EventKind
from .run_folder import JsonLines, on_disk

__all__ = ["DISCARDED", "EVENTS", "REPLACED", "RESTARTS", "EventLog", "count_events", "describe_counts"]

EVENTS = "events.jsonl"


class EventLog:
    """Appends events. One that does not fit on the disk is dropped: no run ends over a mere report."""

    def __init__(self, root: Path, wall_clock: Callable[[], float]) -> None:
        path = root / EVENTS
        with on_disk("start"):
            self._lines = JsonLines(path, keep_bytes=path.stat().st_size if path.exists() else 0)
        self._wall_clock = wall_clock
        self.total_step = 0
        """Of the last row or event that has it."""

    def add(self, kind: EventKind, text: str, **facts: int | str) -> None:
        self.total_step = int(facts.pop("total_step", self.total_step))
        event = {"time": self._wall_clock(), "total_step": self.total_step, "kind": kind.value, "text": text, **facts}
        with suppress(OSError, ValueError):
            self._lines.append(event)

    def close(self) -> None:
        self._lines.close()


REPLACED = {"rollout": "workers/replaced_rollout", "learner": "workers/replaced_learner"}
RESTARTS, DISCARDED = "workers/learner_restarts", "workers/discarded_steps"
"""Metrics that count events, by what they count; of replaced workers by role."""


def count_events(root: Path) -> Counter[str]:
    """Count what happened to workers, by metric; what never did is left out."""
    counts, path = Counter[str](), root / EVENTS
    for line in path.read_bytes().splitlines() if path.exists() else ():
        # nothing depends on it, so damage is no reason to stop
        with suppress(ValueError, KeyError, TypeError):
            event = json.loads(line)
            if event["kind"] == EventKind.WORKER_REPLACED:
                counts[REPLACED[event["role"]]] += int(event["count"])
            elif event["kind"] == EventKind.LEARNER_RESTARTED:
                counts.update({RESTARTS: 1, DISCARDED: int(event["discarded_steps"])})
    return +counts


def describe_counts(counts: Counter[str]) -> str:
    """Describe counts on one line; empty where nothing happened."""
    words = {name: name.removeprefix("workers/").replace("_", " ") for name in counts}
    return ", ".join(f"{words[name]}: {count}" for name, count in sorted(counts.items()))
