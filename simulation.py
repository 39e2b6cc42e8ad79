"""How long a step would take, and which workers would wait: the queue of groups and the division of sequences are those
of a run; engines and ranks only count tokens, at the rates of `dsl/planning/speeds.py`. Nothing is run, and
environments take no time.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from heapq import heappop, heappush
from math import inf
from statistics import fmean

import numpy as np

from .dsl.model.plan import OpKind, Plan, PlanStage, Role
from .dsl.model.recipe import DType, Layout, ModelShape
from .dsl.planning.memory import kv_bytes_per_token
from .dsl.planning.speeds import ASSUMED, SPEEDS, Speed, iteration_seconds, pass_seconds
from .runtime.protocols import TrainSequence
from .runtime.rollout.episode import Task
from .runtime.rollout.group_queue import GroupQueue, TurnLengths
from .runtime.rollout.groups import GroupRequest
from .runtime.rollout.player import EpisodeLimits
from .runtime.workers.division import divide

__all__ = ["Lengths", "Played", "Simulation", "StepTimes", "simulate", "simulate_play"]

_MEAN_SHARE = 0.5
"""Mean length of an episode, as a share of the longest there can be."""
_SPREAD = 0.8
"""Standard deviation of the logarithm of a heavy-tailed length."""
_WIDTH = 2


class Lengths(StrEnum):
    """How much episodes differ in length."""

    EVEN = "even"
    HEAVY = "heavy"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of a step, and shares of it in which workers have nothing to do."""

    rollout_s: float
    sync_s: float
    learning_s: float
    step_s: float
    engines_idle: float | None
    """None where nothing is sampled."""
    learners_idle: float | None
    gpus_idle: float | None
    """Of GPUs that engines and learners share; None where each has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A play: seconds until its last episode ended, and those in which each engine sampled."""

    seconds: float
    busy: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A step of each stage, by the stage's name."""

    lengths: Lengths
    stages: tuple[tuple[str, StepTimes], ...]
    unknown: str | None
    """Why there are no times, if so."""
    mean_share: float = _MEAN_SHARE


def simulate(plan: Plan, lengths: Lengths) -> Simulation:
    """Simulate a step of each stage at its largest horizon."""
    unknown = _why_unknown(plan)
    stages = () if unknown else tuple((each.settings.stage, _simulate(plan, each, lengths)) for each in plan.stages)
    return Simulation(lengths=lengths, stages=stages, unknown=unknown)


def _why_unknown(plan: Plan) -> str | None:
    if plan.shape is None:
        return "the sizes of the model are not at hand (see model.shape)"
    if plan.hardware.gpu is None:
        return "there are no rates for a CPU" if not plan.hardware.gpus_per_node else "hardware.gpu is not given"
    if plan.model.dtype is DType.FP32:
        return "the rates are those of half precision"
    return None


def _simulate(plan: Plan, stage: PlanStage, lengths: Lengths) -> StepTimes:
    assert plan.shape is not None
    assert plan.hardware.gpu is not None
    simulated = _Stage(plan, stage, plan.shape, SPEEDS[plan.hardware.gpu], _draw(stage, lengths, plan.seed))
    played, learned = simulated.play(), simulated.learn()
    rollout, learning = played.seconds if played else 0.0, max(learned, default=0.0)
    sent = plan.budget.transfer
    sync = (sent.seconds or 0.0) if sent and played and learned else 0.0
    shared = plan.hardware.layout is Layout.COLOCATED
    overlaps = plan.hardware.staleness > 0 and not shared
    step = sync + (max(rollout, learning) if overlaps else rollout + learning)
    busy, taught = fmean(played.busy) if played else 0.0, fmean(learned) if learned else 0.0
    return StepTimes(
        rollout_s=rollout,
        sync_s=sync,
        learning_s=learning,
        step_s=step,
        engines_idle=1 - busy / step if played and step else None,
        learners_idle=1 - taught / step if learned and step else None,
        gpus_idle=1 - (busy + taught) / step if shared and step else None,
    )


def _draw(stage: PlanStage, lengths: Lengths, seed: int) -> list[float]:
    """Lengths of the step's episodes, as shares of the longest there can be."""
    count = stage.budget.episodes_per_step
    if lengths is Lengths.EVEN:
        return [_MEAN_SHARE] * count
    draws = random.Random(seed)
    drawn = [min(draws.lognormvariate(0.0, _SPREAD), 4.0) for _ in range(count)]
    mean = fmean(drawn) if drawn else 1.0
    return [min(1.0, _MEAN_SHARE * each / mean) for each in drawn]


# --- a step --------------------------------------------------------------------------------------------------------


class _Stage:
    def __init__(self, plan: Plan, stage: PlanStage, shape: ModelShape, speed: Speed, shares: Sequence[float]) -> None:
        self._plan, self._stage, self._shape, self._speed, self._shares = plan, stage, shape, speed, shares
        self._context = stage.settings.agent.context_tokens

    def play(self) -> Played | None:
        budget, share = self._stage.budget, self._plan.hardware.rollout.tensor_parallel
        if not budget.episodes_per_step:
            return None
        longest = budget.max_sampled_tokens_per_step / budget.episodes_per_step
        observed, context = self._context / longest - 1, self._context * fmean(self._shares) / 2
        engines = _count(self._plan, Role.ROLLOUT)
        slots = -(-(self._plan.rollout.slots or budget.episodes_per_step) // engines)

        @cache
        def seconds(running: int) -> float:
            """An iteration, and its share of the observations that are read between turns."""
            sampled = iteration_seconds(self._shape, self._speed, _WIDTH, share, running, context)
            read = pass_seconds(self._shape, self._speed, running, context, max(observed, 0.0), ASSUMED.scoring)
            return sampled + read / share

        return simulate_play(
            self._requests(), [each * longest for each in self._shares], engines, min(slots, self._room()), seconds
        )

    def _requests(self) -> list[GroupRequest]:
        groups, budget = self._stage.settings.algorithm.groups_per_step, self._stage.budget
        limits = EpisodeLimits(horizon=budget.max_turns, tokens_per_turn=1, context_tokens=self._context)
        size = budget.episodes_per_step // groups
        tasks = [Task(environment="", id=str(at), seed=at) for at in range(groups)]
        return [GroupRequest(task=task, size=size, limits=limits, seed=0) for task in tasks]

    def _room(self) -> int:
        """Episodes of mean length whose caches fit into an engine's."""
        uses = [use for use in self._plan.budget.memory if use.role is Role.ROLLOUT and not use.host]
        cache = sum(item.bytes for use in uses for item in use.items if item.what == "cache")
        token = kv_bytes_per_token(self._shape, _WIDTH, self._plan.hardware.rollout.tensor_parallel)
        return max(1, int(cache / (token * self._context * fmean(self._shares))))

    def learn(self) -> list[float]:
        """Seconds of each rank, by the tokens that it gets."""
        passes = [_PASSES[op.kind] for op in self._stage.ops if op.kind in _PASSES]
        again = self._plan.hardware.train.activation_checkpointing
        # each epoch trains on the step's tokens, which are scored once
        forward = sum(not learns for learns in passes) / self._stage.settings.algorithm.epochs
        both = sum(learns for learns in passes) * (4 if again else 3)
        return [
            pass_seconds(self._shape, self._speed, tokens, self._context * _MEAN_SHARE / 2, forward, ASSUMED.scoring)
            + pass_seconds(self._shape, self._speed, tokens, self._context * _MEAN_SHARE / 2, both, ASSUMED.learning)
            for tokens in (self._divided() if passes else ())
        ]

    def _divided(self) -> list[int]:
        """Tokens of each rank."""
        most, ranks = self._stage.budget.max_trained_tokens_per_step, _count(self._plan, Role.LEARNER)
        shared = self._plan.hardware.train.sequence_parallel
        if not self._shares:
            return [int(most * _MEAN_SHARE) // ranks] * ranks
        # with a cut memory or several epochs, an episode has more tokens than its context
        whole = most / len(self._shares)
        sequences = [_sequence(int(share * self._context)) for share in self._shares]
        tokens = [sum(len(sequences[at].ids) for at in part) for part in divide(sequences, ranks // shared)]
        return [int(each * whole / self._context / shared) for each in tokens for _ in range(shared)]


_PASSES: Mapping[OpKind, bool] = {
    OpKind.REFERENCE: False,
    OpKind.OLD_LOGPROBS: False,
    OpKind.VALUES: False,
    OpKind.UPDATE: True,
    OpKind.CRITIC: True,
    OpKind.SFT: True,
    OpKind.PREFERENCE: True,
}
"""Ops that pass over the step's tokens, and whether they train; a critic of the policy's size is assumed."""


def _count(plan: Plan, role: Role) -> int:
    return sum(worker.role is role for worker in plan.placement.workers) or 1


def _sequence(tokens: int) -> TrainSequence:
    ids = np.broadcast_to(np.int32(0), max(tokens, 1))
    return TrainSequence(ids=ids, loss_mask=ids.astype(bool), advantages=np.zeros(0, np.float32))


# --- a play --------------------------------------------------------------------------------------------------------


def simulate_play(
    requests: Sequence[GroupRequest],
    tokens: Sequence[float],
    engines: int,
    slots: int,
    seconds: Callable[[int], float],
) -> Played:
    """Play groups on engines of so many slots, where `tokens` are those of all episodes, group by group. An engine
    samples one token of each of its running episodes in `seconds(running)`."""
    upcoming, lengths = iter(tokens), list[list[float]]()
    for request in requests:
        lengths.append([next(upcoming) for _ in range(request.size)])
    queue, members = GroupQueue(requests, TurnLengths(), slots), [_Engine(slots, seconds) for _ in range(engines)]
    for at in range(engines):
        queue.add_engine(at)
    now = 0.0
    while True:
        while (pair := queue.assign()) is not None:
            members[pair[0]].take(lengths[pair[1]], now)
        engine = min(range(engines), key=lambda at: members[at].next_end())
        if members[engine].next_end() == inf:
            return Played(seconds=now, busy=tuple(member.busy for member in members))
        now = members[engine].next_end()
        members[engine].end_next()
        queue.end_episode(engine)


class _Engine:
    """Episodes that share an engine: each gets one token in an iteration."""

    def __init__(self, slots: int, seconds: Callable[[int], float]) -> None:
        self._slots, self._seconds = slots, seconds
        self._waiting = deque[float]()
        self._ends: list[float] = []
        """Iterations after which the running episodes end."""
        self._iterations = self._now = self.busy = 0.0

    def take(self, lengths: Sequence[float], now: float) -> None:
        self._advance(now)
        self._waiting.extend(lengths)
        self._fill()

    def next_end(self) -> float:
        if not self._ends:
            return inf
        return self._now + (self._ends[0] - self._iterations) * self._seconds(len(self._ends))

    def end_next(self) -> None:
        self._advance(self.next_end())
        heappop(self._ends)
        self._fill()

    def _advance(self, now: float) -> None:
        if self._ends:
            self._iterations += (now - self._now) / self._seconds(len(self._ends))
            self.busy += now - self._now
        self._now = now

    def _fill(self) -> None:
        while self._waiting and len(self._ends) < self._slots:
            heappush(self._ends, self._iterations + self._waiting.popleft())
