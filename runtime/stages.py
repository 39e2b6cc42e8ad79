"""One step of each kind of stage that learns.

A step changes `Progress` only where it draws (tasks, demonstrations), counts (episodes, tokens, updates) and adapts
(scales of rewards, weight of a divergence). A stage that only measures needs no step of its own: the engine measures.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from ..dsl.algorithm import Kind
from .context import Context, StepResult
from .evolve import evolve_step
from .imitate import sft_step
from .prefer import preference_step
from .reinforce import rl_step

__all__ = ["STEPS"]

STEPS: Mapping[Kind, Callable[[Context], Awaitable[StepResult]]] = {
    Kind.RL: rl_step,
    Kind.SFT: sft_step,
    Kind.EVOLVE: evolve_step,
    Kind.PREFERENCE: preference_step,
}
