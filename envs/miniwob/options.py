"""What a user may choose about MiniWoB++: strict, every mistake named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from ..errors import BadOption
from ..protocol import Json
from .pages import pages

__all__ = ["Options", "read_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    pages: tuple[str, ...] = ()
    """By name; all if none is given."""
    observation_tokens: int = 4096
    """Of a page's text, at the most."""
    positions: bool = False
    """Whether to say of every element how large it is and where."""
    max_steps: int = 30
    """Actions in one episode, at the most."""


def read_options(options: Mapping[str, Json]) -> Options:
    for name in options:
        if name not in _READERS:
            raise BadOption(f"miniwob has no option '{name[:40]}'{_hint(name, _READERS)}")
    read: dict[str, Any] = {name: _READERS[name](value) for name, value in options.items()}
    return Options(**{"pages": tuple(pages()), **read})


def _pages(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or len(set(map(str, value))) != len(value):
        raise BadOption("miniwob option 'pages' must list different names of pages")
    for name in value:
        if name not in pages():
            raise BadOption(f"miniwob has no page '{str(name)[:40]}'{_hint(str(name), pages())}")
    return tuple(map(str, value))


def _whole(option: str, low: int, high: int, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadOption(f"miniwob option '{option}' must be a whole number from {low} to {high}")
    return value


def _flag(option: str, value: Json) -> bool:
    if not isinstance(value, bool):
        raise BadOption(f"miniwob option '{option}' must be true or false")
    return value


def _hint(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


_READERS: Mapping[str, Callable[[Json], object]] = {
    "pages": _pages,
    "observation_tokens": partial(_whole, "observation_tokens", 1, 1_000_000),
    "positions": partial(_flag, "positions"),
    "max_steps": partial(_whole, "max_steps", 1, 1000),
}
