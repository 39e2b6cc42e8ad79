"""Claim: a run on Ray outlives every part of it; in its history each step stands once, each group is trained on once.

Two engines and two ranks learn a small game, with environments in servers. At random moments of each kind of call a
part is killed, or stopped without a word: a sampler, a rank, an environment's server, Ray's raylet, the driver. After
the loss of the driver, and of the raylet that it depends on, the run is resumed; with all else it deals by itself.
Seconds are those from the kill to the next row of metrics. What was seen is appended to `kills.jsonl` in the folder,
so that a bench that was interrupted goes on where it was.

    python bench/faults.py FOLDER [--runs 8] [--kills 7] [--workers 2] [--staleness 0] [--seed 0] [--victims rank]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from agym.runtime.backends.engine_variables import missing_variables

RECIPE = """\
agym: 1
name: faults
model: {{init: {{layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {{kind: word, vocab: 512}}}}}}
environments: {{textcraft: {{use: textcraft, transport: http, options: {{world: small, terse: true}}}}}}
agent: {{format: plain, tokens_per_turn: 8, context_tokens: 256}}
algorithm: {{use: grpo, group_size: {group}, groups_per_step: {groups}, lr: 1e-3, kl: {{coef: 0.01, reference: stage}}}}
schedule:
  - {{stage: imitate, until: step >= 6, algorithm: {{use: sft, batch_size: 16, lr: 1e-2, data: {{limit: 100}}}}}}
  - {{stage: short, turns: 2, until: step >= {steps}}}
  - {{stage: long, turns: 4, until: step >= {steps}}}
eval: {{every: 5, limit: 16}}
checkpoint: {{every: 4, keep: 2, episodes: all}}
hardware:
  {{launcher: ray, workers_per_node: {workers}, threads: 1, staleness: {staleness}, heartbeat_s: 15, max_restarts: 5,
   train: {{zero: 2}}}}
"""
GROUP, GROUPS, STEPS = 4, 8, 16
RUN = "runs/faults"
PATIENCE_S = 900.0
"""For anything to happen: a run that hangs fails the bench."""
LEFTOVER_S = 15.0
"""For the other processes to follow a driver that was killed."""


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        return child(Path(sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--kills", type=int, default=7, help="in each run")
    parser.add_argument("--workers", type=int, default=2, help="engines, and ranks")
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--victims", type=lambda text: text.split(","), default=[*VICTIMS])
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments)
    for number in range(arguments.runs):
        bench.finish(number)
    return show(bench)


def child(trace: Path, argv: Sequence[str]) -> int:
    """`agym`, in a process that writes down its phases."""
    from agym.cli import main as agym
    from agym.runtime.sinks.fanout import Fanout

    report = Fanout.phase

    def phase(self: Fanout, name: str) -> None:
        with trace.open("a") as file:
            file.write(name + "\n")
        report(self, name)

    Fanout.phase = phase  # type: ignore[method-assign]
    return agym(argv)


# --- who is hit ----------------------------------------------------------------------------------------------------

Process = psutil.Process


def actors(name: str) -> Callable[[Process], list[Process]]:
    return lambda driver: [each for each in descendants(driver) if title(each).startswith(f"ray::{name}")]


def servers(driver: Process) -> list[Process]:
    """Servers of environments: what samplers started."""
    return [
        each
        for sampler in actors("RolloutActor")(driver)
        for each in descendants(sampler)
        if "envs" in title(each) and "serve" in title(each)
    ]


def descendants(process: Process) -> list[Process]:
    with suppress(psutil.Error):
        return list(process.children(recursive=True))
    return []


def title(process: Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    find: Callable[[Process], list[Process]]
    number: signal.Signals = signal.SIGKILL
    ends_run: bool = False
    """Whether a person, or a scheduler, has to resume the run."""


VICTIMS: Mapping[str, Victim] = {
    "sampler": Victim(find=actors("RolloutActor")),
    "sampler, silent": Victim(find=actors("RolloutActor"), number=signal.SIGSTOP),
    "rank": Victim(find=actors("LearnerActor")),
    "rank, silent": Victim(find=actors("LearnerActor"), number=signal.SIGSTOP),
    "environment": Victim(find=servers),
    "raylet": Victim(
        find=lambda driver: [each for each in descendants(driver) if "raylet/raylet" in title(each)], ends_run=True
    ),
    "preemption": Victim(find=lambda driver: [driver], number=signal.SIGTERM, ends_run=True),
    "driver": Victim(find=lambda driver: [driver], ends_run=True),
}
CALLS = ("stage", "rollout", "sync", "update", "eval", "save")
"""Phases of the driver in which workers are called; under `stage` these are asked for tasks and prompts."""


# --- a run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    run: int
    victim: str
    call: str
    """In which it fell."""
    row: int
    seconds: float
    """To the next row."""
    discarded: int
    """Steps that were done again."""
    leftover: int
    """Processes that outlived a driver and had to be ended."""


class Life:
    """One process of a run, from its start to its end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._trace = root / "trace"
        self.start()

    def start(self) -> None:
        root = self.root
        self._trace.write_bytes(b"")
        resume = ["--resume"] if (root / RUN / "plan.json").exists() else []
        command = [sys.executable, __file__, "--child", str(self._trace), "run", "recipe.yaml", *resume]
        environ = {**os.environ, **missing_variables(os.environ, threads=1, cpu=True)}
        with (root / "log").open("ab") as log:
            self._popen = subprocess.Popen(
                command, cwd=root, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.driver = Process(self._popen.pid)

    def phase(self) -> str:
        lines = self._trace.read_text().splitlines()
        return lines[-1].partition(" ")[0] if lines else ""

    def is_over(self) -> bool:
        return self._popen.poll() is not None

    def end(self, held: Sequence[Process]) -> int:
        """Wait for the driver, which was killed or lost its Ray, and for what it had started; return how many of these
        had to be ended."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(2 * LEFTOVER_S)
        self._popen.kill()
        self._popen.wait()
        _, alive = psutil.wait_procs(held, timeout=LEFTOVER_S)
        for each in alive:
            with suppress(psutil.Error):
                each.kill()
        return len(alive)

    def kill(self) -> None:
        held = descendants(self.driver)
        for each in (self.driver, *held):
            with suppress(psutil.Error):
                each.kill()
        self._popen.wait()

    def fail(self, what: str) -> None:
        raise SystemExit(f"{self.root}: {what}\n{(self.root / 'log').read_text()[-3000:]}")


def num_rows(root: Path) -> int:
    with suppress(OSError):
        return (root / RUN / "metrics.jsonl").read_bytes().count(b"\n")
    return 0


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self._file = arguments.folder / "kills.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self.kills = [Kill(**json.loads(line)) for line in lines]

    def root(self, number: int) -> Path:
        root: Path = self.arguments.folder / f"run-{number}"
        root.mkdir(exist_ok=True)
        recipe = RECIPE.format(
            workers=self.arguments.workers, staleness=self.arguments.staleness, group=GROUP, groups=GROUPS, steps=STEPS
        )
        (root / "recipe.yaml").write_text(recipe)
        return root

    def finish(self, number: int) -> None:
        """A run, hit again and again until there were enough kills, and brought to its end."""
        root = self.root(number)
        if is_finished(root):
            return
        life = Life(root)
        try:
            self._hit(life, number)
        finally:
            life.kill()

    def _hit(self, life: Life, number: int) -> None:
        root, draws = life.root, random.Random(f"{self.arguments.seed} {number} {len(self.kills)}")
        while sum(kill.run == number for kill in self.kills) < self.arguments.kills:
            name, call = self._draw(draws)
            kill = self._strike(life, number, name, call, draws)
            if kill is None:
                if life.is_over():
                    break
                continue
            self.kills.append(kill)
            with self._file.open("a") as file:
                file.write(json.dumps(asdict(kill)) + "\n")
            print(f"{len(self.kills)}: {kill}", file=sys.stderr, flush=True)
        self._await(life, life.is_over, "the end")
        if not is_finished(root):
            life.fail("the run ended early")

    def _draw(self, draws: random.Random) -> tuple[str, str]:
        """Rather what was hit least."""
        hit = Counter((kill.victim, kill.call) for kill in self.kills)
        pairs = [(name, call) for name in self.arguments.victims for call in CALLS]
        least = min(hit[pair] for pair in pairs)
        return draws.choice([pair for pair in pairs if hit[pair] == least])

    def _strike(self, life: Life, number: int, name: str, call: str, draws: random.Random) -> Kill | None:
        """One kill, and what came of it; None where the run ended before it, or had nobody to kill."""
        victim, root = VICTIMS[name], life.root
        # let it come some way from where it stands, over a checkpoint or not
        after = num_rows(root) + draws.randrange(1, 5)
        self._await(life, lambda: life.is_over() or num_rows(root) >= after, f"row {after}")
        self._await(life, lambda: life.is_over() or life.phase() == call, f"'{call}'", enough_s=60.0)
        time.sleep(draws.uniform(0, 0.2))
        held, found = descendants(life.driver), victim.find(life.driver)
        fell, row = life.phase(), num_rows(root)
        if life.is_over() or not found:
            return None
        started, before = time.monotonic(), num_discarded(root)
        with suppress(psutil.Error):
            draws.choice(found).send_signal(victim.number)
        leftover = 0
        if victim.ends_run:
            leftover, row = life.end(held), num_rows(root)
            if is_finished(root):
                return None
            life.start()
            # a resume discards rows first; from none that it keeps the first one is awaited
            self._await(life, lambda: life.phase() == "stage" or life.is_over(), "the resume")
            row = min(row, num_rows(root))
        self._await_row(life, row)
        seconds = time.monotonic() - started
        return Kill(
            run=number,
            victim=name,
            call=fell,
            row=row,
            seconds=round(seconds, 2),
            discarded=num_discarded(root) - before,
            leftover=leftover,
        )

    def _await_row(self, life: Life, row: int) -> None:
        """Wait for a row that is new; a restart discards some first."""
        least = row

        def grown() -> bool:
            nonlocal least
            now = num_rows(life.root)
            least = min(least, now)
            return now > least or life.is_over()

        self._await(life, grown, "another row")

    def _await(self, life: Life, holds: Callable[[], bool], what: str, enough_s: float = float("inf")) -> None:
        """Wait; not longer than is enough for what may not come any more."""
        started = time.monotonic()
        while not holds():
            waited = time.monotonic() - started
            if waited > enough_s:
                return
            if waited > PATIENCE_S:
                life.fail(f"waited {PATIENCE_S:g} s for {what}")
            time.sleep(0.005)


# --- what is left of it ----------------------------------------------------------------------------------------------


def num_discarded(root: Path) -> int:
    return sum(event.get("discarded_steps", 0) for event in events_of(root))


def events_of(root: Path) -> list[dict[str, Any]]:
    file = root / RUN / "events.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def is_finished(root: Path) -> bool:
    return any(event.get("outcome") == "finished" for event in events_of(root)[-1:])


def problems(root: Path) -> Iterator[str]:
    """What is wrong with the history of a finished run."""
    rows = [json.loads(line) for line in (root / RUN / "metrics.jsonl").read_text().splitlines()]
    steps = [row["total_step"] for row in rows if "step" in row]
    if steps != list(range(1, 6 + 2 * STEPS + 1)):
        yield f"steps {steps}"
    seen = Counter[tuple[str, int, int]]()
    for file in sorted((root / RUN / "episodes").glob("step-??????.jsonl")):
        episodes = [json.loads(line) for line in file.read_text().splitlines()]
        if len(episodes) != GROUP * GROUPS:
            yield f"{file.name}: {len(episodes)} episodes"
        seen.update((each["task"]["id"], each["task"]["seed"], each["index"]) for each in episodes)
    if twice := [episode for episode, count in seen.items() if count > 1]:
        yield f"trained on more than once: {twice[:3]}"


def show(bench: Bench) -> int:
    print("| victim | kills | in | seconds to the next row: median | longest | steps discarded | processes left over |")
    print("|---|---|---|---|---|---|---|")
    for name in VICTIMS:
        hit = [kill for kill in bench.kills if kill.victim == name]
        if hit:
            calls = ", ".join(f"{call} {count}" for call, count in sorted(Counter(kill.call for kill in hit).items()))
            times = [kill.seconds for kill in hit]
            lost, left = sum(kill.discarded for kill in hit), sum(kill.leftover for kill in hit)
            print(f"| {name} | {len(hit)} | {calls} | {median(times):.1f} | {max(times):.1f} | {lost} | {left} |")
    print("\n| run | kills | restarts of the learner | steps discarded | resumes | workers replaced | wrong |")
    print("|---|---|---|---|---|---|---|")
    wrong = False
    for number in range(bench.arguments.runs):
        root = bench.root(number)
        found = list(problems(root))
        wrong = wrong or bool(found)
        hits = sum(kill.run == number for kill in bench.kills)
        print(f"| {number} | {hits} | {_row(events_of(root))} | {'; '.join(found)} |")
    return int(wrong)


def _row(events: Sequence[Mapping[str, Any]]) -> str:
    kinds = Counter(event["kind"] for event in events)
    discarded = sum(event.get("discarded_steps", 0) for event in events)
    replaced = sum(event.get("count", 0) for event in events)
    return f"{kinds['learner_restarted']} | {discarded} | {kinds['resume']} | {replaced}"


if __name__ == "__main__":
    sys.exit(main())
