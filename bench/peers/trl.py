"""Claim: on the quickstart's agent a step of agym takes at most 2/3 of the time that TRL's GRPO takes (aim 1/3), and so
does the way to success 0.7 on held-out goals.

Same game and tasks in the same order, same model after the same warm-up, batch, loss, learning rates and horizons; TRL
with transformers' `generate` on two threads, agym as the recipe runs. Both start from one model folder, without the
warm-up, and take their first hundred steps: a rollout of 128 episodes and two updates each. Weights of both are
measured by agym's eval, for which both clocks stand still. A step without any
framework took 0.55 s, with a smaller model.

    python bench/peers/trl.py [--model FOLDER] [--seeds 0 1 2] [--steps 100] [--quick]

Without `--model`, the recipe's imitation is run first. Makes build/peer-trl, if need be, for TRL.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECIPE = ROOT / "recipes" / "quickstart.yaml"
PEER_PYTHON = ROOT / "build" / "peer-trl" / "bin" / "python"
WANTED = 0.7
FLOOR, AIM = 2 / 3, 1 / 3
PROTOTYPE_S = 0.55
QUICK = [{"stage": "quick", "turns": 8, "until": "step >= 3"}]
NO_EXTRA_EVALS = {"at_start": False, "at_end": False}
Recipe = Mapping[str, Any]
Row = Mapping[str, Any]


def main() -> int:
    arguments = _arguments()
    subprocess.run(["sh", HERE / "setup.sh"], check=True)
    quickstart = yaml.safe_load(RECIPE.read_text())
    model = arguments.model or imitated(quickstart, arguments.folder / "imitate")
    start = as_in_the_recipe(model, quickstart, arguments.folder / "start")
    recipe = quickstart | {
        "model": {"path": str(start)},
        "schedule": QUICK if arguments.quick else list(first(arguments.steps, quickstart["schedule"])),
        "eval": quickstart["eval"] | {"every": 3 if arguments.quick else 10, "greedy": False},
        "checkpoint": {"every": 10_000},
    }
    runs = []
    for at, seed in enumerate(arguments.seeds[: 1 if arguments.quick else None]):
        # by turns, so that what the machine does beside falls on both
        for side in SIDES if at % 2 == 0 else reversed(SIDES):
            runs.append(run := trained(side, recipe | {"seed": seed}, arguments.folder / f"{side}-{seed}"))
            print(f"{side}, seed {seed}: {run.per_step('step'):.2f} s per step", file=sys.stderr, flush=True)
    print(tables(runs))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model folder, written by a run after its imitation")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100, help="of reinforcement; both sides are at the goal by then")
    parser.add_argument("--quick", action="store_true", help="three steps of each, once")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "peers")
    return parser.parse_args()


def first(steps: int, schedule: Sequence[Row]) -> Iterable[Row]:
    """So many steps of the reinforcement, at the rates that the recipe has for them."""
    for stage in (each for each in schedule if not _imitates(each)):
        own = min(steps, int(stage["until"].removeprefix("step >= ")))
        steps -= own
        if own:
            yield stage | {"until": f"step >= {own}"}


def _imitates(stage: Row) -> bool:
    return stage.get("algorithm", {}).get("use") == "sft"


# --- the model -----------------------------------------------------------------------------------------------------


def imitated(recipe: Recipe, folder: Path) -> Path:
    imitation = {
        "model": recipe["model"],
        "algorithm": {"optimizer": recipe["algorithm"]["optimizer"]},
        "schedule": [each for each in recipe["schedule"] if _imitates(each)],
        "eval": NO_EXTRA_EVALS,
    }
    agym(_bare(recipe) | imitation, folder)
    return max(folder.glob("runs/*/checkpoints/step-*/model"), key=lambda each: _step(each.parent))


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _bare(recipe: Recipe) -> Recipe:
    """Without what has an effect on reinforcement alone."""
    return {key: recipe[key] for key in ("agym", "name", "environments", "agent")}


def as_in_the_recipe(model: Path, recipe: Recipe, folder: Path) -> Path:
    """A run writes its output layer out, tied or not; both sides are to train what the recipe trains."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = recipe["model"]["init"]["tie_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder.resolve()


# --- the runs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    side: str
    seed: int
    steps: Sequence[Row]
    evals: Mapping[int, float]
    """Success on held-out goals by steps done."""
    process_s: float
    """From its start to its end, agym's with its evals."""

    def per_step(self, part: str) -> float:
        return sum(row[f"timing_s/{part}"] for row in self.steps) / len(self.steps)

    def clock(self, step: int) -> float:
        return [0.0, *accumulate(row["timing_s/step"] for row in self.steps)][step]

    @property
    def tokens_per_s(self) -> float:
        return sum(row["rollout/tokens"] for row in self.steps) / self.clock(len(self.steps))

    @property
    def to_wanted_s(self) -> float:
        """Until two evals in a row have it on average, so that one lucky eval does not count."""
        steps = sorted(self.evals)
        both = (at for at, then in pairwise(steps) if self.evals[at] + self.evals[then] >= 2 * WANTED)
        return self.clock(found) if (found := next(both, None)) is not None else float("inf")


def trained(side: str, recipe: Recipe, folder: Path) -> Run:
    started = perf_counter()
    _TRAIN[side](recipe, folder)
    process_s = perf_counter() - started
    steps, evals = _READ[side](recipe, folder)
    return Run(side=side, seed=recipe["seed"], steps=steps, evals=evals, process_s=process_s)


def agym(recipe: Recipe, folder: Path) -> None:
    _call([sys.executable, "-m", "agym", "run", "recipe.yaml", "--fresh"], recipe, folder)


def trl(recipe: Recipe, folder: Path) -> None:
    _call([str(PEER_PYTHON), "-P", str(HERE / "trl_side.py"), "recipe.yaml"], recipe, folder)


def _call(command: Sequence[str], recipe: Recipe, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    # each side says itself how many threads it wants
    environ = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
    with (folder / "console.txt").open("w") as log:
        if subprocess.run(command, cwd=folder, env=environ, stdout=log, stderr=log, check=False).returncode:
            raise SystemExit(f"{' '.join(command)}: see {folder / 'console.txt'}")


def _read_agym(recipe: Recipe, folder: Path) -> tuple[list[Row], dict[int, float]]:
    rows = _rows(next(folder.glob("runs/*/metrics.jsonl")))
    steps = [row for row in rows if "rollout/success" in row]
    return steps, {row["total_step"]: row["eval/success"] for row in rows if "eval/success" in row}


def _read_trl(recipe: Recipe, folder: Path) -> tuple[list[Row], dict[int, float]]:
    """agym measures the weights that TRL wrote: same goals, same sampler, same seeds."""
    models = {recipe["model"]["path"]: 0}
    models |= {str(each.resolve()): _step(each) for each in folder.glob("step-*")}
    stage = {"stage": "measure", "turns": recipe["eval"]["turns"], "algorithm": {"use": "eval"}}
    measure = {"schedule": [stage], "eval": {"limit": recipe["eval"]["limit"]}, "matrix": {"model.path": list(models)}}
    agym(_bare(recipe) | {"seed": recipe["seed"], "model": recipe["model"]} | measure, folder / "evals")
    found = dict(_measured(each) for each in folder.glob("evals/runs/*"))
    return _rows(folder / "trl.jsonl"), {step: found[path] for path, step in models.items()}


def _rows(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _measured(run: Path) -> tuple[str, float]:
    choices = json.loads((run / "manifest.json").read_text())["choices"]
    return choices["model.path"], next(row["eval/success"] for row in _rows(run / "metrics.jsonl"))


SIDES = ("agym", "trl")
_TRAIN: Mapping[str, Callable[[Recipe, Path], None]] = {"agym": agym, "trl": trl}
_READ = {"agym": _read_agym, "trl": _read_trl}


# --- what is told --------------------------------------------------------------------------------------------------


def tables(runs: Sequence[Run]) -> str:
    seeds = sorted({run.seed for run in runs})
    return "\n".join([*_seconds(runs), "", *_ratios(runs), *(line for seed in seeds for line in _curve(runs, seed))])


def _seconds(runs: Sequence[Run]) -> Iterable[str]:
    yield f"| side | seed | rollout | update | other | s per step | tokens/s | s to {WANTED} | last evals | process s |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for run in sorted(runs, key=lambda run: (run.side, run.seed)):
        parts = [run.per_step(part) for part in ("rollout", "update", "step")]
        other = parts[2] - parts[0] - parts[1]
        last = [run.evals[step] for step in sorted(run.evals)[-3:]]
        yield (
            f"| {run.side} | {run.seed} | {parts[0]:.3f} | {parts[1]:.3f} | {other:.3f} | {parts[2]:.3f} | "
            f"{run.tokens_per_s:.0f} | {run.to_wanted_s:.0f} | {sum(last) / len(last):.2f} | {run.process_s:.0f} |"
        )


def _ratios(runs: Sequence[Run]) -> Iterable[str]:
    yield f"| median over seeds | agym | TRL | agym / TRL, floor {FLOOR:.2f}, aim {AIM:.2f} |"
    yield "|---|---|---|---|"
    steps = [median(run.per_step("step") for run in runs if run.side == side) for side in SIDES]
    wanted = [median(run.to_wanted_s for run in runs if run.side == side) for side in SIDES]
    for what, (ours, theirs) in (("s per step", steps), (f"s to {WANTED}", wanted)):
        yield f"| {what} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |"
    yield f"\nA step of agym takes {steps[0] / PROTOTYPE_S:.2f} of the {PROTOTYPE_S} s without any framework."


def _curve(runs: Sequence[Run], seed: int) -> Iterable[str]:
    """Success over seconds."""
    sides = [next(run for run in runs if run.seed == seed and run.side == side) for side in SIDES]
    yield f"\n| seed {seed}, steps | {' | '.join(f'{run.side}, s | success' for run in sides)} |"
    yield "|---|---|---|---|---|"
    for step in sorted(sides[0].evals):
        cells = [f"{run.clock(step):.0f} | {run.evals.get(step, float('nan')):.2f}" for run in sides]
        yield f"| {step} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
