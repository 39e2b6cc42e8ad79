"""The part of HTTP that the endpoint needs: JSON in, JSON or a stream of events out, and clients that disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from ...envs.errors import EnvError
from ...envs.serving.asgi import ASGIReceive, ASGISend, read_body
from ...envs.wire import WireError, dump, load_object
from .api_errors import ApiError, bad_request

__all__ = ["Body", "Stream", "read_json", "reply_to", "while_connected"]

T = TypeVar("T")

_LONGEST_BODY = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Body:
    """A reply of JSON, or of bytes that are JSON."""

    status: int
    data: Mapping[str, Any] | bytes


@dataclass(frozen=True, slots=True)
class Stream:
    """A reply of server-sent events, each with the empty line after it."""

    lines: Iterable[bytes]


async def read_json(receive: ASGIReceive) -> dict[str, Any]:
    try:
        return load_object(await read_body(receive, _LONGEST_BODY))
    except WireError as error:
        raise bad_request(f"the body is {error}") from None
    except EnvError as error:  # too long, or interrupted
        raise ApiError(413, str(error)) from None


async def while_connected(receive: ASGIReceive, work: Coroutine[Any, Any, T]) -> T | None:
    """Do what a request asks for, unless its client disconnects: then it is cancelled, and there is no reply."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_wait_until_gone(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for each in (task, gone):
            each.cancel()
            with suppress(BaseException):
                await each


async def _wait_until_gone(receive: ASGIReceive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def reply_to(send: ASGISend, answer: Body | Stream) -> None:
    if isinstance(answer, Stream):
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for line in answer.lines:
            await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    body = answer.data if isinstance(answer.data, bytes) else dump(answer.data)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
