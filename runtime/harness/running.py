"""The endpoint of one engine while it is served, and what its harnesses share."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Self

from ..policy_endpoint.endpoint import PolicyEndpoint
from ..policy_endpoint.fairness import FairQueue
from ..policy_endpoint.server import serve_endpoint
from .peers import Peers

__all__ = ["RunningEndpoint"]


class RunningEndpoint:
    """Served from `start` to `close`."""

    def __init__(self) -> None:
        self.endpoint, self.peers = PolicyEndpoint(), Peers()
        self.endpoint.on_wrong_key = self.peers.blame
        self._queue = FairQueue(1)
        self._served = AsyncExitStack()

    @classmethod
    async def start(cls) -> Self:
        running = cls()
        await running._served.enter_async_context(serve_endpoint(running.endpoint))
        return running

    def queue_for(self, slots: int) -> FairQueue:
        """Return the one queue of the engine, with so many requests at a time."""
        self._queue.slots = max(self._queue.slots, slots)
        return self._queue

    async def close(self) -> None:
        await self._served.aclose()
