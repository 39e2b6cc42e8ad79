"""A server that is started here and spoken to in lines of JSON, none of them longer than the limit on an answer."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from ..limits import MAX_ANSWER

__all__ = ["LastWords", "talk"]

_PATIENCE_S = 2.0
"""For a server to end by itself, and after each request that it end."""
_KEPT = 4096
"""Bytes of standard error."""
_SHOWN_LINES, _SHOWN = 5, 500


class LastWords:
    """The end of a server's standard error."""

    def __init__(self) -> None:
        self._tail = b""
        self._ended = asyncio.Event()

    async def read(self, errors: asyncio.StreamReader) -> None:
        while piece := await errors.read(_KEPT):
            self._tail = (self._tail + piece)[-_KEPT:]
        self._ended.set()

    async def ended(self) -> None:
        """Wait a moment for the last words of a server that is gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S / 4):
                await self._ended.wait()

    def __str__(self) -> str:
        lines = [line.strip() for line in self._tail.decode("utf-8", "replace").splitlines() if line.strip()]
        return " | ".join(lines[-_SHOWN_LINES:])[-_SHOWN:]


@asynccontextmanager
async def talk(
    command: Sequence[str], folder: Path, environ: Mapping[str, str], words: LastWords, too_long: Callable[[], None]
) -> AsyncIterator[Any]:
    """Start the server in a folder; yields the two streams that a client of the protocol takes."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env={**get_default_environment(), **environ},
        start_new_session=True,
        limit=MAX_ANSWER,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](0)

    async def read(answers: asyncio.StreamReader) -> None:
        async with to_client:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                try:
                    while line := await answers.readline():
                        await to_client.send(_parse(line))
                except ValueError:
                    too_long()
        while await answers.read(MAX_ANSWER):
            pass  # a server that waits for its output to be read could not end

    async def write(requests: asyncio.StreamWriter) -> None:
        async with from_client:
            try:
                async for message in from_client:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    requests.write(text.encode("utf-8") + b"\n")
                    await requests.drain()
            except OSError:  # it is gone, and whoever waits for an answer must find out
                await to_client.aclose()

    tasks = [
        asyncio.create_task(coroutine)
        for coroutine in (read(process.stdout), write(process.stdin), words.read(process.stderr))
    ]
    try:
        yield from_server, to_server
    finally:
        await to_server.aclose()
        await from_server.aclose()
        await _stop(process)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await to_client.aclose()


def _parse(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _stop(process: Process) -> None:
    """End the server with all that it started, gently at first."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await process.wait()
            break
        _signal(process.pid, number)
    _signal(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            await process.wait()


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
