"""What a user may choose about the desk."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LEVELS", "DeskOptions"]

LEVELS = ("easy", "medium", "hard")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskOptions:
    levels: tuple[str, ...] = LEVELS
    """Tasks of these levels only, in every split."""
    max_steps: int = 40
    """Steps after which an episode is cut short."""
