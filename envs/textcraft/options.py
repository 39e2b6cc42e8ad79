"""What a user may choose about TextCraft: strict, every mistake named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any

from ..errors import BadOption
from ..protocol import Json
from .procedural import Draw
from .worlds import WORLDS

__all__ = ["DEPTHS", "Options", "read_options"]

DEPTHS = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    world: str = "full"
    """`full` has natural words and fixed recipes; `small` has few words, and recipes drawn for each episode."""
    depths: tuple[int, ...] = DEPTHS
    """Goals of these depths only, in every split."""
    terse: bool = False
    """Observations of a few fixed words in place of sentences."""
    max_distractors: int = 4
    """Crafting commands of no use for the goal, at the most."""
    shuffle: bool = True
    """Crafting commands in any order; if false, parts come before what is made of them."""
    draw: Draw = field(default_factory=Draw)
    """What the recipes of the small world may ask for; its fields are options of their own."""


def read_options(options: Mapping[str, Json]) -> Options:
    for name in options:
        if name not in _READERS:
            close = get_close_matches(name, _READERS, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; expected one of {', '.join(_READERS)}"
            raise BadOption(f"textcraft has no option '{name[:40]}'{hint}")
    read: dict[str, Any] = {name: _READERS[name](value) for name, value in options.items()}
    drawn = {name: read.pop(name) for name in _DRAWN if name in read}
    if drawn and read.get("world") != "small":
        raise BadOption(f"textcraft option '{next(iter(drawn))}' has no effect in a world whose recipes are fixed")
    return Options(**read, draw=Draw(**drawn))


def _world(value: Json) -> str:
    if not isinstance(value, str) or value not in WORLDS:
        raise BadOption(f"textcraft option 'world' must be one of {', '.join(WORLDS)}")
    return value


def _depths(value: Json) -> tuple[int, ...]:
    listed = value if isinstance(value, list | tuple) else [value]
    depths = tuple(depth for depth in DEPTHS if depth in listed)
    if not depths or len(depths) != len(listed) or any(isinstance(depth, bool) for depth in listed):
        raise BadOption("textcraft option 'depths' must list different depths from 1 to 5")
    return depths


def _flag(name: str, value: Json) -> bool:
    if not isinstance(value, bool):
        raise BadOption(f"textcraft option '{name}' must be true or false")
    return value


def _whole(name: str, low: int, high: int, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadOption(f"textcraft option '{name}' must be a whole number from {low} to {high}")
    return value


def _share(name: str, value: Json) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise BadOption(f"textcraft option '{name}' must be a number from 0 to 1")
    return float(value)


_READERS: Mapping[str, Callable[[Json], object]] = {
    "world": _world,
    "depths": _depths,
    "terse": partial(_flag, "terse"),
    "max_distractors": partial(_whole, "max_distractors", 0, 20),
    "shuffle": partial(_flag, "shuffle"),
    "extras": partial(_share, "extras"),
    "max_amount": partial(_whole, "max_amount", 1, 9),
}

_DRAWN = ("extras", "max_amount")
