"""Question: does a horizon that grows end higher, or cheaper, than a fixed one?

Runs every run of a study's recipe (a matrix of horizons and seeds), prints the outcome of each schedule and how it
differs from the growing one with the same seed, at the end and at equal cost, and draws success over sampled tokens and
over seconds of reinforcement into `bench/NAME.svg`.

    python bench/study.py [--at-once 2]                                                     a tiny agent
    python bench/study.py --recipe studies/scaling-inter-smollm2 --at-once 1 [--seeds 1 2]  a pretrained model

Runs that the folder already holds are read, not run again. With `--kept`, so are those in `bench/data/NAME.jsonl`, one
line per finished run of the recipe as it is now, so that a study of many hours can continue on another machine. Finish
all schedules of a seed on one machine: seconds, and on a CPU the precision of a pretrained model, depend on it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import sqrt
from pathlib import Path
from statistics import stdev
from typing import Any

from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.model.plan import Plan
from agym.dsl.model.recipe import DType
from agym.dsl.publish.plan_json import dump_canonical
from agym.files import DiskLibrary
from plot import Panel, Point, svg
from runs import Job, Trained, mean, train

Costs = Callable[[Trained], Sequence[float]]
"""What a run had spent by each of its steps."""
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
    parser.add_argument("--kept", action="store_true", help="read and write the runs in bench/data/NAME.jsonl as well")
    arguments = parser.parse_args()
    study = arguments.recipe.rpartition("/")[2]
    plans = list(_plans(arguments.recipe))
    names = [(_schedule(plan), plan.seed) for plan in plans]
    # seed by seed, so that partial results can be compared
    order = sorted(range(len(names)), key=lambda at: (names[at][1], at))
    order = [at for at in order if not arguments.seeds or names[at][1] in arguments.seeds]
    jobs = [Job(name=f"{names[at][0]}-{names[at][1]}", recipe=arguments.recipe, run=at + 1) for at in order]
    schedules: dict[str, list[Trained]] = {}
    hashes = {job.name: _hash(plans[at]) for job, at in zip(jobs, order, strict=True)}
    kept = _Kept(Path("bench/data") / f"{study}.jsonl" if arguments.kept else None, hashes)
    for trained in kept.fill(jobs, arguments.folder or Path("build") / study, arguments.at_once):
        print(f"{trained.job.name}: {trained.tail(_SUCCESS):.3f} in {trained.seconds:.0f} s", file=sys.stderr)
        if trained.exit_code:
            return 1
        schedules.setdefault(trained.job.name.rpartition("-")[0], []).append(trained)
    print(_table(schedules))
    for what, costs in _COSTS.items():
        print(_at_equal_cost(schedules, what, costs))
    (Path("bench") / f"{study}.svg").write_text(
        svg("Success on held-out goals at the same horizon, temperature 1", _panels(schedules))
    )
    return 0


def _plans(recipe: str) -> Iterable[Plan]:
    """Every run of the matrix, in its order."""
    library = DiskLibrary(Path.cwd())
    compiled = compile_recipe(library.open(recipe), library, (), {}, catalog())
    return (variant.plan for variant in compiled.variants)


def _schedule(plan: Plan) -> str:
    turns = [stage.settings.turns for stage in plan.stages[1:]]
    return f"growing {'-'.join(map(str, turns))}" if turns[0] != turns[-1] else f"fixed {turns[0]}"


# --- runs that ended elsewhere -------------------------------------------------------------------------------------


def _hash(plan: Plan) -> str:
    """What determines a run, except the precision that a CPU is fast in; estimates of what it takes do not count."""
    anywhere = replace(plan, model=replace(plan.model, dtype=DType.AUTO), recipe_sha256="")
    data = json.loads(dump_canonical(anywhere))
    for estimated in (data, *data["stages"]):
        del estimated["budget"]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


_READ = ("total_step", "rollout/", "train/entropy", "timing_s/step", "eval/")


class _Kept:
    """Runs in a file, a line for each: what the tables and curves read of them."""

    def __init__(self, file: Path | None, hashes: Mapping[str, str]) -> None:
        self._file, self._hashes, self._found = file, hashes, dict[str, dict[str, Any]]()
        for line in file.read_text().splitlines() if file is not None and file.is_file() else ():
            run = json.loads(line)
            if self._hashes.get(run["name"]) == run["plan"]:
                self._found[run["name"]] = run

    def fill(self, jobs: Sequence[Job], folder: Path, at_once: int) -> Iterator[Trained]:
        """Yield all runs in their order; those that are not kept are trained."""
        missing = train([job for job in jobs if job.name not in self._found], folder, at_once)
        for job in jobs:
            if job.name in self._found:
                run = self._found[job.name]
                yield Trained(job=job, rows=tuple(run["rows"]), seconds=run["seconds"], exit_code=0)
                continue
            trained = next(missing)
            if self._file is not None and not trained.exit_code:
                self._write(trained)
            yield trained

    def _write(self, run: Trained) -> None:
        assert self._file is not None
        rows = [{key: value for key, value in row.items() if key.startswith(_READ)} for row in run.rows]
        line = {
            "name": run.job.name,
            "plan": self._hashes[run.job.name],
            "seconds": round(run.seconds, 1),
            "rows": rows,
        }
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")


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


def _at_equal_cost(schedules: Mapping[str, Sequence[Trained]], what: str, costs: Costs) -> str:
    """Success when the cheapest run is done, which all others have reached by then."""
    budget = min(costs(run)[-1] for runs in schedules.values() for run in runs)
    reached = {
        name: [_interpolate(_curve(run, costs(run)), budget) for run in runs] for name, runs in schedules.items()
    }
    growing = next(iter(reached.values()))
    found = [f"{name} {mean(values):.3f} ({_paired(values, growing)})" for name, values in reached.items()]
    return f"after {budget:,.0f} {what}: {', '.join(found)}"


def _interpolate(curve: Sequence[Point], x: float) -> float:
    (start, before), (end, after) = next(pair for pair in pairwise(curve) if x <= pair[1][0])
    return before + (after - before) * (x - start) / (end - start)


def _difference(runs: Sequence[Trained], growing: Sequence[Trained]) -> str:
    return _paired(*([run.tail(_SUCCESS) for run in each] for each in (runs, growing)))


def _paired(values: Sequence[float], growing: Sequence[float]) -> str:
    if values == growing:
        return "-"
    gaps = [value - base for value, base in zip(values, growing, strict=True)]
    half = _T_95[len(gaps)] * stdev(gaps) / sqrt(len(gaps)) if len(gaps) > 1 else float("nan")
    return f"{mean(gaps):+.3f} ± {half:.3f}"


def _fall(run: Trained) -> float:
    """The largest drop from the best eval so far to a later one."""
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


_COSTS: Mapping[str, Costs] = {"tokens sampled in training": _tokens, "seconds of reinforcement": _seconds}


def _panels(schedules: Mapping[str, Sequence[Trained]]) -> list[Panel]:
    return [
        Panel(x=label, curves={name: [_curve(run, costs(run)) for run in runs] for name, runs in schedules.items()})
        for label, costs in _COSTS.items()
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
