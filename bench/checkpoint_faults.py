"""Claim: a damaged checkpoint is found and named, and the newest sound one taken; the run that continues from it is bit
for bit the run that was never damaged.

`--faults`: a run folder with checkpoints of the real format, and random faults in the newest of them: a bit flipped, a
file cut, zeroed or removed, two swapped. Needs no engine. `--continued`: a real run of the quickstart's model is
damaged in the same ways, resumed, and compared with itself in every row and every bit of its last checkpoint; with
`--state` it can be interrupted and continued. `--megabytes`: how fast a checkpoint is written, checked and read.

    python bench/checkpoint_faults.py [--faults 500] [--continued 12 --state DIR] [--megabytes 512] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from agym.runtime.backends.checkpoint.tensor_files import SHARD_BYTES, TensorReader, TensorShape, write_tensors
from agym.runtime.backends.engine_variables import missing_variables
from agym.runtime.progress import Progress
from agym.runtime.storage.checkpoint_files import find_damage, seal_files
from agym.runtime.storage.run_folder import RunFolder
from agym.runtime.storage.run_reader import read_progress

STEPS = (2, 4, 6)
SMALL = TensorShape(dtype=torch.float32, shape=(32, 16))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--continued", type=int, default=0)
    parser.add_argument("--state", type=Path, help="folder that keeps what was done, to go on later")
    parser.add_argument("--megabytes", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.faults:
            missed += show_faults(Path(scratch) / "faults", arguments.faults, arguments.seed)
        if arguments.continued:
            state = arguments.state or Path(scratch) / "state"
            missed += show_continued(state, arguments.continued, arguments.seed)
        if arguments.megabytes:
            show_speed(Path(scratch) / "speed", arguments.megabytes)
    return 1 if missed else 0


# --- faults --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What was done to a checkpoint."""

    kind: str
    files: tuple[str, ...]


def _flip(draws: random.Random, file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
    file.write_bytes(data)


def _cut(draws: random.Random, file: Path) -> None:
    os.truncate(file, draws.randrange(file.stat().st_size))


def _zero(draws: random.Random, file: Path) -> None:
    data = bytearray(file.read_bytes())
    places = [at for at, byte in enumerate(data) if byte]
    start = draws.choice(places)
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    file.write_bytes(data)


def _remove(draws: random.Random, file: Path) -> None:
    file.unlink()


KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "flip": _flip,
    "cut": _cut,
    "zero": _zero,
    "remove": _remove,
}


def damage(draws: random.Random, folder: Path, others: list[Path]) -> Fault:
    """Damage a checkpoint by one fault; `others` are checkpoints that a file may be swapped with."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    kind = draws.choice([*KINDS, "swap"])
    file = draws.choice(files)
    if kind != "swap":
        KINDS[kind](draws, file)
        return Fault(kind=kind, files=(file.relative_to(folder).as_posix(),))
    theirs = (other / file.relative_to(folder) for other in others)
    choices = [each for each in (*files, *theirs) if each.is_file() and each.read_bytes() != file.read_bytes()]
    other = draws.choice(choices)
    ours, other_bytes = file.read_bytes(), other.read_bytes()
    file.write_bytes(other_bytes)
    if other in files:
        other.write_bytes(ours)
    return Fault(kind=kind, files=(file.relative_to(folder).as_posix(), str(other.relative_to(folder.parent))))


# --- without engines -----------------------------------------------------------------------------------------------


def make_run(root: Path) -> None:
    """A run folder with three checkpoints, as a run with a tiny model leaves it."""
    space = RunFolder.start(root, "{}", "agym: 1\n")
    generator = torch.Generator().manual_seed(0)
    for step in STEPS:
        with space.checkpoint(step) as folder:
            (folder / "learner").mkdir()
            (folder / "model").mkdir()
            names = {f"{kind}/layer.{at}": SMALL for kind in ("weight", "exp_avg", "exp_avg_sq") for at in range(3)}
            tensors = [(name, torch.randn(each.shape, generator=generator)) for name, each in names.items()]
            files = write_tensors(folder / "learner", names, tensors, SMALL.bytes * 4)
            write_tensors(folder / "model", {name: names[name] for name, _ in tensors[:3]}, tensors[:3], SHARD_BYTES)
            state = {"version": 1, "files": files, "global_steps": step, "steps": {}, "loss_scale": {}}
            (folder / "learner/state.json").write_text(json.dumps(state))
            (folder / "model/config.json").write_text('{"model_type": "qwen3"}')
            (folder / "progress.json").write_text(Progress(total_step=step).to_json())
    space.close()


def try_faults(folder: Path, count: int, seed: int) -> Iterator[tuple[Fault, str | None]]:
    """Each fault with what went wrong: it was not found, the wrong file was named, or another checkpoint taken."""
    folder.mkdir()
    make_run(folder / "whole")
    for number in range(count):
        draws, root = random.Random(f"{seed} {number}"), folder / "damaged"
        shutil.copytree(folder / "whole", root)
        broken = draws.choice((1, 1, 2))
        newest = [root / "checkpoints" / f"step-{step}" for step in reversed(STEPS)]
        faults = [damage(draws, each, newest[at + 1 :]) for at, each in enumerate(newest[:broken])]
        yield faults[0], judge(root, STEPS[-1 - broken], faults)
        shutil.rmtree(root)


def judge(root: Path, right: int, faults: list[Fault]) -> str | None:
    notes: list[str] = []
    space = RunFolder.resume(root)
    try:
        taken = space.newest_sound(lambda step, folder: read_progress(folder), notes.append)
    finally:
        space.close()
    if taken is None or taken[1].total_step != right:
        return f"took {taken and taken[0].name}, not step-{right}"
    if len(notes) != len(faults) or len(list((root / "damaged").iterdir())) != len(faults):
        return f"noted {notes}"
    for note, fault in zip(notes, faults, strict=True):
        if not any(name.rpartition("/")[2] in note for name in fault.files):
            return f"named another file: {note}"
    return None


def show_faults(folder: Path, count: int, seed: int) -> int:
    tried = list(try_faults(folder, count, seed))
    kinds, found = Counter(fault.kind for fault, _ in tried), Counter(fault.kind for fault, wrong in tried if not wrong)
    print("| fault | planted | found, named, right checkpoint taken |\n|---|---|---|")
    for kind in sorted(kinds):
        print(f"| {kind} | {kinds[kind]} | {found[kind]} |")
    print(f"| all | {len(tried)} | {sum(found.values())} |\n")
    for fault, wrong in tried:
        if wrong:
            print(f"{fault}: {wrong}")
    return sum(wrong is not None for _, wrong in tried)


# --- continued -----------------------------------------------------------------------------------------------------

RUN = "runs/faulty"
RECIPE = """\
agym: 1
name: faulty
extends: quickstart
algorithm: {groups_per_step: 4, groups_per_update: 4}
schedule:
  - {stage: imitate, until: step >= 4, algorithm: {use: sft, batch_size: 16, lr: 1e-2, data: {limit: 60}}}
  - {stage: exploit, turns: 3, until: step >= 4}
eval: {every: 4, at_start: false, limit: 8, turns: 3}
checkpoint: {every: 2, keep: 9}
logging: []
"""


def agym(folder: Path, *words: str) -> str:
    environ = {**os.environ, **missing_variables(os.environ, threads=1, cpu=True)}
    command = [sys.executable, "-m", "agym", "run", "recipe.yaml", *words]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"a run failed with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout + done.stderr


def show_continued(state: Path, count: int, seed: int) -> int:
    state.mkdir(parents=True, exist_ok=True)
    whole, results = state / "whole", state / "results.json"
    if not (whole / "done").exists():
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        (whole / "recipe.yaml").write_text(RECIPE)
        agym(whole)
        (whole / "done").touch()
    kept: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    for number in range(count):
        if str(number) not in kept:
            kept[str(number)] = continue_one(whole, state / "damaged", random.Random(f"{seed} {number}"))
            results.write_text(json.dumps(kept, indent=1))
            print(f"{number}: {kept[str(number)]}", file=sys.stderr)
    print("| damaged | faults | continued from | bitwise equal |\n|---|---|---|---|")
    for each in [kept[str(number)] for number in range(count)]:
        print(f"| {each['damaged']} | {each['faults']} | {each['from']} | {each['equal']} |")
    return sum(not kept[str(number)]["equal"] for number in range(count))


def continue_one(whole: Path, copy: Path, draws: random.Random) -> dict[str, Any]:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy, ignore=shutil.ignore_patterns(".lock"))
    newest = sorted((copy / RUN / "checkpoints").iterdir(), key=lambda path: -int(path.name.partition("-")[2]))
    broken = draws.randint(1, len(newest) - 1)
    faults = [damage(draws, each, newest[at + 1 :]) for at, each in enumerate(newest[:broken])]
    said = agym(copy, "--resume")
    equal = all(f"{each.name} is damaged" in said for each in newest[:broken]) and left(copy) == left(whole)
    kinds = ", ".join(f"{fault.kind} {fault.files[0]}" for fault in faults)
    return {"damaged": broken, "faults": kinds, "from": newest[broken].name, "equal": equal}


def left(folder: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows without timings, and the checksums of all that the last checkpoint holds of weights and optimiser."""
    root = folder / RUN
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    last = root / "checkpoints" / f"step-{rows[-1]['total_step']}"
    files = json.loads((last / "checkpoint.json").read_text())["files"]
    lasting = [{key: row[key] for key in row if not key.startswith(("time", "timing_s/", "perf/"))} for row in rows]
    return lasting, {name: each["sha256"] for name, each in files.items() if name != "progress.json"}


# --- speed ---------------------------------------------------------------------------------------------------------


def show_speed(folder: Path, megabytes: int) -> None:
    shape = TensorShape(dtype=torch.float32, shape=(1024, 4096))
    shapes = {f"weight/layer.{at:04d}": shape for at in range(max(1, megabytes * 10**6 // shape.bytes))}
    size = sum(each.bytes for each in shapes.values()) / 1e6
    tensor = torch.randn(shape.shape, generator=torch.Generator().manual_seed(0))
    folder.mkdir()

    def write() -> None:
        files = write_tensors(folder, shapes, ((name, tensor) for name in shapes), SHARD_BYTES // 8)
        (folder / "count").write_text(str(files))
        for path in folder.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())

    def read() -> None:
        with TensorReader(folder, int((folder / "count").read_text())) as reader:
            for name in shapes:
                tensor.copy_(reader.read(name, shape))

    print("| step | MB | MB/s |\n|---|---|---|")
    steps = {
        "write and fsync": write,
        "checksums": lambda: seal_files(folder, {}),
        "check": lambda: find_damage(folder),
        "read": read,
    }
    for name, step in steps.items():
        started = time.perf_counter()
        step()
        print(f"| {name} | {size:.0f} | {size / (time.perf_counter() - started):.0f} |")


if __name__ == "__main__":
    sys.exit(main())
