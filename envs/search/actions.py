"""Text to tool use, strictly: the first word names the tool, the rest is its argument; or a call as one JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..protocol import ToolSchema

__all__ = ["MAX_LENGTH", "MalformedToolUse", "SearchTool", "ToolUse", "list_tools", "parse_tool_use"]

MAX_LENGTH = 8_000
_FENCE = re.compile(r"\A```(?:python|py)?\n(.*?)\n?```\Z", re.DOTALL)


class SearchTool(StrEnum):
    SEARCH = "search"
    OPEN = "open"
    PYTHON = "python"
    ANSWER = "answer"


class MalformedToolUse(StrEnum):
    UNKNOWN = "unknown"
    EMPTY = "empty"
    LONG = "long"
    NUMBER = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    tool: SearchTool
    text: str
    """The query, the number of what is opened or `next`, the program, or the answer."""


def list_tools(tools: Collection[SearchTool]) -> tuple[ToolSchema, ...]:
    return tuple(
        ToolSchema(
            name=tool,
            description=_SCHEMAS[tool][0],
            parameters={"type": "object", "properties": {_SCHEMAS[tool][1]: _TEXT}, "required": [_SCHEMAS[tool][1]]},
        )
        for tool in SearchTool
        if tool in tools
    )


_TEXT = {"type": "string"}
_SCHEMAS: Mapping[SearchTool, tuple[str, str]] = {
    SearchTool.SEARCH: ("Finds passages of a collection of texts.", "query"),
    SearchTool.OPEN: (
        "Shows where a passage of the last search stands, from there on: its number, or 'next' to go on.",
        "passage",
    ),
    SearchTool.PYTHON: ("Runs a program, without files or network, and shows its output.", "program"),
    SearchTool.ANSWER: ("Ends the task: the answer alone, as short as it can be.", "text"),
}


def _read_command(action: str) -> tuple[str, str]:
    """Read the name of a tool and its argument; two empty texts for a call that is not one of ours."""
    if not action.lstrip().startswith("{"):
        first, *rest = action.strip().split(maxsplit=1)[:2] or [""]
        return first.lower(), rest[0].strip() if rest else ""
    try:
        call = json.loads(action)
        (value,) = call["arguments"].values()
        (argument,) = call["arguments"]
        name = SearchTool(call["name"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""
    is_whole = set(call) == {"name", "arguments"} and argument == _SCHEMAS[name][1] and isinstance(value, str)
    return (name, value.strip()) if is_whole else ("", "")


def parse_tool_use(action: str, tools: frozenset[SearchTool]) -> ToolUse | MalformedToolUse:
    if len(action) > MAX_LENGTH:
        return MalformedToolUse.LONG
    name, text = _read_command(action)
    if name not in tools:
        return MalformedToolUse.UNKNOWN
    tool = SearchTool(name)
    if not text:
        return MalformedToolUse.EMPTY
    is_number = text.isascii() and text.isdecimal() and len(text) < 4
    if tool is SearchTool.OPEN and text.lower() != "next" and not is_number:
        return MalformedToolUse.NUMBER
    if tool is SearchTool.PYTHON and (fenced := _FENCE.match(text)):
        text = fenced[1]
    return ToolUse(tool=tool, text=text)
