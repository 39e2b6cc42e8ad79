"""Critic values for a step's episodes, and the critic's metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import nan

import numpy as np

from ..protocols import Floats, TrainSequence, ValueMetrics
from .metrics import mean
from .reward import Scored
from .turn_rewards import Float64s

__all__ = ["attach_values", "critic_metrics"]


def attach_values(groups: Sequence[Sequence[Scored]], values: Sequence[Floats]) -> list[list[Scored]]:
    """Attach critic values to each episode's tokens. `values` belongs to `sampled_sequences`: the value once each token
    has been read, so the value before a token stands at the one before it, the environment's or the model's own."""
    found = iter(values)
    return [[_attach_to_episode(each, found) for each in group] for group in groups]


def _attach_to_episode(each: Scored, found: Iterator[Floats]) -> Scored:
    segments = [next(found).astype(np.float64) for _ in each.episode.segments]
    sampled = (turn for turn in each.episode.turns if turn.end > turn.start)
    before = [segments[turn.segment][turn.start - 1 : turn.end - 1] for turn in sampled]
    return replace(each, values=np.concatenate(before))


def critic_metrics(updates: Sequence[ValueMetrics], sequences: Sequence[TrainSequence]) -> dict[str, float]:
    """Compute explained variance over the trained tokens, and means over the critic's updates."""
    if not updates:
        return {}
    values, targets = (_select_trained(sequences, name) for name in ("values", "value_targets"))
    variance = float(targets.var())
    return {
        "critic/loss": mean(update.loss for update in updates),
        "critic/value_mean": float(values.mean()),
        "critic/explained_variance": 1 - float((targets - values).var()) / variance if variance else nan,
        "critic/clipped": mean(update.clipped for update in updates),
        "critic/grad_norm": mean(update.grad_norm for update in updates),
        "critic/lr": updates[-1].lr,
    }


def _select_trained(sequences: Sequence[TrainSequence], name: str) -> Float64s:
    trained: list[Floats] = [getattr(each, name)[each.loss_mask] for each in sequences]
    return np.concatenate(trained).astype(np.float64)
