"""The OpenEnv dialect, for clients made for that system; all of it below `/openenv`, which is the base of their URL.

    GET /health /metadata /schema /state
    POST /reset {seed?, task_id?, split?, index?}    -> {observation, reward, done, metadata}
    POST /step {action: {text}, ...}                 -> the same; over HTTP each is an episode of its own
    GET /openapi.json                                -> these paths, as OpenEnv's own servers describe theirs
    GET /list_environments  GET /ENV/splits  POST /ENV/tasks {split}
    POST /ENV/num_tasks {split}  POST /ENV/task {split, index}
    WebSocket /ws                                    -> a session: {type: reset | step | state | close, data}
    POST /mcp {jsonrpc, id, method, params}          -> JSON-RPC: tools/list, tools/call, openenv/session/...

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
from ..protocol import EnvSpec, Json, Observation, Status, Step, score_of
from ..wire import Fields, WireError, dump, load_json, load_object
from .asgi import ASGIReceive, ASGISend, Reply, Request, Route, Routes
from .native import choose_status, read_seed
from .openapi import NUMBER, SEED, TEXT, describe_server, object_schema
from .sessions import Sessions

__all__ = ["OpenEnv"]

_BASE = "openenv"
_ACTION = object_schema({"text": TEXT}, {"metadata": {"type": "object"}})
_OBSERVATION = object_schema(
    {"text": TEXT},
    {"valid_actions": {"type": ["array", "null"], "items": TEXT}, "metadata": {"type": "object"}},
)
_STATE = object_schema({"episode_id": {"type": ["string", "null"]}, "step_count": NUMBER}, {"task_id": TEXT})
_RPC = object_schema({"jsonrpc": TEXT, "method": TEXT}, {"id": {"type": ["string", "integer"]}, "params": {}})
_API_VERSION = "1.0.0"
"""Of OpenEnv's interface over HTTP, as its servers state it."""
_WHICH = {"seed": SEED, "task_id": TEXT, "split": TEXT, "index": NUMBER, "episode_id": TEXT}


class OpenEnv:
    name = "openenv"
    socket = f"/{_BASE}/ws"

    def __init__(self, pool: Instances, sessions: Sessions, max_message: int, lease_s: float) -> None:
        self._pool = pool
        self._sessions = sessions
        self._max_message = max_message
        self._lease_s = lease_s
        self._talks: dict[str, Talk] = {}
        """Sessions begun over JSON-RPC."""
        split, index = object_schema({"split": TEXT}), object_schema({"split": TEXT, "index": NUMBER})
        self.routes: Routes = {
            (_BASE, "health"): {"GET": Route(self._health, "whether it is well")},
            (_BASE, "metadata"): {"GET": Route(self._metadata, "which environment this is")},
            (_BASE, "schema"): {"GET": Route(self._schema, "what actions and observations hold")},
            (_BASE, "state"): {"GET": Route(self._state, "that no episode is under way over HTTP")},
            (_BASE, "reset"): {"POST": Route(self._reset, "how an episode begins", object_schema({}, _WHICH))},
            (_BASE, "step"): {"POST": Route(self._step, "a first step", object_schema({"action": _ACTION}, _WHICH))},
            (_BASE, "openapi.json"): {"GET": Route(self._description, "this description")},
            (_BASE, "mcp"): {"POST": Route(self._rpc, "the environment's tools, over JSON-RPC", _RPC)},
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

    async def _description(self, request: Request) -> Reply:
        """What the server's own description says of this dialect, with paths that count from its base."""
        whole = describe_server(self._pool.spec, [self], secured=False)
        paths = {path.removeprefix(f"/{_BASE}"): methods for path, methods in whole["paths"].items()}
        about = {**whole["info"], "version": _API_VERSION}
        return Reply(200, {**whole, "info": about, "servers": [{"url": "."}], "paths": paths})

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

    # --- over JSON-RPC, as tools ---

    async def _rpc(self, request: Request) -> Reply:
        """Every answer has status 200: what went wrong is said in it."""
        asked: Json = None
        try:
            data = load_object(request.body)
            asked = data.get("id")
            if data.get("jsonrpc") != "2.0":
                raise WireError("'jsonrpc' must be \"2.0\"")
            given = Fields(data, "request")
            method = given.text("method")
            if method not in _METHODS:
                return _rpc_error(asked, _NO_METHOD, f"no method '{method[:40]}', only {', '.join(_METHODS)}")
        except WireError as error:
            return _rpc_error(asked, _WRONG_REQUEST, str(error))
        try:
            params = given.table("params") if given.has("params") else {}
            result = await _METHODS[method](self, params)
        except (WireError, BadRequest, UnknownSession, UnknownTask) as error:
            return _rpc_error(asked, _WRONG_PARAMS, str(error))
        except EnvError as error:
            return _rpc_error(asked, _SERVER_ERROR, str(error))
        return Reply(200, {"jsonrpc": "2.0", "id": asked, "result": result})

    async def _begin_session(self, params: Mapping[str, Any]) -> Json:
        self._talks = {name: talk for name, talk in self._talks.items() if name in self._sessions}
        talk = Talk(self._pool, self._sessions)
        try:
            begun = await talk.reset(params)
        except BaseException:
            await talk.end()
            raise
        self._talks[talk.session] = talk
        return {"session_id": talk.session, **begun}

    async def _end_session(self, params: Mapping[str, Any]) -> Json:
        talk = self._find_talk(params)
        del self._talks[talk.session]
        await talk.end()
        return {"session_id": talk.session, "closed": True}

    def _find_talk(self, params: Mapping[str, Any]) -> Talk:
        name = Fields(params, "params").text("session_id")
        if name not in self._talks:
            raise UnknownSession(f"no session '{name[:40]}': begin one by openenv/session/create")
        return self._talks[name]

    async def _list_tools(self, params: Mapping[str, Any]) -> Json:
        return {"tools": _list_tools(await self._pool.describe())}

    async def _call_tool(self, params: Mapping[str, Any]) -> Json:
        """Act in a session; without one, in an episode that begins and ends with the call."""
        given = Fields(params, "params")
        arguments = given.table("arguments") if given.has("arguments") else {}
        action = _tool_action(await self._pool.describe(), given.text("name"), arguments)
        if given.has("session_id"):
            return _tool_result(await self._find_talk(params).step({"text": action}))
        talk = Talk(self._pool, self._sessions)
        try:
            await talk.reset({})
            return _tool_result(await talk.step({"text": action}))
        finally:
            await talk.end()

    # --- over a WebSocket ---

    async def converse(self, receive: ASGIReceive, send: ASGISend) -> None:
        """One session, as long as the connection lasts and is not silent for the length of a lease."""
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


_METHODS = {
    "tools/list": OpenEnv._list_tools,
    "tools/call": OpenEnv._call_tool,
    "openenv/session/create": OpenEnv._begin_session,
    "openenv/session/close": OpenEnv._end_session,
}
_WRONG_REQUEST, _NO_METHOD, _WRONG_PARAMS, _SERVER_ERROR = -32600, -32601, -32602, -32000
"""JSON-RPC's own codes."""
_ACT: dict[str, Json] = {
    "name": "act",
    "description": "Give the environment an action, as a text.",
    "inputSchema": object_schema({"text": TEXT}),
}
"""The tool of an environment that has none of its own."""


def _list_tools(spec: EnvSpec) -> list[Json]:
    own: list[Json] = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters} for tool in spec.tools
    ]
    return own or [_ACT]


def _tool_action(spec: EnvSpec, name: str, arguments: Mapping[str, Any]) -> str:
    """Write a call as an action."""
    known = [tool.name for tool in spec.tools] or [str(_ACT["name"])]
    if name not in known:
        raise BadRequest(f"no tool '{name[:40]}', only {', '.join(known)}")
    if spec.tools:
        return dump({"name": name, "arguments": arguments}).decode("ascii")
    return Fields(arguments, "arguments").text("text")


def _tool_result(answer: Mapping[str, Any]) -> Json:
    """An answer in the form that MCP gives to a tool's; what OpenEnv adds to it comes next to the text."""
    refused = answer["metadata"]["status"] != Status.OK.value
    content = [{"type": "text", "text": answer["observation"]["text"]}]
    return {"content": content, "isError": refused, "structuredContent": answer}


def _rpc_error(asked: Json, code: int, message: str) -> Reply:
    return Reply(200, {"jsonrpc": "2.0", "id": asked, "error": {"code": code, "message": message}})


def _about(step: Step) -> dict[str, Json]:
    return {"status": step.status.value, "truncated": step.truncated, "info": step.info}


def _shape_observation(
    observation: Observation, reward: float | None, done: bool, about: Mapping[str, Json]
) -> dict[str, Json]:
    shown = {"text": observation.text, "valid_actions": observation.valid_actions, "metadata": about}
    return {"observation": shown, "reward": reward, "done": done, "metadata": about}


def _error(code: str, message: str) -> dict[str, Json]:
    return {"type": "error", "data": {"message": message, "code": code}}
