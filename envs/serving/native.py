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

from ..errors import (
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
from ..pool import Instances
from ..wire import PROTOCOL, Fields, observation_to, reached_to, spec_to, step_to, tasks_to
from .asgi import Reply, Request, Route, Routes
from .openapi import NUMBER, SEED, TEXT, TEXTS, object_schema
from .sessions import Sessions

__all__ = ["Native", "choose_status", "read_seed"]

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


_EPISODE = {"task": TEXT, "seed": SEED}


def choose_status(error: EnvError) -> int:
    if isinstance(error, EnvFault):
        return _FAULT_STATUS.get(error.kind, 502)
    return _STATUS.get(type(error), 400)


class Native:
    name = "native"

    def __init__(self, pool: Instances, sessions: Sessions) -> None:
        self._pool = pool
        self._sessions = sessions
        key = {"key": {"type": "string", "pattern": f"^[0-9A-Za-z]{{1,{MAX_KEY}}}$"}}
        self.routes: Routes = {
            ("health",): {"GET": Route(self._health, "whether it is well")},
            ("schema",): {"GET": Route(self._schema, "what is known before any episode")},
            ("tasks",): {"GET": Route(self._tasks, "the tasks of a split", query={"split": TEXT})},
            ("corpus",): {"GET": Route(self._corpus, "texts that hold every word")},
            ("expert",): {"POST": Route(self._expert, "actions that solve an episode", object_schema(_EPISODE))},
            ("hindsight",): {
                "POST": Route(
                    self._hindsight, "other tasks that were solved", object_schema({**_EPISODE, "actions": TEXTS})
                )
            },
            ("sessions",): {"POST": Route(self._open, "begin an episode", object_schema(_EPISODE, key))},
            ("sessions", "*"): {"DELETE": Route(self._close, "end a session")},
            ("sessions", "*", "step"): {
                "POST": Route(self._step, "act", object_schema({"action": TEXT}, {"number": NUMBER}))
            },
            ("sessions", "*", "advice"): {
                "POST": Route(self._advice, "what an expert would do now", object_schema({}))
            },
            ("sessions", "*", "noise"): {
                "POST": Route(self._noise, "any well-formed action", object_schema({"seed": SEED}))
            },
        }

    def failure(self, error: EnvError) -> Reply:
        body = {"code": error.code, "message": str(error)}
        if isinstance(error, EnvFault):
            body["kind"] = error.kind.value
        status = choose_status(error)
        return Reply(status, {"error": body}, ((b"retry-after", b"1"),) if status == 503 else ())

    async def _health(self, request: Request) -> Reply:
        status = "stuck" if self._pool.hangs else "ok"
        data = {"status": status, "protocol": PROTOCOL, "env": self._pool.spec.name}
        return Reply(200, {**data, "sessions": len(self._sessions), "stuck": self._pool.stuck})

    async def _schema(self, request: Request) -> Reply:
        return Reply(200, {"protocol": PROTOCOL, "spec": spec_to(await self._pool.describe())})

    async def _tasks(self, request: Request) -> Reply:
        split = request.query("split")
        if split is None:
            raise BadRequest("expected one 'split' in the query")
        return Reply(200, {"split": split, "tasks": tasks_to(await self._pool.tasks(split))})

    async def _corpus(self, request: Request) -> Reply:
        return Reply(200, {"texts": await self._pool.corpus()})

    async def _expert(self, request: Request) -> Reply:
        given = _read_body(request)
        task, seed = given.text("task"), read_seed(given)
        given.done()
        return Reply(200, {"actions": await self._pool.expert(task, seed)})

    async def _hindsight(self, request: Request) -> Reply:
        given = _read_body(request)
        task, seed, actions = given.text("task"), read_seed(given), given.texts("actions")
        given.done()
        return Reply(200, {"reached": reached_to(await self._pool.hindsight(task, seed, actions))})

    async def _open(self, request: Request) -> Reply:
        given = _read_body(request)
        task, seed, key = given.text("task"), read_seed(given), _read_key(given)
        given.done()
        opened = await self._sessions.open(task, seed, key)
        return Reply(201, {"session": opened.session, "observation": observation_to(opened.observation)})

    async def _step(self, request: Request) -> Reply:
        given = _read_body(request)
        action = given.text("action")
        number = given.whole("number") if given.has("number") else None
        given.done()
        return Reply(200, step_to(await self._sessions.step(request.id, action, number)))

    async def _advice(self, request: Request) -> Reply:
        _read_body(request).done()
        return Reply(200, {"action": await self._sessions.advice(request.id)})

    async def _noise(self, request: Request) -> Reply:
        given = _read_body(request)
        seed = read_seed(given)
        given.done()
        return Reply(200, {"action": await self._sessions.noise_action(request.id, seed)})

    async def _close(self, request: Request) -> Reply:
        await self._sessions.close(request.id)
        return Reply(204)


def _read_body(request: Request) -> Fields:
    return Fields(request.data, "request")


def read_seed(given: Fields) -> int:
    seed = given.whole("seed")
    if not 0 <= seed < MAX_SEED:
        raise BadRequest("'seed' must be from 0 to 2**63 - 1")
    return seed


def _read_key(given: Fields) -> str | None:
    if not given.has("key"):
        return None
    key = given.text("key")
    if not (key.isascii() and key.isalnum() and len(key) <= MAX_KEY):
        raise BadRequest(f"'key' must be at most {MAX_KEY} letters and digits")
    return key
