"""Clients of an environment in this process or behind HTTP, through the same two protocols.

Deadlines hold for a whole call, retries included. Everything that is not the agent's doing arrives as an `EnvFault`
that says what kind it is; a step that had to be sent twice has been carried out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import httpx

from ..errors import (
    EnvError,
    EnvFault,
    EpisodeOver,
    FaultKind,
    ProtocolMismatch,
    TooLarge,
    UnknownSession,
    error_from,
)
from ..limits import MAX_ANSWER, MAX_LIST, check_first, check_step
from ..pool import EnvPool, Held
from ..protocol import Deadlines, EnvFactory, EnvSpec, Json, Observation, Reached, Runs, Step, TaskInfo
from ..wire import PROTOCOL, Fields, WireError, dump, observation_from, reached_from, spec_from, step_read, tasks_from
from .http import Calls, HttpRequest, make_garbage_fault, read_json

if TYPE_CHECKING:
    from ..protocol import EnvClient, Session

__all__ = ["HttpEnv", "InlineEnv"]

T = TypeVar("T")

_QUOTED = 80
"""Bytes of an unreadable answer that a message quotes."""


# --- in this process ---


class InlineEnv:
    """An environment in this process."""

    def __init__(self, factory: EnvFactory, *, deadlines: Deadlines | None = None, threads: int = 8) -> None:
        self._pool = EnvPool(factory, deadlines=deadlines, threads=threads)

    async def spec(self) -> EnvSpec:
        return await self._pool.describe()

    @property
    def runs(self) -> Runs:
        return self._pool.spec.runs

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        return await self._pool.tasks(split)

    async def corpus(self) -> tuple[str, ...]:
        return await self._pool.corpus()

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        return await self._pool.expert(task, seed)

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        return await self._pool.hindsight(task, seed, actions)

    async def open(self, task: str, seed: int) -> Session:
        held = await self._pool.take()
        try:
            return _InlineSession(held, await held.reset(task, seed))
        except BaseException:
            await held.give_back()
            raise

    async def close(self) -> None:
        await self._pool.close()


class _InlineSession:
    def __init__(self, held: Held, first: Observation) -> None:
        self._held: Held | None = held
        self.first = first

    async def step(self, action: str) -> Step:
        return await self._loan().step(action)

    async def advice(self) -> str | None:
        return await self._loan().advice()

    async def noise_action(self, seed: int) -> str | None:
        return await self._loan().noise_action(seed)

    async def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held.give_back()

    def _loan(self) -> Held:
        if self._held is None:
            raise EpisodeOver("the session is closed")
        return self._held


# --- behind HTTP ---


class HttpEnv:
    """An environment behind a server that speaks the native dialect."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        deadlines: Deadlines | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._deadlines = deadlines or Deadlines()
        self._calls = _Calls(url, token, transport)

    async def health(self) -> Mapping[str, Json]:
        health: Mapping[str, Json] = await self._calls.get("/health", self._deadlines.close_s)
        return health

    async def spec(self) -> EnvSpec:
        spec = await self._calls.read("/schema", self._deadlines.open_s, _read_spec)
        self._calls.name = spec.name
        return spec

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        query = httpx.QueryParams({"split": split})
        return await self._calls.read(f"/tasks?{query}", self._deadlines.open_s, _read_tasks, MAX_LIST)

    async def corpus(self) -> tuple[str, ...]:
        return await self._calls.read("/corpus", self._deadlines.open_s, lambda fields: fields.texts("texts"), MAX_LIST)

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        return await self._calls.send("/expert", {"task": task, "seed": seed}, self._deadlines.open_s, _read_actions)

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        body: dict[str, Json] = {"task": task, "seed": seed, "actions": tuple(actions)}
        try:
            return await self._calls.send("/hindsight", body, self._deadlines.open_s, _read_reached)
        except TooLarge:  # an episode longer than the server accepts has no hindsight
            return ()

    async def open(self, task: str, seed: int) -> Session:
        # with a key of our own, an opening whose answer was lost can be asked for again without opening another
        key = uuid4().hex
        body: dict[str, Json] = {"task": task, "seed": seed, "key": key}
        opened = False
        try:
            first = await self._calls.send("/sessions", body, self._deadlines.open_s, _read_opening)
            check_first(first, self._calls.name)
            opened = True
            return _HttpSession(self._calls, self._deadlines, key, first)
        finally:
            if not opened:
                await self._calls.forget(key, self._deadlines.close_s)

    async def close(self) -> None:
        await self._calls.close()


class _HttpSession:
    def __init__(self, calls: _Calls, deadlines: Deadlines, key: str, first: Observation) -> None:
        self._calls = calls
        self._deadlines = deadlines
        self._key = key
        self._num_steps = 0
        self._closed = False
        self.first = first

    async def step(self, action: str) -> Step:
        body: dict[str, Json] = {"action": action, "number": self._num_steps}
        step = await self._send("step", body, step_read)
        self._num_steps += 1
        return check_step(step, self._calls.name)

    async def advice(self) -> str | None:
        return await self._send("advice", {}, _read_action)

    async def noise_action(self, seed: int) -> str | None:
        return await self._send("noise", {"seed": seed}, _read_action)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._calls.forget(self._key, self._deadlines.close_s)

    async def _send(self, what: str, body: Mapping[str, Json], read: Callable[[Fields], T]) -> T:
        if self._closed:
            raise EpisodeOver("the session is closed")
        try:
            return await self._calls.send(f"/sessions/{self._key}/{what}", body, self._deadlines.step_s, read)
        except UnknownSession as error:
            raise EnvFault(str(error), kind=FaultKind.LOST) from error


class _Calls(Calls):
    """Requests in the native dialect; steps carry a number and openings a key, so all can be repeated."""

    def __init__(self, url: str, token: str | None, transport: httpx.AsyncBaseTransport | None) -> None:
        super().__init__(url, _answer, repeats=True, token=token, transport=transport)

    async def read(self, path: str, deadline_s: float, read: Callable[[Fields], T], max_answer: int = MAX_ANSWER) -> T:
        return _read_fields(path, await self.get(path, deadline_s, max_answer), read)

    async def send(self, path: str, body: Mapping[str, Json], deadline_s: float, read: Callable[[Fields], T]) -> T:
        return _read_fields(path, await self.post(path, body, deadline_s), read)

    async def forget(self, key: str, deadline_s: float) -> None:
        """Close a session if that can be done; if not, the server does it when the lease runs out."""
        await self.try_once(HttpRequest("DELETE", f"/sessions/{key}"), deadline_s)


def _answer(asked: HttpRequest, response: httpx.Response) -> Mapping[str, Any]:
    if response.status_code == HTTPStatus.NO_CONTENT:
        return {}
    data = read_json(asked, response)
    if not isinstance(data, dict):
        raise make_garbage_fault(asked, f"expected a JSON object: {dump(data)[:_QUOTED]!r}")
    if response.is_success:
        return data
    raise _read_error(asked, data)


def _read_fields(path: str, data: Mapping[str, Any], read: Callable[[Fields], T]) -> T:
    try:
        fields = Fields(data, "answer")
        value = read(fields)
        fields.done()
    except WireError as error:
        raise make_garbage_fault(HttpRequest("", path), f"{error}: {dump(data)[:_QUOTED]!r}") from error
    return value


def _read_error(asked: HttpRequest, data: Mapping[str, Any]) -> EnvError:
    try:
        fields = Fields(data.get("error"), "error")
        kind = fields.text("kind") if fields.has("kind") else None
        return error_from(fields.text("code"), fields.text("message"), kind)
    except WireError as error:
        return make_garbage_fault(asked, str(error))


# --- what answers hold ---


def _read_spec(fields: Fields) -> EnvSpec:
    protocol = fields.whole("protocol")
    if protocol != PROTOCOL:
        raise ProtocolMismatch(f"the server speaks protocol {protocol}, this client {PROTOCOL}")
    return spec_from(fields.table("spec"))


def _read_tasks(fields: Fields) -> tuple[TaskInfo, ...]:
    fields.text("split")
    return tasks_from(fields.items("tasks"))


def _read_opening(fields: Fields) -> Observation:
    fields.text("session")
    return observation_from(fields.table("observation"))


def _read_actions(fields: Fields) -> tuple[str, ...] | None:
    return fields.texts("actions") if fields.has("actions") else None


def _read_reached(fields: Fields) -> tuple[Reached, ...] | None:
    return reached_from(fields.items("reached")) if fields.has("reached") else None


def _read_action(fields: Fields) -> str | None:
    return fields.text("action") if fields.has("action") else None


if TYPE_CHECKING:

    def _both_keep_the_protocol(near: InlineEnv, far: HttpEnv) -> tuple[EnvClient, EnvClient]:
        return near, far
