"""Requests that arrive too slowly, or with too much before their bodies, on a real connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from agym.envs.listener import listen, url_of
from agym.envs.protocol import Env
from agym.envs.serving import serve
from agym.envs.serving.server import EnvServer, ServerSettings
from agym.envs.serving.slow_clients import TimedHttp

Make = Callable[[], Env]
PATIENCE_S = 0.3


class Impatient(TimedHttp):
    head_s = PATIENCE_S
    body_s = 2 * PATIENCE_S
    max_head = 1000


@asynccontextmanager
async def connected(make: Make, **chosen: float) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    listener = listen("127.0.0.1", 0)
    app = EnvServer(make, ServerSettings(**chosen))  # type: ignore[arg-type]
    config = uvicorn.Config(app, http=Impatient, lifespan="off", log_level="critical", ws="websockets-sansio")
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url_of(listener).rpartition(":")[2]))
    yield reader, writer
    writer.close()
    await server.shutdown(sockets=[listener])


async def seconds_until_closed(reader: asyncio.StreamReader) -> float:
    started = time.monotonic()
    async with asyncio.timeout(20 * PATIENCE_S):
        try:
            while await reader.read(4096):
                pass
        except ConnectionError:
            pass
    return time.monotonic() - started


async def trickle(writer: asyncio.StreamWriter, text: bytes) -> None:
    try:
        for at in range(len(text)):
            writer.write(text[at : at + 1])
            await writer.drain()
            await asyncio.sleep(PATIENCE_S / 10)
    except ConnectionError:
        pass


HEAD = b"POST /sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n"


@pytest.mark.parametrize(
    ("at_once", "slowly"),
    [
        (b"", b""),
        (b"", HEAD),
        (b"", b"\r\n" * 50),
        (HEAD, b"x: y\r\n" * 50),
        (HEAD + b"\r\n", b"x" * 100),
        (b"POST /create HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 50),
        # after a request that was answered
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", b"\r\n" * 50),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", HEAD),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\nPOST /cre", b"ate" * 50),
        # refused before its body has come
        (b"POST /no-such HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n", b"x" * 100),
    ],
)
async def test_a_request_that_trickles_is_given_up(scripted: Make, at_once: bytes, slowly: bytes) -> None:
    async with connected(scripted) as (reader, writer):
        writer.write(at_once)
        slow = asyncio.create_task(trickle(writer, slowly))
        assert await seconds_until_closed(reader) < 4 * PATIENCE_S
        slow.cancel()


@pytest.mark.parametrize("head", [b"GET /" + b"x" * 2000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000])
async def test_a_head_that_is_too_large_is_given_up_at_once(scripted: Make, head: bytes) -> None:
    async with connected(scripted) as (reader, writer):
        writer.write(head + b"\r\n\r\n")
        assert await seconds_until_closed(reader) < PATIENCE_S


async def test_an_answer_that_takes_its_time_is_waited_for_and_the_connection_goes_on(threaded: Make) -> None:
    async with connected(threaded) as (reader, writer):
        for task in (f"slow {4 * PATIENCE_S}", "train-0"):
            body = b'{"task":"%s","seed":0}' % task.encode()
            head = b"POST /sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
            writer.write(head + body)
            answer = await reader.readuntil(b"begins")
            assert answer.startswith(b"HTTP/1.1 201")
            await reader.readuntil(b"}}")


async def test_a_websocket_is_given_up_when_nothing_was_said_for_a_lease_and_not_before(scripted: Make) -> None:
    async with connected(scripted, lease_s=3 * PATIENCE_S) as (reader, writer):
        writer.write(
            b"GET /openenv/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert b"101" in await reader.readuntil(b"\r\n\r\n")
        started = time.monotonic()
        async with asyncio.timeout(10 * PATIENCE_S):
            assert (await reader.read(2))[0] == 0x88  # the frame that closes
        assert time.monotonic() - started > 2 * PATIENCE_S


def test_our_servers_are_impatient() -> None:
    assert serve._config(EnvServer, ServerSettings()).http is TimedHttp  # type: ignore[arg-type]
