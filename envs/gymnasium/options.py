"""What a user may choose about Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import BadOption

__all__ = ["GymnasiumOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GymnasiumOptions:
    id: str
    """As registered with Gymnasium, such as `FrozenLake-v1`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `gymnasium.make`."""
    seeds: int = 1000
    """Tasks of each split, one per seed."""
    returns: tuple[float, float] | tuple[()] = ()
    """The return that scores 0 and the one that scores 1, where they are not known or should be others."""
    max_steps: int | None = None
    """Most actions in one episode, understood or not; the environment's own limit stays in force."""
    screenshots: bool = False
    """Whether each observation has a picture."""
    describe: Mapping[str, Any] | str | None = None
    """Who puts observations in words: `minigrid`, `grid`, an entry point, or names for the cells of a grid."""
    actions: tuple[str, ...] = ()
    """Names of the actions, in the order of their numbers."""

    def __post_init__(self) -> None:
        if self.returns and not self.returns[0] < self.returns[1]:
            raise BadOption("gymnasium option 'returns' must list 2 numbers, the worst return and then the best")
