"""A server that is already running, over HTTP; no more of its answers is read than the limit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from ..limits import MAX_ANSWER

__all__ = ["reach"]

_TIMEOUT = httpx2.Timeout(30, read=300)
"""A server may hold the stream of an answer open; each call has a time limit of its own."""
_PLAIN = "identity"
"""The only encoding: a few bytes in another may unpack to more than there is room for."""


@asynccontextmanager
async def reach(url: str, too_long: Callable[[], None]) -> AsyncIterator[Any]:
    """Yields the two streams that a client of the protocol takes."""

    async def limit(response: httpx2.Response) -> None:
        # a server's unsolicited messages come over a stream that is read with GET and has no end
        if response.request.method != "GET":
            packed = response.headers.get("content-encoding", _PLAIN).lower() != _PLAIN
            response.stream = _Limited(response.stream, 0 if packed else MAX_ANSWER, too_long)

    async with httpx2.AsyncClient(timeout=_TIMEOUT, headers={"accept-encoding": _PLAIN}) as client:
        client.event_hooks = {"response": [limit]}
        async with streamable_http_client(url, http_client=client, max_sse_event_size=MAX_ANSWER) as streams:
            yield streams


class _Limited(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, room: int, too_long: Callable[[], None]) -> None:
        self._stream = stream
        self._room = room
        self._too_long = too_long

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._room -= len(piece)
            if self._room < 0:
                self._too_long()
                raise httpx2.StreamError(f"the answer is longer than {MAX_ANSWER:,} bytes, or packed")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
