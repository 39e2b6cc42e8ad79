"""The worlds by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

from .fixed import FixedWorld
from .procedural import Draw, DrawnWorld
from .world import CraftWorld

__all__ = ["WORLDS", "load_world"]

WORLDS: Mapping[str, Callable[[str, str, Draw], CraftWorld]] = {
    "full": lambda name, text, draw: FixedWorld(name, text),
    "small": DrawnWorld,
}


@cache  # a world never changes, and reading it takes milliseconds
def load_world(name: str, draw: Draw | None = None) -> CraftWorld:
    text = files(__package__).joinpath("data", f"{name}.txt").read_text("utf-8")
    return WORLDS[name](name, text, draw or Draw())
