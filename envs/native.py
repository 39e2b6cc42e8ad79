"""The native dialect: resources, status codes, typed errors.

GET /health  GET /schema  GET /tasks?split=S  GET /corpus
POST /expert {task, seed}                       -> 200 {actions}
POST /hindsight {task, seed, actions}           -> 200 {reached}
POST /sessions {task, seed, key?}               -> 201 {session, observation}
POST /sessions/ID/step {action, number?}        -> 200 step
POST /sessions/ID/advice {}                     -> 200 {action}
POST /sessions/ID/noise {seed}                  -> 200 {action}
DELETE /sessions/ID                             -> 204
any error                                       -> 4xx or 5xx {error: {code, message, kind?}}
"""

from __future__ import annotations

from collections.abc import Mapping

from .asgi import Reply, Request, Routes
from .errors import (
    BadRequest,
    EnvError,
    EnvFault,
    EpisodeOver,
    FaultKind,
    NotFound,
    OutOfStep,
    TooLarge,
    Unauthorized,
    UnknownSession,
    UnknownSplit,
    UnknownTask,
    WrongMethod,
)
from .pool import EnvPool
from .sessions import Sessions
from .wire import PROTOCOL, Fields, observation_to, reached_to, spec_to, step_to, tasks_to

__all__ = ["Native"]

MAX_KEY = 64
MAX_SEED = 2**63

_STATUS: Mapping[type[EnvError], int] = {
    BadRequest: 400,
    Unauthorized: 401,
    UnknownSplit: 404,
    UnknownTask: 404,
    UnknownSession: 404,
    NotFound: 404,
    WrongMethod: 405,
    EpisodeOver: 409,
    OutOfStep: 409,
    TooLarge: 413,
}

_FAULT_STATUS: Mapping[FaultKind, int] = {FaultKind.BUSY: 503, FaultKind.DEADLINE: 504}


class Native:
    def __init__(self, pool: EnvPool, sessions: Sessions) -> None:
        self._pool = pool
        self._sessions = sessions
        self.routes: Routes = {
            ("health",): {"GET": self._health},
            ("schema",): {"GET": self._schema},
            ("tasks",): {"GET": self._tasks},
            ("corpus",): {"GET": self._corpus},
            ("expert",): {"POST": self._expert},
            ("hindsight",): {"POST": self._hindsight},
            ("sessions",): {"POST": self._open},
            ("sessions", "*"): {"DELETE": self._close},
            ("sessions", "*", "step"): {"POST": self._step},
            ("sessions", "*", "advice"): {"POST": self._advice},
            ("sessions", "*", "noise"): {"POST": self._noise},
        }

    def failure(self, error: EnvError) -> Reply:
        body = {"code": error.code, "message": str(error)}
        if isinstance(error, EnvFault):
            status = _FAULT_STATUS.get(error.kind, 502)
            retry = ((b"retry-after", b"1"),) if status == 503 else ()
            return Reply(status, {"error": body | {"kind": error.kind.value}}, retry)
        return Reply(_STATUS.get(type(error), 400), {"error": body})

    async def _health(self, request: Request) -> Reply:
        stuck = self._pool.stuck
        status = "stuck" if stuck >= self._pool.num_threads else "ok"
        data = {"status": status, "protocol": PROTOCOL, "env": self._pool.spec.name}
        return Reply(200, {**data, "sessions": len(self._sessions), "stuck": stuck})

    async def _schema(self, request: Request) -> Reply:
        return Reply(200, {"protocol": PROTOCOL, "spec": spec_to(self._pool.spec)})

    async def _tasks(self, request: Request) -> Reply:
        split = request.query("split")
        if split is None:
            raise BadRequest("expected one 'split' in the query")
        return Reply(200, {"split": split, "tasks": tasks_to(self._pool.tasks(split))})

    async def _corpus(self, request: Request) -> Reply:
        return Reply(200, {"texts": self._pool.corpus()})

    async def _expert(self, request: Request) -> Reply:
        fields = _fields(request)
        task, seed = fields.text("task"), _seed(fields)
        fields.done()
        return Reply(200, {"actions": await self._pool.expert(task, seed)})

    async def _hindsight(self, request: Request) -> Reply:
        fields = _fields(request)
        task, seed, actions = fields.text("task"), _seed(fields), fields.texts("actions")
        fields.done()
        return Reply(200, {"reached": reached_to(await self._pool.hindsight(task, seed, actions))})

    async def _open(self, request: Request) -> Reply:
        fields = _fields(request)
        task, seed, key = fields.text("task"), _seed(fields), _key(fields)
        fields.done()
        opened = await self._sessions.open(task, seed, key)
        return Reply(201, {"session": opened.session, "observation": observation_to(opened.observation)})

    async def _step(self, request: Request) -> Reply:
        fields = _fields(request)
        action = fields.text("action")
        number = fields.whole("number") if fields.has("number") else None
        fields.done()
        return Reply(200, step_to(await self._sessions.step(request.id, action, number)))

    async def _advice(self, request: Request) -> Reply:
        _fields(request).done()
        return Reply(200, {"action": await self._sessions.advice(request.id)})

    async def _noise(self, request: Request) -> Reply:
        fields = _fields(request)
        seed = _seed(fields)
        fields.done()
        return Reply(200, {"action": await self._sessions.noise_action(request.id, seed)})

    async def _close(self, request: Request) -> Reply:
        await self._sessions.close(request.id)
        return Reply(204)


def _fields(request: Request) -> Fields:
    return Fields(request.data, "request")


def _seed(fields: Fields) -> int:
    seed = fields.whole("seed")
    if not 0 <= seed < MAX_SEED:
        raise BadRequest("'seed' must be from 0 to 2**63 - 1")
    return seed


def _key(fields: Fields) -> str | None:
    if not fields.has("key"):
        return None
    key = fields.text("key")
    if not (key.isascii() and key.isalnum() and len(key) <= MAX_KEY):
        raise BadRequest(f"'key' must be at most {MAX_KEY} letters and digits")
    return key
