"""Claim: a run that is killed at any moment and resumed writes the rows of one that was never killed, bit for bit.

One small real recipe in fp32: imitation, three stages of reinforcement with growing horizons, measurements, saves.
It runs once undisturbed. Then it is killed with SIGKILL and resumed, again and again: at random moments, at the borders
of stages, and inside a start, a synchronisation, an update, a measurement and the writing of a checkpoint, which are
recognised from outside by the stack that the interpreter itself writes down when it is sent SIGUSR1. A killed run that
comes to its end is compared, row by row, and its model's weights with it, and another one is begun, until there were
enough kills. Timings are the only thing that may differ. With environments over HTTP, or with older weights in play,
the same is done, and what holds is shown: two runs that were never killed are compared as well.

    python bench/kills.py [--kills 50] [--seed 0] [--mode inline|http] [--staleness 0] [--quick]
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from agym.runtime.backends.engine_variables import missing_variables

EVERY = 4
RECIPE = """\
agym: 1
name: kills
model: {{init: {{layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {{kind: word, vocab: 512}}}}}}
environments: {{textcraft: {{use: textcraft, transport: {mode}, options: {{world: small, terse: true}}}}}}
agent: {{format: plain, tokens_per_turn: 8, context_tokens: 256}}
algorithm:
  {{use: grpo, group_size: 4, groups_per_step: 4, groups_per_update: 2, lr: 1e-3, kl: {{coef: 0.01, reference: stage}}}}
reward: score - 0.1 * invalid_turns - 0.01 * sampled_tokens
schedule:
  - {{stage: imitate, until: step >= 12, algorithm: {{use: sft, batch_size: 16, lr: 1e-2, data: {{limit: 100}}}}}}
  - {{stage: short, turns: 2, until: step >= 10}}
  - {{stage: middle, turns: "min(2 + step, 4)", until: step >= 10}}
  - {{stage: long, turns: 5, until: step >= 10}}
eval: {{every: 6, limit: 16, turns: [2, 4], greedy: true}}
checkpoint: {{every: 4, keep: 2, episodes: all}}
hardware: {{staleness: {staleness}}}
"""
RUN = "runs/kills"
PATIENCE_S = 300.0
START_S = 8.0
ANYWHERE_SHARE = 0.4
WINDOW = 8
"""Rows after the last checkpoint within which the next kill falls: some pass another checkpoint, some do not."""


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        return child(Path(sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", choices=("inline", "http"), default="inline")
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="three kills")
    arguments = parser.parse_args()
    exact = arguments.mode == "inline"
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), RECIPE.format(mode=arguments.mode, staleness=arguments.staleness))
        whole = bench.undisturbed("whole")
        again = None if exact else bench.undisturbed("again")
        kills, ended = bench.killed(3 if arguments.quick else arguments.kills, whole, random.Random(arguments.seed))
    show(kills, [compared(whole, each) for each in ended], again and compared(whole, again))
    missed = [] if arguments.quick else sorted(PLACES - {kill.fell for kill in kills})
    if missed:
        print(f"\nno kill fell into: {', '.join(missed)}")
    return 1 if missed or (exact and any(differs(whole, each) for each in ended)) else 0


# --- the process that is killed --------------------------------------------------------------------------------------


def child(trace: Path, argv: Sequence[str]) -> int:
    """`agym`, in a process that says where it stands when it is asked."""
    faulthandler.register(signal.SIGUSR1, file=trace.open("ab"), all_threads=False)
    from agym.cli import main as agym

    return agym(argv)


Frames = list[tuple[str, str]]
"""Innermost first: file, function."""
FRAME = re.compile(r'^  File ".*?([\w.]+)", line \d+ in (\S+)$', re.MULTILINE)


class Life:
    """One process, from its start to its death."""

    def __init__(self, root: Path, *words: str) -> None:
        self._trace = root.with_suffix(".trace")
        self._trace.write_bytes(b"")
        command = [sys.executable, __file__, "--child", str(self._trace), "run", "recipe.yaml", *words]
        environ = {**os.environ, **missing_variables(os.environ, threads=1, cpu=True)}
        self._log = root.with_suffix(".log")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=root, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stack(self) -> Frames:
        """Where it stands now; empty before it can tell."""
        if not _handles_usr1(self.process.pid):
            return []
        before = self._trace.stat().st_size
        self.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and self.process.poll() is None:
            with self._trace.open("rb") as file:
                file.seek(before)
                text = file.read().decode(errors="replace")
            if text.endswith((" in <module>\n", "  ...\n")):
                return FRAME.findall(text)
            time.sleep(0.0002)
        return []

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def over(self) -> bool:
        return self.process.poll() is not None

    def finish(self) -> None:
        if self.process.wait(PATIENCE_S) != 0:
            raise SystemExit(f"a run failed:\n{self._log.read_text()[-3000:]}")


def _handles_usr1(pid: int) -> bool:
    with suppress(OSError):
        (caught,) = re.findall(r"SigCgt:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
        return bool(int(caught, 16) >> (signal.SIGUSR1 - 1) & 1)
    return False


# --- where it stands -----------------------------------------------------------------------------------------------

Rows = Sequence[Mapping[str, Any]]
STAGES = ("imitate", "short", "middle", "long")
PLACES = {"start", "update", "rollout", "sync", "eval", "save", *(f"border before {stage}" for stage in STAGES[1:])}
ANYWHERE = "anywhere"
_TELLING: Sequence[tuple[str, str, set[str]]] = (
    ("save", "engine.py", {"_save"}),
    ("sync", "engine.py", {"_sync"}),
    ("sync", "sampler.py", {"load", "prove"}),
    ("update", "deepspeed.py", {"update"}),
    ("border", "engine.py", {"_enter"}),
)


def place_of(frames: Frames, rows: Rows, at: int) -> str:
    """Where a process stands that has written `at` rows of those that an undisturbed one writes."""
    for place, file, functions in _TELLING:
        if any(name == file and function in functions for name, function in frames):
            return place if place != "border" else border(rows, at) or "start"
    if any(name == "rollout.py" or function == "_drive" for name, function in frames):
        return "eval" if at < len(rows) and "eval/success" in rows[at] else "rollout"
    return "between" if any(name == "engine.py" for name, _ in frames) else "start"


def border(rows: Rows, at: int) -> str | None:
    """The border that is passed before row `at`, if any."""
    if not 0 < at < len(rows) or rows[at - 1]["stage"] == rows[at]["stage"]:
        return None
    return f"border before {rows[at]['stage']}"


def places_after(rows: Rows, at: int) -> Iterator[str]:
    """What a run does between its row `at - 1` and its row `at`, as far as its rows tell."""
    if at == len(rows):
        yield "save"
        return
    if "eval/success" in rows[at]:
        yield from ("sync", "eval")
        return
    yield from ("update",) if rows[at]["stage"] == STAGES[0] else ("rollout", "sync", "update")
    if passed := border(rows, at):
        yield passed
    if at and rows[at - 1]["total_step"] and rows[at - 1]["total_step"] % EVERY == 0:
        yield "save"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """When to kill: after so many rows, then at the first moment that looks like this, or after a while."""

    place: str
    row: int
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    target: Target
    fell: str
    rows: int
    half_written: bool
    """A checkpoint, or a model to measure divergences from, was left unfinished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a run leaves."""

    rows: Rows
    weights: str
    kills: int


@dataclass
class Bench:
    folder: Path
    recipe: str
    _fallen: Counter[str] = field(default_factory=Counter)

    def _root(self, name: str) -> Path:
        root = self.folder / name
        root.mkdir(exist_ok=True)
        (root / "recipe.yaml").write_text(self.recipe)
        return root

    def undisturbed(self, name: str) -> Finished:
        root = self._root(name)
        Life(root).finish()
        return finished(root, 0)

    def killed(self, count: int, whole: Finished, draws: random.Random) -> tuple[list[Kill], list[Finished]]:
        """Runs that are killed this often in total; every one of them comes to its end."""
        kills: list[Kill] = []
        ended: list[Finished] = []
        while len(kills) < count:
            root, before = self._root(f"killed-{len(ended)}"), len(kills)
            while len(kills) < count and (kill := self._one(root, whole, draws)) is not None:
                kills.append(kill)
                self._fallen[kill.fell] += 1
                print(f"{len(kills)}: {kill.fell}, {kill.rows} rows", file=sys.stderr)
            if not is_finished(root):
                Life(root, *resuming(root)).finish()
            ended.append(finished(root, len(kills) - before))
        return kills, ended

    def _one(self, root: Path, whole: Finished, draws: random.Random) -> Kill | None:
        """One life; None where it reached the end of the run."""
        kept = rows_kept(root)
        target = self._target(kept, whole.rows, draws)
        life = Life(root, *resuming(root))
        fell = wait_for(life, root, target, kept, whole.rows)
        if fell is None:
            life.finish()
            return None
        life.kill()
        return Kill(
            target=target,
            fell=fell,
            rows=num_rows(root),
            half_written=any((root / RUN).glob("*/.unfinished-*")),
        )

    def _target(self, kept: int, rows: Rows, draws: random.Random) -> Target:
        """Of what lies ahead, prefer what was hit least; a border that was never hit comes before all else."""
        ends = range(kept, min(kept + WINDOW, len(rows) + 1))
        ahead = [("start", 0), *((place, at) for at in ends for place in places_after(rows, at))]
        unseen = [each for each in ahead if each[0].startswith("border") and not self._fallen[each[0]]]
        if not unseen and draws.random() < ANYWHERE_SHARE:
            return Target(place=ANYWHERE, row=draws.choice(ends), delay_s=draws.uniform(0, 0.5))
        choices = unseen or ahead
        ((place, row),) = draws.choices(choices, [(1 + self._fallen[place]) ** -3 for place, _ in choices])
        return Target(place=place, row=row, delay_s=draws.uniform(0, START_S) if place == "start" else 0.0)


def wait_for(life: Life, root: Path, target: Target, kept: int, rows: Rows) -> str | None:
    """Returns at the moment to kill, with where the process stands; None where it ended first."""
    deadline = time.monotonic() + PATIENCE_S
    if target.place != "start":
        # rows of an earlier life go when this one takes up the checkpoint
        for enough in (lambda: num_rows(root) <= kept, lambda: num_rows(root) >= target.row):
            while not enough() and not life.over():
                time.sleep(0.001)
    time.sleep(target.delay_s)
    while not life.over():
        if time.monotonic() > deadline:
            raise SystemExit(f"no {target.place} after row {target.row}")
        at = num_rows(root)
        place = place_of(life.stack(), rows, at)
        # what was aimed at may be over before it is seen; then whatever comes is as good
        if place == target.place or target.place in ("start", ANYWHERE) or at > target.row + 2:
            return place
        time.sleep(0.0005)
    return None


# --- the run folder, from outside ------------------------------------------------------------------------------------


def num_rows(root: Path) -> int:
    with suppress(OSError):
        return (root / RUN / "metrics.jsonl").read_bytes().count(b"\n")
    return 0


def newest(root: Path) -> Mapping[str, Any]:
    """Progress of the last whole checkpoint; empty where there is none."""
    steps = (root / RUN / "checkpoints").glob("step-*")
    last = max(steps, key=lambda path: int(path.name.removeprefix("step-")), default=None)
    progress: Mapping[str, Any] = json.loads((last / "progress.json").read_text()) if last else {}
    return progress


def rows_kept(root: Path) -> int:
    """Rows that a resumed run starts with."""
    size = newest(root).get("metrics_bytes", 0)
    return (root / RUN / "metrics.jsonl").read_bytes()[:size].count(b"\n") if size else 0


def resuming(root: Path) -> list[str]:
    return ["--resume"] if (root / RUN / "plan.json").exists() else []


def is_finished(root: Path) -> bool:
    return bool(newest(root).get("finished"))


def finished(root: Path, kills: int) -> Finished:
    assert is_finished(root), f"{root} is not finished"
    lines = (root / RUN / "metrics.jsonl").read_text().splitlines()
    rows = [lasting(json.loads(line)) for line in lines]
    model = root / RUN / "checkpoints" / f"step-{rows[-1]['total_step']}" / "model" / "model.safetensors"
    return Finished(rows=rows, weights=sha256(model.read_bytes()).hexdigest(), kills=kills)


def lasting(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(("time", "timing_s/", "perf/"))}


# --- what is shown -------------------------------------------------------------------------------------------------


def differs(whole: Finished, other: Finished) -> bool:
    return json.dumps(whole.rows) != json.dumps(other.rows) or whole.weights != other.weights


def compared(whole: Finished, other: Finished) -> str:
    same = sum(json.dumps(a) == json.dumps(b) for a, b in zip(whole.rows, other.rows, strict=False))
    apart = max((_apart(a, b) for a, b in zip(whole.rows, other.rows, strict=False)), default=0.0)
    weights = "the same" if whole.weights == other.weights else "others"
    return f"| {other.kills} | {len(other.rows)} | {len(whole.rows)} | {same} | {apart:.1e} | {weights} |"


def _apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """Largest difference of a number of a row, relative where it is large."""
    both = [(a[name], b.get(name, float("inf"))) for name in a if isinstance(a[name], int | float)]
    return max((abs(x - y) / max(1.0, abs(x)) for x, y in both), default=0.0)


def show(kills: Sequence[Kill], killed: Sequence[str], again: str | None) -> None:
    print("| where the kill fell | kills | after rows | aimed at | a checkpoint or model was half written |")
    print("|---|---|---|---|---|")
    for place in sorted({kill.fell for kill in kills}):
        here = [kill for kill in kills if kill.fell == place]
        rows = f"{min(kill.rows for kill in here)} to {max(kill.rows for kill in here)}"
        aimed = sum(kill.target.place == place for kill in here)
        print(f"| {place} | {len(here)} | {rows} | {aimed} | {sum(kill.half_written for kill in here)} |")
    print(f"\n{len(kills)} kills\n\n| kills | rows | of | bitwise equal | largest difference | model's weights |")
    print("|---|---|---|---|---|---|")
    print("\n".join(killed))
    if again:
        print(f"\ntwo runs that were never killed:\n{again}")


if __name__ == "__main__":
    sys.exit(main())
