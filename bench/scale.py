"""Claim: where sampling and learning take equal time on processors of their own, a step that overlaps them is at least
1.6 times as fast as one that does not (aim 1.9); workers as Ray actors cost at most 10 % of a step (aim 5 %).

    python bench/scale.py overlap [--pairs 3] [--steps 40]      staleness 0, 1 and 2 in flight
    python bench/scale.py ray [--pairs 3] [--steps 40]          workers in this process and as actors
    python bench/scale.py controller [--seconds 60]             the driver of 128 engines with 10,000 episodes under way

Whole runs with real engines, one thread each, in turn, the first ten steps left out. `overlap` pins the sampler to one
core and the learner to another, and chooses how many passes over a batch an update makes, so that the halves are equal;
what they were is printed. It does so with episodes of equal length, and with one in eight that is eight times as long.
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
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from agym.dsl.model.plan import Role, Worker
from agym.dsl.model.recipe import Agent, Rollout
from agym.runtime.protocols import SamplingSettings, TrainSequence
from agym.runtime.rollout.episode import Ending, Episode, Group, Segment, Task, Turn
from agym.runtime.rollout.episode_runner import EpisodeLimits
from agym.runtime.rollout.groups import GroupRequest
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

Row = Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("overlap", "ray", "controller"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    if arguments.part == "controller":
        asyncio.run(controller(arguments.seconds))
    else:
        {"overlap": overlap, "ray": ray}[arguments.part](arguments.pairs, arguments.steps, arguments.hidden)


def overlap(pairs: int, steps: int, hidden: int) -> None:
    for name, (short, long, context) in LENGTHS.items():
        shape = {"short": short, "long": long, "context": context, "hidden": hidden, "launcher": "ray", "steps": steps}
        epochs = calibrate(shape)
        runs = [{way: run(shape | own | {"epochs": epochs}) for way, own in WAYS.items()} for _ in range(pairs)]
        sampling, learning = (median(half) for half in zip(*(halves(each[_BASE]) for each in runs), strict=True))
        print(f"\n{name}: {epochs} passes an update; sampling {sampling:.2f} s, learning {learning:.2f} s")
        for way in WAYS:
            seconds = median(step_seconds(each[way]) for each in runs)
            ratios = [step_seconds(each[_BASE]) / step_seconds(each[way]) for each in runs]
            print(f"  {way:24} {seconds:.3f} s a step; {spread(ratios)} times as fast", flush=True)


def ray(pairs: int, steps: int, hidden: int) -> None:
    short, long, context = LENGTHS["equal lengths"]
    shape = {"short": short, "long": long, "context": context, "hidden": hidden, "epochs": 1, "steps": steps}
    found = []
    for _ in range(pairs):
        actors, inline = (
            step_seconds(run(shape | WAYS[_BASE] | {"launcher": launcher}, pinned=False))
            for launcher in ("ray", "inline")
        )
        found.append((actors / inline, inline))
    print(
        f"actors by inline: {spread([ratio for ratio, _ in found])}; inline {median(s for _, s in found):.3f} s a step"
    )


def spread(values: Sequence[float]) -> str:
    return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def calibrate(shape: Mapping[str, object]) -> int:
    """Passes over a batch that take as long as its sampling."""
    sampling, learning = halves(run({**shape, **WAYS[_BASE], "epochs": 1, "steps": _SKIPPED + 6}))
    return max(1, round(sampling / learning))


def step_seconds(rows: Sequence[Row]) -> float:
    return mean(row["timing_s/step"] for row in rows[_SKIPPED:])


def halves(rows: Sequence[Row]) -> tuple[float, float]:
    """Seconds of sampling, with the weights' way there, and of all else."""
    sampling = median(row["timing_s/rollout"] + row["timing_s/sync"] for row in rows[_SKIPPED:])
    return sampling, median(row["timing_s/step"] for row in rows[_SKIPPED:]) - sampling


def run(settings: Mapping[str, object], *, pinned: bool = True) -> list[Row]:
    with TemporaryDirectory(prefix="agym-scale-") as folder:
        recipe = Path(folder) / "recipe.yaml"
        recipe.write_text(RECIPE.format(**settings))
        command = [sys.executable, "-m", "agym", "run", str(recipe)]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + _PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline:
            if pinned:
                pin(process.pid)
            time.sleep(0.5)
        if process.wait(1.0):
            raise RuntimeError(f"the run ended with {process.returncode}: {settings}")
        lines = (Path(folder) / "runs/scale/metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def pin(session: int) -> None:
    """The learner on the last core, all else of the run on the first."""
    cores = sorted(os.sched_getaffinity(0))
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name = (folder / "cmdline").read_text()
            if os.getsid(int(folder.name)) != session and not name.startswith("ray::"):
                continue
            core = cores[-1 if "LearnerActor" in name else 0]
            for task in (folder / "task").iterdir():
                os.sched_setaffinity(int(task.name), {core})


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

    samplers = Samplers([partial(create, rank) for rank in range(_ENGINES)], print)
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
    print(f"out to {_ENGINES} ranks: {1e3 * hand_out(episodes[:2000]):.2f} ms an episode")
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


def hand_out(episodes: Sequence[Episode]) -> float:
    """Seconds of a core to put an episode, as it is trained on, where a rank reads it."""
    import ray

    sequences = [
        TrainSequence(
            ids=segment.ids,
            loss_mask=segment.sampled,
            advantages=np.ones(_TOKENS, np.float32),
            old_logprobs=segment.logprobs,
            reference_logprobs=segment.logprobs.copy(),
        )
        for episode in episodes
        for segment in episode.segments
    ]
    started = time.process_time()
    for share in divide(sequences, _ENGINES):
        ray.put([sequences[at] for at in share])
    return (time.process_time() - started) / len(sequences)


def vars_of(segment: Segment) -> list[Any]:
    return [segment.ids, segment.sampled, segment.logprobs, segment.versions]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
