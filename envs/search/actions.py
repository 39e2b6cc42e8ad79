"""Text to tool use, strictly: the first word names the tool, the rest is its argument."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["MAX_LENGTH", "MalformedToolUse", "SearchTool", "ToolUse", "parse_tool_use"]

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


def parse_tool_use(action: str, tools: frozenset[SearchTool]) -> ToolUse | MalformedToolUse:
    if len(action) > MAX_LENGTH:
        return MalformedToolUse.LONG
    first, *rest = action.strip().split(maxsplit=1)[:2] or [""]
    name = first.lower()
    if name not in tools:
        return MalformedToolUse.UNKNOWN
    tool, text = SearchTool(name), rest[0].strip() if rest else ""
    if not text:
        return MalformedToolUse.EMPTY
    is_number = text.isascii() and text.isdecimal() and len(text) < 4
    if tool is SearchTool.OPEN and text.lower() != "next" and not is_number:
        return MalformedToolUse.NUMBER
    if tool is SearchTool.PYTHON and (fenced := _FENCE.match(text)):
        text = fenced[1]
    return ToolUse(tool=tool, text=text)
