"""Lean httpx transport: connections kept open, one request at a time on each.

A general connection pool walks all its connections for every request; with hundreds of sessions that costs milliseconds
a step.
"""

from __future__ import annotations

import asyncio
from ssl import SSLContext
from typing import cast

import httptools
import httpx

from ..limits import MAX_ANSWER

__all__ = ["MAX", "KeepAlive", "TooLong"]

MAX = "max_answer"
"""Extension of a request whose answer has a limit of its own."""

_PLAIN = b"identity"
"""The only encoding: a few bytes in another may unpack to more than there is room for."""
_MEASURES = (b"content-length", b"transfer-encoding")
"""An answer without either ends with its connection."""


class TooLong(httpx.DecodingError):
    """An answer over the limit, not read any further."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the answer is longer than {limit:,} bytes")
        self.limit = limit


class KeepAlive(httpx.AsyncBaseTransport):
    """Connections to one server; the one used last is reused first.

    One that was idle for longer than `trusted_s` is not reused: its server may have closed it while this process was
    busy, and what is then sent on it is lost.
    """

    def __init__(
        self, trusted_s: float = 2.0, certificates: SSLContext | None = None, max_answer: int = MAX_ANSWER
    ) -> None:
        self._trusted_s = trusted_s
        self._max_answer = max_answer
        self._certificates = certificates
        """Trusted certificates; httpx's own unless given."""
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        connection = self._next_idle() or await self._connect(request.url)
        try:
            response, reusable = await connection.ask(request, request.extensions.get(MAX, self._max_answer))
        except BaseException:
            connection.close()  # what is still on its way would be taken for the next answer
            raise
        if reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()
        return response

    async def aclose(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # lets the loop close the sockets

    def _next_idle(self) -> _Connection | None:
        oldest = asyncio.get_running_loop().time() - self._trusted_s
        while self._idle:
            connection = self._idle.pop()
            if connection.alive and connection.idle_since >= oldest:
                return connection
            connection.close()
        return None

    async def _connect(self, url: httpx.URL) -> _Connection:
        loop, secure, host = asyncio.get_running_loop(), None, url.raw_host.decode("ascii")
        if url.scheme == "https":
            secure = self._certificates = self._certificates or httpx.create_ssl_context(trust_env=False)
        port = url.port or (443 if secure else 80)
        try:
            _, connection = await loop.create_connection(_Connection, host, port, ssl=secure)
        except (OSError, OverflowError, UnicodeError) as error:  # no such port, no such name, no such certificate
            raise httpx.ConnectError(str(error)) from error
        return connection


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[httpx.Response] | None = None
        self._reusable = False
        self.idle_since = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._ends_with_connection = False

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def ask(self, request: httpx.Request, max_answer: int) -> tuple[httpx.Response, bool]:
        """Send a request; return the response and whether the connection is reusable."""
        self._room = self._max_answer = max_answer  # headers count too
        transport = self._transport
        if transport is None or transport.is_closing():
            raise httpx.WriteError("the connection was closed")
        self._answer = asyncio.get_running_loop().create_future()
        transport.write(_encode(request))
        response = await self._answer
        self._answer = None
        self._begin()
        return response, self._reusable

    def _fail(self, error: httpx.RequestError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nobody asked: whatever comes would be taken for the next answer
            self.close()
            return
        self._room -= len(data)
        if self._room < 0:
            self._fail(TooLong(self._max_answer))
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(httpx.RemoteProtocolError(f"that is not HTTP: {error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if error is None and self._ends_with_connection:
            self.on_message_complete()
        self._fail(httpx.ReadError("the connection was closed before the answer was whole"))

    # --- called by the parser ---

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))
        if name.lower() == b"content-encoding" and value.lower() != _PLAIN:
            self._fail(httpx.DecodingError(f"expected no encoding, got {value[:40]!r}"))
            self.close()

    def on_headers_complete(self) -> None:
        self._ends_with_connection = not any(name.lower() in _MEASURES for name, _ in self._headers)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._answer is not None and not self._answer.done():
            status, body = self._parser.get_status_code(), b"".join(self._body)
            self._reusable = self._parser.should_keep_alive()  # known only now
            self._answer.set_result(httpx.Response(status, headers=self._headers, content=body))


def _encode(request: httpx.Request) -> bytes:
    lines = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [b"%s: %s" % header for header in request.headers.raw if header[0].lower() != b"accept-encoding"]
    lines += [b"accept-encoding: " + _PLAIN]
    return b"\r\n".join(lines) + b"\r\n\r\n" + request.content
