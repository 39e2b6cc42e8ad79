"""What a user may choose about TextWorld."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TextWorldOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWorldOptions:
    rooms: int = 5
    """Rooms of a game."""
    objects: int = 10
    """Things in a game, doors aside; more if the quest needs them."""
    quest_length: int = 5
    """Commands that the shortest solution takes."""
    seeds: int = 500
    """Generated games of each split."""
    games: str = ""
    """Folder with games of your own, in `train` and `test`, in place of generated ones."""
    max_steps: int = 50
    """Most commands in one episode, understood or not."""
