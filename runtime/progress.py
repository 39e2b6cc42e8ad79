"""Everything that decides a run's future and is not a weight: where it stands, what it has measured, what it is owed.

Enters: a checkpoint's `progress.json`. Leaves: the same, and the facts that expressions of the schedule may use. The
horizon, the learning rate and the end of a stage are pure functions of this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from .tasks import Mixture

__all__ = ["HISTORY", "Guarding", "Progress", "StageFacts"]

HISTORY = 10_000
"""Values of a metric that are kept; no expression can reach further back."""


@dataclass(slots=True)
class Guarding:
    """What the guards have counted."""

    roll_backs: int = 0
    skipped_updates: int = 0
    strikes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Progress:
    """Where the run stands."""

    total_step: int = 0
    stage: int = 0
    step: int = 0
    version: int = 0
    """Of the weights: optimiser updates made."""
    episodes: int = 0
    """Finished in this stage."""
    sampled_tokens: int = 0
    """Sampled in this stage."""
    data_position: int = 0
    """Sequences of an offline stage learnt from so far."""
    kl_scale: float = 1.0
    """Of an adaptive KL coefficient."""
    best: float | None = None
    metrics_bytes: int = 0
    history: dict[str, list[float]] = field(default_factory=dict)
    mixture: Mixture = field(default_factory=Mixture)
    guarding: Guarding = field(default_factory=Guarding)
    started_eval: bool = False
    """Whether the measurement before the first step was made."""

    def measure(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            values = self.history.setdefault(name, [])
            values.append(value)
            del values[:-HISTORY]

    def next_stage(self) -> None:
        """The clock, the counters and the windows of a stage start anew."""
        self.stage += 1
        self.step = self.episodes = self.sampled_tokens = self.data_position = 0
        self.history.clear()

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Progress:
        data = json.loads(text)
        data["mixture"] = Mixture(**data["mixture"])
        data["guarding"] = Guarding(**data["guarding"])
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
