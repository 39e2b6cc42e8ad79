"""Progress of a run: everything except the weights that decides its future, saved as `progress.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import isfinite

from .learning.reward import Moments
from .rollout.task_sampler import TaskMixture
from .typed_json import build_typed

__all__ = ["HISTORY", "GuardState", "Progress", "StageFacts"]

HISTORY = 10_000
"""Stored values of a metric; no expression can reach further back."""


@dataclass(slots=True)
class GuardState:
    """Counters of the guards."""

    roll_backs: int = 0
    strikes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Progress:
    """Position of the run."""

    total_step: int = 0
    stage: int = 0
    step: int = 0
    version: int = 0
    """Version of the weights; grows with each change, and never falls."""
    updates: int = 0
    """Updates since the optimiser was reset."""
    episodes: int = 0
    """Finished in this stage."""
    sampled_tokens: int = 0
    """Sampled in this stage."""
    data_position: int = 0
    """Demonstrations of this stage used so far."""
    kl_scale: float = 1.0
    """Factor of an adaptive KL coefficient."""
    measured_at: int = -1
    """The `total_step` of the last evaluation."""
    best: float | None = None
    best_step: int = -1
    """The `total_step` at which `checkpoint.best` was highest."""
    metrics_bytes: int = 0
    finished: bool = False
    history: dict[str, list[float]] = field(default_factory=dict)
    scales: dict[str, Moments] = field(default_factory=dict)
    """Reward scales by environment."""
    mixture: TaskMixture = field(default_factory=TaskMixture)
    guarding: GuardState = field(default_factory=GuardState)

    def count_step(self) -> None:
        self.step += 1
        self.total_step += 1

    def measure(self, metrics: Mapping[str, float]) -> None:
        """Add values to the windows, but not NaN or infinity."""
        for name, value in metrics.items():
            if isfinite(value):
                values = self.history.setdefault(name, [])
                values.append(value)
                del values[:-HISTORY]

    def next_stage(self) -> None:
        """Start the steps, counters and windows of the next stage."""
        self.stage += 1
        self.step = self.episodes = self.sampled_tokens = self.data_position = 0
        self.history.clear()

    def copy(self) -> Progress:
        """Copy what a step changes before it has changed any weights."""
        mixture = TaskMixture(drawn=dict(self.mixture.drawn), owed=dict(self.mixture.owed))
        return replace(self, mixture=mixture, scales=dict(self.scales))

    def ahead(self, steps: int) -> Progress:
        """Return the progress by which a batch is played that starts now for a later step: steps are that step's, all
        else is copied as it stands now, whatever is learned while the batch is played."""
        history = {name: list(values) for name, values in self.history.items()}
        return replace(self, step=self.step + steps, total_step=self.total_step + steps, history=history)

    def to_json(self) -> str:
        # only the small parts are copied: the windows of a long run hold many numbers
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps(parts, sort_keys=True, allow_nan=False, default=asdict)

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """Raises ValueError where the text is not that of a progress."""
        return build_typed(cls, json.loads(text))


@dataclass(frozen=True, slots=True)
class StageFacts:
    """Facts of the `dsl` from a Progress, in one stage."""

    progress: Progress
    stage: str
    scope: str

    def value(self, name: str) -> float | bool | str | None:
        plain: Mapping[str, float | str] = {
            "step": self.progress.step,
            "total_step": self.progress.total_step,
            "stage": self.stage,
            "stage_index": self.progress.stage,
            "episodes": self.progress.episodes,
            "sampled_tokens": self.progress.sampled_tokens,
        }
        if name in plain:
            return plain[name]
        return next(iter(self.progress.history.get(name, [])[-1:]), None)

    def window(self, name: str, size: int) -> Sequence[float]:
        return self.progress.history.get(name, [])[-size:]
