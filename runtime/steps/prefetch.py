"""Which batch a step trains on, and which weights play it: the same whether sampling and training overlap or not.

With `staleness: k` the batches of the next k steps are started together, just before the step that trains on the last
batch in hand, and the next ones when those have been played and all but one used:

    k = 0    sync v0, play 0   learn 0 -> v1   sync v1, play 1   learn 1 -> v2   ...
    k = 1    sync v0, play 0   begin 1 (v0), learn 0 -> v1   sync v1, begin 2 (v1), learn 1 -> v2   ...
    k = 2    sync v0, play 0   begin 1, 2 (v0), learn 0, 1 -> v2   sync v2, begin 3, 4 (v2), learn 2, 3 -> v4   ...

So no batch is more than k steps old, and weights change only while nothing is played. Nothing here depends on how long
anything takes, so metrics do not either.

With `in_flight` as well, samplers get new weights at every step, while episodes are under way, and batches overlap:

    k = 1    sync v0, begin 0, 1   learn 0 -> v1   sync v1, begin 2   learn 1 -> v2   sync v2, begin 3 ...

A token of the batch of step s is then sampled by the newest weights that its sampler had, of any step from s - k to s.
Still no token is more than k steps old, which is checked for each of them.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ..errors import RunError, StepRefused
from ..progress import Progress
from ..rollout.task_sampler import TaskMixture
from .rollout_batch import RolloutBatch

__all__ = ["Prefetcher"]

Sync = Callable[[], Awaitable[None]]
"""Gives the sampler the newest weights, if it has older ones."""
Drawn = Callable[[], None]
"""Signals that all tasks of a batch have been drawn."""
PlayBatch = Callable[[Progress, int, Drawn], Coroutine[Any, Any, RolloutBatch]]
"""Plays a step's batch with the run's progress as of that step, so many steps ahead of the one it is started in."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch that is being played, or has been played."""

    batch: Future[RolloutBatch]
    mixture: Future[TaskMixture]
    """How far tasks have been drawn once its own are: where the next batch continues."""


class Prefetcher:
    """The batches that were started and that no step has asked for yet."""

    def __init__(self, staleness: int, *, in_flight: bool = False) -> None:
        self._staleness = staleness
        self._in_flight = in_flight
        self.begun: tuple[Begun, ...] = ()
        """In the order of their steps."""

    async def next(self, progress: Progress, most: int | None, sync: Sync, play: PlayBatch) -> RolloutBatch:
        """The batch of the step at hand; the stage has `most` steps, where that is known, and no batch beyond them is
        started."""
        left = self._staleness if most is None else min(self._staleness, most - progress.step - 1)
        if self._in_flight:
            await sync()
            self._begin(progress, range(len(self.begun), left + 1), play)
        elif not self.begun:
            await sync()
            self._begin(progress, range(1), play)
        batch = await self.begun[0].batch
        self.begun = self.begun[1:]
        progress.mixture = batch.mixture
        if not self.begun and left > 0 and not self._in_flight:
            await sync()
            self._begin(progress, range(1, left + 1), play)
        return batch

    def _begin(self, progress: Progress, ahead: Sequence[int], play: PlayBatch) -> None:
        loop = asyncio.get_running_loop()
        for steps in ahead:
            before = self.begun[-1].mixture if self.begun else None
            mixture: Future[TaskMixture] = loop.create_future()
            coming = self._play(progress.ahead(steps), steps, before, mixture, play)
            self.begun += (Begun(loop.create_task(coming), mixture),)

    async def _play(
        self,
        view: Progress,
        steps: int,
        before: Future[TaskMixture] | None,
        after: Future[TaskMixture],
        play: PlayBatch,
    ) -> RolloutBatch:
        """Play with the tasks that come after those of the batch before; in flight as soon as these have been drawn,
        otherwise when that batch has been played."""
        oldest = view.version

        def drawn() -> None:
            if self._in_flight:
                after.set_result(view.mixture)

        try:
            view.mixture = deepcopy(view.mixture if before is None else await before)
            batch = await play(view, steps, drawn)
        except BaseException as error:
            if not after.done():
                after.set_exception(error)
                after.exception()  # the next batch may never ask
            raise
        if self._in_flight:
            _check_versions(batch, oldest)
        else:
            after.set_result(batch.mixture)
        return batch

    async def drain(self) -> tuple[RolloutBatch, ...]:
        """All started batches, once they have been played."""
        await self._settle()
        return tuple(each.batch.result() for each in self.begun)

    async def back_to(self, begun: tuple[Begun, ...] = ()) -> None:
        """Drop batches started since; they are played to the end first, as a sampler may be in another process."""
        for played in await self._settle():
            # nobody waits any more for a refused batch; but a bug must still surface
            if isinstance(played, BaseException) and not isinstance(played, StepRefused):
                raise played
        self.begun = begun

    def resume(self, batches: Sequence[RolloutBatch]) -> None:
        """Batches that were played before the run was ended."""
        loop = asyncio.get_running_loop()
        for batch in batches:
            begun = Begun(loop.create_future(), loop.create_future())
            begun.batch.set_result(batch)
            begun.mixture.set_result(batch.mixture)
            self.begun += (begun,)

    async def close(self) -> None:
        """End what is under way."""
        for each in self.begun:
            each.batch.cancel()
        await self._settle()

    async def _settle(self) -> list[RolloutBatch | BaseException]:
        return await asyncio.gather(*(each.batch for each in self.begun), return_exceptions=True)


def _check_versions(batch: RolloutBatch, oldest: int) -> None:
    """Refuse a token that was sampled by weights from before its batch was started."""
    for episode in (each for group in batch.groups for each in (*group.episodes, *filter(None, (group.greedy,)))):
        for segment in episode.segments:
            versions = segment.versions[segment.sampled]
            if len(versions) and versions.min() < oldest:
                raise RunError(
                    f"rollout: a token of task '{episode.task.id}' was sampled by version {versions.min()} of the "
                    f"weights, and its batch was begun with version {oldest}: a sampler kept weights that were replaced"
                )
