"""Importance weights for tokens that another engine, another precision or older weights sampled. Pure.

    token     w = exp(learner - sampler)              of the token alone
    turn      w = exp(sum over the turn's tokens)     the same for all of them
    episode   w = exp(sum over the episode's tokens)  in all its segments

`truncate` caps w at `cap`; `mask` sets w to 0 outside `floor` to `cap` and keeps it elsewhere. The product over a unit
is the exact ratio of its probabilities; its geometric mean, which some use, is not. `reject` sets all weights of an
episode to 0 by that geometric mean: as a measure of distance it does not grow with the episode's length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from ...dsl.model.algorithm import Correction, Importance, Level, Reject
from ..protocols import Floats, TrainSequence

__all__ = ["has_segments", "importance_weights", "is_truncated", "share_log_ratios", "weigh_sequences"]

_LOG_RATIO_BOUND = 20.0

Units = NDArray[np.int64]


def has_segments(sequences: Sequence[TrainSequence]) -> bool:
    """Return whether any episode has several segments among the sequences."""
    numbered = [sequence.episode for sequence in sequences if sequence.episode is not None]
    return len(set(numbered)) < len(numbered)


def _group_by_episode(sequences: Sequence[TrainSequence]) -> Iterator[list[int]]:
    """Indices of the sequences of each episode, in their order."""
    found: dict[tuple[bool, int], list[int]] = {}
    for at, sequence in enumerate(sequences):
        key = (True, at) if sequence.episode is None else (False, sequence.episode)
        found.setdefault(key, []).append(at)
    return iter(found.values())


def share_log_ratios(sequences: Sequence[TrainSequence], logprobs: Sequence[Floats]) -> list[TrainSequence]:
    """Attach to every sequence its episode's mean log-ratio of these log-probs to the old ones, and of the sampler's to
    these."""
    shared = list(sequences)
    for members in _group_by_episode(sequences):
        own = [(sequences[at], logprobs[at].astype(np.float64)) for at in members]
        ratio = _mean_trained([(each.loss_mask, now - _old_logprobs(each)) for each, now in own])
        drift = _mean_trained([(each.loss_mask, _sampled_logprobs(each) - now) for each, now in own])
        for at in members:
            length = len(sequences[at].ids)
            shared[at] = replace(
                sequences[at],
                shared_log_ratio=np.full(length, ratio, np.float32),
                shared_drift=np.full(length, drift, np.float32),
            )
    return shared


def _mean_trained(segments: Sequence[tuple[NDArray[np.bool_], NDArray[np.float64]]]) -> float:
    trained = np.concatenate([values[mask] for mask, values in segments])
    return float(trained.mean()) if len(trained) else 0.0


def _sampled_logprobs(sequence: TrainSequence) -> Floats:
    return _old_logprobs(sequence) if sequence.sampled_logprobs is None else sequence.sampled_logprobs


def weigh_sequences(
    sequences: Sequence[TrainSequence], logprobs: Sequence[Floats], settings: Importance
) -> list[TrainSequence]:
    """Weigh sequences as sampled by the learner's own log-probs, which become the old ones; segments of an episode are
    weighed as one."""
    weighed = list(sequences)
    for members in _group_by_episode(sequences):
        own = [sequences[at] for at in members]
        weights = importance_weights(
            np.concatenate([logprobs[at] for at in members]),
            np.concatenate([_old_logprobs(each) for each in own]),
            np.concatenate([each.loss_mask for each in own]),
            settings,
        )
        borders = accumulate((len(each.ids) for each in own), initial=0)
        for at, (start, end) in zip(members, pairwise(borders), strict=True):
            weighed[at] = replace(
                sequences[at],
                old_logprobs=logprobs[at],
                weights=weights[start:end],
                sampled_logprobs=None if settings.reject.off_policy is None else sequences[at].old_logprobs,
            )
    return weighed


def _old_logprobs(sequence: TrainSequence) -> Floats:
    assert sequence.old_logprobs is not None, "sampled sequences carry the log-probs they were drawn with"
    return sequence.old_logprobs


def importance_weights(learner: Floats, sampler: Floats, loss_mask: NDArray[np.bool_], settings: Importance) -> Floats:
    """Compute one weight per token of an episode, multiplied into its loss; 1 outside the loss mask."""
    difference = np.where(loss_mask, learner.astype(np.float64) - sampler, 0.0)
    units = _UNITS[settings.level](loss_mask)
    total = np.bincount(units, weights=difference)[units]
    ratio = np.exp(total.clip(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND))
    weights = _CORRECTIONS[settings.correction](ratio, settings) * _is_within(difference[loss_mask], settings.reject)
    return np.where(loss_mask, weights, 1.0).astype(np.float32)


def _is_within(log_ratios: NDArray[np.float64], reject: Reject) -> bool:
    """Return whether the geometric mean of an episode's ratios lies in its range."""
    if reject.geometric is None or not len(log_ratios):
        return True
    low, high = np.log(reject.geometric)
    return bool(low <= log_ratios.mean() <= high)


def is_truncated(weights: Floats, settings: Importance) -> NDArray[np.bool_]:
    """Mark the weights that a bound has replaced."""
    return _BOUND_CHECKS[settings.correction](weights, settings)


def _number_turns(loss_mask: NDArray[np.bool_]) -> Units:
    # a turn's tokens stand together, and tokens that nobody sampled stand between two turns and at a segment's start
    return np.cumsum(np.diff(loss_mask, prepend=False) & loss_mask)


_UNITS: Mapping[Level, Callable[[NDArray[np.bool_]], Units]] = {
    Level.TOKEN: lambda loss_mask: np.arange(len(loss_mask)),
    Level.TURN: _number_turns,
    Level.EPISODE: lambda loss_mask: np.zeros(len(loss_mask), np.int64),
}

_CORRECTIONS: Mapping[Correction, Callable[[NDArray[np.float64], Importance], NDArray[np.float64]]] = {
    Correction.NONE: lambda ratio, settings: np.ones_like(ratio),
    Correction.TRUNCATE: lambda ratio, settings: np.minimum(ratio, settings.cap),
    Correction.MASK: lambda ratio, settings: np.where((ratio < settings.floor) | (ratio > settings.cap), 0.0, ratio),
}

_BOUND_CHECKS: Mapping[Correction, Callable[[Floats, Importance], NDArray[np.bool_]]] = {
    Correction.NONE: lambda weights, settings: np.zeros_like(weights, np.bool_),
    # rejected episodes have weight 0
    Correction.TRUNCATE: lambda weights, settings: (weights >= np.float32(settings.cap)) | (weights == 0),
    Correction.MASK: lambda weights, settings: weights == 0,
}
