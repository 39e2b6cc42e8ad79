"""Claim: tiny agents learn, on every seed, in minutes.

Success on held-out tasks, sampled at temperature 1; before is the last eval of the warm-up, after the mean of the last
three evals. The quickstart, on 100 goals of TextCraft: from under 0.45 to at least 0.8 on average over five seeds and
0.7 on the worst (aim 0.9 and 0.85), within 6 minutes (aim 4) of the whole process. The tiny agents of the other
families: at least 0.15 more after than before, on each of three seeds.

    python bench/learn.py [RECIPE ...] [--seeds 1 2 3 4 5] [--at-once 1] [--set KEY=VALUE] [--folder build/learn]

What a folder already holds is read, not run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from runs import Job, Trained, mean, train

_SUCCESS = "eval/success"


def main() -> int:
    arguments = _arguments()
    done = []
    for trained in train(list(_jobs(arguments)), arguments.folder, arguments.at_once):
        if trained.exit_code:
            print(f"{trained.job.name} ended with exit code {trained.exit_code}: see its console.txt", file=sys.stderr)
            return 1
        done.append(trained)
        print(f"{trained.job.name}: {trained.tail(_SUCCESS):.3f} in {trained.seconds:.0f} s", file=sys.stderr)
    by_recipe = [list(each) for _, each in groupby(done, lambda trained: trained.job.recipe)]
    print(_table(by_recipe))
    for each in by_recipe:
        print(_curves(each))
    return 0


def _jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    for recipe in arguments.recipes:
        name = "-".join(Path(recipe).with_suffix("").parts[-2:])
        for seed in arguments.seeds:
            yield Job(name=f"{name}-{seed}", recipe=recipe, settings=(f"seed={seed}", *arguments.set))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=["quickstart"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--folder", type=Path, default=Path("build/learn"))
    return parser.parse_args()


def _table(by_recipe: Sequence[Sequence[Trained]]) -> str:
    lines = [
        "| seed | before | after | greedy | by difficulty, last eval | steps | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for done in by_recipe:
        lines += [_row(trained) for trained in done]
        lines.append(_summary(done))
    return "\n".join(lines)


def _row(trained: Trained) -> str:
    greedy = next((key for key in trained.evals[0] if key.endswith("/greedy_success")), None)
    parts = [f"{value:.2f}" for key, value in trained.evals[-1].items() if "/success/" in key]
    return (
        f"| {trained.job.name} | {_before(trained):.2f} | {trained.tail(_SUCCESS):.3f} | "
        f"{f'{trained.tail(greedy):.3f}' if greedy else '-'} | {' '.join(parts) or '-'} | "
        f"{trained.rows[-1]['total_step']} | {trained.seconds:.0f} |"
    )


def _summary(done: Sequence[Trained]) -> str:
    befores, afters = [_before(each) for each in done], [each.tail(_SUCCESS) for each in done]
    seconds = [each.seconds for each in done]
    gain = min(after - before for before, after in zip(befores, afters, strict=True))
    return (
        f"| mean, worst | {mean(befores):.2f}, {max(befores):.2f} | {mean(afters):.3f}, {min(afters):.3f}, "
        f"least gain {gain:.2f} | | | | {mean(seconds):.0f}, {max(seconds):.0f} |"
    )


def _before(trained: Trained) -> float:
    """The last eval before the first step of reinforcement."""
    first = trained.steps[0]["total_step"] if trained.steps else float("inf")
    before = [row for row in trained.evals if row["total_step"] < first]
    return float((before or trained.evals)[-1 if before else 0][_SUCCESS])


def _curves(done: Sequence[Trained]) -> str:
    steps = sorted({row["total_step"] for trained in done for row in trained.evals})
    lines = ["", f"| step | {' | '.join(trained.job.name for trained in done)} |", f"|---|{'---|' * len(done)}"]
    for step in steps:
        values = [
            next((f"{row[_SUCCESS]:.2f}" for row in each.evals if row["total_step"] == step), "") for each in done
        ]
        lines.append(f"| {step} | {' | '.join(values)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
