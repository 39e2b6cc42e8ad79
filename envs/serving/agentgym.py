"""The AgentGym dialect, for clients made for that system: numbered environments and tasks.

    GET /                              -> a greeting
    POST /create                       -> a number, and in some families the first observation
    POST /reset {number, index}        -> the first observation
    POST /step {number, action}        -> what came of it
    GET /observation?number=N          -> the latest observation, as bare text
    POST /close {number}               -> whether there was one to close

What the fields are called and what the answers look like differs by family: `FAMILIES`. An index counts the tasks of
the environment's first split, then those of the second. Those clients know nothing of leases: an environment whose
session has run out is there again when it is reset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from json import dumps
from secrets import randbelow

from ..errors import BadOption, BadRequest, EnvError, EnvFault, UnknownSession, UnknownTask
from ..pool import Instances
from ..protocol import Json, Observation, Status, Step, score_of
from ..wire import Fields
from .asgi import Reply, Request, Route, Routes
from .native import choose_status
from .openapi import NUMBER, TEXT, object_schema
from .sessions import Sessions

__all__ = ["FAMILIES", "AgentGym", "AgentGymFamily"]

_INDEXED_SPLITS = 2
_SEED = 0
_BASES = 2**48
"""The first number is drawn below it: a number that was given out before a restart must name nothing after it."""


# --- families ---


@dataclass(frozen=True, slots=True)
class Begun:
    """An episode that has begun, in the environment of this number."""

    number: int
    task: str
    difficulty: str | None
    observation: Observation

    def apart(self, at: str) -> tuple[str, str]:
        """Split the observation into the task, which may be empty, and what is seen."""
        said, found, seen = self.observation.text.partition(at)
        return (said, seen) if found else ("", said)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGymFamily:
    """Wire format of AgentGym's server for one environment."""

    number: str = "id"
    index: str = "data_idx"
    greeting: str
    created: Callable[[int, Observation], Json]
    begun: Callable[[Begun], Json]
    stepped: Callable[[Step, float, float], Json]
    """Of a step, the score so far, and how much of it is new."""
    closed: Callable[[bool], Json] = bool
    """Of whether there was one to close."""
    begins: bool = False
    """Whether creating an environment begins an episode."""
    asks: bool = False
    """Whether the observation remains the first one, the question."""
    refuses: bool = False
    """Whether an error has a status of its own: their clients look at nothing else. Others look for what is missing."""
    not_begun: Json = None
    """What a reset that could not be carried out says, where that is not an error."""
    action: Callable[[str], str] = lambda said: said
    """The action, out of all that the agent said; most clients have extracted it."""


def _append_actions(observation: Observation) -> str:
    listed = observation.valid_actions
    return observation.text if listed is None else f"{observation.text}\nAvailable actions: {dumps(listed)}"


def _shape_crafting(step: Step, score: float, gained: float) -> Json:
    return {"observation": step.observation.text, "reward": step.reward, "done": step.ended}


def _shape_move(step: Step, score: float, gained: float) -> Json:
    return {
        "observation": _append_actions(step.observation),
        "reward": step.reward,
        "score": score,
        "done": step.ended,
    }


def _shape_trial(step: Step, score: float, gained: float) -> Json:
    return {
        "observation": step.observation.text,
        "reward": round(100 * gained),
        "score": round(100 * score),
        "done": step.ended,
    }


def _shape_experiment(begun: Begun) -> Json:
    name, _, variation = begun.task.rpartition("/")
    named = (name, int(variation)) if name and variation.isdecimal() else (begun.task, 0)
    description, seen = begun.apart("\n\n")
    return {
        "task_name": named[0],
        "var_num": named[1],
        "task_description": description,
        "observation": seen,
        "reward": 0,
        "score": 0,
        "deleted": False,
        "done": False,
    }


def _shape_page(begun: Begun) -> Json:
    intent, seen = begun.apart("\n")
    return {"observation": seen, "sites": [begun.difficulty] if begun.difficulty else [], "object": intent}


def _shape_browsing(step: Step, score: float, gained: float) -> Json:
    return {
        "observation": step.observation.text,
        "reward": step.reward,
        "terminated": step.ended,  # their clients look at nothing else
        "truncated": step.truncated,
        "info": step.info,
    }


def _shape_answer(step: Step, score: float, gained: float) -> Json:
    text, found = step.observation.text, step.status is Status.OK and not step.ended
    seen = f"<information>{text}</information>" if found else text  # what those models are told to wait for
    return {"observation": seen, "reward": step.reward, "done": step.ended, "info": None}


_FENCED = re.compile(r"```\s*(.*?)\s*```", re.DOTALL)
_TAGGED = re.compile(r"<(search|answer)>\s*(.*?)\s*</\1>", re.DOTALL)


def _strip_fence(said: str) -> str:
    found = _FENCED.search(said)
    return found[1] if found else said


def _strip_tag(said: str) -> str:
    found = _TAGGED.search(said)
    return f"{found[1]} {found[2]}" if found else said


FAMILIES: Mapping[str, AgentGymFamily] = {
    "textcraft": AgentGymFamily(
        greeting="This is environment TextCraft.",
        created=lambda number, first: {"id": number, "observation": first.text, "done": False, "reward": 0},
        begun=lambda begun: {"id": begun.number, "observation": begun.observation.text, "done": False, "reward": 0},
        stepped=_shape_crafting,
        begins=True,
    ),
    "babyai": AgentGymFamily(
        greeting="This is environment BabyAI.",
        created=lambda number, first: {"id": number},
        begun=lambda begun: {
            "observation": _append_actions(begun.observation),
            "reward": 0,
            "score": 0,
            "deleted": False,
            "done": False,
        },
        stepped=_shape_move,
    ),
    "sciworld": AgentGymFamily(
        greeting="This is environment ScienceWorld.",
        created=lambda number, first: {"id": number},
        begun=_shape_experiment,
        stepped=_shape_trial,
    ),
    "webarena": AgentGymFamily(
        number="env_idx",
        index="idx",
        greeting="ok",
        created=lambda number, first: {"env_idx": number},
        begun=_shape_page,
        stepped=_shape_browsing,
        closed=lambda there: {"closed": "closed"},
        refuses=True,
        not_begun={"observation": "TimeoutError", "sites": "Error", "object": "Error"},
        action=_strip_fence,
    ),
    "searchqa": AgentGymFamily(
        number="env_idx",
        index="id",
        greeting="ok",
        created=lambda number, first: number,
        begun=lambda begun: begun.observation.text,
        stepped=_shape_answer,
        begins=True,
        asks=True,
        refuses=True,
        action=_strip_tag,
    ),
}
_SPOKEN_BY: Mapping[str, str] = {"miniwob": "webarena", "search": "searchqa", "websites": "webarena"}
"""Environments whose family has another name; all others without a family speak as textcraft does."""


def choose_family(env: str) -> str:
    return env if env in FAMILIES else _SPOKEN_BY.get(env, "textcraft")


# --- the dialect ---


@dataclass(slots=True, kw_only=True)
class _Numbered:
    session: str
    observation: str = ""
    rewards: list[float] = field(default_factory=list)


class _NotBegun(EnvFault):
    """A reset that could not be carried out."""


class AgentGym:
    """The dialect of one family, by default the one of the environment's name."""

    name = "agentgym"

    def __init__(self, pool: Instances, sessions: Sessions, family: str | None = None) -> None:
        chosen = family if family is not None else choose_family(pool.spec.name)
        if chosen not in FAMILIES:
            raise BadOption(f"AgentGym has no family '{chosen[:40]}' here, only {', '.join(FAMILIES)}")
        self._family = FAMILIES[chosen]
        self._pool = pool
        self._sessions = sessions
        self._base = randbelow(_BASES)
        self._num_created = 0
        self._open: dict[int, _Numbered] = {}
        self._listed: tuple[tuple[str, str | None], ...] = ()
        number, index = {self._family.number: NUMBER}, {self._family.index: NUMBER}
        self.routes: Routes = {
            ("",): {"GET": Route(self._greet, "which environment this is")},
            ("create",): {"POST": Route(self._create, "another environment", object_schema({}, index))},
            ("reset",): {"POST": Route(self._reset, "begin an episode", object_schema(number, index))},
            ("step",): {"POST": Route(self._step, "act", object_schema({**number, "action": TEXT}))},
            ("observation",): {"GET": Route(self._observation, "what was seen last", query=number)},
            ("close",): {"POST": Route(self._close, "give an environment back", object_schema(number))},
        }

    def failure(self, error: EnvError) -> Reply:
        if isinstance(error, _NotBegun) and self._family.not_begun is not None:
            return Reply(200, self._family.not_begun)
        return Reply(choose_status(error) if self._family.refuses else 200, {"error": str(error)})

    async def _greet(self, request: Request) -> Reply:
        return Reply(200, self._family.greeting)

    async def _create(self, request: Request) -> Reply:
        self._forget_expired()
        given, number = Fields(request.data, "request"), self._base + self._num_created
        index = given.whole(self._family.index) if given.has(self._family.index) else None
        self._open[number] = _Numbered(session=self._sessions.reserve())
        self._num_created += 1
        first = await self._first(number, index) if self._family.begins else Observation(text="")
        return Reply(200, self._family.created(number, first))

    async def _first(self, number: int, index: int | None) -> Observation:
        try:
            chosen = index if index is not None else (number - self._base) % len(await self._tasks())
            return (await self._begin(number, self._open[number], chosen)).observation
        except EnvError:
            with suppress(UnknownSession):
                await self._sessions.close(self._open.pop(number).session)
            raise

    async def _reset(self, request: Request) -> Reply:
        given = Fields(request.data, "request")
        number = given.whole(self._family.number)
        index = given.whole(self._family.index) if given.has(self._family.index) else 0
        try:
            return Reply(200, self._family.begun(await self._begin(number, self._there(number), index)))
        except EnvFault as error:
            raise _NotBegun(str(error), kind=error.kind) from error

    async def _begin(self, number: int, numbered: _Numbered, index: int) -> Begun:
        tasks = await self._tasks()
        if not 0 <= index < len(tasks):
            raise UnknownTask(f"'{self._family.index}' must be from 0 to {len(tasks) - 1}")
        task, difficulty = tasks[index]
        observation = await self._sessions.reset(numbered.session, task, _SEED)
        numbered.observation, numbered.rewards = observation.text, []
        return Begun(number, task, difficulty, observation)

    async def _step(self, request: Request) -> Reply:
        given = Fields(request.data, "request")
        numbered = self._find_numbered(given.whole(self._family.number))
        step = await self._sessions.step(numbered.session, self._family.action(given.text("action")))
        if not self._family.asks:
            numbered.observation = step.observation.text
        before = score_of(self._pool.spec.score, numbered.rewards)
        numbered.rewards.append(step.reward)
        score = score_of(self._pool.spec.score, numbered.rewards)
        return Reply(200, self._family.stepped(step, score, score - before))

    async def _observation(self, request: Request) -> Reply:
        name = self._family.number
        text = request.query(name) or ""
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise BadRequest(f"expected a number as '{name}' in the query")
        return Reply(200, self._find_numbered(int(text)).observation)

    async def _close(self, request: Request) -> Reply:
        number = Fields(request.data, "request").whole(self._family.number)
        numbered = self._open.pop(number, None)
        if numbered is None or numbered.session not in self._sessions:
            return Reply(200, self._family.closed(False))
        await self._sessions.close(numbered.session)
        return Reply(200, self._family.closed(True))

    async def _tasks(self) -> tuple[tuple[str, str | None], ...]:
        if not self._listed:
            splits = [await self._pool.tasks(split) for split in self._pool.spec.splits[:_INDEXED_SPLITS]]
            self._listed = tuple((task.id, task.difficulty) for tasks in splits for task in tasks)
        if not self._listed:
            raise UnknownTask("the environment has no tasks")
        return self._listed

    def _find_numbered(self, number: int) -> _Numbered:
        if number not in self._open:
            raise UnknownSession(f"no environment has the {self._family.number} {number}")
        return self._open[number]

    def _there(self, number: int) -> _Numbered:
        known = self._open.get(number)
        if 0 <= number - self._base < self._num_created and (known is None or known.session not in self._sessions):
            self._open[number] = _Numbered(session=self._sessions.reserve())
        return self._find_numbered(number)

    def _forget_expired(self) -> None:
        gone = [number for number, numbered in self._open.items() if numbered.session not in self._sessions]
        for number in gone:
            del self._open[number]
