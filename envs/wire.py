"""Messages between client and server: dataclasses to JSON and back, strictly.

What is read must have exactly the fields that are expected, of exactly their types: anything else is a `WireError`, and
the reader decides whose mistake that is.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import inf, isfinite
from typing import Any, TypeVar

from .pictures import LARGEST_PICTURE, is_picture
from .protocol import (
    TOOL_NAME,
    EnvSpec,
    Json,
    JudgeRequest,
    Observation,
    Reached,
    Runs,
    Score,
    Seat,
    SeatModel,
    Status,
    Step,
    TaskInfo,
    ToolSchema,
    YesNoQuestion,
)

__all__ = [
    "PROTOCOL",
    "Fields",
    "WireError",
    "dump",
    "judge_from",
    "judge_to",
    "load_json",
    "load_object",
    "observation_from",
    "observation_to",
    "options_from",
    "reached_from",
    "reached_to",
    "spec_from",
    "spec_to",
    "step_read",
    "step_to",
    "tasks_from",
    "tasks_to",
]

PROTOCOL = 1
"""Both sides must agree on it."""

E = TypeVar("E", bound=StrEnum)
V = TypeVar("V")


class WireError(Exception):
    """A message that breaks the protocol."""


# --- text ---


def dump(data: object) -> bytes:
    # ASCII only: an observation may hold half of a surrogate pair, which UTF-8 cannot carry
    return json.dumps(data, separators=(",", ":")).encode("ascii")


def load_json(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {str(error)[:80]}") from error


def load_object(body: bytes) -> dict[str, Any]:
    data = load_json(body)
    if not isinstance(data, dict):
        raise WireError(f"expected a JSON object, not {_kind(data)}")
    return data


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number")


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


class Fields:
    """A JSON object being read: each field is taken once, by type, and none may be left over."""

    def __init__(self, data: object, what: str) -> None:
        if not isinstance(data, dict):
            raise WireError(f"{what}: expected an object, not {_kind(data)}")
        self._data = dict(data)
        self._what = what

    def text(self, name: str) -> str:
        return self._take(name, str, "text")

    def flag(self, name: str) -> bool:
        return self._take(name, bool, "true or false")

    def whole(self, name: str) -> int:
        return self._take(name, int, "a whole number")

    def number(self, name: str) -> float:
        kind = int if type(self._data.get(name)) is int else float
        try:
            number = float(self._take(name, kind, "a number"))
        except OverflowError:
            number = inf
        if not isfinite(number):
            raise WireError(f"{self._what}: '{name}' must be a finite number")
        return number

    def items(self, name: str) -> list[Any]:
        return self._take(name, list, "a list")

    def table(self, name: str) -> dict[str, Any]:
        return self._take(name, dict, "an object")

    def texts(self, name: str) -> tuple[str, ...]:
        items = self.items(name)
        if not all(type(item) is str for item in items):
            raise WireError(f"{self._what}: '{name}' must hold nothing but text")
        return tuple(items)

    def choice(self, name: str, choices: type[E]) -> E:
        value = self.text(name)
        try:
            return choices(value)
        except ValueError:
            raise WireError(f"{self._what}: '{name}' must be one of {', '.join(choices)}") from None

    def has(self, name: str) -> bool:
        """Whether an optional field is there; null counts as absent."""
        if self._data.get(name) is not None:
            return True
        self._data.pop(name, None)
        return False

    def done(self) -> None:
        if self._data:
            raise WireError(f"{self._what}: unknown field '{next(iter(self._data))[:40]}'")

    def _take(self, name: str, kind: type[V], expected: str) -> V:
        if name not in self._data:
            raise WireError(f"{self._what}: '{name}' is missing")
        value = self._data.pop(name)
        if type(value) is not kind:  # not isinstance: true is not a number
            raise WireError(f"{self._what}: '{name}' must be {expected}, not {_kind(value)}")
        return value


# --- messages ---


def observation_to(observation: Observation) -> dict[str, Json]:
    picture = {} if observation.picture is None else {"picture": b64encode(observation.picture).decode("ascii")}
    seat = observation.seat
    turn = {} if seat is None else {"seat": {"name": seat.name, "model": seat.model.value}}
    return {"text": observation.text, "valid_actions": observation.valid_actions, **picture, **turn}


def observation_from(data: object) -> Observation:
    fields = Fields(data, "observation")
    valid_actions = fields.texts("valid_actions") if fields.has("valid_actions") else None
    picture = _picture_from(fields.text("picture")) if fields.has("picture") else None
    seat = _seat_from(fields.table("seat")) if fields.has("seat") else None
    observation = Observation(text=fields.text("text"), valid_actions=valid_actions, picture=picture, seat=seat)
    fields.done()
    return observation


def _seat_from(data: object) -> Seat:
    fields = Fields(data, "seat")
    seat = Seat(name=fields.text("name"), model=fields.choice("model", SeatModel))
    fields.done()
    return seat


def _picture_from(text: str) -> bytes:
    """A picture; empty, so that it is counted and takes no room, if it is not one that can be kept."""
    try:
        data = b64decode(text[: 2 * LARGEST_PICTURE], validate=True)
    except (binascii.Error, ValueError):
        return b""
    return data if is_picture(data) else b""


def step_to(step: Step) -> dict[str, Json]:
    return {
        "observation": observation_to(step.observation),
        "reward": step.reward,
        "terminated": step.terminated,
        "truncated": step.truncated,
        "status": step.status.value,
        "info": step.info,
    }


def step_read(fields: Fields) -> Step:
    return Step(
        observation=observation_from(fields.table("observation")),
        reward=fields.number("reward"),
        terminated=fields.flag("terminated"),
        truncated=fields.flag("truncated"),
        status=fields.choice("status", Status),
        info=fields.table("info"),
    )


def spec_to(spec: EnvSpec) -> dict[str, Json]:
    return {
        "name": spec.name,
        "version": spec.version,
        "summary": spec.summary,
        "splits": spec.splits,
        "score": spec.score.value,
        "score_range": spec.score_range,
        "prompt": spec.prompt,
        "max_turns": spec.max_turns,
        "runs": spec.runs.value,
        **({"tools": _tools_to(spec.tools)} if spec.tools else {}),
        **({"tool_prompt": spec.tool_prompt} if spec.tool_prompt else {}),
        **({"free_text": True} if spec.free_text else {}),
        **({"models": [model.value for model in spec.models]} if spec.models else {}),
    }


def _tools_to(tools: Sequence[ToolSchema]) -> list[Json]:
    return [{"name": each.name, "description": each.description, "parameters": each.parameters} for each in tools]


def spec_from(data: object) -> EnvSpec:
    fields = Fields(data, "spec")
    low, high = _score_range(fields.items("score_range"))
    spec = EnvSpec(
        name=fields.text("name"),
        version=fields.text("version"),
        summary=fields.text("summary"),
        splits=fields.texts("splits"),
        score=fields.choice("score", Score),
        score_range=(low, high),
        prompt=fields.text("prompt"),
        max_turns=fields.whole("max_turns") if fields.has("max_turns") else None,
        runs=fields.choice("runs", Runs),
        tools=_tools_from(fields.items("tools")) if fields.has("tools") else (),
        tool_prompt=fields.text("tool_prompt") if fields.has("tool_prompt") else "",
        free_text=fields.has("free_text") and fields.flag("free_text"),
        models=_models_from(fields.texts("models")) if fields.has("models") else (),
    )
    fields.done()
    return spec


def _models_from(names: Sequence[str]) -> tuple[SeatModel, ...]:
    return tuple(Fields({"model": name}, "spec").choice("model", SeatModel) for name in names)


def _tools_from(data: Sequence[object]) -> tuple[ToolSchema, ...]:
    tools = tuple(_tool_from(item) for item in data)
    if len({each.name for each in tools}) < len(tools):
        raise WireError("spec: two 'tools' have one name")
    return tools


def _tool_from(data: object) -> ToolSchema:
    fields = Fields(data, "tool")
    tool = ToolSchema(
        name=fields.text("name"), description=fields.text("description"), parameters=fields.table("parameters")
    )
    fields.done()
    if not TOOL_NAME.fullmatch(tool.name):
        raise WireError("tool: 'name' must be 1 to 64 letters, digits, '_', '.', '/' or '-'")
    return tool


def _score_range(ends: Sequence[object]) -> tuple[float, float]:
    if len(ends) != 2:
        raise WireError("spec: 'score_range' must hold two numbers")
    fields = Fields({"low": ends[0], "high": ends[1]}, "score_range")
    return fields.number("low"), fields.number("high")


def tasks_to(tasks: Sequence[TaskInfo]) -> list[Json]:
    return [_task_to(task) for task in tasks]


def _task_to(task: TaskInfo) -> dict[str, Json]:
    marks = {"trivial": task.trivial, "judged": task.judged}
    return {"id": task.id, "difficulty": task.difficulty, **{name: True for name, is_so in marks.items() if is_so}}


def tasks_from(data: Sequence[object]) -> tuple[TaskInfo, ...]:
    return tuple(_task_from(item) for item in data)


def _task_from(data: object) -> TaskInfo:
    fields = Fields(data, "task")
    difficulty = fields.text("difficulty") if fields.has("difficulty") else None
    trivial = fields.has("trivial") and fields.flag("trivial")
    judged = fields.has("judged") and fields.flag("judged")
    task = TaskInfo(id=fields.text("id"), difficulty=difficulty, trivial=trivial, judged=judged)
    fields.done()
    return task


def judge_to(request: JudgeRequest) -> Json:
    """For the `judge` of a step's info."""
    questions: list[Json] = [{"text": each.text, "evidence": dict(each.evidence)} for each in request.questions]
    return {"questions": questions, "reward": request.reward, "required": request.required}


def judge_from(data: object) -> JudgeRequest:
    fields = Fields(data, "judge")
    questions = tuple(_question_from(each) for each in fields.items("questions"))
    request = JudgeRequest(questions=questions, reward=fields.number("reward"), required=fields.flag("required"))
    fields.done()
    if not questions:
        raise WireError("judge: 'questions' must hold one at least")
    return request


def _question_from(data: object) -> YesNoQuestion:
    fields = Fields(data, "question")
    question = YesNoQuestion(text=fields.text("text"), evidence=fields.table("evidence"))
    fields.done()
    if not all(isinstance(text, str) for text in question.evidence.values()):
        raise WireError("question: 'evidence' must hold nothing but text")
    return question


def reached_to(reached: Sequence[Reached] | None) -> list[Json] | None:
    if reached is None:
        return None
    return [{"task": each.task, "actions": each.actions, "observation": observation_to(each.first)} for each in reached]


def reached_from(data: Sequence[object]) -> tuple[Reached, ...]:
    return tuple(_reached_from(item) for item in data)


def _reached_from(data: object) -> Reached:
    fields = Fields(data, "reached")
    first = observation_from(fields.table("observation"))
    reached = Reached(task=fields.text("task"), actions=fields.whole("actions"), first=first)
    fields.done()
    return reached


def options_from(text: str) -> Mapping[str, Json]:
    """Parse options given as JSON text, as on a command line."""
    return load_object(text.encode("utf-8"))
