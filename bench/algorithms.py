"""Claim: every algorithm of the language learns with real engines: on each of three seeds it ends above its start.

Runs every run of `recipes/studies/algorithms.yaml`, the same small game from the same imitator, 128 episodes a step,
and prints for each algorithm what came of it. Success is that of held-out goals at temperature 1: before the first
step, and the mean of the last two measurements. How they differ from each other is for the eye: three seeds of one
small game say little of any other, and all but the sizes are the settings that each begins with.

    python bench/algorithms.py [--only ppo grpo] [--at-once 2] [--folder build/algorithms]

What a folder already holds is read, not run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.files import DiskLibrary
from runs import Job, Trained, mean, train

_RECIPE = "studies/algorithms"
_SUCCESS = "eval/success"
_COLUMNS = ("algorithm", "at the start", "at the end", "gain, worst seed", "updates", "sampled tokens", "s learning")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="ALGORITHM")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("build/algorithms"))
    arguments = parser.parse_args()
    found: dict[str, list[Trained]] = {}
    for trained in train(_jobs(arguments.only), arguments.folder, arguments.at_once):
        if trained.exit_code:
            print(f"{trained.job.name} ended with exit code {trained.exit_code}: see its console.txt", file=sys.stderr)
            return 1
        print(f"{trained.job.name}: {_start(trained):.2f} -> {_end(trained):.2f}", file=sys.stderr, flush=True)
        found.setdefault(trained.job.name.rpartition("-")[0], []).append(trained)
    print(_table(found))
    return 0 if all(_gain(trained) > 0 for runs in found.values() for trained in runs) else 1


def _jobs(only: Sequence[str]) -> list[Job]:
    library = DiskLibrary(Path.cwd())
    compiled = compile_recipe(library.open(_RECIPE), library, (), {}, catalog())
    plans = [variant.plan for variant in compiled.variants]
    names = [(plan.stages[-1].settings.algorithm.use.value, plan.seed) for plan in plans]
    return [
        Job(name=f"{use}-{seed}", recipe=_RECIPE, run=at, settings=("hardware.threads=1",))
        for at, (use, seed) in enumerate(names, start=1)
        if use in only or not only
    ]


def _start(trained: Trained) -> float:
    return float(trained.evals[0][_SUCCESS])


def _end(trained: Trained) -> float:
    return trained.tail(_SUCCESS, 2)


def _gain(trained: Trained) -> float:
    return _end(trained) - _start(trained)


def _table(found: Mapping[str, Sequence[Trained]]) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
    for use, runs in found.items():
        learning = [[row for row in run.rows if row.get("stage") == "learn"] for run in runs]
        cells = [
            use,
            _each([_start(run) for run in runs]),
            _each([_end(run) for run in runs]),
            f"{min(map(_gain, runs)):+.2f}",
            *(f"{mean([_total(rows, key) for rows in learning]):.0f}" for key in ("train/updates", "rollout/tokens")),
            f"{mean([_total(rows, 'timing_s/step') for rows in learning]):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _each(values: Sequence[float]) -> str:
    return f"{mean(values):.3f}: {' '.join(f'{value:.2f}' for value in values)}"


def _total(rows: Sequence[Mapping[str, float]], key: str) -> float:
    return sum(row.get(key, 0.0) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
