"""Environments on AgentGym servers, played like any other.

Tasks are the numbers of the server. Such a server reports errors under status 200, knows no seeds and lists no tasks; a
step whose answer was lost cannot be repeated, so that is a fault.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from ..errors import (
    BadOption,
    BadRequest,
    EnvError,
    EnvFault,
    EpisodeOver,
    FaultKind,
    NotFound,
    Unauthorized,
    UnknownSplit,
    UnknownTask,
    suggest,
)
from ..limits import check_first, check_step
from ..protocol import Deadlines, EnvSpec, Json, Observation, Score, Session, Step, TaskInfo, ToolSchema
from ..wire import Fields, WireError, load_object
from .http import Calls, HttpRequest, make_garbage_fault, read_json
from .play_only import PlayOnlyEnv, PlayOnlySession, read_answer

if TYPE_CHECKING:
    from ..protocol import EnvClient

__all__ = ["KINDS", "AgentGymEnv", "AgentGymKind"]

_QUOTED = 200
_LONGEST_NUMBER = 18
_KEPT = 64
"""Environments kept on the server for further episodes."""
_NO_USE = (FaultKind.DEADLINE, FaultKind.UNREACHABLE, FaultKind.BUSY)
"""With these a fresh environment fares no better than one that was kept."""


# --- kinds of server ---


def _first_of(answer: Any) -> str:
    return Fields(answer, "answer").text("observation")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGymKind:
    """The wire format of one environment's server."""

    prompt: str
    number: str = "id"
    index: str = "data_idx"
    create: Mapping[str, Json] = field(default_factory=dict)
    """What goes with a creation."""
    created_bare: bool = False
    """Whether a creation is answered with nothing but the number."""
    also: Mapping[str, Json] = field(default_factory=dict)
    """What goes with a reset, besides the two numbers."""
    first: Callable[[Any], str] | None = _first_of
    """What a reset shows; None where it has to be asked for."""
    step: Callable[[Fields], Step]
    action: Callable[[str], str] = str.strip
    tools: tuple[ToolSchema, ...] = ()

    def created(self, answer: Any) -> int:
        return Fields({self.number: answer} if self.created_bare else answer, "answer").whole(self.number)


def _experiment_of(answer: Any) -> str:
    fields = Fields(answer, "answer")
    return f"{fields.text('task_description')}\n\n{fields.text('observation')}"


def _text_of(answer: Any) -> str:
    if not isinstance(answer, str):
        raise WireError("expected bare text")
    return answer


def _step(text: str, reward: str, done: str, whole: float = 1.0) -> Callable[[Fields], Step]:
    """Reader of an answer with these fields; `whole` is the reward of a solved task."""

    def read(fields: Fields) -> Step:
        earned = min(1.0, max(0.0, fields.number(reward) / whole))
        return Step(observation=Observation(text=fields.text(text)), reward=earned, terminated=fields.flag(done))

    return read


def _fence(action: str) -> str:
    return action if "```" in action else f"```{action.strip()}```"


_NAMED = re.compile(r"(search|answer)\s+(.*)", re.DOTALL | re.IGNORECASE)


def _text_tool(name: str, description: str, argument: str) -> ToolSchema:
    parameters: dict[str, Json] = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
    }
    return ToolSchema(name=name, description=description, parameters=parameters)


_SEARCH_TOOLS = (
    _text_tool("search", "Finds passages of a collection of texts.", "query"),
    _text_tool("answer", "Ends the task: the answer alone.", "text"),
)


def _as_command(action: str) -> str:
    """Turn a call into a command; any other text stays as it is."""
    try:
        call = load_object(action.encode(errors="replace"))
        (text,) = Fields(call, "call").table("arguments").values()
    except (WireError, ValueError):
        return action
    return f"{call.get('name')} {text}"


def _tag(action: str) -> str:
    action = _as_command(action)
    found = _NAMED.fullmatch(action.strip())
    return f"<{found[1].lower()}>{found[2]}</{found[1].lower()}>" if found and "<" not in action else action


KINDS: Mapping[str, AgentGymKind] = {
    "textcraft": AgentGymKind(
        prompt=(
            "Craft the goal. Give one command each turn: get [count] [item]; craft [count] [item] using [count] "
            "[item] and so on; or inventory. Only the crafting commands that are shown work."
        ),
        create={"minecraft_dir": "agentenv_textcraft/", "commands": None, "goal": None},
        step=_step("observation", "reward", "done"),
    ),
    "babyai": AgentGymKind(
        prompt="Reach the goal in a grid world of rooms. Give one of the available actions each turn, word for word.",
        step=_step("observation", "score", "done"),
    ),
    "sciworld": AgentGymKind(
        prompt=(
            "Carry out the experiment. Give one command each turn, with the things that you see: open, close, "
            "activate, deactivate, connect .. to .., disconnect, use .. on .., look around, look at, look in, read, "
            "move .. to .., pick up, put down, pour .. into .., dunk .. into .., mix, go to, eat, flush, focus on, "
            "wait, wait1, task, inventory."
        ),
        first=_experiment_of,
        step=_step("observation", "score", "done", whole=100.0),
    ),
    "webarena": AgentGymKind(
        prompt=(
            "Reach the objective in a web browser. Give one command each turn: click [id]; type [id] [text] [1 to "
            "press enter, or 0]; hover [id]; press [keys]; scroll [up or down]; new_tab; tab_focus [number]; "
            "close_tab; goto [url]; go_back; go_forward; stop [answer]."
        ),
        number="env_idx",
        index="idx",
        also={"seed": 0},
        first=None,
        step=_step("observation", "reward", "terminated"),
        action=_fence,
    ),
    "searchqa": AgentGymKind(
        prompt="Answer the question. Give search and words to look something up, or answer and your answer.",
        number="env_idx",
        index="id",
        create={"id": 0},
        created_bare=True,
        first=_text_of,
        step=_step("observation", "reward", "done"),
        action=_tag,
        tools=_SEARCH_TOOLS,
    ),
    "webshop": AgentGymKind(
        prompt="Buy what is asked for. Give search[words] or click[one of what can be clicked] each turn.",
        number="env_idx",
        index="session_id",
        created_bare=True,
        first=None,
        step=_step("state", "reward", "done"),
    ),
    "sqlgym": AgentGymKind(
        prompt="Answer with one line of SQL each turn.",
        number="env_idx",
        index="item_id",
        created_bare=True,
        first=None,
        step=_step("state", "reward", "done"),
    ),
}


# --- playing ---


class AgentGymEnv(PlayOnlyEnv):
    """One environment of that system, on the server at `url`."""

    def __init__(
        self,
        url: str,
        kind: str,
        *,
        token: str | None = None,
        deadlines: Deadlines | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._kind = _kind(kind)
        self._deadlines = deadlines or Deadlines()
        self._calls = Calls(url, _answer, repeats=False, token=token, transport=transport)
        self._calls.name = kind
        self._idle: list[int] = []
        self._held: set[int] = set()
        """Numbers given to this client and not given back, including idle ones."""
        self._spec = EnvSpec(
            name=kind,
            version="agentgym",
            summary=f"{kind} on an AgentGym server",
            splits=(),
            score=Score.LAST,
            prompt=self._kind.prompt,
            tools=self._kind.tools,
        )

    async def spec(self) -> EnvSpec:
        await self._calls.get("/", self._deadlines.open_s)
        return self._spec

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        raise UnknownSplit("an AgentGym server lists no tasks: select them by 'ids' or 'file', they are numbers from 0")

    async def open(self, task: str, seed: int) -> Session:
        index, until = _index(task), asyncio.get_running_loop().time() + self._deadlines.open_s
        if self._idle:
            try:
                return await self._begin(self._idle.pop(), index, until)
            except EnvError as error:  # the server may have dropped it, and the others too; a fresh one will tell
                await self._end_idle()
                if isinstance(error, EnvFault) and error.kind in _NO_USE:
                    raise
        return await self._begin(await self._create(until), index, until)

    async def close(self) -> None:
        await self._end_idle()
        await self._calls.close()

    async def _create(self, until: float) -> int:
        answer = await self._calls.post("/create", self._kind.create, _left_s(until))
        number = read_answer("/create", lambda: self._kind.created(answer))
        if number in self._held:
            self._held.difference_update(self._idle)
            self._idle.clear()  # those are from an earlier life of the server
            await self._end(number)
            raise _make_lost_fault(number)
        self._held.add(number)
        return number

    async def _begin(self, number: int, index: int, until: float) -> Session:
        try:
            first = Observation(text=await self._reset(number, index, until))
            return _Session(self, number, check_first(first, self._spec.name))
        except BaseException:
            await self._end(number)
            raise

    async def _reset(self, number: int, index: int, until: float) -> str:
        kind = self._kind
        body = {kind.number: number, kind.index: index, **kind.also}
        answer = await self._calls.post("/reset", body, _left_s(until))
        _refuse_failed(answer)
        first = kind.first
        if first is None:
            path = f"/observation?{kind.number}={number}"
            first, answer = _text_of, await self._calls.get(path, _left_s(until))
        return read_answer("/reset", lambda: first(answer))

    async def step(self, number: int, action: str) -> Step:
        if number not in self._held:
            raise _make_lost_fault(number)
        body = {self._kind.number: number, "action": self._kind.action(action)}
        answer = await self._calls.post("/step", body, self._deadlines.step_s)
        return check_step(read_answer("/step", lambda: self._kind.step(Fields(answer, "answer"))), self._spec.name)

    async def give_back(self, number: int, *, sound: bool) -> None:
        if sound and number in self._held and len(self._idle) < _KEPT:
            self._idle.append(number)
        else:
            await self._end(number)

    async def _end_idle(self) -> None:
        idle, self._idle = self._idle, []
        await asyncio.gather(*(self._end(number) for number in idle))

    async def _end(self, number: int) -> None:
        """End an environment, if the server can: older ones never release any."""
        self._held.discard(number)
        body = f'{{"{self._kind.number}":{number}}}'.encode("ascii")
        await self._calls.try_once(HttpRequest("POST", "/close", body), self._deadlines.close_s)


class _Session(PlayOnlySession):
    def __init__(self, env: AgentGymEnv, number: int, first: Observation) -> None:
        self._env = env
        self._number: int | None = number
        self._sound = True
        self._over = False
        self.first = first

    async def step(self, action: str) -> Step:
        if self._number is None or self._over:
            raise EpisodeOver("the session is closed" if self._number is None else "the episode is over")
        sound, self._sound = self._sound, False
        step = await self._env.step(self._number, action)
        self._sound, self._over = sound, step.ended
        return step

    async def close(self) -> None:
        number, self._number = self._number, None
        if number is not None:
            await self._env.give_back(number, sound=self._sound)


def _kind(name: str) -> AgentGymKind:
    if name not in KINDS:
        raise BadOption(f"no kind of AgentGym server is called '{name[:40]}'{suggest(name, KINDS)}")
    return KINDS[name]


def _left_s(until: float) -> float:
    return max(0.0, round(until - asyncio.get_running_loop().time(), 2))


def _make_lost_fault(number: int) -> EnvFault:
    return EnvFault(f"the server gave out number {number} twice: it was restarted", kind=FaultKind.LOST)


def _index(task: str) -> int:
    if not (task.isascii() and task.isdecimal() and len(task) <= _LONGEST_NUMBER):
        raise UnknownTask(f"the tasks of an AgentGym server are numbers, not '{task[:40]}'")
    return int(task)


# --- answers ---

_REFUSED = {400: BadRequest, 401: Unauthorized, 403: Unauthorized, 404: NotFound, 405: NotFound, 422: BadRequest}
_FAILED = {429: FaultKind.BUSY, 500: FaultKind.CRASHED, 503: FaultKind.BUSY}


def _answer(asked: HttpRequest, response: httpx.Response) -> Any:
    status, quoted = response.status_code, response.text[:_QUOTED]
    if status in _REFUSED:
        raise _REFUSED[status](f"{asked} was refused with status {status}: {quoted}")
    if status in _FAILED:
        raise EnvFault(f"{asked} ended with status {status}: {quoted}", kind=_FAILED[status])
    data = read_json(asked, response)
    if isinstance(data, dict) and "error" in data:
        raise EnvFault(f"{asked}: {str(data['error'])[:_QUOTED]}")
    if not response.is_success:
        raise make_garbage_fault(asked, f"status {status}: {quoted}")
    return data


def _refuse_failed(answer: Any) -> None:
    """Refuse the reset answer with which WebArena's server reports a page that did not load."""
    if isinstance(answer, dict) and answer.get("sites") == "Error":
        raise EnvFault(f"POST /reset: {str(answer.get('observation'))[:_QUOTED]}")


if TYPE_CHECKING:

    def _keeps_the_protocol(env: AgentGymEnv) -> EnvClient:
        return env
