"""A real environment server in a process of its own that misbehaves on command, at given steps."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from socket import socket
from typing import Any

import uvicorn
from agym.envs.listener import listen, url_of
from agym.envs.protocol import EnvFactory
from agym.envs.serving.server import EnvServer

Answer = Callable[[Any], Awaitable[None]]


def says(body: bytes, status: int = 200, *, length: int | None = None) -> Answer:
    async def answer(send: Any) -> None:
        headers = [(b"content-length", str(length or len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answer


async def floods(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(100):
        await send({"type": "http.response.body", "body": b" " * 1_000_000, "more_body": True})
    await send({"type": "http.response.body", "body": b"{}"})


async def hangs(send: Any) -> None:
    await asyncio.sleep(3600)


async def dies(send: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


LOST = (
    b'{"observation":{"text":"say 1","valid_actions":null},"reward":%s,"terminated":true,"truncated":false,'
    b'"status":"ok","info":{}}'
)
"""What would end an episode without a success, were it believed."""
TROUBLES: Mapping[str, Answer] = {
    "html": says(b"<html>It works!</html>"),
    "an error under status 200": says(b'{"error":"database is locked"}'),
    "a server's error": says(b"Internal Server Error", 500),
    "a gateway's error": says(b"<html>502 Bad Gateway</html>", 502),
    "no number": says(LOST % b"NaN"),
    "an endless number": says(LOST % b"-1e999"),
    "a number too long": says(LOST % (b"-1" + b"0" * 400)),
    "text for a number": says(LOST % b'"lost"'),
    "half a message": says(LOST[:40]),
    "half an answer": says(LOST[:40], length=len(LOST)),
    "a flood": floods,
    "silence": hangs,
    "death": dies,
}


@dataclass
class Unruly:
    """In front of a server: requests to step, counted from 1, meet the trouble that is named for them."""

    app: EnvServer
    trouble: Mapping[int, str]
    slow_s: float = 0.0
    asked: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/step"):
            self.asked += 1
            trouble = self.trouble.get(self.asked)
            await asyncio.sleep(self.slow_s)
            if trouble is not None:
                await receive()
                await TROUBLES[trouble](send)
                return
        await self.app(scope, receive, send)


def _serve(listener: socket, factory: EnvFactory, trouble: Mapping[int, str], slow_s: float) -> None:
    config = uvicorn.Config(Unruly(EnvServer(factory), trouble, slow_s), access_log=False, log_level="critical")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


def _keep(listener: socket, factory: EnvFactory, trouble: Mapping[int, str], slow_s: float) -> None:
    """Until this process is ended: a server that dies is started once more, and behaves from then on."""
    while True:
        server = get_context("fork").Process(target=_serve, args=(listener, factory, trouble, slow_s))
        server.start()
        signal.signal(signal.SIGTERM, lambda *_, pid=server.pid: (os.kill(pid, signal.SIGKILL), os._exit(0)))
        server.join()
        trouble = {}


@contextmanager
def served(factory: EnvFactory, trouble: Mapping[int, str], slow_s: float = 0.0) -> Iterator[str]:
    """The address of such a server."""
    with listen("127.0.0.1", 0) as listener:
        keeper = get_context("fork").Process(target=_keep, args=(listener, factory, trouble, slow_s))
        keeper.start()
        try:
            yield url_of(listener)
        finally:
            keeper.terminate()
            keeper.join()
