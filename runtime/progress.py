"""Everything that decides a run's future and is not a weight: where it stands, what it has measured, what it is owed.

Enters: a checkpoint's `progress.json`. Leaves: the same, and the facts that expressions of the schedule may use. The
horizon, the learning rate, the end of a stage and whether to measure are pure functions of this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import isfinite

from .learning.reward import Moments
from .rollout.task_sampler import TaskMixture

__all__ = ["HISTORY", "GuardState", "Progress", "StageFacts"]

HISTORY = 10_000
"""Values of a metric that are kept; no expression can reach further back."""


@dataclass(slots=True)
class GuardState:
    """What the guards have counted."""

    roll_backs: int = 0
    strikes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Progress:
    """Where the run stands."""

    total_step: int = 0
    stage: int = 0
    step: int = 0
    version: int = 0
    """Of the weights; grows with every change of theirs, and never falls."""
    updates: int = 0
    """Since the optimiser was fresh."""
    episodes: int = 0
    """Finished in this stage."""
    sampled_tokens: int = 0
    """Sampled in this stage."""
    data_position: int = 0
    """Demonstrations of this stage learnt from so far."""
    kl_scale: float = 1.0
    """Of an adaptive KL coefficient."""
    measured_at: int = -1
    """The `total_step` of the last measurement."""
    best: float | None = None
    best_step: int = -1
    """The `total_step` at which `checkpoint.best` was highest."""
    metrics_bytes: int = 0
    finished: bool = False
    history: dict[str, list[float]] = field(default_factory=dict)
    scales: dict[str, Moments] = field(default_factory=dict)
    """Of rewards, by environment."""
    mixture: TaskMixture = field(default_factory=TaskMixture)
    guarding: GuardState = field(default_factory=GuardState)

    def count_step(self) -> None:
        self.step += 1
        self.total_step += 1

    def measure(self, metrics: Mapping[str, float]) -> None:
        """Adds to the windows; what is no number was not measured."""
        for name, value in metrics.items():
            if isfinite(value):
                values = self.history.setdefault(name, [])
                values.append(value)
                del values[:-HISTORY]

    def next_stage(self) -> None:
        """The clock, the counters and the windows of a stage start anew."""
        self.stage += 1
        self.step = self.episodes = self.sampled_tokens = self.data_position = 0
        self.history.clear()

    def copy(self) -> Progress:
        """Apart in all that a step changes before it has learnt anything."""
        mixture = TaskMixture(drawn=dict(self.mixture.drawn), owed=dict(self.mixture.owed))
        return replace(self, mixture=mixture, scales=dict(self.scales))

    def ahead(self, steps: int) -> Progress:
        """What a batch is played by that is begun now for a later step: the clock is that step's, and all that was
        measured, earned and counted is as it stands now, whatever is learnt while the batch is played."""
        history = {name: list(values) for name, values in self.history.items()}
        return replace(self, step=self.step + steps, total_step=self.total_step + steps, history=history)

    def to_json(self) -> str:
        # only the small parts are copied: the windows of a long run hold many numbers
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps(parts, sort_keys=True, allow_nan=False, default=asdict)

    @classmethod
    def from_json(cls, text: str) -> Progress:
        data = json.loads(text)
        data["scales"] = {name: Moments(**each) for name, each in data["scales"].items()}
        data["mixture"] = TaskMixture(**data["mixture"])
        data["guarding"] = GuardState(**data["guarding"])
        return cls(**data)


@dataclass(frozen=True, slots=True)
class StageFacts:
    """`dsl`'s Facts over a Progress, in one stage."""

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
