"""The AgentGym dialect, for clients made for that system: numbered environments and tasks, errors under status 200.

    GET /                          -> a greeting
    POST /create {}                -> {id, observation, done, reward}
    POST /reset {id, data_idx}     -> {id, observation, done, reward}
    POST /step {id, action}        -> {observation, reward, done}
    GET /observation?id=ID         -> the latest observation, as bare text
    POST /close {id}               -> {closed, id}

`data_idx` counts the tasks of the environment's first split, then those of the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count

from .asgi import Reply, Request, Routes
from .errors import BadRequest, EnvError, UnknownSession, UnknownTask
from .pool import EnvPool
from .protocol import Json, Step
from .sessions import Sessions
from .wire import Fields

__all__ = ["AgentGym"]

_INDEXED_SPLITS = 2
_SEED = 0


@dataclass(slots=True, kw_only=True)
class _Numbered:
    session: str
    observation: str


class AgentGym:
    """The family whose replies are those of TextCraft."""

    def __init__(self, pool: EnvPool, sessions: Sessions) -> None:
        self._pool = pool
        self._sessions = sessions
        self._numbers = count()
        self._open: dict[int, _Numbered] = {}
        self.routes: Routes = {
            ("",): {"GET": self._greet},
            ("create",): {"POST": self._create},
            ("reset",): {"POST": self._reset},
            ("step",): {"POST": self._step},
            ("observation",): {"GET": self._observation},
            ("close",): {"POST": self._close},
        }

    def failure(self, error: EnvError) -> Reply:
        return Reply(200, {"error": str(error)})

    @cached_property
    def _tasks(self) -> tuple[str, ...]:
        splits = self._pool.spec.splits[:_INDEXED_SPLITS]
        return tuple(task.id for split in splits for task in self._pool.tasks(split))

    async def _greet(self, request: Request) -> Reply:
        return Reply(200, f"This is the environment {self._pool.spec.name}.")

    async def _create(self, request: Request) -> Reply:
        self._forget_expired()
        number = next(self._numbers)
        opened = await self._sessions.open(self._tasks[number % len(self._tasks)], _SEED)
        self._open[number] = _Numbered(session=opened.session, observation=opened.observation.text)
        return Reply(200, _begun(number, opened.observation.text))

    async def _reset(self, request: Request) -> Reply:
        fields = Fields(request.data, "request")
        number = fields.whole("id")
        index = fields.whole("data_idx") if fields.has("data_idx") else 0
        if not 0 <= index < len(self._tasks):
            raise UnknownTask(f"'data_idx' must be from 0 to {len(self._tasks) - 1}")
        numbered = self._numbered(number)
        observation = await self._sessions.reset(numbered.session, self._tasks[index], _SEED)
        numbered.observation = observation.text
        return Reply(200, _begun(number, observation.text))

    async def _step(self, request: Request) -> Reply:
        fields = Fields(request.data, "request")
        numbered = self._numbered(fields.whole("id"))
        step = await self._sessions.step(numbered.session, fields.text("action"))
        numbered.observation = step.observation.text
        return Reply(200, _stepped(step))

    async def _observation(self, request: Request) -> Reply:
        text = request.query("id") or ""
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise BadRequest("expected a number as 'id' in the query")
        return Reply(200, self._numbered(int(text)).observation)

    async def _close(self, request: Request) -> Reply:
        number = Fields(request.data, "request").whole("id")
        numbered = self._numbered(number)
        del self._open[number]
        await self._sessions.close(numbered.session)
        return Reply(200, {"closed": True, "id": number})

    def _numbered(self, number: int) -> _Numbered:
        if number not in self._open:
            raise UnknownSession(f"no environment has the id {number}")
        return self._open[number]

    def _forget_expired(self) -> None:
        gone = [number for number, numbered in self._open.items() if numbered.session not in self._sessions]
        for number in gone:
            del self._open[number]


def _begun(number: int, observation: str) -> dict[str, Json]:
    return {"id": number, "observation": observation, "done": False, "reward": 0}


def _stepped(step: Step) -> dict[str, Json]:
    return {"observation": step.observation.text, "reward": step.reward, "done": step.ended}
