"""KL penalty against the reference policy, subtracted from token rewards (`kl: {place: reward}`).

The estimate is that of the policy which sampled the tokens, by the log-probs they were sampled with; so the penalty is
the same in every epoch of a step, and needs one forward pass, the reference's. Pure.

    token reward = -coef * clamp(estimate)
    k1 = logp - ref      k2 = (logp - ref)^2 / 2      k3 = exp(ref - logp) - (ref - logp) - 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...dsl.model.algorithm import KL, KLEstimator
from ..protocols import Floats, TrainSequence
from ..rollout.episode import Episode
from .reward import Scored
from .training_batch import to_sampled_sequences
from .turn_rewards import Float64s

__all__ = ["apply_kl_penalty", "sampled_sequences"]

_LOG_RATIO_BOUND = 20.0


def sampled_sequences(groups: Sequence[Sequence[Scored]]) -> list[TrainSequence]:
    """Build one sequence per segment with all sampled tokens, in the order of the episodes."""
    return [sequence for group in groups for each in group for sequence in to_sampled_sequences(each.episode)]


def apply_kl_penalty(
    groups: Sequence[Sequence[Scored]], reference: Sequence[Floats], settings: KL, coef: float
) -> tuple[list[list[Scored]], float]:
    """Attach the penalty to each episode's tokens; return the mean estimate per token as well. `reference` belongs to
    `sampled_sequences`."""
    logprobs, estimates = iter(reference), list[Float64s]()

    def penalise(each: Scored) -> Scored:
        estimate = _estimate(each.episode, logprobs, settings)
        estimates.append(estimate)
        return replace(each, kl_penalty=-coef * estimate)

    penalised = [[penalise(each) for each in group] for group in groups]
    tokens = np.concatenate(estimates) if estimates else np.zeros(0)
    return penalised, float(tokens.mean()) if len(tokens) else 0.0


def _estimate(episode: Episode, reference: Iterator[Floats], settings: KL) -> Float64s:
    """Estimate the KL of each sampled token, turn after turn."""
    log_ratios = [next(reference).astype(np.float64) - segment.logprobs for segment in episode.segments]
    along = [log_ratios[turn.segment][turn.start : turn.end] for turn in episode.turns]
    estimate = _ESTIMATORS[settings.estimator](np.concatenate(along) if along else np.zeros(0))
    return estimate if settings.clamp is None else estimate.clip(-settings.clamp, settings.clamp)


_ESTIMATORS: Mapping[KLEstimator, Callable[[Float64s], Float64s]] = {
    KLEstimator.K1: lambda log_ratio: -log_ratio,
    KLEstimator.K2: lambda log_ratio: log_ratio**2 / 2,
    KLEstimator.K3: lambda log_ratio: np.expm1(log_ratio.clip(max=_LOG_RATIO_BOUND)) - log_ratio,
}
