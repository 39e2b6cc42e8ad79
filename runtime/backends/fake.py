"""Fake engines without a model, for unit tests: pure, quick, the same on every machine.

The "model" is one number, its skill: the probability of the token that `skilled` says comes next; the rest is shared by
all other tokens. An update raises it with the sum of `advantage x loss_mask`, so that a run can be seen to learn, and
sampler and learner agree exactly on every log-prob as long as they hold the same weights. The critic keeps one number
per token, whatever came before it.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..protocols import (
    FinishReason,
    Floats,
    NamedTensors,
    OptimizerSettings,
    Sampled,
    SampleRequest,
    SyncError,
    TrainSequence,
    UpdateFault,
    UpdateMetrics,
    UpdateSettings,
    ValueMetrics,
    ValueSettings,
    WeightUpdate,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FakeCritic", "FakeLearner", "FakeModel", "FakeSampler", "cycle"]

SKILL = "skill"


def cycle(vocab: int) -> Callable[[Sequence[int]], int]:
    """Build a skill that counts on and begins again."""
    return lambda ids: (ids[-1] + 1) % vocab


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeModel:
    """The model that sampler and learner share."""

    vocab: int
    skilled: Callable[[Sequence[int]], int]
    """The token that a skilled player samples next."""

    def logprob(self, skill: float, ids: Sequence[int], token: int) -> float:
        p = 1 / (1 + math.exp(-skill))
        return math.log(p if token == self.skilled(ids) else (1 - p) / (self.vocab - 1))

    def draw(self, skill: float, ids: Sequence[int], rng: random.Random) -> int:
        best = self.skilled(ids)
        if rng.random() < 1 / (1 + math.exp(-skill)):
            return best
        other = rng.randrange(self.vocab - 1)
        return other + (other >= best)

    def logprobs(self, skill: float, ids: Sequence[int]) -> Floats:
        """Log-probs of `ids[1:]`."""
        return np.array([self.logprob(skill, ids[:at], ids[at]) for at in range(1, len(ids))], np.float32)


@dataclass(slots=True, kw_only=True)
class FakeSampler:
    """Sampler that answers at once."""

    model: FakeModel
    skill: float | None = None
    version: int = 0
    paused: bool = False
    closed: bool = False
    requests: list[SampleRequest] = field(default_factory=list)
    """All requests, in order."""

    async def sample(self, request: SampleRequest) -> Sampled:
        skill = self._ready()
        self.requests.append(replace(request, prompt=tuple(request.prompt)))
        rng = random.Random(request.seed)
        ids, logprobs = list(request.prompt), list[float]()
        finish = FinishReason.LENGTH
        while len(logprobs) < request.max_tokens and finish is FinishReason.LENGTH:
            token = self.model.draw(skill, ids, rng)
            logprobs.append(self.model.logprob(skill, ids, token))
            ids.append(token)
            if token in request.draw.stop_ids:
                finish = FinishReason.STOP
        drawn = tuple(ids[len(request.prompt) :])
        return Sampled(ids=drawn, logprobs=tuple(logprobs), versions=(self.version,) * len(drawn), finish=finish)

    async def score(self, ids: Sequence[int]) -> Floats:
        return self.model.logprobs(self._ready(), ids)

    async def load(self, update: WeightUpdate) -> None:
        self.skill = cast(float, dict(update.tensors)[SKILL])
        self.version = update.version
        difference = np.abs(self.model.logprobs(self.skill, update.probe.ids) - update.probe.logprobs).max()
        if not difference <= update.probe.tolerance:
            raise SyncError(f"log-probs on the probe differ by {difference:.2g}")

    async def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    async def close(self) -> None:
        self.closed = True

    def _ready(self) -> float:
        if self.skill is None or self.paused or self.closed:
            raise RuntimeError("expected a sampler with weights that is neither paused nor closed")
        return self.skill


@dataclass(slots=True, kw_only=True)
class FakeLearner:
    """Learner of one number."""

    model: FakeModel
    skill: float = 0.0
    updates: int = 0

    def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        tokens = sum(int(sequence.loss_mask.sum()) for sequence in sequences)
        gain = sum(self._gain(sequence) for sequence in sequences)
        fault = self._fault(tokens, gain, settings)
        if fault is None:
            self.skill += settings.lr * gain / tokens
            self.updates += 1
        return UpdateMetrics(
            fault=fault,
            loss=-gain / max(tokens, 1),
            policy_loss=-gain / max(tokens, 1),
            grad_norm=abs(gain),
            lr=settings.lr,
            tokens=tokens,
            sequences=sum(1 for sequence in sequences if sequence.loss_mask.any()),
            micro_batches=1,
        )

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        return [np.where(sequence.loss_mask, self._logprobs(sequence), np.float32(0)) for sequence in sequences]

    def optimise_by(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        pass

    def weights(self) -> NamedTensors:
        return [(SKILL, cast("Tensor", self.skill))]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fake.json").write_text(json.dumps({"skill": self.skill, "updates": self.updates}))

    def load(self, folder: Path) -> None:
        state: dict[str, Any] = json.loads((folder / "fake.json").read_text())
        self.skill, self.updates = state["skill"], state["updates"]

    def export(self, folder: Path) -> None:
        self.save(folder)

    def close(self) -> None:
        pass

    def _logprobs(self, sequence: TrainSequence) -> Floats:
        return np.append(np.float32(0), self.model.logprobs(self.skill, sequence.ids.tolist()))

    def _gain(self, sequence: TrainSequence) -> float:
        """Advantages of skilled tokens minus those of the others."""
        ids = sequence.ids.tolist()
        trained = np.flatnonzero(sequence.loss_mask).tolist()
        signs = [1.0 if ids[at] == self.model.skilled(ids[:at]) else -1.0 for at in trained]
        return float(np.dot(sequence.advantages[trained], signs))

    def _fault(self, tokens: int, gain: float, settings: UpdateSettings) -> UpdateFault | None:
        if not tokens:
            return UpdateFault.EMPTY
        if not math.isfinite(gain):
            return UpdateFault.NAN
        limit = settings.limits.grad_norm
        return UpdateFault.GRAD_NORM if limit is not None and abs(gain) > limit else None


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

    def optimise_by(self, settings: OptimizerSettings, *, fresh: bool) -> None:
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
