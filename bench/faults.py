"""Claim: a run on Ray outlives every part of it; in its history each step appears once, and each group is trained on
once.

Two engines and two ranks learn a small game, with environments in servers. At random moments of each kind of call a
part is killed, or silently stopped: a sampler, a rank, an environment's server, Ray's raylet, the driver. After the
loss of the driver, and of the raylet that it depends on, the run is resumed; it handles everything else by itself.
Seconds are those from the kill to the next row of metrics after the run has noticed. What was seen is appended to
`kills.jsonl` in the folder, so that a bench that was interrupted continues where it was.

    python bench/faults.py FOLDER [--runs 8] [--kills 7] [--workers 2] [--staleness 0] [--victims rank,driver]
    python bench/faults.py FOLDER --cluster [...]    two Ray nodes in two network namespaces, with a worker of each kind
                                                     on each; the raylet of either is killed and started again, and the
                                                     link between them is cut for 20 s
    python bench/faults.py FOLDER --seconds 240      a part of it: no kill is begun later, and 45 s after that it ends
    python bench/faults.py FOLDER... --report        tables of what was seen so far in one folder or several
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
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from agym.runtime.backends.engine_variables import missing_variables
from agym.runtime.storage.episode_reader import EPISODES, TRAIN_LOG, read_chunks
from psutil import Process

RECIPE = """\
agym: 1
name: faults
model: {{init: {{layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {{kind: word, vocab: 512}}}}}}
environments: {{textcraft: {{use: textcraft, transport: http, options: {{world: small, terse: true}}}}}}
agent: {{format: plain, tokens_per_turn: 8, context_tokens: 256}}
algorithm: {{use: grpo, group_size: {group}, groups_per_step: {groups}, lr: 1e-3, kl: {{coef: 0.01, reference: stage}}}}
reward: score - 0.1 * invalid_turns - 0.01 * sampled_tokens
schedule:
  - {{stage: imitate, until: step >= {imitated},
     algorithm: {{use: sft, batch_size: 16, lr: 1e-2, data: {{limit: 100}}}}}}
  - {{stage: short, turns: 2, until: step >= {steps}}}
  - {{stage: long, turns: 4, until: step >= {steps}}}
eval: {{every: 5, limit: 16}}
checkpoint: {{every: 4, keep: 2, episodes: all}}
hardware:
  {{launcher: ray, workers_per_node: {workers}, threads: 1, staleness: {staleness}, heartbeat_s: 15, max_restarts: 5,
   train: {{zero: 2}}}}
"""
GROUP, GROUPS, IMITATED, STEPS = 4, 8, 4, 16
PLAYED, RUN = "recipe.yaml", "runs/faults"
PATIENCE_S = 900.0
"""For anything to happen: a run that hangs fails the bench."""
GRACE_S = 120.0
"""For a driver to save and end, or to see that its Ray is gone."""
LEFTOVER_S = 15.0
"""For the other processes to follow a driver that was killed."""
LAST_KILL_S = 45.0
"""For a kill that was begun before the bench's own time was up."""


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        return child(Path(sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--kills", type=int, default=7, help="in each run")
    parser.add_argument("--workers", type=int, help="engines, and ranks, on each node: 2, or 1 on a cluster")
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--victims", type=lambda text: text.split(","))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        return show(arguments.folders)
    arguments.folder = arguments.folders[0].resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    arguments.victims = arguments.victims or [
        name for name, victim in VICTIMS.items() if victim.on_cluster in (None, arguments.cluster)
    ]
    arguments.workers = arguments.workers or (1 if arguments.cluster else 2)
    arguments.until = time.monotonic() + arguments.seconds
    bench = Bench(arguments)
    try:
        with limited(arguments.seconds + LAST_KILL_S), open_place(arguments.cluster) as place:
            for number in range(arguments.runs):
                bench.finish(number, place)
    except OutOfTime:
        print(f"out of time after {len(bench.kills)} kills", file=sys.stderr)
    return show([arguments.folder])


class OutOfTime(BaseException):
    """The rest is for another call."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 0.0 if seconds == float("inf") else seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


OWN_NODE = "FAULTS_OWN_NODE"
"""Variable with the address of the Ray node that the driver runs on."""
# Ray makes workers give way to all else, and so to whatever other work there is
PRIORITY = {"RAY_worker_niceness": "0"}


def child(trace: Path, argv: Sequence[str]) -> int:
    """`agym`, in a process that writes down its phases, and at a signal where it stands."""
    from agym.cli import main as agym
    from agym.runtime.sinks.fanout import Fanout

    faulthandler.register(signal.SIGUSR1)
    if address := os.environ.get(OWN_NODE):
        import ray

        # Ray looks for a raylet among all processes, and would take one of the other network namespace
        ray.init = partial(ray.init, _node_ip_address=address)
    report = Fanout.phase

    def phase(self: Fanout, name: str) -> None:
        with trace.open("a") as file:
            file.write(name + "\n")
        report(self, name)

    Fanout.phase = phase  # type: ignore[method-assign]
    return agym(argv)


# --- where it runs --------------------------------------------------------------------------------------------------


class Place:
    """This machine, with a Ray of the run's own."""

    settings: Sequence[str] = ()

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(command, **options)

    def processes(self, driver: Process) -> list[Process]:
        """Those of the run, without the driver."""
        with suppress(psutil.Error):
            return list(driver.children(recursive=True))
        return []


SAMPLER, RANK, SERVER = "ray::RolloutActor", "ray::LearnerActor", "agym.envs.serving.serve"
OF_RUN = (SAMPLER, RANK, SERVER)


class Cluster(Place):
    """Two Ray nodes with a link between them, which outlive a run."""

    def __init__(self, nodes: Any) -> None:
        self.nodes, self.settings = nodes, nodes.settings

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        environ = {**options.pop("env"), OWN_NODE: self.nodes.address.partition(":")[0]}
        variables = [f"{name}={value}" for name, value in environ.items() if os.environ.get(name) != value]
        started: subprocess.Popen[Any] = self.nodes.start(0, "env", *variables, *command, **options)
        return started

    def lose_ray(self, node: int) -> None:
        """Kill Ray on a node; after a while, as a person would, start it again."""
        for pid in self.nodes.find(node, "raylet/raylet"):
            os.kill(pid, signal.SIGKILL)
        time.sleep(CUT_S)
        self.nodes.start_ray(node)

    def processes(self, driver: Process) -> list[Process]:
        found = list[Process]()
        for pid in (pid for node in (0, 1) for pid in self.nodes.list_pids(node) if pid != driver.pid):
            with suppress(psutil.Error):
                found.append(Process(pid))
        return [each for each in found if any(text in title(each) for text in OF_RUN)]


@contextmanager
def open_place(cluster: bool) -> Iterator[Place]:
    if not cluster:
        yield Place()
        return
    from two_nodes import two_nodes

    # no node has room for the other's workers, so that each kill of one hits some
    with two_nodes(cpus=2, environ=PRIORITY) as nodes:
        yield Cluster(nodes)


# --- who is hit -----------------------------------------------------------------------------------------------------


def title(process: Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def kill(text: str, number: signal.Signals = signal.SIGKILL) -> Callable[[Life, random.Random], bool]:
    """Hit one of the run's processes whose command has this text."""

    def hit(life: Life, draws: random.Random) -> bool:
        found = [each for each in life.place.processes(life.driver) if text in title(each)]
        if found:
            with suppress(psutil.Error):
                draws.choice(found).send_signal(number)
        return bool(found)

    return hit


def signal_driver(number: signal.Signals) -> Callable[[Life, random.Random], bool]:
    def hit(life: Life, draws: random.Random) -> bool:
        life.driver.send_signal(number)
        return True

    return hit


def lose_node(node: int) -> Callable[[Life, random.Random], bool]:
    def hit(life: Life, draws: random.Random) -> bool:
        assert isinstance(life.place, Cluster)
        life.place.lose_ray(node)
        return True

    return hit


def cut_link(life: Life, draws: random.Random) -> bool:
    assert isinstance(life.place, Cluster)
    life.place.nodes.cut()
    time.sleep(CUT_S)
    life.place.nodes.join()
    return True


CUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    hit: Callable[[Life, random.Random], bool]
    """Returns whether there was one."""
    ends_run: bool = False
    """Whether a person, or a scheduler, has to resume the run."""
    told: str | None = None
    """The event by which the run shows that it has noticed."""
    on_cluster: bool | None = None
    """Where there is such a victim; None for both places."""


VICTIMS: Mapping[str, Victim] = {
    "sampler": Victim(hit=kill(SAMPLER), told="worker_replaced"),
    "hung-sampler": Victim(hit=kill(SAMPLER, signal.SIGSTOP), told="worker_replaced"),
    "rank": Victim(hit=kill(RANK), told="learner_restarted"),
    "hung-rank": Victim(hit=kill(RANK, signal.SIGSTOP), told="learner_restarted"),
    "environment": Victim(hit=kill(SERVER)),
    "raylet": Victim(hit=kill("raylet/raylet"), ends_run=True, on_cluster=False),
    "head": Victim(hit=lose_node(0), ends_run=True, on_cluster=True),
    "node": Victim(hit=lose_node(1), told="learner_restarted", on_cluster=True),
    "link": Victim(hit=cut_link, on_cluster=True),
    "preemption": Victim(hit=signal_driver(signal.SIGTERM), ends_run=True),
    "driver": Victim(hit=signal_driver(signal.SIGKILL), ends_run=True),
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
    """Processes that outlived a driver, or the driver that did not see that its Ray was gone; they had to be ended."""
    load: float
    """Of the machine: processes that wanted a core, in the minute before the next row."""


class Life:
    """One process of a run, from its start to its end."""

    def __init__(self, root: Path, place: Place) -> None:
        self.root, self.place = root, place
        self._trace = root / "trace"
        self.start()

    def start(self) -> None:
        root = self.root
        self._trace.write_bytes(b"")
        resume = ["--resume"] if (root / RUN / "plan.json").exists() else []
        command = [sys.executable, __file__, "--child", str(self._trace), "run", PLAYED, *resume]
        command += self.place.settings
        environ = {**os.environ, **PRIORITY, **missing_variables(os.environ, threads=1, cpu=True)}
        with (root / "log").open("ab") as log:
            self._popen = self.place.start(
                command, cwd=root, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.driver = Process(self._popen.pid)

    def phase(self) -> str:
        lines = self._trace.read_text().splitlines()
        return lines[-1].partition(" ")[0] if lines else ""

    def is_over(self) -> bool:
        return self._popen.poll() is not None

    def end(self, held: Sequence[Process]) -> int:
        """Wait for the driver, which was killed or lost its Ray, and for what it had started; return how many of all
        these had to be ended."""
        hung = False
        try:
            self._popen.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            hung = True
            self._show_place()
        self._popen.kill()
        self._popen.wait()
        # Ray's agents report to a server that is gone, and give up after a minute
        agents = [each for each in held if _is_agent(each)]
        _, alive = psutil.wait_procs([each for each in held if each not in agents], timeout=LEFTOVER_S)
        for each in (*alive, *agents):
            with suppress(psutil.Error):
                each.kill()
        return len(alive) + hung

    def kill(self) -> None:
        for each in (self.driver, *self.place.processes(self.driver)):
            with suppress(psutil.Error):
                each.kill()
        self._popen.wait()

    def _show_place(self) -> None:
        """Have a driver that hangs write into its log where it does."""
        with suppress(psutil.Error):
            self.driver.send_signal(signal.SIGUSR1)
            time.sleep(2)

    def fail(self, what: str) -> None:
        self._show_place()
        raise SystemExit(f"{self.root}: {what}\n{(self.root / 'log').read_text()[-3000:]}")


def _is_agent(process: Process) -> bool:
    with suppress(psutil.Error):
        return " ".join(process.cmdline()).startswith(("ray::DashboardAgent", "ray::RuntimeEnvAgent"))
    return False


def num_rows(root: Path) -> int:
    with suppress(OSError):
        return (root / RUN / "metrics.jsonl").read_bytes().count(b"\n")
    return 0


KILLS = "kills.jsonl"


def read_kills(folder: Path) -> list[Kill]:
    file = folder / KILLS
    return [Kill(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self._file = arguments.folder / KILLS
        self.kills = read_kills(arguments.folder)

    def finish(self, number: int, place: Place) -> None:
        """A run, hit again and again until there were enough kills, and brought to its end."""
        root = self.arguments.folder / f"run-{number}"
        if is_finished(root):
            return
        sizes = {"group": GROUP, "groups": GROUPS, "imitated": IMITATED, "steps": STEPS}
        recipe = RECIPE.format(workers=self.arguments.workers, staleness=self.arguments.staleness, **sizes)
        root.mkdir(exist_ok=True)
        if not (root / PLAYED).exists():
            (root / PLAYED).write_text(recipe)
        life = Life(root, place)
        try:
            self._hit(life, number)
        finally:
            life.kill()

    def _hit(self, life: Life, number: int) -> None:
        root, draws = life.root, random.Random(f"{self.arguments.seed} {number} {len(self.kills)}")
        while sum(kill.run == number for kill in self.kills) < self.arguments.kills:
            if time.monotonic() > self.arguments.until:
                raise OutOfTime
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
        """Prefer what was hit least."""
        name = _least(self.arguments.victims, [kill.victim for kill in self.kills], draws)
        return name, _least(CALLS, [kill.call for kill in self.kills if kill.victim == name], draws)

    def _strike(self, life: Life, number: int, name: str, call: str, draws: random.Random) -> Kill | None:
        """One kill and its outcome; None where the run ended before it or with it, or had nobody to kill."""
        victim, root = VICTIMS[name], life.root
        # let it get some way further, past a checkpoint or not
        after = num_rows(root) + draws.randrange(1, 4)
        self._await(life, lambda: life.is_over() or num_rows(root) >= after, f"row {after}")
        self._await(life, lambda: life.is_over() or life.phase() == call, f"'{call}'", enough_s=5.0)
        time.sleep(draws.uniform(0, 0.2))
        held, fell, row = life.place.processes(life.driver), life.phase(), num_rows(root)
        started, before, told = time.monotonic(), num_discarded(root), num_events(root, victim.told)
        if life.is_over() or not victim.hit(life, draws):
            return None
        leftover = 0
        if victim.ends_run:
            leftover, row = life.end(held), num_rows(root)
            if is_finished(root):
                return None
            life.start()
            # a resume discards rows first; where it keeps none, the first one is awaited
            self._await(life, lambda: life.phase() == "stage" or life.is_over(), "the resume")
            row = min(row, num_rows(root))
        if victim.told is not None:
            # an idle worker is only missed when it is next called; rows until then say nothing
            self._await(life, lambda: life.is_over() or num_events(root, victim.told) > told, f"'{victim.told}'")
            row = num_rows(root)
        self._await_row(life, row)
        seconds = time.monotonic() - started
        if life.is_over():
            if not is_finished(root):
                life.fail(f"the run did not outlive '{name}' in '{fell}'")
            # it no longer needed what was killed
            return None
        return Kill(
            run=number,
            victim=name,
            call=fell,
            row=row,
            seconds=round(seconds, 2),
            discarded=num_discarded(root) - before,
            leftover=leftover,
            load=round(os.getloadavg()[0], 1),
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
        """Wait; no longer than `enough_s` for what may no longer come."""
        started = time.monotonic()
        while not holds():
            waited = time.monotonic() - started
            if waited > enough_s:
                return
            if waited > PATIENCE_S:
                life.fail(f"waited {PATIENCE_S:g} s for {what}")
            time.sleep(0.005)


def _least(names: Sequence[str], hit: Sequence[str], draws: random.Random) -> str:
    counts = Counter(hit)
    least = min(counts[name] for name in names)
    return draws.choice([name for name in names if counts[name] == least])


# --- what is left of it ----------------------------------------------------------------------------------------------


def num_events(root: Path, kind: str | None) -> int:
    return sum(event["kind"] == kind for event in events_of(root))


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
    wanted = sum(map(int, re.findall(r"step >= (\d+)", (root / PLAYED).read_text())))
    if steps != list(range(1, wanted + 1)):
        yield f"steps {steps}"
    seen = Counter[tuple[str, int, int]]()
    for chunk in read_chunks(root / RUN / EPISODES / TRAIN_LOG):
        episodes = [json.loads(line) for line in chunk.data.splitlines()]
        if len(episodes) != GROUP * GROUPS:
            yield f"step {episodes[0]['total_step']}: {len(episodes)} episodes"
        seen.update((each["task"]["id"], each["task"]["seed"], each["index"]) for each in episodes)
    if twice := [episode for episode, count in seen.items() if count > 1]:
        yield f"trained on more than once: {twice[:3]}"


def show(folders: Sequence[Path]) -> int:
    kills = [kill for folder in folders for kill in read_kills(folder)]
    print("| victim | kills | in | seconds to the next row: median | longest | load | steps discarded | left over |")
    print("|---|---|---|---|---|---|---|---|")
    for name in VICTIMS:
        hit = [kill for kill in kills if kill.victim == name]
        if hit:
            calls = ", ".join(f"{call} {count}" for call, count in sorted(Counter(kill.call for kill in hit).items()))
            times = [kill.seconds for kill in hit]
            lost, left = sum(kill.discarded for kill in hit), sum(kill.leftover for kill in hit)
            load = median(kill.load for kill in hit)
            seconds = f"{median(times):.1f} | {max(times):.1f} | {load:.1f}"
            print(f"| {name} | {len(hit)} | {calls} | {seconds} | {lost} | {left} |")
    print("\n| run | kills | restarts of the learner | steps discarded | resumes | workers replaced | wrong |")
    print("|---|---|---|---|---|---|---|")
    wrong = False
    for root in (root for folder in folders for root in sorted(folder.glob("run-*"))):
        name = f"{root.parent.name}/{root.name}"
        if not is_finished(root):
            print(f"| {name} | not finished | | | | | |")
            continue
        found = list(problems(root))
        wrong = wrong or bool(found)
        hits = sum(root.name == f"run-{kill.run}" for kill in read_kills(root.parent))
        print(f"| {name} | {hits} | {_row(events_of(root))} | {'; '.join(found)} |")
    return int(wrong)


def _row(events: Sequence[Mapping[str, Any]]) -> str:
    kinds = Counter(event["kind"] for event in events)
    discarded = sum(event.get("discarded_steps", 0) for event in events)
    replaced = sum(event.get("count", 0) for event in events)
    return f"{kinds['learner_restarted']} | {discarded} | {kinds['resume']} | {replaced}"


if __name__ == "__main__":
    sys.exit(main())
