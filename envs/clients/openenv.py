"""Environments on OpenEnv servers, played like any other.

Each session has a WebSocket of its own. A task is `SPLIT/INDEX`, as the server lists it, or else a name that is handed
to its reset. An action's text becomes the one text that the server's schema asks for; where it asks for more, the
action has to be a JSON object. Rewards add up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import CloseCode

from ..errors import BadRequest, EnvError, EnvFault, EpisodeOver, FaultKind, NotFound, Unauthorized, UnknownSplit
from ..limits import MAX_ANSWER, check_first, check_step, oversized
from ..protocol import LARGEST_REWARD, Deadlines, EnvSpec, Observation, Score, Session, Status, Step, TaskInfo
from ..wire import Fields, WireError, dump, load_object
from .http import Calls, HttpRequest, read_json
from .play_only import PlayOnlyEnv, PlayOnlySession, read_answer

if TYPE_CHECKING:
    from ..protocol import EnvClient

__all__ = ["OpenEnvEnv"]

_QUOTED = 200
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
"""Between tries to open a session on a server that has none left."""
_TOLD = {"metadata", "done", "reward"}
"""Fields that describe observations and actions rather than being part of them."""
_LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
"""Statuses after which a retry may succeed."""


class OpenEnvEnv(PlayOnlyEnv):
    """The environment of the server at `url`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        deadlines: Deadlines | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        # a user and password in the address would be sent in place of the token
        self._url = (url if token is None else str(httpx.URL(url).copy_with(userinfo=b""))).rstrip("/")
        self._headers = {"authorization": f"Bearer {token}"} if token is not None else {}
        self._deadlines = deadlines or Deadlines()
        self._calls = Calls(url.rstrip("/"), _answer, repeats=True, token=token, transport=transport)
        self._splits: tuple[str, ...] | None = None
        self._action: str | None = None
        """Field of an action that takes its text; None where an action must be JSON."""

    async def spec(self) -> EnvSpec:
        about, schemas = await self._get("/metadata"), await self._get("/schema")
        name, version, summary = read_answer("/metadata", lambda: _read_metadata(Fields(about, "metadata")))
        schema = read_answer("/schema", lambda: _read_schema(Fields(schemas, "schema")))
        self._action, self._calls.name = _one_text(schema), name
        if self._splits is None:
            self._splits = await self._listed_splits()
        prompt = "" if self._action is not None else f"Each action is a JSON object: {dump(schema).decode()}"
        return EnvSpec(
            name=name,
            version=version,
            summary=summary,
            splits=self._splits,
            score=Score.SUM,
            # such a server does not say how much can be earned
            score_range=(-LARGEST_REWARD, LARGEST_REWARD),
            prompt=prompt,
        )

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        try:
            name = await self._listed_name()
            answer = await self._calls.post(f"/{name}/num_tasks", {"split": split}, self._deadlines.open_s)
        except NotFound as error:
            raise UnknownSplit(f"the server lists no tasks of split '{split[:40]}'; name them by 'ids'") from error
        count = read_answer("/num_tasks", lambda: Fields(answer, "answer").whole("num_tasks"))
        return tuple(TaskInfo(id=f"{split}/{index}") for index in range(count))

    async def open(self, task: str, seed: int) -> Session:
        if self._splits is None:
            await self.spec()
        trouble = [EnvFault(f"no session within {self._deadlines.open_s:g} s", kind=FaultKind.DEADLINE)]
        try:
            async with asyncio.timeout(self._deadlines.open_s):
                return await self._until_open(task, seed, trouble)
        except TimeoutError:
            raise trouble[-1] from None

    async def _until_open(self, task: str, seed: int, trouble: list[EnvFault]) -> Session:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._open(task, seed)
            except EnvFault as fault:
                if fault.kind not in (FaultKind.BUSY, FaultKind.UNREACHABLE):
                    raise
                trouble.append(fault)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def close(self) -> None:
        await self._calls.close()

    async def _get(self, path: str) -> Any:
        return await self._calls.get(path, self._deadlines.open_s)

    async def _listed_name(self) -> str:
        listed = await self._get("/list_environments")
        names = read_answer("/list_environments", lambda: Fields({"names": listed}, "answer").texts("names"))
        if not names:
            raise NotFound("the server lists no environment")
        return names[0]

    async def _listed_splits(self) -> tuple[str, ...]:
        """None for most servers: they list no tasks."""
        try:
            name = await self._listed_name()
            return tuple(Fields(split, "split").text("name") for split in await self._get(f"/{name}/splits"))
        except (EnvError, WireError, TypeError):
            return ()

    async def _open(self, task: str, seed: int) -> Session:
        url = f"ws{self._url.removeprefix('http')}/ws"
        shown = str(httpx.URL(url).copy_with(userinfo=b""))
        try:
            socket = await connect(
                url, additional_headers=self._headers, max_size=MAX_ANSWER, proxy=None, open_timeout=None
            )
        except InvalidStatus as error:
            raise _make_refusal(shown, error.response.status_code) from error
        except (OSError, WebSocketException) as error:
            raise EnvFault(f"{shown}: {type(error).__name__}: {error}", kind=FaultKind.UNREACHABLE) from error
        session = _Session(socket, self._calls.name, self._action, self._deadlines)
        try:
            await session.begin({"seed": seed, "episode_id": task, **_name_task(task)})
        except BaseException:
            await session.close()
            raise
        return session


class _Session(PlayOnlySession):
    def __init__(self, socket: ClientConnection, env: str, action: str | None, deadlines: Deadlines) -> None:
        self._socket = socket
        self._env = env
        self._action = action
        self._deadlines = deadlines
        self._ended = ""
        self.first = Observation(text="")

    async def begin(self, data: Mapping[str, Any]) -> None:
        answer = await self._ask("reset", data)
        self.first = check_first(read_answer("reset", lambda: _read_observation(answer)), self._env)

    async def step(self, action: str) -> Step:
        if self._ended:
            raise EpisodeOver(self._ended)
        data = {self._action: action} if self._action is not None else _read_object(action)
        if data is None:
            return Step(observation=Observation(text="An action must be a JSON object."), status=Status.INVALID)
        self._ended = "a step was not answered"  # its answer may still come, and be taken for another's
        try:
            async with asyncio.timeout(self._deadlines.step_s):
                answer = await self._ask("step", data)
        except TimeoutError:
            message = f"no answer to a step within {self._deadlines.step_s:g} s"
            raise EnvFault(message, kind=FaultKind.DEADLINE) from None
        except BadRequest as error:
            self._ended = ""
            return Step(observation=Observation(text=str(error)), status=Status.INVALID)
        step = check_step(read_answer("step", lambda: _read_step(answer)), self._env)
        self._ended = "the episode is over" if step.ended else ""
        return step

    async def close(self) -> None:
        self._ended = "the session is closed"
        with suppress(TimeoutError, OSError, WebSocketException):
            async with asyncio.timeout(self._deadlines.close_s):
                await self._socket.send('{"type":"close"}')
                await self._socket.close()

    async def _ask(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        sent = False
        try:
            # a server that is full says so and hangs up, perhaps before it is asked: what it said is read even then
            with suppress(ConnectionClosed):
                await self._socket.send(dump({"type": kind, "data": data}).decode("ascii"))
                sent = True
            said = await self._socket.recv()
        except ConnectionClosed as error:
            if error.sent is not None and error.sent.code == CloseCode.MESSAGE_TOO_BIG:
                raise oversized(self._env, f"a {kind}") from error
            raise EnvFault(f"the connection was closed during a {kind}: {error}", kind=FaultKind.LOST) from error
        answer = read_answer(kind, lambda: load_object(said.encode("utf-8") if isinstance(said, str) else said))
        about = answer.get("data")
        if answer.get("type") == "error" or not isinstance(about, dict):
            raise _read_error(kind, about)
        if not sent:
            raise EnvFault(f"the connection was closed before a {kind}", kind=FaultKind.LOST)
        return about


# --- what is sent ---


def _name_task(task: str) -> dict[str, Any]:
    split, slash, index = task.rpartition("/")
    if slash and split and index.isascii() and index.isdecimal():
        return {"split": split, "index": int(index)}
    return {"task_id": task}


def _one_text(schema: Any) -> str | None:
    """Name of the single text field of an action, if it has exactly one."""
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return None
    fields = {name: each for name, each in schema["properties"].items() if name not in _TOLD}
    needed = schema.get("required")
    required = [name for name in fields if isinstance(needed, list) and name in needed]
    texts = [name for name in required or fields if _is_text(fields[name])]
    return texts[0] if len(texts) == 1 and len(required) <= 1 else None


def _is_text(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"


def _read_object(action: str) -> dict[str, Any] | None:
    try:
        return load_object(action.encode("utf-8", "surrogatepass"))
    except WireError:
        return None


# --- what comes back ---


def _read_metadata(fields: Fields) -> tuple[str, str, str]:
    """Name, version, summary."""
    version = fields.text("version") if fields.has("version") else ""
    summary = fields.text("description") if fields.has("description") else ""
    return fields.text("name"), version, summary


def _read_schema(fields: Fields) -> dict[str, Any] | None:
    """Schema of an action."""
    return fields.table("action") if fields.has("action") else None


def _read_observation(answer: Mapping[str, Any]) -> Observation:
    seen = Fields(answer, "answer").table("observation")
    texts = [value for name, value in seen.items() if isinstance(value, str) and name not in _TOLD]
    listed = seen.get("valid_actions")
    shown = {name: value for name, value in seen.items() if name not in _TOLD}
    text = texts[0] if len(texts) == 1 else dump(shown).decode("ascii")
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        return Observation(text=text)
    return Observation(text=text, valid_actions=tuple(listed))


def _read_step(answer: Mapping[str, Any]) -> Step:
    fields = Fields(answer, "answer")
    about = answer.get("metadata")
    told = about if isinstance(about, dict) else {}
    done, truncated = fields.flag("done"), told.get("truncated") is True
    return Step(
        observation=_read_observation(answer),
        reward=_read_reward(fields, answer.get("reward")),
        terminated=done and not truncated,
        truncated=done and truncated,
        status=Status(told["status"]) if told.get("status") in list(Status) else Status.OK,
    )


def _read_reward(fields: Fields, said: object) -> float:
    """The reward, declared there as a number, a boolean or null."""
    if isinstance(said, bool):
        return float(said)
    return fields.number("reward") if fields.has("reward") else 0.0


def _read_error(kind: str, about: Any) -> EnvError:
    said = about if isinstance(about, dict) else {}
    full = said.get("code") == "CAPACITY_REACHED"
    message = str(said.get("message", "an answer without data"))[:_QUOTED]
    if kind == "step" and said.get("code") == "VALIDATION_ERROR":  # the agent's mistake, and the session goes on
        return BadRequest(message)
    return EnvFault(f"{kind}: {message}", kind=FaultKind.BUSY if full else FaultKind.CRASHED)


def _answer(asked: HttpRequest, response: httpx.Response) -> Any:
    if not response.is_success:
        raise _make_refusal(str(asked), response.status_code, response.text[:_QUOTED])
    return read_json(asked, response)


def _make_refusal(asked: str, status: int, said: str = "") -> EnvError:
    message = f"{asked} was refused with status {status} {said}".strip()
    if status in (401, 403):
        return Unauthorized(message)
    if status in _LATER:
        return EnvFault(message, kind=FaultKind.BUSY)
    if status < 500 or status == 501:
        return NotFound(message)
    return EnvFault(message, kind=FaultKind.CRASHED if status == 500 else FaultKind.UNREACHABLE)


if TYPE_CHECKING:

    def _keeps_the_protocol(env: OpenEnvEnv) -> EnvClient:
        return env
