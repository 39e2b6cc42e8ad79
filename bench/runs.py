"""Whole runs of recipes as processes, and what their run folders say afterwards. Shared by the benches that train."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Job", "Trained", "mean", "train"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A recipe to be run, with what is set on top of it."""

    name: str
    recipe: str
    settings: tuple[str, ...] = ()
    run: int | None = None
    """Of a matrix, counted from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a run left behind."""

    job: Job
    rows: tuple[dict[str, Any], ...]
    seconds: float
    """Wall clock of the whole process, from nothing to the end."""
    exit_code: int

    @property
    def evals(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if "eval/success" in row]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if "rollout/success" in row]

    def tail(self, metric: str, count: int = 3) -> float:
        """Mean of the last evals."""
        return mean([row[metric] for row in self.evals[-count:]])


def train(jobs: Sequence[Job], folder: Path, at_once: int = 1) -> Iterator[Trained]:
    """Runs the jobs in their order, `at_once` at the same time."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(lambda job: _train(job, folder / job.name), jobs)


def _train(job: Job, folder: Path) -> Trained:
    folder.mkdir(parents=True, exist_ok=True)
    if (kept := folder / "seconds.json").exists():
        return _read(job, folder, **json.loads(kept.read_text()))
    chosen = [] if job.run is None else ["--run", str(job.run)]
    sets = [word for setting in job.settings for word in ("--set", setting)]
    recipe = str(Path(job.recipe).resolve()) if Path(job.recipe).is_file() else job.recipe
    command = [sys.executable, "-m", "agym", "run", recipe, "--fresh", *chosen, *sets]
    started = time.perf_counter()
    with (folder / "console.txt").open("w") as log:
        code = subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    found = {"seconds": time.perf_counter() - started, "exit_code": code}
    kept.write_text(json.dumps(found))
    return _read(job, folder, **found)


def _read(job: Job, folder: Path, seconds: float, exit_code: int) -> Trained:
    files = sorted((folder / "runs").glob("*/metrics.jsonl"))
    rows = [json.loads(line) for file in files[:1] for line in file.read_text().splitlines()]
    return Trained(job=job, rows=tuple(rows), seconds=seconds, exit_code=exit_code)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
