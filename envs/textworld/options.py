"""What a user may choose about TextWorld: strict, every mistake named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from ..errors import BadOption
from ..protocol import Json

__all__ = ["Options", "read_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    rooms: int = 5
    """Rooms of a game."""
    objects: int = 10
    """Things in a game, doors aside; more if the quest needs them."""
    quest_length: int = 5
    """Commands that the shortest solution takes."""
    seeds: int = 500
    """Generated games of each split."""
    games: str = ""
    """Folder with games of one's own, in `train` and `test`, in place of generated ones."""
    max_steps: int = 50
    """Commands in one episode, at the most, understood or not."""


def read_options(options: Mapping[str, Json]) -> Options:
    for name in options:
        if name not in _READERS:
            close = get_close_matches(name, _READERS, n=1)
            raise BadOption(f"textworld has no option '{name[:40]}'{f'; did you mean {close[0]!r}?' if close else ''}")
    read: dict[str, Any] = {name: _READERS[name](value) for name, value in options.items()}
    return Options(**read)


def _whole(option: str, most: int, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise BadOption(f"textworld option '{option}' must be a whole number from 1 to {most}")
    return value


def _folder(value: Json) -> str:
    if not isinstance(value, str) or not value:
        raise BadOption("textworld option 'games' must be the name of a folder")
    return value


_READERS: Mapping[str, Callable[[Json], object]] = {
    "rooms": partial(_whole, "rooms", 50),
    "objects": partial(_whole, "objects", 100),
    "quest_length": partial(_whole, "quest_length", 20),
    "seeds": partial(_whole, "seeds", 1_000_000),
    "games": _folder,
    "max_steps": partial(_whole, "max_steps", 10_000),
}
