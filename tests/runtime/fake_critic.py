"""A critic without a model, for tests: one number per token, whatever came before it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from agym.runtime.protocols import Floats, OptimizerSettings, TrainSequence, UpdateFault, ValueMetrics, ValueSettings


@dataclass(slots=True, kw_only=True)
class FakeCritic:
    """Critic that predicts from the last token alone."""

    expected: dict[int, float] = field(default_factory=dict)
    """Value by the last token; 0 for a new one."""

    def values(self, sequences: Sequence[TrainSequence]) -> list[Floats]:
        return [
            np.array([self.expected.get(token, 0.0) for token in each.ids.tolist()], np.float32) for each in sequences
        ]

    def update(self, sequences: Sequence[TrainSequence], settings: ValueSettings) -> ValueMetrics:
        """Step down the gradient of the plain squared error, clipped by its norm."""
        errors = [error for each in sequences for error in self._errors(each)]
        if not errors:
            return ValueMetrics(fault=UpdateFault.EMPTY, lr=settings.lr)
        gradient: dict[int, float] = {}
        for token, error in errors:
            gradient[token] = gradient.get(token, 0.0) + error / len(errors)
        norm = math.hypot(*gradient.values())
        if math.isfinite(norm):
            rate = settings.lr * min(1.0, settings.max_grad_norm / max(norm, 1e-9))
            self.expected |= {at: self.expected.get(at, 0.0) - rate * slope for at, slope in gradient.items()}
        return ValueMetrics(
            fault=None if math.isfinite(norm) else UpdateFault.NAN,
            loss=sum(error**2 for _, error in errors) / (2 * len(errors)),
            grad_norm=norm,
            lr=settings.lr,
        )

    def set_optimizer(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        pass

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fake.json").write_text(json.dumps(sorted(self.expected.items())))

    def load(self, folder: Path) -> None:
        self.expected = dict(json.loads((folder / "fake.json").read_text()))

    def close(self) -> None:
        pass

    def _errors(self, sequence: TrainSequence) -> list[tuple[int, float]]:
        """For each trained token, the one before it and the error of its value there."""
        if sequence.value_targets is None:
            raise ValueError("expected sequences with value targets")
        before = sequence.ids[np.flatnonzero(sequence.loss_mask) - 1].tolist()
        targets = sequence.value_targets[sequence.loss_mask].tolist()
        return [(at, self.expected.get(at, 0.0) - target) for at, target in zip(before, targets, strict=True)]
