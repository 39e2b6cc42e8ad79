"""Actions in words: the names of a choice, numbers with spaces between them, or a text of the agent's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from gymnasium import spaces

from ..errors import BadOption, EnvFault

__all__ = ["Actions", "name_actions"]

_LONGEST = 200
_MOST = 4096
"""Combinations of several numbers."""
_LISTED = 100
"""Actions that are listed for the agent where nothing forbids any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    space: Any
    words: tuple[str, ...]
    """One for each action, in the order of the space; none where actions are texts."""

    @property
    def how(self) -> str:
        """What to give, to be read after "give"."""
        if isinstance(self.space, spaces.MultiDiscrete):
            count = prod(self.space.shape)
            return f"{count} numbers with spaces between them, from {self.words[0]} to {self.words[-1]}"
        return f"one of: {', '.join(self.words)}" if self.words else "a text"

    def read(self, action: str) -> Any:
        """The environment's action for a text; None if it is not one."""
        if len(action) > _LONGEST:
            return None
        if not self.words:
            text = action.strip()
            return text if self.space.contains(text) else None
        words = " ".join(action.lower().split())
        return self.value(self.words.index(words)) if words in self.words else None

    def value(self, at: int) -> Any:
        """The environment's form of one of the words."""
        if isinstance(self.space, spaces.Discrete):
            return int(self.space.start) + at
        parts = np.array(np.unravel_index(at, self._sizes), self.space.dtype)
        return parts.reshape(self.space.shape) + self.space.start

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.space.nvec.ravel())

    def allowed(self, mask: Any) -> tuple[str, ...]:
        """The words that a mask allows; all of them without one."""
        if mask is None:
            return self.words
        flat = np.asarray(mask, bool).ravel()
        if isinstance(self.space, spaces.MultiDiscrete) and len(flat) == sum(self._sizes) != len(self.words):
            each = np.split(flat, np.cumsum(self._sizes)[:-1])
            flat = np.array([all(chosen) for chosen in product(*each)])
        if len(flat) != len(self.words):
            raise EnvFault(f"the environment's action mask has {len(flat)} entries for {len(self.words)} actions")
        return tuple(word for word, fine in zip(self.words, flat, strict=True) if fine)

    def listed(self, mask: Any) -> tuple[str, ...] | None:
        """What the agent is shown as possible."""
        return self.allowed(mask) if self.words and (mask is not None or len(self.words) <= _LISTED) else None


def name_actions(space: Any, named: Sequence[str], meanings: Sequence[object], env: str) -> Actions:
    """Actions by the names that the user gives, by the environment's own where they fit, or by number."""
    if isinstance(space, spaces.Discrete):
        return Actions(space=space, words=_name_choice(space, named, meanings))
    if named:
        raise BadOption(f"gymnasium option 'actions': those of '{env}' are not one choice, so they have no names")
    if isinstance(space, spaces.MultiDiscrete):
        return Actions(space=space, words=_combine(space, env))
    if isinstance(space, spaces.Text):
        return Actions(space=space, words=())
    raise BadOption(f"actions of '{env}' are neither a choice nor a text: {str(space)[:80]}")


def _name_choice(space: Any, named: Sequence[str], meanings: Sequence[object]) -> tuple[str, ...]:
    first, num = int(space.start), int(space.n)
    given = tuple(" ".join(str(word).lower().split()) for word in named or meanings)
    if len(set(given)) == len(given) == num:
        return given
    if named:
        raise BadOption(f"gymnasium option 'actions' must name each of the {num} actions, with different names")
    return tuple(str(number) for number in range(first, first + num))


def _combine(space: Any, env: str) -> tuple[str, ...]:
    sizes, starts = space.nvec.ravel().tolist(), space.start.ravel().tolist()
    if prod(sizes) > _MOST:
        raise BadOption(f"'{env}' has {prod(sizes)} combinations of actions, more than the {_MOST} that can be told")
    ranges = (range(start, start + size) for start, size in zip(starts, sizes, strict=True))
    return tuple(" ".join(map(str, chosen)) for chosen in product(*ranges))
