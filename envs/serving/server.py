"""Any environment as an HTTP service: an ASGI application that checks, limits and routes; dialects do the talking.

Every request gets a reply: a caller's mistake is a 4xx with a code, an environment's trouble a 502 to 504, and a
mistake of ours a 500 that names nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any

from ..errors import BadRequest, EnvError, EnvFault, NotFound, Unauthorized
from ..pool import EnvPool, Instances
from ..protocol import START_S, Deadlines, EnvFactory
from ..wire import WireError
from .agentgym import AgentGym
from .asgi import (
    ASGIReceive,
    ASGIScope,
    ASGISend,
    Handler,
    Reply,
    Request,
    Route,
    Routes,
    WireDialect,
    encode_reply,
    find_handler,
    not_found,
    read_body,
    refuse_web_pages,
    send_reply,
)
from .metrics import Answers, Sample, format_samples
from .native import Native
from .openapi import describe_server, merge_descriptions
from .openenv import OpenEnv
from .remote_pool import Distant
from .sessions import Sessions

__all__ = ["EnvServer", "MultiEnvServer", "ServerSettings"]

log = logging.getLogger(__name__)

_OPEN_TO_ALL = ("/health", "/openenv/health")

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
    deadlines: Deadlines = field(default_factory=lambda: Deadlines(open_s=START_S, step_s=300.0, close_s=30.0))
    agentgym: str | None = None
    """Which family's shapes the AgentGym dialect has; by the environment's name if None."""


class _Lifespan:
    """An application that starts and stops itself under a server that speaks ASGI's lifespan."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def _live(self, receive: ASGIReceive, send: ASGISend) -> None:
        steps = {"lifespan.startup": self.start, "lifespan.shutdown": self.stop}
        for event, action in steps.items():
            await receive()
            await action()
            await send({"type": f"{event}.complete"})


class EnvServer(_Lifespan):
    """One environment, in this process or behind a client."""

    def __init__(
        self,
        source: EnvFactory | Distant,
        settings: ServerSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or ServerSettings()
        self._clock = clock
        self.pool: Instances = (
            source
            if isinstance(source, Distant)
            else EnvPool(source, deadlines=self._settings.deadlines, threads=self._settings.threads)
        )
        self.sessions = Sessions(
            self.pool, limit=self._settings.max_sessions, lease_s=self._settings.lease_s, clock=clock
        )
        self._native = Native(self.pool, self.sessions)
        self._openenv = OpenEnv(self.pool, self.sessions, self._settings.max_body, self._settings.lease_s)
        self.dialects: Sequence[WireDialect] = (
            self._native,
            AgentGym(self.pool, self.sessions, self._settings.agentgym),
            self._openenv,
            _About(self, self._native.failure),
        )
        self._answers = Answers()
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
        pause = self._settings.lease_s / 4
        while True:
            begun = self._clock()
            await asyncio.sleep(pause)
            # if it was held up itself, as on a machine that was put to sleep, clients that waited for it come first
            if self._clock() - begun < 2 * pause:
                await self.sessions.expire()

    def description(self) -> dict[str, Any]:
        return describe_server(self.pool.spec, self.dialects, secured=self._authorization is not None)

    def samples(self) -> Iterator[tuple[str, Sample]]:
        """Metrics so far, under the environment's name."""
        sessions, env = self.sessions, self.pool.spec.name
        yield env, Sample("agym_env_sessions", len(sessions), "gauge", "sessions that are open")
        yield env, Sample("agym_env_stuck_calls", self.pool.stuck, "gauge", "calls that do not come back")
        yield env, Sample("agym_env_episodes_total", sessions.num_episodes, "counter", "episodes begun")
        yield env, Sample("agym_env_steps_total", sessions.num_steps, "counter", "steps taken")
        yield env, Sample("agym_env_sessions_expired_total", sessions.num_expired, "counter", "leases that ran out")
        for sample in self._answers.samples():
            yield env, sample

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)

    async def _websocket(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        try:
            if scope["path"] != self._openenv.socket:
                raise not_found(scope)
            self.authorize(scope)
        except EnvError:
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            await self._openenv.converse(receive, send)
        except Exception:
            log.exception("WebSocket %s", scope["path"])
            with suppress(Exception):  # the connection may be gone
                await send({"type": "websocket.close", "code": 1011})

    async def _http(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        dialect: WireDialect = self._native
        started = time.perf_counter()
        try:
            dialect, handler, wildcard = self._route(scope)
            self.authorize(scope)
            body = await read_body(receive, self._settings.max_body)
            reply = encode_reply(await handler(Request(scope, wildcard, body)))
        except WireError as error:
            reply = dialect.failure(BadRequest(str(error)))
        except EnvError as error:
            if isinstance(error, EnvFault):
                self._answers.count_fault(error)
            reply = dialect.failure(error)
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            reply = _OUR_MISTAKE
        self._answers.count(dialect.name, reply.status, time.perf_counter() - started)
        await send_reply(send, reply)

    def _route(self, scope: ASGIScope) -> tuple[WireDialect, Handler, str]:
        for dialect in self.dialects:
            found = find_handler(dialect.routes, scope)
            if found is not None:
                return dialect, *found
        raise not_found(scope)

    def authorize(self, scope: ASGIScope) -> None:
        if scope["path"] in _OPEN_TO_ALL:
            return
        if self._authorization is None:
            refuse_web_pages(scope)
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not compare_digest(given, self._authorization):
            raise Unauthorized("expected the server's bearer token")


class _About:
    """Routes that describe the server itself."""

    name = "about"

    def __init__(self, server: EnvServer, failure: Callable[[EnvError], Reply]) -> None:
        self._server = server
        self.failure = failure
        self.routes: Routes = {
            ("openapi.json",): {"GET": Route(self._description, "this description")},
            ("metrics",): {"GET": Route(self._metrics, "what has been done so far, for Prometheus")},
        }

    async def _description(self, request: Request) -> Reply:
        return Reply(200, self._server.description())

    async def _metrics(self, request: Request) -> Reply:
        return _expose(self._server.samples())


def _expose(samples: Iterable[tuple[str, Sample]]) -> Reply:
    return Reply(200, format_samples(samples), kind=b"text/plain; version=0.0.4; charset=utf-8")


class MultiEnvServer(_Lifespan):
    """Several environments at one address, each below its name."""

    def __init__(self, servers: Mapping[str, EnvServer]) -> None:
        self._servers = servers

    async def start(self) -> None:
        for server in self._servers.values():
            await server.start()

    async def stop(self) -> None:
        for server in self._servers.values():
            await server.stop()

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        name, _, rest = scope["path"].removeprefix("/").partition("/")
        server = self._servers.get(name)
        if server is not None:
            await server({**scope, "path": f"/{rest}"}, receive, send)
        elif scope["type"] == "http":
            await send_reply(send, self._own(scope))
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _own(self, scope: ASGIScope) -> Reply:
        first, *_ = servers = list(self._servers.values())
        if scope["path"] == "/health":
            stuck = any(server.pool.hangs for server in servers)
            return Reply(200, {"status": "stuck" if stuck else "ok", "environments": [*self._servers]})
        try:
            first.authorize(scope)
            if scope["path"] == "/metrics":
                return _expose(sample for server in servers for sample in server.samples())
            if scope["path"] == "/openapi.json":
                return Reply(
                    200, merge_descriptions({name: server.description() for name, server in self._servers.items()})
                )
            raise NotFound(f"'{scope['path'][:60]}' begins with no environment's name, as /{next(iter(self._servers))}")
        except EnvError as error:
            return first.dialects[0].failure(error)
