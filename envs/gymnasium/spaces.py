"""Observations in words and actions out of words, by Gymnasium's own description of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from gymnasium import spaces

__all__ = ["MASK", "is_exact", "is_tellable", "put_in_words", "to_plain"]

MASK = "action_mask"
"""The part of an observation that says which actions are possible."""

_MOST_NUMBERS = 64
_MOST_CELLS = 400
"""Of a board of whole numbers."""
_EXACT = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_NUMBERS = (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)
_COLOURED = re.compile(r"\x1b\[[\d;]*m(.*?)\x1b\[0m", re.DOTALL)


def is_tellable(space: Any) -> bool:
    if isinstance(space, spaces.Tuple):
        return all(map(is_tellable, space.spaces))
    if isinstance(space, spaces.Dict):
        return all(is_tellable(part) for name, part in space.spaces.items() if name != MASK)
    small = isinstance(space, _NUMBERS) and prod(space.shape) <= (_MOST_CELLS if _is_board(space) else _MOST_NUMBERS)
    return small or isinstance(space, spaces.Discrete | spaces.Text)


def is_exact(space: Any) -> bool:
    """Whether an observation can name a state: it is discrete."""
    parts = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    return all(isinstance(part, _EXACT) for part in parts)


def _is_board(space: Any) -> bool:
    return len(space.shape) == 2 and np.dtype(space.dtype).kind in "bui"


def put_in_words(space: Any, seen: Any, cells: Sequence[str] = ()) -> str:
    """An observation as text; numbers of boards as the names in `cells`, where they have one."""
    if isinstance(space, spaces.Dict):
        parts = ((name, part) for name, part in space.spaces.items() if name != MASK)
        return "\n".join(_label(name, put_in_words(part, seen[name], cells)) for name, part in parts)
    if isinstance(space, spaces.Tuple):
        return ", ".join(put_in_words(part, each, cells) for part, each in zip(space.spaces, seen, strict=True))
    return _draw(np.asarray(seen), cells) if isinstance(space, _NUMBERS) else str(seen)


def _label(name: str, text: str) -> str:
    return f"{name}:\n{text}" if "\n" in text else f"{name}: {text}"


def _draw(seen: Any, cells: Sequence[str]) -> str:
    """Numbers in a line, those of a board in one for each row."""
    if seen.ndim == 3:
        seen = _merge_layers(seen)
    if seen.ndim != 2:
        return " ".join(str(number) for number in seen.ravel())
    return "\n".join(" ".join(_name_cell(number, cells) for number in row) for row in seen.tolist())


def _name_cell(number: float, cells: Sequence[str]) -> str:
    known = number == int(number) and 0 <= number < len(cells)
    return cells[int(number)] if known else str(int(number) if isinstance(number, bool) else number)


def _merge_layers(seen: Any) -> Any:
    """A board from layers of which exactly one is set at each place: its number, wherever the layers are."""
    for axis in (2, 0):
        if np.isin(seen, (0, 1)).all() and (seen.sum(axis=axis) == 1).all():
            return seen.argmax(axis=axis)
    raise ValueError("its layers do not have exactly one that is set at each place")


def to_plain(drawn: object) -> str:
    """Convert a picture made of letters; brackets mark what is coloured."""
    text = drawn if isinstance(drawn, str) else getattr(drawn, "getvalue", lambda: str(drawn))()
    return _COLOURED.sub(r"[\1]", text).strip("\n")
