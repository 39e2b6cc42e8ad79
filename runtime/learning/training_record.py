"""What training made of an episode: its reward, its advantages, which of its turns count, or why it was left out. Pure.

Kept for people to read: nothing is computed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .turn_rewards import Float64s

__all__ = ["LeftOut", "TrainingRecord"]


class LeftOut(StrEnum):
    """Reason for training on nothing of an episode, besides those of `MaskReason`."""

    GROUP = "group"
    """`filter.groups` was false, or its group had nothing to teach."""
    TOP_SHARE = "top_share"
    """Its group was not among the `filter.top_share`."""
    TURNS = "turns"
    """Each of its turns is masked."""
    ADVANTAGE = "advantage"
    """No advantage reaches `advantage.drop_below`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingRecord:
    """What training made of one episode."""

    reward: float
    """As trained on: outcome and turns together."""
    kept: bool | None = None
    """Whether anything of it was trained on; None where that is not recorded."""
    reason: str = ""
    """Why nothing of it was."""
    turns: tuple[bool, ...] = ()
    """Whether each turn is trained on; none of an episode that was left out with its group."""
    advantages: Float64s | None = None
    """Of the sampled tokens, turn after turn; None where none were computed."""
