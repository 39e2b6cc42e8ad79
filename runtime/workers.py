"""The workers, plain classes: one that plays episodes, one that learns. Where they live is `launch/`'s business.

`Crew` is what the engine sees of them: the one seam between deciding what is done and doing it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from ..dsl.algorithm import LossOn
from ..dsl.recipe import Environment, Format, TaskSelection
from ..envs.protocol import TaskInfo
from .agents.formats import FORMATS
from .demonstrate import Demonstrator
from .episode import Episode, Group, Task
from .ports import (
    Draw,
    Floats,
    Learner,
    Probe,
    Sampler,
    Scorer,
    TrainSequence,
    UpdateMetrics,
    UpdateSettings,
    WeightUpdate,
)
from .rendering import Chat
from .rollout import Budgets, Order, Phases, Player, play_groups
from .seeds import derive
from .tasks import chosen
from .worlds import Worlds

__all__ = ["Crew", "DemoStyle", "LearnerWorker", "PlayStyle", "RolloutWorker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayStyle:
    """How the episodes of one step are played, the same for all."""

    format: Format
    environments: Mapping[str, Environment]
    draw: Draw
    phases: Phases
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStyle:
    """How demonstrations are made."""

    format: Format
    environments: Mapping[str, Environment]
    noise: float
    loss_on: LossOn


class Crew(Protocol):
    """All that the engine asks to be done."""

    async def tasks(
        self, name: str, environment: Environment, selection: TaskSelection, seed: int
    ) -> tuple[TaskInfo, ...]: ...

    async def play(self, orders: Sequence[Order], style: PlayStyle, seen: Callable[[Episode], None]) -> list[Group]: ...

    async def demonstrate(
        self, tasks: Sequence[Task], style: DemoStyle, budgets: Budgets, seed: int
    ) -> list[Episode]: ...

    async def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics: ...

    async def logprobs(
        self, sequences: Sequence[TrainSequence], temperature: float, *, reference: bool
    ) -> list[Floats]: ...

    async def sync(self, version: int) -> None:
        """The learner's weights to the sampler, proven there."""
        ...

    async def save(self, folder: Path) -> None: ...

    async def load(self, folder: Path) -> None: ...

    async def export(self, folder: Path) -> None: ...

    async def close(self) -> None: ...


class RolloutWorker:
    """Plays: one sampling engine and the environments around it."""

    def __init__(
        self,
        sampler: Sampler,
        chat: Chat,
        encode: Callable[[str], list[int]],
        worlds: Worlds,
        clock: Callable[[], float],
    ) -> None:
        self.sampler = sampler
        self._chat = chat
        self._encode = encode
        self._worlds = worlds
        self._clock = clock

    async def tasks(
        self, name: str, environment: Environment, selection: TaskSelection, seed: int
    ) -> tuple[TaskInfo, ...]:
        world = await self._worlds.get(name, environment)
        return await chosen(world.client, selection, _listed(selection), name, seed)

    async def play(self, orders: Sequence[Order], style: PlayStyle, seen: Callable[[Episode], None]) -> list[Group]:
        player = Player(
            sampler=self.sampler,
            chat=self._chat,
            format=FORMATS[style.format],
            draw=replace(style.draw, stop_ids=(*style.draw.stop_ids, self._chat.end_of_reply)),
            phases=style.phases,
            clock=self._clock,
        )
        # what was cached while measuring or before a restart must not decide the last bits of what is sampled now
        await self.sampler.forget()
        return await play_groups(player, await self._worlds.all(style.environments), orders, style.slots, seen)

    async def demonstrate(self, tasks: Sequence[Task], style: DemoStyle, budgets: Budgets, seed: int) -> list[Episode]:
        demonstrator = Demonstrator(
            chat=self._chat,
            encode=self._encode,
            format=FORMATS[style.format],
            noise=style.noise,
            loss_on=style.loss_on,
        )
        worlds = await self._worlds.all(style.environments)
        # one after the other: demonstrations are made once, and their order is that of the data
        return [
            await demonstrator.attempt(worlds[task.environment], task, budgets, derive(seed, task.id, at))
            for at, task in enumerate(tasks)
        ]

    async def load(self, update: WeightUpdate) -> None:
        await self.sampler.load(update)

    async def close(self) -> None:
        await self.sampler.close()
        await self._worlds.close()


def _listed(selection: TaskSelection) -> tuple[str, ...] | None:
    if selection.file is None:
        return None
    lines = Path(selection.file).read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


class LearnerWorker:
    """Learns: the policy's learner, and the reference it is held to, if any."""

    def __init__(self, learner: Learner, reference: Callable[[], Scorer], vocab: int, tolerance: float) -> None:
        self.learner = learner
        self._probe = probe_ids(vocab)
        self._make_reference = reference
        self._reference: Scorer | None = None
        self._tolerance = tolerance

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float, *, reference: bool) -> list[Floats]:
        return (self.reference if reference else self.learner).logprobs(sequences, temperature)

    @property
    def reference(self) -> Scorer:
        # made when first asked for: a run without a divergence term never pays for it
        if self._reference is None:
            self._reference = self._make_reference()
        return self._reference

    def handover(self, version: int) -> WeightUpdate:
        """The weights, and a probe with which whoever gets them can prove that they arrived."""
        probe = Probe(ids=self._probe, logprobs=probe_logprobs(self.learner, self._probe), tolerance=self._tolerance)
        return WeightUpdate(version=version, tensors=self.learner.weights(), probe=probe)


def probe_ids(vocab: int, length: int = 48) -> tuple[int, ...]:
    """A sequence that touches tokens all over the vocabulary; the same in every run."""
    draws = np.random.Generator(np.random.PCG64(0)).integers(0, vocab, length)
    return tuple(int(token) for token in draws)


def probe_logprobs(scorer: Scorer, ids: Sequence[int]) -> Floats:
    """Of `ids[1:]`, each given all before it."""
    sequence = TrainSequence(
        ids=np.asarray(ids, np.int32),
        learn=np.arange(len(ids)) > 0,
        advantages=np.zeros(len(ids), np.float32),
    )
    return scorer.logprobs([sequence], 1.0)[0][1:]
