"""Claim: where sampling and learning take equal time on processors of their own, a step that overlaps them is at least
1.6 times as fast as one that does not (aim 1.9); workers as Ray actors cost at most 10 % of a step (aim 5 %).

    python bench/scale.py overlap [--pairs 3] [--steps 40]      staleness 0, 1 and 2 in flight
    python bench/scale.py ray [--pairs 3] [--steps 40]          workers in this process and as actors
    python bench/scale.py transfer                              seconds per GB of weights, through the object store
    python bench/scale.py controller [--seconds 60]             the driver of 128 engines with 10,000 episodes under way

Whole runs with real engines, one thread each, in turn, the first ten steps left out; a ratio is that of the two runs of
a pair. `overlap` pins the learner to one core and all else to another, and chooses how many passes over a batch an
update makes, so that the halves of a run that overlaps are as equal as whole passes allow. It does so with episodes of
equal length, and with one in eight that is eight times as long. It prints what the halves would allow if they cost each
other nothing: with staleness 1 each step takes as long as the learning or the next batch, in flight a run as long as
its longer half. Learning takes one more pass there, as the log-probs of older samples are recomputed. A worker is idle
while its process uses no processor. `ray` also prints the processor time of a step, which another's load lengthens less
than the step.
`controller` plays three batches that fill all slots, with 16 real actors that make their episodes up, the other engines
in this process; `--seconds` is how long an episode takes on average. It claims less than one core, and less than 50 KB
an episode besides its tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
from agym.dsl.model.plan import Role, Worker
from agym.dsl.model.recipe import Agent, Rollout
from agym.runtime.protocols import SamplingSettings, TrainSequence
from agym.runtime.rollout.episode import Ending, Episode, Group, Segment, Task, Turn
from agym.runtime.rollout.groups import GroupRequest
from agym.runtime.rollout.player import EpisodeLimits
from agym.runtime.seeds import derive
from agym.runtime.workers.division import divide
from agym.runtime.workers.ray_actors import Played, Said
from agym.runtime.workers.ray_member import Member
from agym.runtime.workers.ray_samplers import Samplers
from agym.runtime.workers.rollout_worker import PlaySettings

RECIPE = """
agym: 1
name: scale
model: {{init: {{layers: 2, hidden: {hidden}, heads: 4, kv_heads: 2, tokenizer: {{kind: word, vocab: 320}}}}}}
environments:
  short: {{use: textcraft, options: {{world: small, terse: true}}, weight: 7, turns: {short}}}
  long: {{use: textcraft, options: {{world: small, terse: true}}, weight: 1, turns: {long}}}
agent: {{format: plain, tokens_per_turn: 8, context_tokens: {context}}}
algorithm: {{use: grpo, group_size: 4, groups_per_step: 16, lr: 1e-5, epochs: {epochs}}}
reward: 0 - 0.01 * sampled_tokens
schedule: [{{stage: exploit, turns: 40, until: step >= {steps}}}]
eval: null
checkpoint: {{every: 100000, export: false}}
hardware: {{launcher: {launcher}, threads: 1, staleness: {staleness}, in_flight: {in_flight}}}
rollout: {{slots: 32}}
guards: {{kl_max: null, mismatch_max: null, mismatch_ratio_max: null}}
"""
LENGTHS = {"equal lengths": (4, 4, 256), "heavy tails": (3, 24, 768)}
"""Turns of seven episodes in eight, of the eighth, and the context that holds them."""
WAYS: Mapping[str, dict[str, object]] = {
    "staleness 0": {"staleness": 0, "in_flight": "false"},
    "staleness 1": {"staleness": 1, "in_flight": "false"},
    "staleness 2, in flight": {"staleness": 2, "in_flight": "true"},
}
_BASE = "staleness 0"
_SKIPPED = 10
_PATIENCE_S = 600.0
_POLL_S = 1.0
_HALVES = ("rollout", "sync"), ("reward", "reference", "old_logprobs", "advantage", "update")
"""Ops of sampling and of learning."""
_ACTORS = {"sampler": "ray::RolloutActor", "learner": "ray::LearnerActor"}
"""What the processes of each kind of worker are called."""

Row = Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("overlap", "ray", "transfer", "controller"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    if arguments.part == "controller":
        asyncio.run(controller(arguments.seconds))
    elif arguments.part == "transfer":
        subprocess.run([sys.executable, str(Path(__file__).with_name("sync.py")), "--store"], check=True)
    else:
        {"overlap": overlap, "ray": ray}[arguments.part](arguments.pairs, arguments.steps, arguments.hidden)


def overlap(pairs: int, steps: int, hidden: int) -> None:
    for name, (short, long, context) in LENGTHS.items():
        shape = {"short": short, "long": long, "context": context, "hidden": hidden, "launcher": "ray", "steps": steps}
        epochs = calibrate(shape)
        print(f"\n{name}: {epochs} passes an update")
        ratios: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(pairs):
            runs = {way: run(shape | own | {"epochs": epochs}) for way, own in WAYS.items()}
            base = step_seconds(runs[_BASE])
            for way, each in runs.items():
                ratios[way].append(base / step_seconds(each))
                sampling, learning = (mean(half) for half in halves(each))
                print(
                    f"  {way:24} {step_seconds(each):.3f} s a step (sampling {sampling:.3f}, learning {learning:.3f}); "
                    f"{ratios[way][-1]:.3f} times as fast, of {allowed(runs[_BASE], each, way):.3f} that the halves "
                    f"allow; {describe_idle(each)}",
                    flush=True,
                )
        for way in WAYS:
            print(f"  {way:24} {spread(ratios[way])} times as fast, {pairs} pairs", flush=True)


def ray(pairs: int, steps: int, hidden: int) -> None:
    short, long, context = LENGTHS["equal lengths"]
    shape = {"short": short, "long": long, "context": context, "hidden": hidden, "epochs": 1, "steps": steps}
    ratios = []
    for at in range(pairs):
        found = {}
        # each goes first in every other pair
        for launcher in ("ray", "inline")[:: 1 if at % 2 else -1]:
            found[launcher] = run(shape | WAYS[_BASE] | {"launcher": launcher}, pinned=False)
        actors, inline = found["ray"], found["inline"]
        ratios.append(step_seconds(actors) / step_seconds(inline))
        print(
            f"actors {step_seconds(actors):.3f} s a step, inline {step_seconds(inline):.3f} s: {ratios[-1]:.3f}; "
            f"{describe_idle(actors)}"
        )
        for launcher, each in found.items():
            spent = {kind: cores * step_seconds(each) for kind, cores in each.cores.items()}
            kinds = ", ".join(f"{kind} {seconds:.3f}" for kind, seconds in spent.items())
            print(f"  {launcher}: processor {sum(spent.values()):.3f} s a step: {kinds}", flush=True)
        print(f"  the driver's part is {100 * actors.cores['driver']:.1f} % of a step", flush=True)
    print(f"actors by inline: {spread(ratios)}, {pairs} pairs")


def spread(values: Sequence[float]) -> str:
    return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def describe_idle(run: Run) -> str:
    return "idle: " + ", ".join(f"{kind} {100 * (1 - run.cores[kind]):.0f} %" for kind in _ACTORS if kind in run.cores)


def calibrate(shape: Mapping[str, object]) -> int:
    """Passes over a batch that take as long as its sampling, apart from what learning takes however many there are."""
    tried = run({**shape, **WAYS["staleness 1"], "epochs": 1, "steps": _SKIPPED + 10})
    sampling, learning = (mean(half) for half in halves(tried))
    one = mean(row["timing_s/update"] for row in tried.rows[_SKIPPED:])
    return max(1, 1 + round((sampling - learning) / one))


def step_seconds(run: Run) -> float:
    return mean(row["timing_s/step"] for row in run.rows[_SKIPPED:])


def halves(run: Run) -> tuple[list[float], list[float]]:
    """Seconds of sampling, with the weights' way there, and of learning, in each step."""
    sampling, learning = (
        [sum(row.get(f"timing_s/{op}", 0.0) for op in ops) for row in run.rows[_SKIPPED:]] for ops in _HALVES
    )
    return sampling, learning


def allowed(base: Run, run: Run, way: str) -> float:
    """How many times as fast a way would be if its halves cost each other nothing."""
    sampling, learning = halves(base)[0], halves(run)[1]
    seconds = {
        "staleness 0": step_seconds(base) * len(learning),
        "staleness 1": sum(map(max, [*sampling[1:], sampling[0]], learning)),
        "staleness 2, in flight": max(sum(sampling), sum(learning)),
    }
    return step_seconds(base) * len(learning) / seconds[way]


def run(settings: Mapping[str, object], *, pinned: bool = True) -> Run:
    with TemporaryDirectory(prefix="agym-scale-") as folder:
        recipe, metrics = Path(folder) / "recipe.yaml", Path(folder) / "runs/scale/metrics.jsonl"
        recipe.write_text(RECIPE.format(**settings))
        command = [sys.executable, "-m", "agym", "run", str(recipe)]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        begun, ended = None, Spent.now(process.pid)
        deadline = time.monotonic() + _PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline:
            if pinned:
                pin(process.pid)
            if _SKIPPED <= count_rows(metrics) < int(str(settings["steps"])):
                ended = Spent.now(process.pid)
                begun = begun or ended
            time.sleep(_POLL_S)
        if process.wait(1.0):
            raise RuntimeError(f"the run ended with {process.returncode}: {settings}")
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        return Run(rows, ended.since(begun or ended))


def count_rows(metrics: Path) -> int:
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


@dataclass(frozen=True, slots=True)
class Run:
    """What a run left behind."""

    rows: Sequence[Row]
    cores: Mapping[str, float]
    """Processor seconds per second of each kind of process."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor seconds by kind of process, at some moment."""

    wall: float
    process: Mapping[str, float]

    @classmethod
    def now(cls, driver: int) -> Spent:
        process: Counter[str] = Counter()
        for each in list_processes(driver):
            with suppress(psutil.Error):
                times = each.cpu_times()
                process[kind_of(each, driver)] += times.user + times.system
        return cls(time.perf_counter(), process)

    def since(self, before: Spent) -> dict[str, float]:
        seconds = self.wall - before.wall
        return {kind: (spent - before.process.get(kind, 0.0)) / seconds for kind, spent in self.process.items()}


def list_processes(driver: int) -> list[psutil.Process]:
    """A run's own: what its driver started, and what those did."""
    try:
        first = psutil.Process(driver)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kind_of(process: psutil.Process, driver: int) -> str:
    name = " ".join(process.cmdline())
    return next(
        (kind for kind, actor in _ACTORS.items() if name.startswith(actor)),
        "driver" if process.pid == driver else "Ray's own",
    )


def pin(driver: int) -> None:
    """The learner on the last core, all else of the run on the first."""
    cores = sorted(os.sched_getaffinity(0))
    for process in list_processes(driver):
        with suppress(psutil.Error, OSError):
            core = cores[-1 if kind_of(process, driver) == "learner" else 0]
            for thread in process.threads():
                os.sched_setaffinity(thread.id, {core})


# --- the controller ------------------------------------------------------------------------------------------------

_ENGINES, _REAL, _EPISODES, _GROUP = 128, 16, 10_000, 8
_TOKENS, _TURNS, _BATCHES = 10_752, 30, 3


def make_episode(task: Task, index: int) -> Episode:
    """As long as the longest of the field: 30 turns of 358 tokens, with texts of 4 bytes a token."""
    draws = np.random.Generator(np.random.PCG64(derive(task.seed, index)))
    size = _TOKENS // _TURNS
    turns = tuple(
        Turn(
            segment=0,
            start=at * size,
            end=at * size + 40,
            reply="r" * 160,
            action="act",
            observation="o" * 4 * (size - 40),
            reward=0.0,
            state="s",
        )
        for at in range(_TURNS)
    )
    segment = Segment(
        ids=draws.integers(0, 150_000, _TOKENS, np.int32),
        sampled=np.arange(_TOKENS) % size < 40,
        logprobs=draws.random(_TOKENS, np.float32),
        versions=np.zeros(_TOKENS, np.int32),
    )
    return Episode(
        task=task,
        index=index,
        segments=(segment,),
        turns=turns,
        ending=Ending.DONE,
        horizon=_TURNS,
        score=1.0,
        success=True,
    )


class Imagined:
    """A rollout actor that waits instead of playing: a handle in this process, or an actor's class."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def ping(self) -> frozenset[int]:
        return frozenset()

    async def play(
        self, number: int, orders: Sequence[GroupRequest], style: PlaySettings, shared: str | None = None
    ) -> AsyncIterator[Said[Played]]:
        (order,) = orders
        draws = np.random.Generator(np.random.PCG64(order.seed))
        waits = np.sort(draws.lognormal(0.0, 0.5, order.size)) * self._seconds / np.exp(0.125)
        for at, wait in enumerate(np.diff(waits, prepend=0.0)):
            await asyncio.sleep(float(wait))
            yield Said(Played(episodes=[make_episode(order.task, at)]), ())
        yield Said(Played(groups=[range(order.size)]), ())


class Handle:
    """An imagined actor's handle, with the actor in this process."""

    def __init__(self, made: Imagined) -> None:
        self._made = made
        self.play = self

    def options(self, **_: object) -> Handle:
        return self

    async def remote(self, *words: Any) -> AsyncIterator[Any]:
        async for said in self._made.play(*words):
            ready = asyncio.get_running_loop().create_future()
            ready.set_result(said)
            yield ready


async def controller(seconds: float) -> None:
    import ray

    ray.init(num_cpus=_REAL, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    remote: Any = ray.remote(num_cpus=1, max_concurrency=1000)(Imagined)

    async def create(rank: int) -> Member:
        worker = Worker(id=f"rollout/{rank}", role=Role.ROLLOUT, rank=rank, node=rank // 2, gpus=(0,))
        return Member(worker, "here", remote.remote(seconds) if rank < _REAL else Handle(Imagined(seconds)), 60.0)

    samplers = Samplers([partial(create, rank) for rank in range(_ENGINES)], print, print)
    await samplers.prepare()
    settings = PlaySettings(
        agent=Agent(), environments={}, sampling=SamplingSettings(), timeouts=Rollout(), slots=_EPISODES
    )
    limits = EpisodeLimits(horizon=_TURNS, tokens_per_turn=_TOKENS // _TURNS, context_tokens=_TOKENS)
    requests = [
        GroupRequest(task=Task(environment="e", id=str(at), seed=at), size=_GROUP, limits=limits, seed=at)
        for at in range(_EPISODES // _GROUP * _BATCHES)
    ]
    made = measure_imagining()
    wall, process, memory = time.perf_counter(), time.process_time(), resident()
    groups = await samplers.play(requests, settings, lambda episode: None)
    wall, process = time.perf_counter() - wall, time.process_time() - process
    episodes = [episode for group in groups for episode in group.episodes]
    gc.collect()
    each = (resident() - memory) / len(episodes)
    tokens = sum(array.nbytes for array in vars_of(episodes[0].segments[0]))
    # what making up the episodes of the engines in this process takes is not the controller's
    own = process - made * len(episodes) * (_ENGINES - _REAL) / _ENGINES
    texts = sum(len(turn.reply) + len(turn.observation) for turn in episodes[0].turns)
    print(f"{len(episodes)} episodes of {_TOKENS} tokens in {wall:.0f} s, {_EPISODES} under way in {_ENGINES} engines")
    print(f"in: {own:.1f} s of a core, {own / wall:.3f} cores, {1e3 * own / len(episodes):.2f} ms an episode")
    print(f"memory: {each / 1e3:.1f} KB an episode, tokens {tokens / 1e3:.1f} KB, texts {texts / 1e3:.1f} KB")
    sequences = list(map(make_sequence, episodes[:2000]))
    print(f"out to {_ENGINES} ranks: {1e3 * hand_out(sequences):.2f} ms an episode")
    inward, outward = count_bytes(Said(Played(episodes=episodes[:1]), ())), count_bytes(sequences[:1])
    print(f"copied: {inward / 1e3:.1f} KB an episode in, {outward / 1e3:.1f} KB out at each call of the ranks")
    check(groups)
    ray.shutdown()


def check(groups: Sequence[Group]) -> None:
    for at, group in enumerate(groups):
        assert group.task.id == str(at)
        assert [episode.index for episode in group.episodes] == list(range(_GROUP))


def measure_imagining() -> float:
    started = time.process_time()
    for at in range(200):
        make_episode(Task(environment="e", id="x", seed=at), 0)
    return (time.process_time() - started) / 200


def make_sequence(episode: Episode) -> TrainSequence:
    """An episode as it is trained on."""
    (segment,) = episode.segments
    return TrainSequence(
        ids=segment.ids,
        loss_mask=segment.sampled,
        advantages=np.ones(_TOKENS, np.float32),
        old_logprobs=segment.logprobs,
        reference_logprobs=segment.logprobs.copy(),
    )


def hand_out(sequences: Sequence[TrainSequence]) -> float:
    """Seconds of a core to put a sequence where a rank reads it."""
    import ray

    started = time.process_time()
    for share in divide(sequences, _ENGINES):
        ray.put([sequences[at] for at in share])
    return (time.process_time() - started) / len(sequences)


def count_bytes(value: object) -> int:
    """Of what crosses to another process, arrays included."""
    arrays: list[pickle.PickleBuffer] = []
    return len(pickle.dumps(value, 5, buffer_callback=arrays.append)) + sum(each.raw().nbytes for each in arrays)


def vars_of(segment: Segment) -> list[Any]:
    return [segment.ids, segment.sampled, segment.logprobs, segment.versions]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
