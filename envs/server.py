"""Any environment as an HTTP service: an ASGI application that checks, limits and routes; dialects do the talking.

What enters: requests. What leaves: replies, always: a caller's mistake is a 4xx with a code, an environment's trouble a
502 to 504, and a mistake of ours a 500 that names nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hmac import compare_digest

from .agentgym import AgentGym
from .asgi import ASGIReceive, ASGISend, Dialect, Handler, Reply, Request, Scope, find, not_found, read_body, send_reply
from .errors import BadRequest, EnvError, Unauthorized
from .native import Native
from .pool import EnvPool
from .protocol import Deadlines, EnvFactory
from .sessions import Sessions
from .wire import WireError

__all__ = ["EnvServer", "ServerSettings"]

log = logging.getLogger(__name__)

_OUR_MISTAKE = Reply(500, {"error": {"code": "internal", "message": "the server made a mistake; its log says more"}})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    max_sessions: int = 1024
    lease_s: float = 600.0
    """A session that nobody asks for in this time is closed."""
    token: str | None = None
    """The bearer token that every request but `GET /health` must bring."""
    max_body: int = 1_048_576
    """Bytes of a request."""
    threads: int = 8
    deadlines: Deadlines = field(default_factory=lambda: Deadlines(open_s=300.0, step_s=300.0, close_s=30.0))


class EnvServer:
    """The application. Under a server that speaks ASGI's lifespan it starts and stops itself; otherwise call both."""

    def __init__(
        self,
        factory: EnvFactory,
        settings: ServerSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or ServerSettings()
        self.pool = EnvPool(factory, deadlines=self._settings.deadlines, threads=self._settings.threads)
        self.sessions = Sessions(
            self.pool, limit=self._settings.max_sessions, lease_s=self._settings.lease_s, clock=clock
        )
        self._native = Native(self.pool, self.sessions)
        self._dialects: Sequence[Dialect] = (self._native, AgentGym(self.pool, self.sessions))
        self._authorization = f"Bearer {self._settings.token}".encode() if self._settings.token is not None else None
        self._reaper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._reaper = asyncio.create_task(self._reap(), name="close expired sessions")

    async def stop(self) -> None:
        if self._reaper is not None:
            self._reaper.cancel()
            with suppress(asyncio.CancelledError):
                await self._reaper
        await self.sessions.close_all()

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 4)
            await self.sessions.expire()

    async def __call__(self, scope: Scope, receive: ASGIReceive, send: ASGISend) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})

    async def _lifespan(self, receive: ASGIReceive, send: ASGISend) -> None:
        steps = {"lifespan.startup": self.start, "lifespan.shutdown": self.stop}
        for event, action in steps.items():
            await receive()
            await action()
            await send({"type": f"{event}.complete"})

    async def _http(self, scope: Scope, receive: ASGIReceive, send: ASGISend) -> None:
        dialect: Dialect = self._native
        try:
            dialect, handler, wildcard = self._route(scope)
            self._authorize(scope)
            body = await read_body(receive, self._settings.max_body)
            reply = await handler(Request(scope, wildcard, body))
        except WireError as error:
            reply = dialect.failure(BadRequest(str(error)))
        except EnvError as error:
            reply = dialect.failure(error)
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            reply = _OUR_MISTAKE
        await send_reply(send, reply)

    def _route(self, scope: Scope) -> tuple[Dialect, Handler, str]:
        for dialect in self._dialects:
            found = find(dialect.routes, scope)
            if found is not None:
                return dialect, *found
        raise not_found(scope)

    def _authorize(self, scope: Scope) -> None:
        if self._authorization is None or scope["path"] == "/health":
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not compare_digest(given, self._authorization):
            raise Unauthorized("expected the server's bearer token")
