"""Two runs side by side: tasks that only one solves, the difference with its interval, recipes, packages.

Compared are the evaluations of both runs' newest evaluated steps; if either has none, what they trained on last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import unified_diff
from random import Random
from statistics import fmean, quantiles
from typing import Any

__all__ = ["PURPOSES", "compare_packages", "compare_recipes", "compare_tasks"]

PURPOSES = ("eval", "train")
"""Purposes of the episodes that are compared; the first one that both runs have is used."""

_SOLVED = 0.5
"""Share of a task's episodes from which on it counts as solved."""
_DRAWS = 1000
_MOST_DRAWN = 2_000_000
"""Most values that the resampling of many tasks may draw in all."""
_MOST_TEXT = 200_000

Rates = Mapping[tuple[str, str], float]


def compare_tasks(a: Rates, b: Rates) -> dict[str, Any]:
    """Compare success task by task; the difference, b less a, is that of the tasks that both played."""
    both = sorted(a.keys() & b.keys())
    solved = [(a[task] >= _SOLVED, b[task] >= _SOLVED) for task in both]
    return {
        "counts": {
            "a_only": solved.count((True, False)),
            "b_only": solved.count((False, True)),
            "both": solved.count((True, True)),
            "none": solved.count((False, False)),
        },
        "difference": _difference([b[task] - a[task] for task in both]),
        "tasks": [
            {"environment": task[0], "task": task[1], "a": a.get(task), "b": b.get(task)}
            for task in sorted(a.keys() | b.keys())
        ],
    }


def compare_recipes(a: str, b: str) -> list[str]:
    """Return the lines of a unified diff, or the beginning of a very long one."""
    old, new = (text[:_MOST_TEXT].splitlines() for text in (a, b))
    return list(unified_diff(old, new, "a", "b", lineterm=""))


def compare_packages(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the versions of the packages in two manifests."""
    old, new = _versions(a), _versions(b)
    return [{"name": name, "a": old.get(name), "b": new.get(name)} for name in sorted(old.keys() | new.keys())]


def _versions(manifest: Mapping[str, Any]) -> dict[str, str]:
    packages = manifest.get("packages")
    found = {**(packages if isinstance(packages, dict) else {})}
    found |= {name: manifest[name] for name in ("agym", "python") if name in manifest}
    return {name: version for name, version in found.items() if isinstance(version, str)}


def _difference(differences: Sequence[float]) -> dict[str, float | None]:
    """Mean over tasks and its percentile interval of 95 % under resampling of tasks, as evaluations have it."""
    if not differences:
        return {"mean": None, "low": None, "high": None}
    mean = fmean(differences)
    if len(differences) == 1:
        return {"mean": mean, "low": None, "high": None}
    draws, count = Random(0), len(differences)
    times = max(min(_DRAWS, _MOST_DRAWN // count), 100)
    means = [fmean(draws.choices(differences, k=count)) for _ in range(times)]
    cuts = quantiles(means, n=40, method="inclusive")
    return {"mean": mean, "low": cuts[0], "high": cuts[-1]}
