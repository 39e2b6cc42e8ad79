"""One rollout whose model is outside: what it says goes out as events, and actions come in as replies."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Episode"]


class Episode:
    def __init__(self) -> None:
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._action: asyncio.Future[str] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def event(self) -> dict[str, Any]:
        """What is shown before the next reply, or how it ended."""
        return await self._events.get()

    def act(self, action: str) -> None:
        if self._action is None or self._action.done():
            raise RuntimeError("the rollout waits for no action")
        self._action.set_result(action)

    async def end(self) -> None:
        if self._action is not None:
            self._action.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def reply_to(self, text: str) -> str:
        """Hand out a text, and wait for the reply."""
        self._action = asyncio.get_running_loop().create_future()
        self._events.put_nowait({"text": text})
        return await self._action

    async def play(self) -> dict[str, Any]:
        """Play to the end, which is described by `text`, `reward`, `metrics` and `why`."""
        raise NotImplementedError

    async def _run(self) -> None:
        try:
            self._events.put_nowait(await self.play())
        except Exception as error:
            self._events.put_nowait({"fault": f"{type(error).__name__}: {error}"})
