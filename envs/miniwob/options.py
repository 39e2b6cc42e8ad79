"""What a user may choose about MiniWoB++."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MiniWobOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniWobOptions:
    pages: tuple[str, ...] = ()
    """By name; all if none is given."""
    observation_tokens: int = 4096
    """Longest text of a page."""
    positions: bool = False
    """Whether to say of every element how large it is and where."""
    max_steps: int = 30
    """Most actions in one episode."""
    screenshots: bool = False
    """Whether each observation has a picture."""
