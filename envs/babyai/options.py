"""What a user may choose about BabyAI."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BabyAIOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BabyAIOptions:
    levels: tuple[str, ...] = ()
    """Levels by name; the forty of the splits if none is given."""
    actions: str = "macro"
    """Whole manoeuvres such as `go to red ball 1`, or single steps and turns."""
    max_steps: int | None = None
    """Most steps of the grid world in one episode, where the level's own limit is not lower."""
    screenshots: bool = False
    """Whether each observation has a picture."""
