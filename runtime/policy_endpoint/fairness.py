"""Turns at the engine: at most so many requests at a time; of those waiting, the one whose episode has had least."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["FairQueue"]


class FairQueue:
    """Lets requests in. An episode with many parallel requests delays itself, not the others."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._under_way: Counter[str] = Counter()
        self._served: Counter[str] = Counter()
        """Requests of each episode that were let in so far."""
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, episode: str) -> AsyncIterator[None]:
        if self._under_way.total() >= self.slots:
            await self._wait(episode)
        else:
            self._let_in(episode)
        try:
            yield
        finally:
            self._under_way[episode] -= 1
            self._let_next()

    async def _wait(self, episode: str) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.append((episode, place))
        try:
            await place
        except asyncio.CancelledError:
            if (episode, place) in self._waiting:
                self._waiting.remove((episode, place))
            elif not place.cancelled():  # it was let in as it left
                self._under_way[episode] -= 1
                self._let_next()
            raise

    def _let_next(self) -> None:
        while self._waiting and self._under_way.total() < self.slots:
            at = min(range(len(self._waiting)), key=lambda at: (self._rank(self._waiting[at][0]), at))
            episode, place = self._waiting.pop(at)
            if not place.done():
                self._let_in(episode)
                place.set_result(None)

    def _rank(self, episode: str) -> tuple[int, int]:
        return self._under_way[episode], self._served[episode]

    def _let_in(self, episode: str) -> None:
        self._under_way[episode] += 1
        self._served[episode] += 1

    def forget(self, episode: str) -> None:
        """Drop the count of an episode that has ended."""
        self._served.pop(episode, None)
        if not self._under_way[episode]:
            del self._under_way[episode]
