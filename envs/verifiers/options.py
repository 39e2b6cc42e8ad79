"""What a user may choose about an environment of the verifiers ecosystem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["VerifiersOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiersOptions:
    environment: str
    """Package with a taskset; in the 0.1 line, module with `load_environment`, or `module:function`."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the taskset, or arguments of that function."""
    env: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the environment around the taskset."""
    tasks: int = 1000
    """Most tasks that are read of a taskset, which may be endless."""
    held_out: int = 0
    """Tasks of the split `test`, the last that are read, where a taskset has no split of its own."""
    judge: Mapping[str, str] = field(default_factory=dict)
    """Endpoint for rubrics that ask a model."""
    max_score: float = 1.0
    """Most that the rubric gives."""
    max_steps: int = 30
    """Most turns, where the environment sets no limit of its own."""
    timeout_s: float = 60
    """Longest wait for one answer of the environment."""
