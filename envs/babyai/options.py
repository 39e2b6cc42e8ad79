"""What a user may choose about BabyAI: strict, every mistake named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..errors import BadOption
from ..protocol import Json
from .levels import levels

__all__ = ["Options", "read_options"]

_ACTIONS = ("macro", "primitive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    levels: tuple[str, ...] = ()
    """Levels by name; the forty of the splits if none is given."""
    actions: str = "macro"
    """Whole manoeuvres such as `go to red ball 1`, or single steps and turns."""
    max_steps: int | None = None
    """Steps of the grid world in one episode, at the most, where the level's own limit is not lower."""


def read_options(options: Mapping[str, Json]) -> Options:
    for name in options:
        if name not in _READERS:
            raise BadOption(f"babyai has no option '{name[:40]}'{_hint(name, tuple(_READERS))}")
    read: dict[str, Any] = {name: _READERS[name](value) for name, value in options.items()}
    return Options(**read)


def _levels(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or len(set(map(str, value))) != len(value):
        raise BadOption("babyai option 'levels' must list different names of levels")
    for name in value:
        if name not in levels():
            raise BadOption(f"babyai has no level '{str(name)[:40]}'{_hint(str(name), tuple(levels()))}")
    return tuple(map(str, value))


def _actions(value: Json) -> str:
    if not isinstance(value, str) or value not in _ACTIONS:
        raise BadOption(f"babyai option 'actions' must be one of {', '.join(_ACTIONS)}")
    return value


def _max_steps(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadOption("babyai option 'max_steps' must be a whole number from 1 on")
    return value


def _hint(name: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


_READERS: Mapping[str, Callable[[Json], object]] = {"levels": _levels, "actions": _actions, "max_steps": _max_steps}
