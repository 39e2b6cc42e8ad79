"""What a user may choose about TextArena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["OpponentOption", "TextArenaOptions"]

OpponentOption: TypeAlias = "str | Mapping[str, Any]"
"""`random`, `lookahead`, a model of the run (`policy`, `earlier`), or one elsewhere: a table with `url` and `model`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextArenaOptions:
    game: str
    """As registered with TextArena, such as `TicTacToe-v0`."""
    opponent: tuple[OpponentOption, ...] = ("random",)
    """Who plays the other seats; of several, the task's number chooses one."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `textarena.make`."""
    players: int | None = None
    """Seats at the table; the fewest that the game allows, if None."""
    seeds: int = 1000
    """Tasks of each split, for each seat."""
    show: str = "all"
    """`all` that the game says, or only the `board` and what was wrong."""
    max_steps: int = 100
    """Most actions in one episode, understood or not."""
