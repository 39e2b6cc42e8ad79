"""What a user may choose about an environment of the verifiers ecosystem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["VerifiersOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiersOptions:
    environment: str
    """Module with `load_environment`, or `module:function`."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of that function."""
    judge: Mapping[str, str] = field(default_factory=dict)
    """Endpoint for rubrics that ask a model."""
    max_score: float = 1.0
    """Most that the rubric gives."""
    max_steps: int = 30
    """Most turns, where the environment sets no limit of its own."""
    timeout_s: float = 60
    """Longest wait for one answer of the environment."""
