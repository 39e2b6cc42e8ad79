"""What several ranks of a learner come to against one: weights, losses and norms, and the memory of a start.

python bench/ranks.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from agym.runtime.backends.critic import DeepSpeedCritic
from agym.runtime.backends.deepspeed import DeepSpeedLearner
from agym.runtime.backends.policy import FrozenPolicy
from agym.runtime.protocols import (
    LearnerSettings,
    ProbeLimits,
    TrainSequence,
    UpdateLimits,
    UpdateMetrics,
    UpdateSettings,
    ValueMetrics,
    ValueSettings,
)
from agym.runtime.workers.division import divide
from agym.runtime.workers.learner_worker import LearnerWorker

__all__ = ["Outcome", "draw_batch", "resume", "train"]

STEP = UpdateSettings(lr=1e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one rank has to say of a training."""

    metrics: list[UpdateMetrics]
    refused: list[UpdateMetrics]
    weights: dict[str, Any]
    """After the updates; numpy."""
    digests: list[dict[str, int]]
    """After the updates, and after each that was refused."""
    logprobs: list[Any]
    reference: list[Any]
    critic: list[ValueMetrics]
    values: list[Any]
    probe: int
    """Sequences of text that prove a sync."""
    notes: list[str]


def draw_batch(seed: int = 0, count: int = 13, vocab: int = 250) -> list[TrainSequence]:
    rng = np.random.default_rng(seed)
    return [_draw_sequence(rng, int(length), vocab) for length in rng.integers(5, 120, count)]


def _draw_sequence(rng: np.random.Generator, length: int, vocab: int) -> TrainSequence:
    loss_mask = rng.random(length) < 0.3
    loss_mask[0], loss_mask[-1] = False, True
    return TrainSequence(
        ids=rng.integers(0, vocab, length).astype(np.int32),
        loss_mask=loss_mask,
        advantages=rng.normal(size=length).astype(np.float32),
        old_logprobs=(-5.7 + 0.1 * rng.normal(size=length)).astype(np.float32),
        values=np.zeros(length, np.float32),
        value_targets=rng.normal(size=length).astype(np.float32),
    )


def _poison(batch: Sequence[TrainSequence]) -> list[TrainSequence]:
    """Spoil one sequence, and so one rank's share of the update."""
    return [*batch[:-1], replace(batch[-1], advantages=np.full(len(batch[-1].ids), np.nan, np.float32))]


def open_worker(settings: LearnerSettings) -> LearnerWorker:
    """Build a rank's worker around real engines, as `build` does for a plan."""
    learner = DeepSpeedLearner(settings)
    return LearnerWorker(
        learner,
        lambda folder: FrozenPolicy(settings, learner.device) if settings.lora is None else learner.reference(folder),
        ProbeLimits(floor=1e-4, ceiling=1e-3),
        lambda: DeepSpeedCritic(settings, learner.weights()),
        lambda folder: DeepSpeedLearner(settings, folder),
    )


def train(rank: int, ranks: int, settings: LearnerSettings, count: int, folder: Path | None) -> Outcome:
    """Train for three updates, refuse two, and ask for everything else that a worker does on all ranks."""
    worker = open_worker(settings)
    first, *others = [draw_batch(seed, count) for seed in range(3)]
    share = [first[at] for at in divide(first, ranks)[rank]]
    worker.offer_prompts([[5, 6, 7, 8]])
    reference = worker.logprobs(share, 1.0, reference=True)
    metrics = [worker.update(_share(each, rank, ranks), STEP) for each in (first, *others)]
    digests = [_digests(worker)]
    refused = []
    for batch, update in ((first, LIMITED), (_poison(first), STEP)):
        refused.append(worker.update(_share(batch, rank, ranks), update))
        digests.append(_digests(worker))
    weights = {name: tensor.cpu().numpy().copy() for name, tensor in worker.learner.weights()}
    critic = [worker.update_critic(share, ValueSettings(lr=1e-3)) for _ in range(2)]
    handover = worker.handover(3)
    sent = {name for name, _ in handover.tensors}
    assert sent == set(handover.checksums), "every tensor has a checksum, and no other"
    if folder is not None:
        worker.save(folder / "saved")
        worker.export(folder / "exported")
    outcome = Outcome(
        metrics=metrics,
        refused=refused,
        weights=weights if rank == 0 else {},
        digests=digests,
        logprobs=worker.logprobs(share, 1.0, reference=False),
        reference=reference,
        critic=critic,
        values=worker.values(share),
        probe=len(handover.probe.sequences),
        notes=worker.learner.notes,
    )
    worker.close()
    return outcome


LIMITED = UpdateSettings(lr=1e-3, limits=UpdateLimits(grad_norm=1e-6))


def _share(batch: Sequence[TrainSequence], rank: int, ranks: int) -> list[TrainSequence]:
    return [batch[at] for at in divide(batch, ranks)[rank]]


def _digests(worker: LearnerWorker) -> dict[str, int]:
    return {name: each.digest for name, each in worker.learner.checksums().items()}


def resume(rank: int, ranks: int, settings: LearnerSettings, saved: Path, again: Path) -> UpdateMetrics:
    """Load what other ranks saved, save it again, and take the next step."""
    worker = open_worker(settings)
    worker.load(saved)
    worker.save(again)
    metrics = worker.update(_share(draw_batch(3), rank, ranks), STEP)
    worker.save(again.with_name(f"{again.name}-next"))
    worker.close()
    return metrics
