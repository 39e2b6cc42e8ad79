"""Observations in words and actions out of words, by Gymnasium's own description of them."""

from __future__ import annotations

import re
from math import prod
from typing import Any

from gymnasium import spaces

__all__ = ["is_exact", "is_tellable", "put_in_words", "to_plain"]

_MOST_NUMBERS = 64
_EXACT = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_NUMBERS = (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)
_COLOURED = re.compile(r"\x1b\[[\d;]*m(.*?)\x1b\[0m", re.DOTALL)


def is_tellable(space: Any) -> bool:
    if isinstance(space, spaces.Tuple):
        return all(map(is_tellable, space.spaces))
    if isinstance(space, spaces.Dict):
        return all(map(is_tellable, space.spaces.values()))
    small = isinstance(space, _NUMBERS) and prod(space.shape) <= _MOST_NUMBERS
    return small or isinstance(space, spaces.Discrete | spaces.Text)


def is_exact(space: Any) -> bool:
    """Whether an observation can name a state: it is discrete."""
    parts = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    return all(isinstance(part, _EXACT) for part in parts)


def put_in_words(space: Any, seen: Any) -> str:
    if isinstance(space, spaces.Dict):
        return "\n".join(f"{name}: {put_in_words(part, seen[name])}" for name, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return ", ".join(put_in_words(part, each) for part, each in zip(space.spaces, seen, strict=True))
    return " ".join(str(number) for number in seen.ravel()) if isinstance(space, _NUMBERS) else str(seen)


def to_plain(drawn: object) -> str:
    """Convert a picture made of letters; brackets mark what is coloured."""
    text = drawn if isinstance(drawn, str) else getattr(drawn, "getvalue", lambda: str(drawn))()
    return _COLOURED.sub(r"[\1]", text).strip("\n")
