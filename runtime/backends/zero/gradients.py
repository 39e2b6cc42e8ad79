"""Gradients that an engine has accumulated, by ZeRO stage: their norm, clipping, discarding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from ..checkpoint.zero_state import whole_shape

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

__all__ = ["GRADIENTS"]


class _WholeGradients:
    """Stage 0: each rank has all gradients, on the parameters."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self._engine = engine

    def norm(self) -> float:
        return float(nn.utils.get_total_norm([p.grad for p in self._parameters() if p.grad is not None]))

    def clip(self, max_norm: float, norm: float) -> None:
        nn.utils.clip_grads_with_norm_(self._parameters(), max_norm, torch.tensor(norm))

    def discard(self) -> None:
        self._engine.zero_grad()

    def _parameters(self) -> list[nn.Parameter]:
        return list(self._engine.module.parameters())


class _PartitionedGradients:
    """Stages 1 to 3: the optimiser holds this rank's part."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self._engine = engine

    def norm(self) -> float:
        return float(self._engine.optimizer.scaled_global_norm())

    def clip(self, max_norm: float, norm: float) -> None:
        self._engine.optimizer.clip_grad = max_norm

    def discard(self) -> None:
        """Make a gradient NaN: then DeepSpeed's own way of skipping a step clears all that it has accumulated."""
        from deepspeed.utils import safe_set_full_grad

        parameter = next(each for each in self._engine.module.parameters() if each.requires_grad)
        safe_set_full_grad(parameter, torch.full(whole_shape(parameter), math.nan, device=self._engine.device))
        self._engine.step()
        if self._engine.was_step_applied():
            raise RuntimeError("DeepSpeed applied an update that it had to skip")


class _PartitionedWeights(_PartitionedGradients):
    """Stage 3."""

    def norm(self) -> float:
        norms = [float(norm) for norm in self._engine.optimizer._get_norm_groups()]
        # a part's norm of -1 is DeepSpeed's word for "not a number"
        return math.nan if any(norm < 0 for norm in norms) else math.hypot(*norms)


GRADIENTS: Mapping[int, Callable[[DeepSpeedEngine], _WholeGradients | _PartitionedGradients]] = {
    0: _WholeGradients,
    1: _PartitionedGradients,
    2: _PartitionedGradients,
    3: _PartitionedWeights,
}
