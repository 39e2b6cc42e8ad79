"""Text scanning around an offset: lines, matching brackets, where a value starts and ends.

All it knows about YAML is that quoted text and comments do not count.
"""

from __future__ import annotations

import re

__all__ = [
    "PARTNER",
    "column",
    "content_end",
    "in_flow",
    "innermost_open",
    "is_closed",
    "line_end",
    "line_start",
    "skip",
    "value_start",
    "word_end",
]

PARTNER = {"{": "}", "[": "]", "}": "{", "]": "["}
TOKEN = re.compile(r"""(?<![\w)\]}])"(?:\\.|[^"\\])*"|(?<![\w)\]}])'(?:''|[^'])*'|(?<=\s)#[^\n]*|[\[\]{}]""", re.DOTALL)


def is_closed(text: str, start: int) -> bool:
    """Whether there is a bracket that closes the one at `start`; quoted text and comments do not count."""
    depth = 0
    for match in TOKEN.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match.group(), 0)
        if depth == 0 and match.group() in PARTNER:
            return True
    return False


def innermost_open(text: str) -> int | None:
    """Find the last unclosed bracket."""
    opened: list[int] = []
    for match in TOKEN.finditer(text):
        if match.group() in ("{", "["):
            opened.append(match.start())
        elif match.group() in ("}", "]") and opened:
            opened.pop()
    return opened[-1] if opened else None


def in_flow(text: str, at: int) -> bool:
    """Whether a bracket is open on this line before `at`."""
    before = text[line_start(text, at) : at]
    return before.count("{") + before.count("[") > before.count("}") + before.count("]")


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def column(text: str, at: int) -> int:
    return at - line_start(text, at)


def line_end(text: str, at: int) -> int:
    """The end of the line, without the break and the spaces before it."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return at + len(text[at:end].rstrip())


def content_end(text: str, at: int, flow: bool = False) -> int:
    """The end of the content of the line after `at`: a comment, or with `flow` the next `,` or bracket, ends it."""
    end = line_end(text, at)
    stop = re.compile(r"\s+#|[,\]}]" if flow else r"\s+#").search(text, at, end)
    return stop.start() if stop else end


def value_start(text: str, at: int) -> int:
    """The start, on its line, of the value at `at`: after its key, or after the `- ` of its item."""
    match = re.compile(r"\s*(?:- +)*(?:[^\s:]+:\s+)?").match(text, line_start(text, at), at)
    return match.end() if match else at


def word_end(text: str, at: int) -> int:
    match = re.compile(r"[^\s,]*").match(text, at)
    return match.end() if match else at


def skip(text: str, at: int, chars: str) -> int:
    while at < len(text) and text[at] in chars:
        at += 1
    return at
