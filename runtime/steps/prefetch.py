"""Which batch a step learns from, and which weights play it: the same whether sampling and learning overlap or not.

With `staleness: k` the batches of the next k steps are begun at once, just before the step that learns from the last
batch in hand, and the next ones when those have been played and used up but for one:

    k = 0    sync v0, play 0   learn 0 -> v1   sync v1, play 1   learn 1 -> v2   ...
    k = 1    sync v0, play 0   begin 1 (v0), learn 0 -> v1   sync v1, begin 2 (v1), learn 1 -> v2   ...
    k = 2    sync v0, play 0   begin 1, 2 (v0), learn 0, 1 -> v2   sync v2, begin 3, 4 (v2), learn 2, 3 -> v4   ...

So no batch is more than k steps old, and weights change only while nothing is played. Nothing here looks at how long
anything takes: metrics do not depend on it.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from copy import deepcopy
from typing import Any

from ..errors import StepRefused
from ..progress import Progress
from .rollout_batch import RolloutBatch

__all__ = ["Prefetcher"]

Sync = Callable[[], Awaitable[None]]
"""Gives the sampler the newest weights, if it has older ones."""
PlayBatch = Callable[[Progress, int], Coroutine[Any, Any, RolloutBatch]]
"""Plays a step's batch by what the run stands at for it, so many steps ahead of the one that it is begun in."""


class Prefetcher:
    """The batches that were begun and that no step has asked for yet."""

    def __init__(self, staleness: int) -> None:
        self._staleness = staleness
        self.begun: tuple[Future[RolloutBatch], ...] = ()
        """In the order of their steps."""

    async def next(self, progress: Progress, most: int | None, sync: Sync, play: PlayBatch) -> RolloutBatch:
        """The batch of the step at hand; `most` steps make the stage, where that is known, and no batch is begun that
        would come after them."""
        if not self.begun:
            await sync()
            self._begin(progress, range(1), play)
        batch = await self.begun[0]
        self.begun = self.begun[1:]
        progress.mixture = batch.mixture
        left = self._staleness if most is None else min(self._staleness, most - progress.step - 1)
        if not self.begun and left > 0:
            await sync()
            self._begin(progress, range(1, left + 1), play)
        return batch

    def _begin(self, progress: Progress, ahead: Sequence[int], play: PlayBatch) -> None:
        for steps in ahead:
            before = self.begun[-1] if self.begun else None
            coming = _played(progress.ahead(steps), steps, before, play)
            self.begun += (asyncio.get_running_loop().create_task(coming),)

    async def drain(self) -> tuple[RolloutBatch, ...]:
        """All that was begun, when it has been played."""
        await self._settle()
        return tuple(each.result() for each in self.begun)

    async def back_to(self, begun: tuple[Future[RolloutBatch], ...] = ()) -> None:
        """Drops what was begun since; it is played to its end first, as its sampler may be in another process."""
        for played in await self._settle():
            # nobody waits any more for what was refused; a mistake of ours is one all the same
            if isinstance(played, BaseException) and not isinstance(played, StepRefused):
                raise played
        self.begun = begun

    def resume(self, batches: Sequence[RolloutBatch]) -> None:
        """Batches that were played before the run was ended."""
        for batch in batches:
            future: Future[RolloutBatch] = asyncio.get_running_loop().create_future()
            future.set_result(batch)
            self.begun += (future,)

    async def close(self) -> None:
        """Ends what is under way."""
        for each in self.begun:
            each.cancel()
        await self._settle()

    async def _settle(self) -> list[RolloutBatch | BaseException]:
        return await asyncio.gather(*self.begun, return_exceptions=True)


async def _played(view: Progress, steps: int, before: Future[RolloutBatch] | None, play: PlayBatch) -> RolloutBatch:
    """After the one before it, and with the tasks that come after that one's."""
    drawn = view.mixture if before is None else (await before).mixture
    view.mixture = deepcopy(drawn)
    return await play(view, steps)
