"""The worlds by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

from .drawn import DrawnWorld
from .fixed import FixedWorld
from .world import World

__all__ = ["WORLDS", "load"]

WORLDS: Mapping[str, Callable[[str, str], World]] = {"full": FixedWorld, "small": DrawnWorld}


@cache  # a world never changes, and reading it takes milliseconds
def load(name: str) -> World:
    return WORLDS[name](name, files(__package__).joinpath("data", f"{name}.txt").read_text("utf-8"))
