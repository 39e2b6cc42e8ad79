"""Importance weights for tokens that another engine, another precision or older weights sampled. Pure.

    token     w = exp(learner - sampler)              of the token alone
    turn      w = exp(sum over the turn's tokens)     the same for all of them
    episode   w = exp(sum over the sequence's tokens)

`truncate` caps w at `cap`; `mask` sets w to 0 outside `floor` to `cap` and keeps it elsewhere. The product over a unit
is the exact ratio of its probabilities; its geometric mean, which some use, is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from ...dsl.model.algorithm import Correction, Importance, Level
from ..protocols import Floats

__all__ = ["importance_weights", "is_truncated"]

_LOG_RATIO_BOUND = 20.0

Units = NDArray[np.int64]


def importance_weights(learner: Floats, sampler: Floats, loss_mask: NDArray[np.bool_], settings: Importance) -> Floats:
    """Compute one weight per token, multiplied into its loss; 1 outside the loss mask."""
    difference = np.where(loss_mask, learner.astype(np.float64) - sampler, 0.0)
    units = _UNITS[settings.level](loss_mask)
    total = np.bincount(units, weights=difference)[units]
    ratio = np.exp(total.clip(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND))
    return np.where(loss_mask, _CORRECTIONS[settings.correction](ratio, settings), 1.0).astype(np.float32)


def is_truncated(weights: Floats, settings: Importance) -> NDArray[np.bool_]:
    """Mark the weights that a bound has replaced."""
    return _BOUND_CHECKS[settings.correction](weights, settings)


def _number_turns(loss_mask: NDArray[np.bool_]) -> Units:
    # a turn's tokens stand together, and tokens that nobody sampled stand between two turns
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
    Correction.TRUNCATE: lambda weights, settings: weights >= np.float32(settings.cap),
    Correction.MASK: lambda weights, settings: weights == 0,
}
