"""Every worker in this process: the embedded default, on one machine.

Enters: a Plan, a run folder, how to reach environments. Leaves: a Crew. One thread does everything in turn, so with
environments in this process the order of all requests is fixed, and with it every bit of a run. Nothing overlaps here:
what is begun while something else is under way waits for it, so that no environment is asked, and then left without a
listener for as long as an update takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ...dsl.model.plan import Plan
from ..rollout.env_connections import OpenClient, OpenEnvs
from .build import learner_worker, prepare_model, rollout_worker
from .learner_worker import LearnerWorker
from .rollout_worker import RolloutWorker
from .worker_group import WorkerGroup

__all__ = ["InlineWorkerGroup", "launch_inline"]

P = ParamSpec("P")
T = TypeVar("T")


class InlineWorkerGroup(WorkerGroup):
    """One worker of each kind, called directly."""

    def __init__(self, rollout: RolloutWorker, learner: LearnerWorker) -> None:
        self._rollout = rollout
        self._learner = learner
        self._turn = asyncio.Lock()

    async def _rolling(
        self, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        async with self._turn:
            return await work(self._rollout, *args, **kwargs)

    async def _learning(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(self._learner, *args, **kwargs)

    async def _computing(
        self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        async with self._turn:
            await self._rollout.rest()
            return work(self._learner, *args, **kwargs)

    async def sync(self, version: int) -> None:
        await self._rollout.load(self._learner.handover(version))

    async def close(self) -> None:
        await self._rollout.close()
        self._learner.close()


async def launch_inline(
    plan: Plan, root: Path, open_client: OpenClient, clock: Callable[[], float]
) -> InlineWorkerGroup:
    """Model, environments and engines of a plan, ready to work."""
    envs = OpenEnvs(open_client)
    try:
        model = await prepare_model(plan, root, envs)
        return InlineWorkerGroup(rollout_worker(plan, model, envs, clock), learner_worker(plan, model))
    except BaseException:
        await envs.close()
        raise
