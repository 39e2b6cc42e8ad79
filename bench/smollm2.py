"""Claim: a pretrained model becomes an agent on two CPU cores, in minutes, on every seed.

For each recipe and seed, success on held-out tasks before training, after imitation and at the end, each with its 95 %
interval over tasks, and the minutes of the whole process. Required of `smollm2/babyai`: .90 on average over five
seeds, .85 on the worst, within 8 minutes (aim .95 and 4). Of the others, on each of three seeds: more at the end than
after imitation. Of a recipe without evaluations, success of the first three and the last three steps that it trains on.

    agym models get smollm2
    python bench/smollm2.py [RECIPE ...] [--seeds 1 2 3 4 5] [--set KEY=VALUE] [--folder build/smollm2]

A run that the folder holds is read, one that was interrupted is resumed; of one that was killed the minutes are not
known. Times mean something on a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isnan
from pathlib import Path
from typing import Any

from agym.runtime.storage.summary import eval_results
from runs import mean

_HEAD = "| recipe | seed | before | after imitation | at the end | minutes |\n|---|---|---|---|---|---|"
_ENDED = "ended.json"
_FEW = 3
"""Steps at the start and at the end of a practice that is not evaluated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    recipe: str
    seed: int
    rows: tuple[dict[str, Any], ...]
    seconds: float

    def at(self, place: str) -> dict[str, Any] | None:
        """The evaluation before training, after imitation (the last of the first stage) or at the end."""
        found = [row for row in self.rows if "eval/success" in row]
        if place == "before":
            return next((row for row in found if row["total_step"] == 0), None)
        if place == "end":
            return found[-1] if found else None
        first = found[-1]["stage"] if found else None
        return next((row for row in reversed(found) if row["total_step"] and row["stage"] != first), None)

    def success(self, place: str) -> float:
        row = self.at(place)
        if row is not None:
            return float(row["eval/success"])
        found = [float(each["rollout/success"]) for each in self.rows if "rollout/success" in each]
        few = {"imitation": found[:_FEW], "end": found[-_FEW:]}.get(place, [])
        return mean(few) if few and not self.at("end") else float("nan")


def main() -> int:
    arguments = _arguments()
    done: list[_Result] = []
    print(_HEAD)
    for recipe in arguments.recipes:
        for seed in arguments.seeds:
            result = _train(recipe, seed, arguments)
            if result is None:
                return 1
            done.append(result)
            print(_row(result), flush=True)
    for recipe, results in groupby(done, lambda each: each.recipe):
        print(_summary(recipe, list(results)))
    return 0


def _train(recipe: str, seed: int, arguments: argparse.Namespace) -> _Result | None:
    folder = arguments.folder / f"{recipe.replace('/', '-').strip('-')}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    is_begun = bool(list(folder.glob("runs/*/checkpoints/*")))
    seconds, code = _read_ended(folder / _ENDED, is_begun)
    if code != 0:
        sets = [word for each in (f"seed={seed}", *arguments.set) for word in ("--set", each)]
        how = "--resume" if is_begun else "--fresh"
        (folder / _ENDED).unlink(missing_ok=True)
        started = time.perf_counter()
        with (folder / "console.txt").open("a") as log:
            command = [sys.executable, "-m", "agym", "run", recipe, how, *sets]
            code = subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        seconds += time.perf_counter() - started
        (folder / _ENDED).write_text(json.dumps({"seconds": seconds, "code": code}))
    if code != 0:
        print(f"{folder}: ended with exit code {code}; its console.txt says why", file=sys.stderr)
        return None
    lines = next(folder.glob("runs/*/metrics.jsonl")).read_text().splitlines()
    return _Result(recipe=recipe, seed=seed, rows=tuple(map(json.loads, lines)), seconds=seconds)


def _read_ended(file: Path, is_begun: bool) -> tuple[float, int | None]:
    """Seconds that were spent so far, and the last exit code."""
    if not file.is_file():
        return float("nan") if is_begun else 0.0, None
    kept = json.loads(file.read_text())
    return kept["seconds"], kept["code"]


def _row(result: _Result) -> str:
    places = (_show(result, place) for place in ("before", "imitation", "end"))
    return f"| {result.recipe} | {result.seed} | {' | '.join(places)} | {result.seconds / 60:.1f} |"


def _show(result: _Result, place: str) -> str:
    row = result.at(place)
    if row is None:
        success = result.success(place)
        return "-" if isnan(success) else f"{success:.2f}, as it trains"
    return ", ".join(str(found) if at == 0 else f"{name} {found}" for at, (name, found) in enumerate(eval_results(row)))


def _summary(recipe: str, results: Sequence[_Result]) -> str:
    ends = [each.success("end") for each in results]
    gains = [each.success("end") - each.success("imitation") for each in results]
    return (
        f"\n{recipe}: {mean(ends):.2f} on average over {len(results)} seeds, {min(ends):.2f} on the worst; "
        f"{mean(gains):+.2f} by reinforcement, {min(gains):+.2f} on the worst; "
        f"{mean([each.seconds for each in results]) / 60:.1f} minutes"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=["smollm2/babyai"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--folder", type=Path, default=Path("build/smollm2"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
