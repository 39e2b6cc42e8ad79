"""Plays the rollouts of an environment, with our agent in place of the model.

It speaks in lines of JSON over standard input and output. Every model call of a rollout becomes an answer to us, and
our next action is what the model said. Which line of verifiers is installed decides what is loaded.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import threading
from contextlib import suppress
from typing import Any

from .episode import Episode
from .messages import Refused

__all__ = ["main"]

_CLOSING_S = 4.0
_LINES = {(0, 1): ("first_line", "FirstLine"), (0, 4): ("current_line", "CurrentLine")}


def choose_line() -> Any:
    """The line of the verifiers that is installed."""
    try:
        from verifiers import __version__ as version
    except ImportError as error:
        raise Refused(f"verifiers cannot be imported there: {error}") from error
    number = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if number not in _LINES:
        raise Refused(
            f"verifiers {version} is installed there, and of it 0.1 and 0.4 are spoken: install the environment again,"
            " with 'verifiers==0.4.*' or 'verifiers<0.2' among its packages"
        )
    module, name = _LINES[number]
    return getattr(importlib.import_module(f".{module}", __package__), name)()


class Server:
    def __init__(self, send: Any) -> None:
        self._send = send
        self._line: Any = None
        self._episodes: dict[str, Episode] = {}

    async def answer(self, request: dict[str, Any]) -> None:
        try:
            reply = await getattr(self, f"do_{request['do']}")(**request["with"])
        except Refused as error:
            reply = {"refused": str(error)}
        except Exception as error:
            reply = {"fault": f"{type(error).__name__}: {error}"}
        self._send({"id": request["id"], **reply})

    async def do_load(self, **options: Any) -> dict[str, Any]:
        self._line = choose_line()
        facts: dict[str, Any] = await self._line.load(**options)
        return facts

    async def do_open(self, episode: str, split: str, number: int) -> dict[str, Any]:
        made: Episode = self._line.open(split, number)
        self._episodes[episode] = made
        made.start()
        return await made.event()

    async def do_act(self, episode: str, action: str) -> dict[str, Any]:
        made = self._episodes[episode]
        made.act(action.encode("utf-8", "replace").decode())
        return await made.event()

    async def do_end(self, episode: str) -> dict[str, Any]:
        made = self._episodes.pop(episode, None)
        if made is not None:
            await made.end()
        return {}

    async def close(self) -> None:
        await asyncio.gather(*(made.end() for made in self._episodes.values()))
        if self._line is not None:
            await self._line.close()


async def serve(lines: Any, answers: Any) -> None:
    loop, lock = asyncio.get_running_loop(), threading.Lock()
    requests: asyncio.Queue[str | None] = asyncio.Queue()

    def send(reply: dict[str, Any]) -> None:
        with lock:
            answers.write(json.dumps(reply) + "\n")
            answers.flush()

    def read() -> None:
        for line in lines:
            loop.call_soon_threadsafe(requests.put_nowait, line)
        loop.call_soon_threadsafe(requests.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    server, running = Server(send), set()
    while (line := await requests.get()) is not None:
        task = asyncio.ensure_future(server.answer(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)
    with suppress(TimeoutError):
        await asyncio.wait_for(server.close(), _CLOSING_S)


def main() -> None:
    """What the environment prints goes to standard error, as standard output is ours."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        asyncio.run(serve(sys.stdin, answers))
    finally:
        os._exit(0)  # threads of the environment's own may wait forever
