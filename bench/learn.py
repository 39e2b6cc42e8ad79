"""Claim: the quickstart's agent learns, on every seed, in minutes.

Success on at least 100 held-out goals, sampled at temperature 1, mean of the last three evals: from under 0.45 after
the warm-up to at least 0.8 on average over five seeds and 0.7 on the worst (aim 0.9 and 0.85), within 6 minutes (aim 4)
of the whole process. Other recipes are measured by the same table.

    python bench/learn.py [RECIPE] [--seeds 1 2 3 4 5] [--at-once 1] [--set KEY=VALUE] [--folder build/learn]

What a folder already holds is read, not run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runs import Job, Trained, mean, train

_SUCCESS = "eval/success"


def main() -> int:
    arguments = _arguments()
    name = Path(arguments.recipe).stem
    jobs = [
        Job(name=f"{name}-{seed}", recipe=arguments.recipe, settings=(f"seed={seed}", *arguments.set))
        for seed in arguments.seeds
    ]
    done = []
    for trained in train(jobs, arguments.folder, arguments.at_once):
        if trained.exit_code:
            print(f"{trained.job.name} ended with exit code {trained.exit_code}: see its console.txt", file=sys.stderr)
            return 1
        done.append(trained)
        print(f"{trained.job.name}: {trained.tail(_SUCCESS):.3f} in {trained.seconds:.0f} s", file=sys.stderr)
    print(_table(done))
    print(_curves(done))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="quickstart")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--folder", type=Path, default=Path("build/learn"))
    return parser.parse_args()


def _table(done: Sequence[Trained]) -> str:
    greedy = next((key for key in done[0].evals[0] if key.endswith("/greedy_success")), None)
    lines = [
        "| seed | at the start of RL | last three evals | greedy | by depth, last eval | steps | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for trained in done:
        parts = [f"{value:.2f}" for key, value in trained.evals[-1].items() if "/success/" in key]
        greedy_tail = f"{trained.tail(greedy):.3f}" if greedy else "-"
        lines.append(
            f"| {trained.job.name} | {_start(trained):.2f} | {trained.tail(_SUCCESS):.3f} | {greedy_tail} | "
            f"{' '.join(parts)} | {trained.rows[-1]['total_step']} | {trained.seconds:.0f} |"
        )
    tails = [trained.tail(_SUCCESS) for trained in done]
    starts = [_start(trained) for trained in done]
    lines.append(
        f"| mean, worst | {mean(starts):.2f}, {max(starts):.2f} | {mean(tails):.3f}, {min(tails):.3f} | | | | "
        f"{mean([each.seconds for each in done]):.0f}, {max(each.seconds for each in done):.0f} |"
    )
    return "\n".join(lines)


def _start(trained: Trained) -> float:
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
