"""The OpenEnv dialect, for clients made for that system; all of it below `/openenv`, which is the base of their URL.

    GET /health /metadata /schema /state
    POST /reset {seed?, task_id?, split?, index?}    -> {observation, reward, done, metadata}
    POST /step {action: {text}, ...}                 -> the same; over HTTP each is an episode of its own
    GET /list_environments  GET /ENV/splits  POST /ENV/tasks {split}
    POST /ENV/num_tasks {split}  POST /ENV/task {split, index}
    WebSocket /ws                                    -> a session: {type: reset | step | state | close, data}

A task is named by `task_id`, or by a split and an index in it; without either the seed chooses one of the first split.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..errors import BadRequest, EnvError, EnvFault, FaultKind, NotFound, UnknownSession, UnknownTask
from ..pool import Instances
from ..protocol import Json, Observation, Step, score_of
from ..wire import Fields, WireError, dump, load_json
from .asgi import ASGIReceive, ASGISend, Reply, Request, Route, Routes
from .native import choose_status, read_seed
from .openapi import NUMBER, SEED, TEXT, object_schema
from .sessions import Sessions

__all__ = ["OpenEnv"]

_BASE = "openenv"
_ACTION = object_schema({"text": TEXT}, {"metadata": {"type": "object"}})
_OBSERVATION = object_schema(
    {"text": TEXT},
    {"valid_actions": {"type": ["array", "null"], "items": TEXT}, "metadata": {"type": "object"}},
)
_STATE = object_schema({"episode_id": {"type": ["string", "null"]}, "step_count": NUMBER}, {"task_id": TEXT})
_WHICH = {"seed": SEED, "task_id": TEXT, "split": TEXT, "index": NUMBER, "episode_id": TEXT}


class OpenEnv:
    name = "openenv"
    socket = f"/{_BASE}/ws"

    def __init__(self, pool: Instances, sessions: Sessions, max_message: int, lease_s: float) -> None:
        self._pool = pool
        self._sessions = sessions
        self._max_message = max_message
        self._lease_s = lease_s
        split, index = object_schema({"split": TEXT}), object_schema({"split": TEXT, "index": NUMBER})
        self.routes: Routes = {
            (_BASE, "health"): {"GET": Route(self._health, "whether it is well")},
            (_BASE, "metadata"): {"GET": Route(self._metadata, "which environment this is")},
            (_BASE, "schema"): {"GET": Route(self._schema, "what actions and observations hold")},
            (_BASE, "state"): {"GET": Route(self._state, "that no episode is under way over HTTP")},
            (_BASE, "reset"): {"POST": Route(self._reset, "how an episode begins", object_schema({}, _WHICH))},
            (_BASE, "step"): {"POST": Route(self._step, "a first step", object_schema({"action": _ACTION}, _WHICH))},
            (_BASE, "list_environments"): {"GET": Route(self._environments, "the environment's name")},
            (_BASE, "*", "splits"): {"GET": Route(self._splits, "its splits")},
            (_BASE, "*", "tasks"): {"POST": Route(self._tasks, "the tasks of a split", split)},
            (_BASE, "*", "num_tasks"): {"POST": Route(self._num_tasks, "how many there are", split)},
            (_BASE, "*", "task"): {"POST": Route(self._task, "one of them", index)},
        }

    def failure(self, error: EnvError) -> Reply:
        status = 422 if isinstance(error, BadRequest) else choose_status(error)
        return Reply(status, {"detail": str(error)})

    # --- over HTTP ---

    async def _health(self, request: Request) -> Reply:
        return Reply(200, {"status": "unhealthy" if self._pool.hangs else "healthy"})

    async def _metadata(self, request: Request) -> Reply:
        spec = self._pool.spec
        return Reply(200, {"name": spec.name, "description": spec.summary, "version": spec.version})

    async def _schema(self, request: Request) -> Reply:
        schemas = {"action": _ACTION, "observation": _OBSERVATION, "reset_observation": _OBSERVATION, "state": _STATE}
        return Reply(200, schemas)

    async def _state(self, request: Request) -> Reply:
        return Reply(200, {"episode_id": None, "step_count": 0})

    async def _reset(self, request: Request) -> Reply:
        talk = Talk(self._pool, self._sessions)
        try:
            return Reply(200, await talk.reset(request.data))
        finally:
            await talk.end()

    async def _step(self, request: Request) -> Reply:
        action = Fields(request.data, "request").table("action")
        talk = Talk(self._pool, self._sessions)
        try:
            await talk.reset(request.data)
            return Reply(200, await talk.step(action))
        finally:
            await talk.end()

    # --- tasks ---

    async def _environments(self, request: Request) -> Reply:
        return Reply(200, [self._pool.spec.name])

    async def _splits(self, request: Request) -> Reply:
        self._check_name(request)
        known = ("train", "validation", "test")
        splits = self._pool.spec.splits
        return Reply(200, [{"name": name, "type": name if name in known else "validation"} for name in splits])

    async def _tasks(self, request: Request) -> Reply:
        return Reply(200, {"tasks": await self._listed(request), "env_name": self._pool.spec.name})

    async def _num_tasks(self, request: Request) -> Reply:
        return Reply(200, {"num_tasks": len(await self._listed(request))})

    async def _task(self, request: Request) -> Reply:
        tasks, index = await self._listed(request), Fields(request.data, "request").whole("index")
        if not 0 <= index < len(tasks):
            raise UnknownTask(f"'index' must be from 0 to {len(tasks) - 1}")
        return Reply(200, {"task": tasks[index]})

    async def _listed(self, request: Request) -> list[dict[str, Json]]:
        self._check_name(request)
        split = Fields(request.data, "request").text("split")
        return [{"id": task.id, "index": index} for index, task in enumerate(await self._pool.tasks(split))]

    def _check_name(self, request: Request) -> None:
        if request.id != self._pool.spec.name:
            raise NotFound(f"no environment '{request.id[:40]}', only {self._pool.spec.name}")

    # --- over a WebSocket ---

    async def converse(self, receive: ASGIReceive, send: ASGISend) -> None:
        """One session, as long as the connection lasts and something is said in the time of a lease."""
        await receive()
        await send({"type": "websocket.accept"})
        talk = Talk(self._pool, self._sessions)
        try:
            while (message := await self._next(receive))["type"] == "websocket.receive":
                answer = await self._answer(talk, message)
                if answer is None:
                    await send({"type": "websocket.close", "code": 1000})
                    break
                await send({"type": "websocket.send", "text": dump(answer).decode("ascii")})
        finally:
            await talk.end()

    async def _next(self, receive: ASGIReceive) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(self._lease_s):
                return await receive()
        except TimeoutError:
            return {"type": "websocket.receive", "text": '{"type":"close"}'}

    async def _answer(self, talk: Talk, message: Mapping[str, Any]) -> Json:
        """Answer a message; None means that the client ends the session."""
        try:
            said = message.get("text") or message.get("bytes") or ""
            body = said if isinstance(said, bytes) else said.encode("utf-8", "surrogatepass")
            if len(body) > self._max_message:
                return _error("VALIDATION_ERROR", f"a message must not be longer than {self._max_message} bytes")
            data = load_json(body)
        except WireError as error:
            return _error("INVALID_JSON", str(error))
        try:
            given = Fields(data, "message")
            kind = given.text("type")
            if kind == "close":
                return None
            if kind not in _MESSAGES:
                return _error("UNKNOWN_TYPE", f"unknown message type: {kind[:40]}")
            return {
                "type": "state" if kind == "state" else "observation",
                "data": await _MESSAGES[kind](talk, given.table("data") if given.has("data") else {}),
            }
        except (WireError, BadRequest) as error:
            return _error("VALIDATION_ERROR", str(error))
        except EnvFault as error:
            return _error("CAPACITY_REACHED" if error.kind is FaultKind.BUSY else "EXECUTION_ERROR", str(error))
        except EnvError as error:
            return _error("EXECUTION_ERROR", str(error))


@dataclass(slots=True)
class Talk:
    """One client's session, episode after episode."""

    pool: Instances
    sessions: Sessions
    session: str = ""
    task: str = ""
    episode: str | None = None
    rewards: list[float] = field(default_factory=list)

    async def reset(self, data: Mapping[str, Any]) -> dict[str, Json]:
        given = Fields(data, "reset")
        seed = read_seed(given) if given.has("seed") else 0
        episode = given.text("episode_id") if given.has("episode_id") else None
        self.task = await self._choose_task(given, seed)
        if self.session not in self.sessions:
            self.session = self.sessions.reserve()
        observation = await self.sessions.reset(self.session, self.task, seed)
        self.episode, self.rewards = episode if episode is not None else f"{self.task}#{seed}", []
        return _shape_observation(observation, None, False, {"task_id": self.task, "seed": seed})

    async def _choose_task(self, given: Fields, seed: int) -> str:
        if given.has("task_id"):
            return given.text("task_id")
        split = given.text("split") if given.has("split") else self.pool.spec.splits[0]
        tasks = await self.pool.tasks(split)
        index = given.whole("index") if given.has("index") else seed % max(1, len(tasks))
        if not 0 <= index < len(tasks):
            raise UnknownTask(f"split '{split[:40]}' has {len(tasks)} tasks")
        return tasks[index].id

    async def step(self, data: Mapping[str, Any]) -> dict[str, Json]:
        given = Fields(data, "action")
        action = given.text("text")
        if given.has("metadata"):
            given.table("metadata")
        given.done()
        step = await self.sessions.step(self.session, action)
        before = score_of(self.pool.spec.score, self.rewards)
        self.rewards.append(step.reward)
        # rewards add up there, whatever they do here
        gained = score_of(self.pool.spec.score, self.rewards) - before
        return _shape_observation(step.observation, gained, step.ended, _about(step))

    async def state(self, data: Mapping[str, Any]) -> dict[str, Json]:
        return {"episode_id": self.episode, "step_count": len(self.rewards), "task_id": self.task}

    async def end(self) -> None:
        with suppress(UnknownSession):
            await self.sessions.close(self.session)


_MESSAGES = {"reset": Talk.reset, "step": Talk.step, "state": Talk.state}


def _about(step: Step) -> dict[str, Json]:
    return {"status": step.status.value, "truncated": step.truncated, "info": step.info}


def _shape_observation(
    observation: Observation, reward: float | None, done: bool, about: Mapping[str, Json]
) -> dict[str, Json]:
    shown = {"text": observation.text, "valid_actions": observation.valid_actions, "metadata": about}
    return {"observation": shown, "reward": reward, "done": done, "metadata": about}


def _error(code: str, message: str) -> dict[str, Json]:
    return {"type": "error", "data": {"message": message, "code": code}}
