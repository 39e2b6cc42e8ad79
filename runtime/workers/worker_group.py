"""The workers of a run as the engine and its ops see them: a function of a worker, and what to call it with.

Where the workers live, and so how a call reaches them, is for the launchers to decide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from ..protocols import SyncProof
from ..rollout.episode import Episode, Group
from ..rollout.groups import GroupRequest
from .learner_worker import LearnerWorker
from .rollout_worker import PlaySettings, RolloutWorker

__all__ = ["WorkerGroup"]

P = ParamSpec("P")
T = TypeVar("T")


class WorkerGroup(ABC):
    """A worker of each kind. A `play` may be under way while the learner is asked for something; never while another
    is, nor while weights go to the sampler."""

    @abstractmethod
    async def rollout(
        self, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of the rollout worker."""

    @abstractmethod
    async def learner(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the learner."""

    async def compute(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the learner that needs time and memory: forward passes and updates."""
        return await self.learner(work, *args, **kwargs)

    async def play(
        self, requests: Sequence[GroupRequest], settings: PlaySettings, on_episode: Callable[[Episode], None]
    ) -> list[Group]:
        return await self.rollout(RolloutWorker.play, requests, settings, on_episode)

    @abstractmethod
    async def sync(self, version: int) -> SyncProof:
        """Give the learner's weights to the sampler, proven there."""

    @abstractmethod
    async def close(self) -> None: ...
