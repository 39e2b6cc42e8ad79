"""What a user may choose about reasoning-gym."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import BadOption

__all__ = ["ReasoningGymOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningGymOptions:
    dataset: str
    """Name of the generator, such as `basic_arithmetic`."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the generator."""
    size: int = 1000
    """Problems of each split."""

    def __post_init__(self) -> None:
        if {"seed", "size"} & self.config.keys():
            raise BadOption("reasoning_gym option 'config' must be a table of arguments, other than 'seed' and 'size'")
