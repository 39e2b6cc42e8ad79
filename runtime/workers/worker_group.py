"""The workers of a run as the engine and its ops see them: a function of a worker, and its arguments.

The launchers decide where the workers live, and so how a call reaches them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from ..errors import LearnerLost
from ..protocols import SyncProof
from ..rollout.episode import Episode, Group
from ..rollout.groups import GroupRequest
from .learner_worker import LearnerWorker
from .rollout_worker import PlaySettings, RolloutWorker

__all__ = ["WorkerGroup"]

P = ParamSpec("P")
T = TypeVar("T")


class WorkerGroup(ABC):
    """The rollout workers and the learner's ranks. A `play` may be under way during a call of the learner, but never
    during another `play` or while weights go to the samplers, except with `hardware.in_flight`.

    A rollout worker that is lost is replaced, and what it was doing is done again elsewhere, before a call returns. A
    learner that is lost ends the call under way, and every later one, with LearnerLost.
    """

    @abstractmethod
    async def rollout(
        self, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of a rollout worker, any of them. If it deals work out, each gets its share, and the results
        are joined."""

    @abstractmethod
    async def learner(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the learner, on all its ranks. If it divides sequences, each rank gets its share, and the
        results are joined; otherwise the first rank's result is returned."""

    async def compute(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the learner that needs time and memory: forward passes and updates."""
        return await self.learner(work, *args, **kwargs)

    async def play(
        self, requests: Sequence[GroupRequest], settings: PlaySettings, on_episode: Callable[[Episode], None]
    ) -> list[Group]:
        return await self.rollout(RolloutWorker.play, requests, settings, on_episode)

    @abstractmethod
    async def sync(self, version: int) -> SyncProof:
        """Give the learner's weights to all samplers, checked at each; the largest difference is returned."""

    async def restart_learner(self) -> None:
        """Start all ranks of the learner anew, in place of those that were lost; they begin with the first weights."""
        raise LearnerLost("the learner is in this process, and ends with it")

    def count_replaced(self) -> Mapping[str, int]:
        """Return how many workers of each role have been replaced so far."""
        return {}

    @abstractmethod
    async def close(self) -> None: ...
