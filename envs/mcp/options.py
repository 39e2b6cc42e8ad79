"""What a user may choose about an MCP server: strict, every mistake named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import BadOption
from ..protocol import Json

__all__ = ["Options", "read_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    tasks_file: str
    """JSON lines, one task each."""
    command: tuple[str, ...] = ()
    """Program and arguments that start the server."""
    url: str = ""
    """A server that runs already."""
    tools: tuple[str, ...] = ()
    """What the agent may use; everything if empty."""
    cached: tuple[str, ...] = ()
    """Tools that always answer the same arguments the same way: their results are kept, across episodes."""
    keep: bool = False
    """One connection for episode after episode, for a server that remembers nothing of them."""
    timeout_s: float = 20
    """Longest wait for one call."""
    max_steps: int = 30
    """Actions in one episode, at the most, understood or not."""


def read_options(options: Mapping[str, Json]) -> Options:
    for name in options:
        if name not in _READERS:
            close = get_close_matches(name, _READERS, n=1)
            raise BadOption(f"mcp has no option '{name[:40]}'{f'; did you mean {close[0]!r}?' if close else ''}")
    read: dict[str, Any] = {name: _READERS[name](value) for name, value in options.items()}
    if not read.keys() & {"tasks_file", "command", "url"}:
        return Options(**_EXAMPLE, **read)
    if "tasks_file" not in options:
        raise BadOption("mcp needs the option 'tasks_file', a file of tasks")
    if ("command" in options) == ("url" in options):
        raise BadOption("mcp needs either the option 'command' or the option 'url'")
    return Options(**read)


def _words(option: str, value: Json) -> tuple[str, ...]:
    words = tuple(each for each in value if isinstance(each, str) and each) if isinstance(value, list | tuple) else ()
    if not words or len(words) != len(value):  # type: ignore[arg-type]
        raise BadOption(f"mcp option '{option}' must be a list of texts")
    return words


def _text(option: str, start: tuple[str, ...], value: Json) -> str:
    if not isinstance(value, str) or not value or not value.startswith(start):
        raise BadOption(f"mcp option '{option}' must be a text" + (f" with {' or '.join(start)}" if any(start) else ""))
    return value


def _flag(option: str, value: Json) -> bool:
    if not isinstance(value, bool):
        raise BadOption(f"mcp option '{option}' must be true or false")
    return value


def _seconds(option: str, value: Json) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 3600:
        raise BadOption(f"mcp option '{option}' must be a number of seconds, at most 3600")
    return float(value)


def _whole(option: str, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 10_000:
        raise BadOption(f"mcp option '{option}' must be a whole number from 1 to 10000")
    return value


_EXAMPLE: Mapping[str, Any] = {
    "command": (sys.executable, "-m", f"{__package__}.example"),
    "tasks_file": str(Path(__file__).parent / "data" / "example.jsonl"),
}
_READERS: Mapping[str, Callable[[Json], object]] = {
    "command": partial(_words, "command"),
    "url": partial(_text, "url", ("http://", "https://")),
    "tasks_file": partial(_text, "tasks_file", ("",)),
    "tools": partial(_words, "tools"),
    "cached": partial(_words, "cached"),
    "keep": partial(_flag, "keep"),
    "timeout_s": partial(_seconds, "timeout_s"),
    "max_steps": partial(_whole, "max_steps"),
}
