"""Metrics of episodes and updates. Pure: equal inputs, in any order, give equal bits; an unknown value is NaN."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, fsum, isfinite, nan

import numpy as np

from ..protocols import Floats, TrainSequence, UpdateFault, UpdateMetrics, ValueMetrics
from ..rollout.episode import Ending, Episode
from .baselines import std_of
from .reward import Scored
from .turn_rewards import Float64s

__all__ = [
    "EvalOutcomes",
    "Share",
    "bootstrap",
    "critic_metrics",
    "eval_outcomes",
    "group_metrics",
    "mean",
    "mean_measures",
    "pass_at",
    "rate",
    "rollout_metrics",
    "step_facts",
    "train_metrics",
    "worst_fault",
]

_RESAMPLES = 2000


def mean(values: Iterable[float]) -> float:
    """Mean, exact before the division, so that the order of the values changes nothing."""
    known = list(values)
    return fsum(known) / len(known) if known and all(map(isfinite, known)) else nan


def rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else nan


def rollout_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Compute means and counts over a step's episodes. Faults are counted apart and enter no other number."""
    trainable = [episode for episode in episodes if episode.ending.trainable]
    replies = sum(episode.num_turns for episode in trainable)
    # of all kinds, also those that a retry recovered from
    faults = Counter(kind for episode in episodes for kind in episode.faults)
    uncontested = sum(episode.ending is Ending.UNCONTESTED for episode in episodes)
    counts: dict[str, float] = {
        "rollout/episodes": len(trainable),
        "rollout/faults": sum(episode.ending is Ending.ENV_FAULT for episode in episodes),
        "rollout/retries": sum(episode.retries for episode in episodes),
        **{f"rollout/fault_{kind}": times for kind, times in sorted(faults.items())},
        **({"rollout/uncontested": uncontested} if uncontested else {}),
    }
    if not trainable:
        return counts
    return {
        **counts,
        "rollout/success": mean(episode.success for episode in trainable),
        "rollout/score": mean(episode.score for episode in trainable),
        "rollout/turns": mean(episode.num_turns for episode in trainable),
        "rollout/length": mean(episode.sampled_tokens for episode in trainable),
        "rollout/tokens": sum(episode.sampled_tokens for episode in trainable),
        "rollout/invalid_rate": sum(episode.invalid_turns for episode in trainable) / max(replies, 1),
        "rollout/truncated_rate": mean(episode.ending.truncated for episode in trainable),
        "horizon/hit_rate": mean(episode.ending is Ending.HORIZON for episode in trainable),
        **_success_by_environment(trainable),
        **_success_against(trainable),
        **{
            f"rollout/env/{name}/{measure}": value
            for name in sorted({episode.task.environment for episode in trainable})
            for measure, value in mean_measures([e for e in trainable if e.task.environment == name]).items()
        },
    }


def mean_measures(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means of what an environment measured, each over the episodes that have it."""
    names = sorted({name for episode in episodes for name in episode.measures})
    return {name: mean(each.measures[name] for each in episodes if name in each.measures) for name in names}


def version_lags(episodes: Sequence[Episode], newest: int) -> dict[str, float]:
    """Compute how many updates older than the `newest` weights those are that sampled each token."""
    versions = [
        segment.versions[segment.sampled]
        for episode in episodes
        for segment in episode.segments
        if episode.ending.trainable
    ]
    lags = newest - np.concatenate([np.empty(0, np.int32), *versions])
    return {"rollout/lag_mean": float(lags.mean()), "rollout/lag_max": float(lags.max())} if len(lags) else {}


def _success_by_environment(episodes: Sequence[Episode]) -> dict[str, float]:
    names = sorted({episode.task.environment for episode in episodes})
    if len(names) < 2:
        return {}
    return {
        f"rollout/{name}/success": mean(e.success for e in episodes if e.task.environment == name) for name in names
    }


def _success_against(episodes: Sequence[Episode]) -> dict[str, float]:
    """By the model of the run that played another seat."""
    models = sorted({seat.model for episode in episodes for seat in episode.seats})
    return {
        f"rollout/against_{model}/success": mean(
            episode.success for episode in episodes if any(seat.model == model for seat in episode.seats)
        )
        for model in models
    }


def group_metrics(groups: Sequence[Sequence[Scored]]) -> dict[str, float]:
    totals = [[scored.total for scored in group] for group in groups if group]
    if not totals:
        return {}
    return {
        "rollout/reward": mean(total for group in totals for total in group),
        "group/zero_std_frac": mean(std_of(group) == 0 for group in totals),
        "group/std": mean(std_of(group) for group in totals),
    }


def bootstrap(values: Sequence[float], confidence: float, seed: int) -> tuple[float, float]:
    """Percentile interval of the mean under resampling of `values`, one per task."""
    if len(values) < 2:
        return nan, nan
    data = np.asarray(values, np.float64)
    draws = np.random.Generator(np.random.PCG64(seed)).integers(0, len(data), (_RESAMPLES, len(data)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(data[draws].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A mean over tasks, with its bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOutcomes:
    """How episodes of an evaluation went, and why they ended."""

    episodes: int
    """Those that counted: without faults."""
    tasks: int
    faults: int
    success: Share
    invalid_replies: Share
    """Share of replies without an action."""
    truncated: Share
    """Share of episodes that ran out of turns or tokens."""
    endings: Mapping[str, int]
    """Episodes by reason, the most frequent first; faults too."""


def eval_outcomes(groups: Sequence[Sequence[Episode]], confidence: float, seed: int) -> EvalOutcomes:
    """Compute the outcomes of groups of episodes, task by task, so that each task counts as much as the others."""
    counted = [[each for each in group if each.ending.trainable] for group in groups]
    counted = [group for group in counted if group]

    def share(values: Iterable[float]) -> Share:
        known = list(values)
        low, high = bootstrap(known, confidence, seed)
        return Share(value=mean(known), low=low, high=high)

    endings = Counter(each.ending.value for group in groups for each in group)
    return EvalOutcomes(
        episodes=sum(map(len, counted)),
        tasks=len(counted),
        faults=sum(not each.ending.trainable for group in groups for each in group),
        success=share(mean(each.success for each in group) for group in counted),
        invalid_replies=share(
            sum(each.invalid_turns for each in group) / max(sum(each.num_turns for each in group), 1)
            for group in counted
        ),
        truncated=share(mean(each.ending.truncated for each in group) for group in counted),
        endings=dict(sorted(endings.items(), key=lambda item: (-item[1], item[0]))),
    )


def pass_at(k: int, samples: int, successes: int) -> float:
    """Unbiased estimate, from `samples` episodes, of the chance that one of `k` succeeds."""
    if not 1 <= k <= samples:
        raise ValueError(f"expected k from 1 to {samples}, got {k}")
    return 1.0 - comb(samples - successes, k) / comb(samples, k)


def train_metrics(updates: Sequence[UpdateMetrics]) -> dict[str, float | int]:
    if not updates:
        return {"train/updates": 0}
    return {
        "train/updates": sum(update.fault is None for update in updates),
        "train/skipped": sum(update.fault is not None for update in updates),
        "train/loss": mean(update.loss for update in updates),
        "train/policy_loss": mean(update.policy_loss for update in updates),
        "train/entropy": mean(update.entropy for update in updates),
        "train/kl": mean(update.reference_kl for update in updates),
        "train/grad_norm": mean(update.grad_norm for update in updates),
        "train/clipped_low": mean(update.clipped_low for update in updates),
        "train/clipped_high": mean(update.clipped_high for update in updates),
        "train/lr": updates[-1].lr,
        "train/tokens": sum(update.tokens for update in updates),
    }


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


def worst_fault(updates: Sequence[UpdateMetrics | ValueMetrics]) -> UpdateFault | None:
    faults = {update.fault for update in updates}
    return next((fault for fault in UpdateFault if fault in faults), None)


_FACTS = {
    "success": "rollout/success",
    "reward": "rollout/reward",
    "turns": "rollout/turns",
    "length": "rollout/length",
    "invalid_rate": "rollout/invalid_rate",
    "truncated_rate": "rollout/truncated_rate",
    "zero_std_frac": "group/zero_std_frac",
}


def step_facts(measured: Mapping[str, float], updates: Sequence[UpdateMetrics]) -> dict[str, float]:
    """Select the metrics that schedules may use, under their names in expressions."""
    facts = {fact: measured[name] for fact, name in _FACTS.items() if name in measured}
    if not updates:
        return facts
    return facts | {
        "kl": mean(update.reference_kl for update in updates),
        "entropy": mean(update.entropy for update in updates),
        "loss": updates[-1].loss,
        "grad_norm": updates[-1].grad_norm,
    }
