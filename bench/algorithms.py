"""Claim: every algorithm of the language learns with real engines: on each of three seeds it ends above its start.

Runs every run of a recipe in `recipes/studies/` and prints the outcome for each algorithm:

- `algorithms` the same small game from the same imitator, 128 episodes a step
- `iterative` the same game and imitator: in rounds, from preferences of a judge, after imitation with hindsight
- `credit`, `solved`, `collapse` games made for those that should beat a plain baseline: GiGPO and bi-level advantages
  on long episodes, DAPO's filter where most groups are solved, StarPO-S at a rate that is too high. Nothing is claimed
  of them: rivals are printed next to their baseline, seed by seed, whichever is ahead. Besides those for credit,
  turn-level preferences of a critic, which have no rival and only have to learn

Success of the first two is that on held-out goals at temperature 1: before the first step, and the mean of the last two
measurements; of the others that of the episodes trained on, in their first and their last fifth. Differences between
algorithms are only to look at: three seeds of one small game say little about any other, and all settings but the sizes
are each algorithm's defaults.

    python bench/algorithms.py [--study algorithms] [--only ppo grpo] [--at-once 2] [--folder build/algorithms]

What a folder already holds is read, not run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path

from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.files import DiskLibrary
from referee import refereeing
from runs import Job, Trained, mean, train

_COLUMNS = ("algorithm", "at the start", "at the end", "gain, worst seed", "updates", "sampled tokens", "s learning")
_RIVALS = ("rival", "ahead at the end, by seed", "largest fall: rival", "baseline", "by fifths: rival", "baseline")
_FIFTHS = 5

Curve = Sequence[float]
"""Success in the course of a run."""
Found = Mapping[str, Sequence[Trained]]
"""The runs of each way to learn, one for each seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A recipe's matrix of ways to learn, and seeds."""

    ways: Sequence[str] = ()
    """Their names, in the recipe's order; the words of their algorithms if not given."""
    rivals: Sequence[tuple[str, str]] = ()
    """A baseline and what should beat it. Where there are any, nothing is claimed, and nothing held out is measured."""
    judged: bool = False
    """Whether one of them asks a judge."""

    def curve(self, run: Trained) -> Curve:
        return _by_fifths(_learning(run)) if self.rivals else [row["eval/success"] for row in run.evals]

    def end(self, curve: Curve) -> float:
        return curve[-1] if self.rivals else mean(curve[-2:])

    def gain(self, run: Trained) -> float:
        curve = self.curve(run)
        return self.end(curve) - curve[0]


_STUDIES: Mapping[str, Study] = {
    "algorithms": Study(),
    "iterative": Study(ways=("agent_evol", "mtpo", "sft+grpo", "relay+grpo"), judged=True),
    "credit": Study(rivals=(("grpo", "gigpo"), ("ppo", "bilevel_ppo"))),
    "solved": Study(rivals=(("grpo", "dapo"),)),
    "collapse": Study(ways=("starpo", "starpo_s"), rivals=(("starpo", "starpo_s"),)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=_STUDIES, default="algorithms")
    parser.add_argument("--only", nargs="+", default=[], metavar="ALGORITHM")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="build/ and the study's name if not given")
    arguments = parser.parse_args()
    study, folder = _STUDIES[arguments.study], arguments.folder or Path("build") / arguments.study
    found: dict[str, list[Trained]] = {}
    with _settings(study) as settings:
        for trained in train(_jobs(arguments.study, arguments.only, settings), folder, arguments.at_once):
            if trained.exit_code:
                print(f"{trained.job.name} ended with code {trained.exit_code}: see its console.txt", file=sys.stderr)
                return 1
            print(f"{trained.job.name}: {_course([study.curve(trained)])}", file=sys.stderr, flush=True)
            found.setdefault(trained.job.name.rpartition("-")[0], []).append(trained)
    print(_table(study, found))
    if not study.rivals:
        return 0 if all(study.gain(run) > 0 for runs in found.values() for run in runs) else 1
    print(f"\n{_compared(study, found)}")
    return 0


@contextmanager
def _settings(study: Study) -> Iterator[tuple[str, ...]]:
    """What is set on top of the recipe; the judge runs while the block lasts."""
    threads = ("hardware.threads=1",)
    if not study.judged:
        yield threads
        return
    with refereeing() as url:
        yield (*threads, f"vars.judge={url}")


def _jobs(name: str, only: Sequence[str], settings: tuple[str, ...]) -> list[Job]:
    """Seed by seed, so that partial results can be compared."""
    recipe, library = f"studies/{name}", DiskLibrary(Path.cwd())
    plans = [each.plan for each in compile_recipe(library.open(recipe), library, (), {}, catalog()).variants]
    seeds = sorted({plan.seed for plan in plans})
    words = [plan.stages[-1].settings.algorithm.use.value for plan in plans[:: len(seeds)]]
    runs = list(product(_STUDIES[name].ways or words, seeds))
    return [
        Job(name=f"{way}-{seed}", recipe=recipe, run=at + 1, settings=settings)
        for at, (way, seed) in sorted(enumerate(runs), key=lambda run: run[1][1])
        if way in only or not only
    ]


# --- what came of it -----------------------------------------------------------------------------------------------


def _learning(run: Trained) -> list[Mapping[str, float]]:
    """Its steps after the imitation."""
    return [row for row in run.steps if row.get("stage") == "learn"]


def _by_fifths(rows: Sequence[Mapping[str, float]]) -> Curve:
    """Success in fifths of all episodes, cut at the steps' borders: a step may have more of them than another."""
    until = [*accumulate(row["rollout/episodes"] for row in rows)]
    fifths = [min(int(_FIFTHS * (count - 1) / until[-1]), _FIFTHS - 1) for count in until]
    return [_success([row for row, of in zip(rows, fifths, strict=True) if of == fifth]) for fifth in range(_FIFTHS)]


def _success(rows: Sequence[Mapping[str, float]]) -> float:
    return mean([row["rollout/success"] for row in rows for _ in range(int(row["rollout/episodes"]))])


def _table(study: Study, found: Found) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
    for way, runs in found.items():
        curves = [study.curve(run) for run in runs]
        totals = ("train/updates", "rollout/tokens", "timing_s/step")
        cells = [
            way,
            _each([curve[0] for curve in curves]),
            _each([study.end(curve) for curve in curves]),
            f"{min(map(study.gain, runs)):+.2f}",
            *(f"{mean([_total(run, key) for run in runs]):.0f}" for key in totals),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _total(run: Trained, key: str) -> float:
    return sum(row.get(key, 0.0) for row in _learning(run))


def _each(values: Sequence[float], form: str = "") -> str:
    return f"{mean(values):{form}.3f}: {' '.join(f'{value:{form}.2f}' for value in values)}"


def _compared(study: Study, found: Found) -> str:
    """Rivals next to their baselines, with the same seed."""
    lines = [f"| {' | '.join(_RIVALS)} |", f"|{'---|' * len(_RIVALS)}"]
    for baseline, rival in study.rivals:
        if {baseline, rival} - set(found):
            continue
        theirs, ours = ([study.curve(run) for run in found[way]] for way in (baseline, rival))
        ahead = [study.end(our) - study.end(their) for our, their in zip(ours, theirs, strict=True)]
        falls = [f"{max(map(_fall, curves)):.2f}" for curves in (ours, theirs)]
        cells = [f"{rival} over {baseline}", _each(ahead, "+"), *falls, _course(ours), _course(theirs)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _fall(curve: Curve) -> float:
    """The largest drop from the best so far to what came later."""
    return max(best - value for best, value in zip(accumulate(curve, max), curve, strict=True))


def _course(curves: Sequence[Curve]) -> str:
    return " ".join(f"{mean(values):.2f}" for values in zip(*curves, strict=True))


if __name__ == "__main__":
    sys.exit(main())
