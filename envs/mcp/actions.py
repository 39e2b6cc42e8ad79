"""Text to calls, strictly: one JSON object with a tool's name and arguments, or a list of them to be made at once."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ANSWER", "MalformedCall", "ServerCall", "parse_calls"]

ANSWER = "answer"
"""Our own tool: ends the task."""
_MOST_CALLS = 8
_LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class ServerCall:
    name: str
    arguments: Mapping[str, Any]


class MalformedCall(ValueError):
    """The reason why a text holds no calls, shown to the agent."""


def parse_calls(text: str, tools: Collection[str]) -> tuple[ServerCall, ...]:
    if len(text) > _LONGEST:
        raise MalformedCall(f"That is longer than {_LONGEST} characters.")
    try:
        data = json.loads(text, parse_constant=_no_constant)
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()  # what cannot be passed on is not a call
    except (ValueError, RecursionError):
        raise MalformedCall('That is not a call. Write {"name": ..., "arguments": {...}}, or a list of such.') from None
    given = data if isinstance(data, list) else [data]
    if not 0 < len(given) <= _MOST_CALLS:
        raise MalformedCall(f"Give between 1 and {_MOST_CALLS} calls.")
    calls = tuple(_call(each, tools) for each in given)
    if len(calls) > 1 and any(call.name == ANSWER for call in calls):
        raise MalformedCall("Give the answer alone, not beside other calls.")
    return calls


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _call(data: Any, tools: Collection[str]) -> ServerCall:
    if not isinstance(data, dict) or data.keys() - {"name", "arguments"} or not isinstance(data.get("name"), str):
        raise MalformedCall('A call is an object with "name" and "arguments".')
    name, arguments = data["name"], data.get("arguments", {})
    if not isinstance(arguments, dict):
        raise MalformedCall('"arguments" must be an object.')
    if name == ANSWER:
        return ServerCall(name, {"text": _answer(arguments)})
    if name not in tools:
        raise MalformedCall(f"There is no tool called {json.dumps(name[:60])}.")
    return ServerCall(name, arguments)


def _answer(arguments: Mapping[str, Any]) -> str:
    text = arguments.get("text")
    if len(arguments) != 1 or not isinstance(text, str | int | float) or isinstance(text, bool):
        raise MalformedCall('Answer with {"name": "answer", "arguments": {"text": "..."}}.')
    return str(text)
