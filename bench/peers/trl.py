"""Claim: on the quickstart's agent a step of agym takes at most 2/3 of the time that TRL's GRPO takes (aim 1/3), and so
does the way to success 0.7 on held-out goals.

Same game and tasks in the same order, same model after the same warm-up, batch, loss, learning rates and horizons; TRL
with transformers' `generate` on two threads, agym as the recipe runs. Both start from one model folder, without the
warm-up, and take their first hundred steps: a rollout of 128 episodes and two updates each. Weights of both are
measured by agym's eval, during which both clocks are stopped. A step without any framework took 0.55 s, with a smaller
model.

Claim, with `--recipe smollm2/babyai`: at most 1/2 (aim 1/4) with a pretrained model and LoRA, by PEFT on TRL's side.
Four steps of each, of which the first is left out; no evals. In the recipe groups without spread are left out, and with
them the update where there are no others; so agym is also measured with every group. Under load the ratio of processor
seconds, of all that a side started, says more than that of seconds.

    python bench/peers/trl.py [--recipe quickstart] [--model FOLDER] [--seeds 0 1 2] [--steps 100] [--quick]

Without `--model`, the recipe's imitation is run first. Makes build/peer-trl, if need be, for TRL. A run that the folder
holds, of the same recipe, is read.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import psutil
import yaml
from agym.runtime.backends.engine_variables import missing_variables
from agym.runtime.pretrained.catalog import find_folder, list_pretrained

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEER_PYTHON = ROOT / "build" / "peer-trl" / "bin" / "python"
WANTED = 0.7
PARTS = ("rollout", "update", "step")
POLL_S = 0.05
PROTOTYPE_S = 0.55
QUICK = [{"stage": "quick", "turns": 8, "until": "step >= 3"}]
NO_EXTRA_EVALS = {"at_start": False, "at_end": False}
NEVER = 10_000
NONE: Mapping[str, str] = {}
# with glibc's defaults a third of TRL's time goes to the kernel, which maps the same memory again and again
TRL_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**36)}
Recipe = Mapping[str, Any]
Row = Mapping[str, Any]


def main() -> int:
    arguments = _arguments()
    subprocess.run(["sh", HERE / "setup.sh"], check=True)
    subject = SUBJECTS[arguments.recipe]
    recipe = subject.recipe(_shipped(arguments.recipe), arguments)
    runs = []
    for at, seed in enumerate(arguments.seeds[: 1 if arguments.quick else None]):
        # alternately, so that other load on the machine falls on both
        for side in subject.sides if at % 2 == 0 else reversed(subject.sides):
            runs.append(run := trained(side, recipe | {"seed": seed}, arguments.folder / f"{side}-{seed}"))
            print(f"{side}, seed {seed}: {run.per_step('step'):.2f} s per step", file=sys.stderr, flush=True)
    print(subject.tables(runs))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=SUBJECTS, default="quickstart")
    parser.add_argument("--model", type=Path, help="a model folder, written by a run after its imitation")
    parser.add_argument("--seeds", nargs="+", type=int, help="0 1 2 of the quickstart, 0 of the pretrained model")
    parser.add_argument("--steps", type=int, help="of reinforcement: 100, for both sides are at the goal by then, or 4")
    parser.add_argument("--quick", action="store_true", help="three steps of each, once")
    parser.add_argument("--folder", type=Path, help="build/peers/ and the recipe's name")
    arguments = parser.parse_args()
    subject = SUBJECTS[arguments.recipe]
    arguments.steps = arguments.steps or subject.steps
    arguments.seeds = arguments.seeds or subject.seeds
    arguments.folder = (arguments.folder or ROOT / "build" / "peers" / arguments.recipe.replace("/", "-")).resolve()
    return arguments


def _shipped(name: str) -> Recipe:
    file = ROOT / "recipes" / f"{name}.yaml"
    recipe: dict[str, Any] = yaml.safe_load(file.read_text())
    if prompt := recipe["agent"].get("prompt"):
        recipe["agent"]["prompt"] = str(file.parent / prompt)
    return recipe


def from_scratch(recipe: Recipe, arguments: argparse.Namespace) -> Recipe:
    model = arguments.model or imitated(recipe, arguments.folder / "imitate")
    start = as_in_the_recipe(model, recipe, arguments.folder / "start")
    return recipe | {
        "model": {"path": str(start)},
        "schedule": QUICK if arguments.quick else list(first(arguments.steps, recipe["schedule"])),
        "eval": recipe["eval"] | {"every": 3 if arguments.quick else 10, "greedy": False},
        "checkpoint": {"every": NEVER},
    }


def pretrained(recipe: Recipe, arguments: argparse.Namespace) -> Recipe:
    """Both sides begin with the base model and the adapters of the imitation."""
    named = recipe["model"]["path"]
    recipe = recipe | {"model": recipe["model"] | {"path": str(find_folder(list_pretrained()[named], os.environ))}}
    model = (arguments.model or imitated(recipe, arguments.folder / "imitate")).resolve()
    lora = recipe["model"]["lora"] | {"path": str(model / "adapter")}
    return recipe | {
        "model": recipe["model"] | {"lora": lora},
        "schedule": list(first(3 if arguments.quick else arguments.steps, recipe["schedule"])),
        "eval": recipe["eval"] | NO_EXTRA_EVALS | {"every": NEVER},
        "checkpoint": {"every": NEVER},
    }


def first(steps: int, schedule: Sequence[Row]) -> Iterable[Row]:
    """This many steps of the reinforcement, at the rates that the recipe has for them."""
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
        "algorithm": {key: recipe["algorithm"][key] for key in ("optimizer",) if key in recipe["algorithm"]},
        "schedule": [stage | {"eval_every": NEVER} for stage in recipe["schedule"] if _imitates(stage)],
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
    processor_s: Sequence[float]
    """Of each step, of all processes of the side."""
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
    ended = _TRAIN[side](recipe, folder)
    steps, evals = _READ[side](recipe, folder)
    used = [now - before for before, now in pairwise([0.0, *ended["processor_s"]])]
    return Run(side=side, seed=recipe["seed"], steps=steps, evals=evals, processor_s=used, process_s=ended["process_s"])


def agym(recipe: Recipe, folder: Path) -> Row:
    """A run of agym, which sets the equivalent of TRL_MEMORY itself."""
    return _call([sys.executable, "-m", "agym", "run", "recipe.yaml", "--fresh"], recipe, folder)


def agym_every_group(recipe: Recipe, folder: Path) -> Row:
    """Learns from groups without spread as well, as TRL does."""
    return agym(recipe | {"algorithm": recipe["algorithm"] | {"filter": {"groups": "std >= 0"}}}, folder)


def trl(recipe: Recipe, folder: Path) -> Row:
    openmp = {name: value for name, value in missing_variables({}, threads=1, cpu=True).items() if name == "LD_PRELOAD"}
    command = [str(PEER_PYTHON), "-P", str(HERE / "trl_side.py"), "recipe.yaml"]
    return _call(command, recipe, folder, TRL_MEMORY | openmp)


def _call(command: Sequence[str], recipe: Recipe, folder: Path, variables: Mapping[str, str] = NONE) -> Row:
    """Runs it, or reads what is known of an earlier run that has ended."""
    note = folder / "ended.json"
    if note.is_file() and (ended := json.loads(note.read_text()))["recipe"] == recipe:
        return ended
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    # each side says itself how many threads it wants
    environ = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"} | variables
    started = perf_counter()
    with (folder / "console.txt").open("w") as log:
        process = psutil.Popen(command, cwd=folder, env=environ, stdout=log, stderr=log)
        processor_s = list(_processor_s(process, folder))
        if process.wait():
            raise SystemExit(f"{' '.join(command)}: see {folder / 'console.txt'}")
    ended = {"recipe": recipe, "processor_s": processor_s, "process_s": perf_counter() - started}
    note.write_text(json.dumps(ended))
    return ended


def _processor_s(process: psutil.Popen, folder: Path) -> Iterator[float]:
    """What a process and those that it started have used up, at the end of each of its steps."""
    known = 0
    while process.poll() is None:
        time.sleep(POLL_S)
        files = [*folder.glob("runs/*/metrics.jsonl"), *folder.glob("trl.jsonl")]
        rows = sum('"rollout/success"' in line for file in files for line in file.read_text().splitlines())
        if rows > known and (used := _used(process)):
            yield from [used] * (rows - known)
            known = rows


def _used(process: psutil.Popen) -> float:
    try:
        times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return 0.0
    return sum(each.user + each.system for each in times)


def _read_agym(recipe: Recipe, folder: Path) -> tuple[list[Row], dict[int, float]]:
    rows = _rows(next(folder.glob("runs/*/metrics.jsonl")))
    steps = [row for row in rows if "rollout/success" in row]
    return steps, {row["total_step"]: row["eval/success"] for row in rows if "eval/success" in row}


def _read_trl(recipe: Recipe, folder: Path) -> tuple[list[Row], dict[int, float]]:
    """agym measures the weights that TRL wrote: same goals, same sampler, same seeds."""
    if recipe["eval"]["every"] == NEVER:
        return _rows(folder / "trl.jsonl"), {}
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
_TRAIN: Mapping[str, Callable[[Recipe, Path], Row]] = {"agym": agym, "agym-every-group": agym_every_group, "trl": trl}
_READ = {"agym": _read_agym, "agym-every-group": _read_agym, "trl": _read_trl}


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
    subject = SUBJECTS["quickstart"]
    yield f"| median over seeds | agym | TRL | agym / TRL, floor {subject.floor:.2f}, aim {subject.aim:.2f} |"
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


def step_table(runs: Sequence[Run]) -> str:
    """Step by step, without the first of each run."""
    rounds, subject = list(_rounds(runs)), SUBJECTS["smollm2/babyai"]
    lines = ["| seed, step | side | rollout s | update s | step s | processor s | success | tokens |", f"|{'---|' * 8}"]
    lines += [_step_line(at, side, *taken) for at, steps in rounds for side, taken in steps.items()]
    lines += [f"\n| of TRL's, floor {subject.floor:.2f}, aim {subject.aim:.2f} | median of the steps | of the sums |"]
    return "\n".join(
        [*lines, "|---|---|---|", *(line for side in subject.sides[:-1] for line in _shares(side, rounds))]
    )


def _rounds(runs: Sequence[Run]) -> Iterable[tuple[str, Mapping[str, tuple[Row, float]]]]:
    """What each side took for a step, by seed and number of the step."""
    for seed in sorted({run.seed for run in runs}):
        sides = {run.side: list(zip(run.steps, run.processor_s, strict=True)) for run in runs if run.seed == seed}
        for step in range(1, min(map(len, sides.values()))):
            yield f"{seed}, {step + 1}", {side: taken[step] for side, taken in sorted(sides.items())}


def _step_line(at: str, side: str, row: Row, used: float) -> str:
    seconds = " | ".join(f"{row[f'timing_s/{part}']:.2f}" for part in PARTS)
    return f"| {at} | {side} | {seconds} | {used:.1f} | {row['rollout/success']:.2f} | {row['rollout/tokens']} |"


def _shares(side: str, rounds: Sequence[tuple[str, Mapping[str, tuple[Row, float]]]]) -> Iterable[str]:
    both = [(steps[side], steps["trl"]) for _, steps in rounds]
    measured = {part: [(a[f"timing_s/{part}"], b[f"timing_s/{part}"]) for (a, _), (b, _) in both] for part in PARTS}
    measured["processor"] = [(a, b) for (_, a), (_, b) in both]
    for what, found in measured.items():
        ours, theirs = map(sum, zip(*found, strict=True))
        yield f"| {side}, {what} s | {median(a / b for a, b in found):.2f} | {ours / theirs:.2f} |"


# --- what is compared ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A recipe of which both sides take the first steps."""

    recipe: Callable[[Recipe, argparse.Namespace], Recipe]
    """What both are given, by what is shipped."""
    tables: Callable[[Sequence[Run]], str]
    steps: int
    seeds: Sequence[int]
    floor: float
    aim: float
    sides: Sequence[str] = SIDES


SUBJECTS = {
    "quickstart": Subject(recipe=from_scratch, tables=tables, steps=100, seeds=(0, 1, 2), floor=2 / 3, aim=1 / 3),
    "smollm2/babyai": Subject(
        recipe=pretrained,
        tables=step_table,
        steps=4,
        seeds=(0,),
        floor=1 / 2,
        aim=1 / 4,
        sides=("agym", "agym-every-group", "trl"),
    ),
}


if __name__ == "__main__":
    sys.exit(main())
