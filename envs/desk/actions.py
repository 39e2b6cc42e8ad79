"""Text to calls, strictly: one JSON object with a tool's name and arguments; or plainly `say TEXT` or `done`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..protocol import ToolSchema
from .texts import TOOLS

__all__ = ["REASONS", "DeskCall", "MalformedCall", "list_tools", "parse_call", "write_call"]

_LONGEST = 4_000
_LONGEST_VALUE = {"text": 1_000, "summary": 1_000}
_LONGEST_OTHER = 100
REASONS = ("not needed", "mistake", "too slow")


@dataclass(frozen=True, slots=True)
class DeskCall:
    name: str
    arguments: Mapping[str, str]


class MalformedCall(ValueError):
    """The reason why a text is not a call, shown to the agent."""


def list_tools() -> tuple[ToolSchema, ...]:
    return tuple(
        ToolSchema(
            name=name,
            description=description,
            parameters={
                "type": "object",
                "properties": {argument: _schema(argument, meaning) for argument, meaning in arguments.items()},
                "required": list(arguments),
                "additionalProperties": False,
            },
        )
        for name, (description, arguments) in TOOLS.items()
    )


def _schema(argument: str, meaning: str) -> dict[str, Any]:
    options = {"enum": list(REASONS)} if argument == "reason" else {}
    return {"type": "string", "description": meaning, **options}


def write_call(call: DeskCall) -> str:
    return json.dumps({"name": call.name, "arguments": dict(call.arguments)})


def parse_call(action: str) -> DeskCall:
    if len(action) > _LONGEST:
        raise MalformedCall(f"That is longer than {_LONGEST} characters.")
    word, _, text = action.strip().partition(" ")
    if word == "done" and not text:
        return DeskCall("done", {})
    if word == "say":
        return DeskCall("say", _check("say", {"text": text}))
    return _parse_json(action)


def _parse_json(action: str) -> DeskCall:
    try:
        data = json.loads(action)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or set(data) - {"name", "arguments"} or not isinstance(data.get("name"), str):
        raise MalformedCall('That is no call. Write {"name": ..., "arguments": {...}}, say TEXT, or done.')
    if data["name"] not in TOOLS:
        raise MalformedCall(f"There is no tool of that name. The tools are {', '.join(TOOLS)}.")
    arguments = data.get("arguments", {})
    if not isinstance(arguments, dict):
        raise MalformedCall("'arguments' must be an object.")
    return DeskCall(data["name"], _check(data["name"], arguments))


def _check(name: str, given: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the arguments in their declared order, each a text that is not empty."""
    known = TOOLS[name][1]
    if set(given) - set(known):
        takes = f"only {', '.join(known)}" if known else "no arguments"
        raise MalformedCall(f"{name} takes {takes}.")
    for argument in known:
        if argument not in given:
            raise MalformedCall(f"{name} needs the argument '{argument}': {known[argument]}.")
        _check_value(name, argument, given[argument])
    return {argument: " ".join(given[argument].split()) for argument in known}


def _check_value(name: str, argument: str, value: object) -> None:
    longest = _LONGEST_VALUE.get(argument, _LONGEST_OTHER)
    what = f"the argument '{argument}' of {name}"
    if not isinstance(value, str):
        raise MalformedCall(f"{what[0].upper()}{what[1:]} must be a text.")
    if not value.strip():
        raise MalformedCall(f"{what[0].upper()}{what[1:]} is empty.")
    # half a surrogate pair could not be shown again, and control characters are no part of an address
    if len(value) > longest or not " ".join(value.split()).isprintable():
        raise MalformedCall(f"{what[0].upper()}{what[1:]} must be plain text of at most {longest} characters.")
    if argument == "reason" and value.strip() not in REASONS:
        raise MalformedCall(f"{what[0].upper()}{what[1:]} must be one of: {', '.join(REASONS)}.")
