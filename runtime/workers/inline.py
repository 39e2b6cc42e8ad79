"""Every worker in this process: the embedded default, on one machine.

One thread does everything in turn, so with environments in this process the order of all requests is fixed, and with it
every bit of a run. Nothing overlaps: an update waits for play that is under way, as no environment's answer may wait
for as long as an update takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ...dsl.model.plan import Plan
from ..protocols import SyncProof
from ..rollout.env_connections import EnvConnector, OpenEnvs
from .build import learner_worker, prepare_model, rollout_worker
from .learner_worker import LearnerWorker
from .rollout_worker import RolloutWorker
from .worker_group import WorkerGroup

__all__ = ["InlineWorkerGroup", "launch_inline"]

P = ParamSpec("P")
T = TypeVar("T")


class InlineWorkerGroup(WorkerGroup):
    """One worker of each kind, called directly; no learner where weights are only evaluated."""

    def __init__(self, rollout: RolloutWorker, learner: LearnerWorker | None = None) -> None:
        self._rollout = rollout
        self._maybe_learner = learner
        self._turn = asyncio.Lock()

    @property
    def _learner(self) -> LearnerWorker:
        assert self._maybe_learner is not None, "only a run that trains has a learner"
        return self._maybe_learner

    async def rollout(
        self, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        async with self._turn:
            return await work(self._rollout, *args, **kwargs)

    async def learner(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(self._learner, *args, **kwargs)

    async def compute(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._turn:
            await self._rollout.sleep()
            return work(self._learner, *args, **kwargs)

    async def sync(self, version: int) -> SyncProof:
        return await self._rollout.load(self._learner.handover(version))

    async def close(self) -> None:
        await self._rollout.close()
        self._learner.close()


async def launch_inline(
    plan: Plan, root: Path, connector: EnvConnector, clock: Callable[[], float], announce: Callable[[str], None]
) -> InlineWorkerGroup:
    """Model, environments and engines of a plan, ready to work; `announce` says what the start is waiting for."""
    envs = OpenEnvs(connector, connector.remark)
    try:
        announce("start: preparing the model")
        model = await prepare_model(plan, root, envs)
        announce("start: loading vLLM")
        rollout = rollout_worker(plan, model, envs, clock, root=root)
        announce("start: building the learner")
        return InlineWorkerGroup(rollout, learner_worker(plan, model))
    except BaseException:
        await envs.close()
        raise
