"""Claim: the outcome of a run does not depend on where it runs. On two Ray nodes in two network namespaces, with an
engine and a rank on each and ZeRO 2 or 3, a tiny agent ends as it does in one process: the mean success of the seeds on
held-out goals is within the interval of one process's.

Rows are equal while weights are; sums in another order then differ in their last bits, a different token is drawn, and
the runs diverge. So their ends are compared, by 95 % intervals over the tasks.

    python bench/cluster.py FOLDER [--seeds 3] [--seconds 270]

A bench that runs out of its seconds stops the run under way, which saves; called again it goes on from there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from runs import mean
from two_nodes import TwoNodes, two_nodes

RECIPE = """\
agym: 1
name: cut
description: the quickstart, cut short
extends: quickstart
schedule:
  - stage: imitate
    until: step >= 250
    algorithm:
      {use: sft, batch_size: 16, lr: "cosine(5e-3, 2.5e-4, 250)",
       data: {source: expert, limit: 4000, noise: 0.6, loss_on: all}}
  - {stage: explore, turns: 12, until: step >= 30, algorithm: {lr: "cosine(7e-4, 1e-4, 30)"}}
eval: {every: 1000, limit: 100, turns: 12, samples: 2, greedy: false, at_start: false}
checkpoint: {every: 1000, episodes: none, export: false}
hardware: {threads: 1}
"""
RUN = "runs/cut"
PLACES: dict[str, Sequence[str]] = {
    "one process": (),
    "two nodes, ZeRO 2": ("hardware.train.zero=2",),
    "two nodes, ZeRO 3": ("hardware.train.zero=3",),
}
GRACE_S = 60.0
"""For a run to finish its step and save."""
_FIRST = 3
"""Steps of play by which success before is judged, on tasks of training."""
_UNDER_WAY = 75
_INTERRUPTED = 130


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=270.0)
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    runs = {
        (place, seed): arguments.folder / f"{seed}-{at}"
        for at, place in enumerate(PLACES)
        for seed in range(arguments.seeds)
    }
    with ExitStack() as stack:
        cluster: TwoNodes | None = None
        for (place, seed), folder in runs.items():
            if _read(folder) is not None:
                continue
            if PLACES[place] and cluster is None:
                cluster = stack.enter_context(two_nodes())
            if not _run(folder, seed, PLACES[place], cluster if PLACES[place] else None, deadline):
                print(f"{place}, seed {seed}: under way; call again")
                return _UNDER_WAY
    return _show({place: [_end(runs[place, seed]) for seed in range(arguments.seeds)] for place in PLACES})


def _run(folder: Path, seed: int, settings: Sequence[str], cluster: TwoNodes | None, deadline: float) -> bool:
    """Run to the end, or to the deadline; return whether it has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    resumed = ["--resume"] if (folder / RUN / "plan.json").exists() else []
    words = [each for setting in (f"seed={seed}", *settings) for each in ("--set", setting)]
    command = [sys.executable, "-m", "agym", "run", "recipe.yaml", *words, *resumed]
    started = time.monotonic()
    with (folder / "console.txt").open("a") as log:
        streams: Any = {"cwd": folder, "stdout": log, "stderr": subprocess.STDOUT}
        if cluster is None:
            run = subprocess.Popen(command, start_new_session=True, **streams)
        else:
            run = cluster.start(0, *command, *cluster.settings, **streams)
        try:
            code = run.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.kill(run.pid, signal.SIGTERM)
            code = run.wait(GRACE_S)
    with (folder / "seconds.jsonl").open("a") as file:
        file.write(json.dumps({"seconds": time.monotonic() - started, "code": code}) + "\n")
    if code not in (0, _INTERRUPTED):
        raise RuntimeError(f"'{folder}' ended with exit code {code}: see its console.txt")
    return code == 0


def _read(folder: Path) -> list[dict[str, Any]] | None:
    """The rows of a run that has finished."""
    done = folder / "seconds.jsonl"
    if not done.exists() or json.loads(done.read_text().splitlines()[-1])["code"]:
        return None
    return [json.loads(line) for line in (folder / RUN / "metrics.jsonl").read_text().splitlines()]


def _end(folder: Path) -> dict[str, Any]:
    rows = _read(folder)
    assert rows is not None
    played = [row["rollout/success"] for row in rows if "rollout/success" in row]
    (last,) = [row for row in rows if "eval/success" in row]
    seconds = sum(json.loads(line)["seconds"] for line in (folder / "seconds.jsonl").read_text().splitlines())
    return {"before": mean(played[:_FIRST]), **_interval(last), "seconds": seconds}


def _interval(row: dict[str, Any]) -> dict[str, float]:
    low, high = row["eval/textcraft/ci_low"], row["eval/textcraft/ci_high"]
    return {"after": row["eval/success"], "low": low, "high": high}


def _show(found: dict[str, list[dict[str, Any]]]) -> int:
    print("| where | seed | before | after | interval | seconds |\n|---|---|---|---|---|---|")
    means = {}
    for place, ends in found.items():
        for seed, end in enumerate(ends):
            print(_line(place, seed, end["before"], end["after"], end["low"], end["high"], f"{end['seconds']:.0f}"))
        after = mean([end["after"] for end in ends])
        # the seeds' tasks are drawn independently: variances of means add up
        half = math.sqrt(sum(((end["high"] - end["low"]) / 2) ** 2 for end in ends)) / len(ends)
        means[place] = (after, half)
        print(_line(place, "mean", mean([end["before"] for end in ends]), after, after - half, after + half, ""))
    (own, half), *others = means.values()
    return int(any(abs(after - own) > half for after, _ in others))


def _line(place: str, seed: object, before: float, after: float, low: float, high: float, seconds: str) -> str:
    return f"| {place} | {seed} | {before:.3f} | {after:.3f} | {low:.3f} to {high:.3f} | {seconds} |"


if __name__ == "__main__":
    sys.exit(main())
