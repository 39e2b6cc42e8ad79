"""What the agent may do, and how it says so.

What enters: text. What leaves: a tool with what it is to work on, or what is wrong with the text. The first word names
the tool; the rest belongs to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["MAX_LENGTH", "Command", "Malformed", "Tool", "parse"]

MAX_LENGTH = 8_000
_FENCE = re.compile(r"\A```(?:python|py)?\n(.*?)\n?```\Z", re.DOTALL)


class Tool(StrEnum):
    SEARCH = "search"
    OPEN = "open"
    PYTHON = "python"
    ANSWER = "answer"


class Malformed(StrEnum):
    UNKNOWN = "unknown"
    EMPTY = "empty"
    LONG = "long"
    NUMBER = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    tool: Tool
    text: str
    """The query, the number of what is opened or `next`, the program, or the answer."""


def parse(action: str, tools: frozenset[Tool]) -> Command | Malformed:
    if len(action) > MAX_LENGTH:
        return Malformed.LONG
    first, *rest = action.strip().split(maxsplit=1)[:2] or [""]
    name = first.lower()
    if name not in tools:
        return Malformed.UNKNOWN
    tool, text = Tool(name), rest[0].strip() if rest else ""
    if not text:
        return Malformed.EMPTY
    if tool is Tool.OPEN and not (text.lower() == "next" or (text.isascii() and text.isdecimal() and len(text) < 4)):
        return Malformed.NUMBER
    if tool is Tool.PYTHON and (fenced := _FENCE.match(text)):
        text = fenced[1]
    return Command(tool=tool, text=text)
