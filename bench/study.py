"""Question: does a horizon that grows end higher, or cheaper, than one that stands?

Runs every run of a study's recipe (a matrix of horizons and seeds), prints what came of each schedule and how it
differs from the growing one with the same seed, and draws success over sampled tokens and over seconds of
reinforcement into `bench/NAME.svg`.

    python bench/study.py [--at-once 2]                                                     a tiny agent
    python bench/study.py --recipe studies/scaling-inter-smollm2 --at-once 1 [--seeds 1 2]  a pretrained model

What a folder already holds is read, not run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import sqrt
from pathlib import Path
from statistics import stdev

from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.files import DiskLibrary
from plot import Panel, Point, svg
from runs import Job, Trained, mean, train

_SUCCESS = "eval/success"
_COLUMNS = (
    *("schedule", "last three evals: mean, each seed", "difference to growing, same seed (95 %)", "largest fall"),
    *("depth 1-5, last eval", "sampled tokens", "RL seconds", "invalid", "truncated", "entropy"),
)
_T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t for an interval of 95 %, by how many values there are."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--recipe", default="studies/scaling-inter")
    parser.add_argument("--seeds", type=int, nargs="+", help="of those in the recipe; all if not given")
    parser.add_argument("--folder", type=Path, help="build/NAME if not given")
    arguments = parser.parse_args()
    study = arguments.recipe.rpartition("/")[2]
    names = list(_schedules(arguments.recipe))
    # seed by seed, so that what there is after a while compares
    order = sorted(range(len(names)), key=lambda at: (names[at][1], at))
    order = [at for at in order if not arguments.seeds or names[at][1] in arguments.seeds]
    jobs = [Job(name=f"{names[at][0]}-{names[at][1]}", recipe=arguments.recipe, run=at + 1) for at in order]
    schedules: dict[str, list[Trained]] = {}
    for trained in train(jobs, arguments.folder or Path("build") / study, arguments.at_once):
        print(f"{trained.job.name}: {trained.tail(_SUCCESS):.3f} in {trained.seconds:.0f} s", file=sys.stderr)
        if trained.exit_code:
            return 1
        schedules.setdefault(trained.job.name.rpartition("-")[0], []).append(trained)
    print(_table(schedules))
    (Path("bench") / f"{study}.svg").write_text(
        svg("Success on held-out goals at the same horizon, temperature 1", _panels(schedules))
    )
    return 0


def _schedules(recipe: str) -> Iterable[tuple[str, int]]:
    """Name and seed of every run of the matrix, in its order."""
    library = DiskLibrary(Path.cwd())
    compiled = compile_recipe(library.open(recipe), library, (), {}, catalog())
    for variant in compiled.variants:
        turns = [stage.settings.turns for stage in variant.plan.stages[1:]]
        kind = f"growing {'-'.join(map(str, turns))}" if turns[0] != turns[-1] else f"fixed {turns[0]}"
        yield kind, variant.plan.seed


# --- what came of it -----------------------------------------------------------------------------------------------


def _table(schedules: Mapping[str, Sequence[Trained]]) -> str:
    growing = next(iter(schedules.values()))
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
    for name, runs in schedules.items():
        tails = [run.tail(_SUCCESS) for run in runs]
        cells = [
            name,
            f"{mean(tails):.3f}: {' '.join(f'{tail:.2f}' for tail in tails)}",
            _difference(runs, growing),
            f"{mean([_fall(run) for run in runs]):.2f}",
            _by_depth(runs),
            f"{mean([_tokens(run)[-1] for run in runs]) / 1e3:.0f}k",
            f"{mean([_seconds(run)[-1] for run in runs]):.0f}",
            *(_late(runs, key) for key in ("rollout/invalid_rate", "rollout/truncated_rate", "train/entropy")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _difference(runs: Sequence[Trained], growing: Sequence[Trained]) -> str:
    if runs is growing:
        return "-"
    gaps = [run.tail(_SUCCESS) - base.tail(_SUCCESS) for run, base in zip(runs, growing, strict=True)]
    half = _T_95[len(gaps)] * stdev(gaps) / sqrt(len(gaps)) if len(gaps) > 1 else float("nan")
    return f"{mean(gaps):+.3f} ± {half:.3f}"


def _fall(run: Trained) -> float:
    """From the best eval so far to a later one, the most."""
    values = [row[_SUCCESS] for row in run.evals]
    return max(best - value for best, value in zip(accumulate(values, max), values, strict=True))


def _by_depth(runs: Sequence[Trained]) -> str:
    keys = [key for key in runs[0].evals[-1] if "/success/" in key]
    return " ".join(f"{mean([run.evals[-1][key] for run in runs]):.2f}" for key in keys)


def _late(runs: Sequence[Trained], key: str) -> str:
    """Mean over the last fifty steps."""
    return f"{mean([row[key] for run in runs for row in run.steps[-50:] if key in row]):.3f}"


def _tokens(run: Trained) -> list[float]:
    return list(accumulate(row["rollout/tokens"] for row in run.steps))


def _seconds(run: Trained) -> list[float]:
    return list(accumulate(row["timing_s/step"] for row in run.steps))


def _panels(schedules: Mapping[str, Sequence[Trained]]) -> list[Panel]:
    return [
        Panel(x=label, curves={name: [_curve(run, costs(run)) for run in runs] for name, runs in schedules.items()})
        for label, costs in (("tokens sampled in training", _tokens), ("seconds of reinforcement", _seconds))
    ]


def _curve(run: Trained, cost: Sequence[float]) -> list[Point]:
    """Success over what had been spent by then."""
    first = run.steps[0]["total_step"]
    return [
        (cost[row["total_step"] - first] if row["total_step"] >= first else 0.0, row[_SUCCESS])
        for row in run.evals
        if row["total_step"] >= first - 1
    ]


if __name__ == "__main__":
    sys.exit(main())
