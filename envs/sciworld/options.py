"""What a user may choose about ScienceWorld: strict, every mistake named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from ..errors import BadOption
from ..protocol import Json
from .tasks import TASKS

__all__ = ["SIMPLIFICATIONS", "Options", "read_options"]

SIMPLIFICATIONS = ("teleportAction", "openDoors", "openContainers", "selfWateringFlowerPots", "noElectricalAction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    tasks: tuple[str, ...] = tuple(TASKS)
    """Variations of these tasks only, in every split."""
    simplifications: tuple[str, ...] = ()
    """Of the simulator, by name; tasks about electricity keep its actions."""
    max_steps: int = 100
    """Actions in one episode, at the most."""
    valid_actions: bool = False
    """Every possible action listed with each observation, which takes far longer than to act."""
    heap_mb: int = 2048
    """Heap of one Java process in MiB, at the most."""
    processes: int = 2
    """Java processes, at the most."""


def read_options(options: Mapping[str, Json]) -> Options:
    for name in options:
        if name not in _READERS:
            raise BadOption(f"sciworld has no option '{name[:40]}'{_hint(name, _READERS)}")
    read: dict[str, Any] = {name: _READERS[name](value) for name, value in options.items()}
    return Options(**read)


def _names(option: str, known: Collection[str], value: Json) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or len(set(map(str, value))) != len(value):
        raise BadOption(f"sciworld option '{option}' must list different names")
    for name in value:
        if name not in known:
            raise BadOption(f"sciworld option '{option}' knows no '{str(name)[:60]}'{_hint(str(name), known)}")
    return tuple(str(name) for name in known if name in value)


def _hint(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; expected one of {', '.join(known)}"


def _whole(option: str, low: int, high: int, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadOption(f"sciworld option '{option}' must be a whole number from {low} to {high}")
    return value


def _flag(option: str, value: Json) -> bool:
    if not isinstance(value, bool):
        raise BadOption(f"sciworld option '{option}' must be true or false")
    return value


_READERS: Mapping[str, Callable[[Json], object]] = {
    "tasks": partial(_names, "tasks", TASKS),
    "simplifications": partial(_names, "simplifications", SIMPLIFICATIONS),
    "max_steps": partial(_whole, "max_steps", 1, 10_000),
    "valid_actions": partial(_flag, "valid_actions"),
    "heap_mb": partial(_whole, "heap_mb", 256, 65_536),
    "processes": partial(_whole, "processes", 1, 64),
}
