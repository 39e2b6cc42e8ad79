"""HTTP connections that end when a request takes too long to arrive, or its head is too large."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["TimedHttp"]


class TimedHttp(HttpToolsProtocol):
    """uvicorn's own protocol, with limits on how a request arrives; how long its answer takes does not concern it."""

    head_s = 20.0
    """For the line and headers of a request, from its first byte; of a connection's first request, from the start."""
    body_s = 60.0
    max_head = 65_536
    """Bytes of the address and headers."""

    _alarm: asyncio.TimerHandle | None = None
    _room = max_head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_in(self.head_s)

    def data_received(self, data: bytes) -> None:
        # empty lines before a request are bytes too, and the parser says nothing of them
        if self._alarm is None and (self.cycle is None or self.cycle.response_complete):
            self._close_in(self.head_s)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._silence()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._silence()
        super().handle_websocket_upgrade()

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._room = self.max_head
        self._close_in(self.head_s)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._take(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._take(len(name) + len(value))

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._close_in(self.body_s)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._silence()

    # --- limits ---

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            self.transport.close()

    def _close_in(self, seconds: float) -> None:
        self._silence()
        self._alarm = self.loop.call_later(seconds, self.transport.close)

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
