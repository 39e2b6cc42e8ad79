"""Every worker in this process: the embedded default, on one machine.

Enters: a Plan, a run folder, how to reach environments. Leaves: a Crew. One thread does everything in turn, so with
environments in this process the order of all requests is fixed, and with it every bit of a run. Nothing overlaps here:
what is begun while something else is under way waits for it, so that no environment is asked, and then left without a
listener for as long as an update takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from ...dsl.plan import Plan
from ...dsl.recipe import Environment, TaskSelection
from ...envs.protocol import TaskInfo
from ..dataset import Conversation
from ..episode import Episode, Group, Message, Task
from ..ports import (
    Floats,
    OptimizerSettings,
    Sampled,
    SampleRequest,
    TrainSequence,
    UpdateMetrics,
    UpdateSettings,
    ValueMetrics,
    ValueSettings,
)
from ..rollout import Budgets, Order
from ..workers import DemoStyle, LearnerWorker, PlayStyle, RolloutWorker
from ..worlds import Open, Worlds
from .building import learner_worker, prepare_model, rollout_worker

__all__ = ["InlineCrew", "launch"]


class InlineCrew:
    """One worker of each kind, called directly."""

    def __init__(self, rollout: RolloutWorker, learner: LearnerWorker) -> None:
        self._rollout = rollout
        self._learner = learner
        self._turn = asyncio.Lock()

    async def tasks(
        self, name: str, environment: Environment, selection: TaskSelection, seed: int
    ) -> tuple[TaskInfo, ...]:
        return await self._rollout.tasks(name, environment, selection, seed)

    async def play(self, orders: Sequence[Order], style: PlayStyle, seen: Callable[[Episode], None]) -> list[Group]:
        async with self._turn:
            return await self._rollout.play(orders, style, seen)

    async def demonstrate(self, tasks: Sequence[Task], style: DemoStyle, budgets: Budgets, seed: int) -> list[Episode]:
        return await self._rollout.demonstrate(tasks, style, budgets, seed)

    async def relabel(self, episodes: Sequence[Episode], style: DemoStyle, budgets: Budgets) -> list[Episode]:
        return await self._rollout.relabel(episodes, style, budgets)

    async def render(self, conversations: Sequence[Conversation], style: DemoStyle) -> list[Episode]:
        return await self._rollout.render(conversations, style)

    async def optimise_by(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        self._learner.optimise_by(settings, fresh=fresh)

    async def refer_to(self, model: Path | None) -> None:
        self._learner.refer_to(model)

    async def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        async with self._turn:
            await self._rollout.rest()
            return self._learner.update(sequences, settings)

    async def logprobs(
        self, sequences: Sequence[TrainSequence], temperature: float, *, reference: bool
    ) -> list[Floats]:
        async with self._turn:
            await self._rollout.rest()
            return self._learner.logprobs(sequences, temperature, reference=reference)

    async def values(self, sequences: Sequence[TrainSequence]) -> list[Floats]:
        async with self._turn:
            await self._rollout.rest()
            return self._learner.values(sequences)

    async def update_critic(self, sequences: Sequence[TrainSequence], settings: ValueSettings) -> ValueMetrics:
        async with self._turn:
            await self._rollout.rest()
            return self._learner.update_critic(sequences, settings)

    async def openings(
        self, episodes: Sequence[tuple[Task, Sequence[Message]]], style: PlayStyle
    ) -> list[tuple[int, ...]]:
        return await self._rollout.openings(episodes, style)

    async def draw(self, requests: Sequence[SampleRequest], slots: int) -> list[Sampled]:
        async with self._turn:
            return await self._rollout.draw(requests, slots)

    async def new_ranker(self) -> None:
        self._learner.new_ranker()

    async def rank(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        async with self._turn:
            await self._rollout.rest()
            return self._learner.rank(sequences, temperature)

    async def update_ranker(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        async with self._turn:
            await self._rollout.rest()
            return self._learner.update_ranker(sequences, settings)

    async def sync(self, version: int) -> None:
        await self._rollout.load(self._learner.handover(version))

    async def save(self, folder: Path) -> None:
        self._learner.save(folder)

    async def load(self, folder: Path) -> None:
        self._learner.load(folder)

    async def export(self, folder: Path) -> None:
        self._learner.learner.export(folder)

    async def close(self) -> None:
        await self._rollout.close()
        self._learner.close()


async def launch(plan: Plan, root: Path, open_client: Open, clock: Callable[[], float]) -> InlineCrew:
    """Model, environments and engines of a plan, ready to work."""
    worlds = Worlds(open_client)
    try:
        model = await prepare_model(plan, root, worlds)
        return InlineCrew(rollout_worker(plan, model, worlds, clock), learner_worker(plan, model))
    except BaseException:
        await worlds.close()
        raise
