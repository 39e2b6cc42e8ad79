"""One step of each kind of stage that learns.

A step changes `Progress` only where it draws (tasks, demonstrations), counts (episodes, tokens, updates) and adapts
(scales of rewards, weight of a divergence). A stage that only measures needs no step of its own: the engine measures.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from ...dsl.model.algorithm import Kind, Reference
from ...dsl.model.plan import PlanStage
from .evolve import evolve_step
from .preference import preference_step
from .rl import rl_step
from .sft import sft_step
from .stage_context import StageContext, StepResult

__all__ = ["STEPS", "origin"]

STEPS: Mapping[Kind, Callable[[StageContext], Awaitable[StepResult]]] = {
    Kind.RL: rl_step,
    Kind.SFT: sft_step,
    Kind.EVOLVE: evolve_step,
    Kind.PREFERENCE: preference_step,
}


def origin(stages: Sequence[PlanStage], stage: PlanStage) -> int:
    """Index of the stage at whose beginning the policy stood that the divergences of this one are measured from."""
    if stage.settings.algorithm.kl.reference is Reference.STAGE:
        return stage.index
    imitated = [each.index + 1 for each in stages[: stage.index] if each.kind in (Kind.SFT, Kind.EVOLVE)]
    after = max(imitated, default=0)
    learning = (each.index for each in stages[after : stage.index] if not after or each.kind is not Kind.EVAL)
    return next(learning, stage.index)
