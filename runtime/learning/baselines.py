"""Baselines and normalisers, over matrices of returns with one row per episode and one column per turn.

Sums are exact before they are rounded, so no result depends on the order of the episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum

import numpy as np

from ...dsl.model.algorithm import Baseline, Normalise
from .turn_rewards import Float64s

__all__ = ["BASELINES", "NORMALISERS", "align_turns", "mean_of", "std_of"]

EPSILON = 1e-6
"""Added to a group's standard deviation before it divides."""


def align_turns(returns: Sequence[Float64s]) -> Float64s:
    """Stack returns, one row per episode; an episode that ended early repeats its last turn.

    An episode that ended early has not lost its return: compared by 0 at later turns it would seem to have failed, left
    out it would leave the longest episode alone with itself. Where there is one reward, at the end and undiscounted,
    every column is the episodes' returns: the comparison is that of whole episodes.
    """
    width = max(len(row) for row in returns)
    return np.stack([np.pad(row, (0, width - len(row)), mode="edge") for row in returns])


def mean_of(values: Iterable[float]) -> float:
    """Mean; of equal values exactly that value."""
    known = list(values)
    return min(max(fsum(known) / len(known), min(known)), max(known))


def std_of(values: Iterable[float]) -> float:
    """Unbiased standard deviation; exactly 0 for equal values and for a single one."""
    known = list(values)
    mean = mean_of(known)
    return float(np.sqrt(fsum((value - mean) ** 2 for value in known) / max(len(known) - 1, 1)))


def _map_columns(function: Callable[[Iterable[float]], float], matrix: Float64s) -> Float64s:
    return np.asarray([function(column) for column in matrix.T.tolist()])


def _subtract_nothing(matrix: Float64s, greedy: Float64s | None) -> Float64s:
    """x: returns as they are."""
    return matrix


def _subtract_mean(matrix: Float64s, greedy: Float64s | None) -> Float64s:
    """x - mean(x); 0 for a group of one, whose mean is itself."""
    difference: Float64s = matrix - _map_columns(mean_of, matrix)
    return difference


def _subtract_mean_of_others(matrix: Float64s, greedy: Float64s | None) -> Float64s:
    """x - mean of the others = n / (n - 1) * (x - mean(x)); 0 for a group of one, which has no others."""
    count = len(matrix)
    return _subtract_mean(matrix, greedy) * (count / max(count - 1, 1))


def _subtract_greedy(matrix: Float64s, greedy: Float64s | None) -> Float64s:
    """x - the return of the greedy episode of the same task."""
    assert greedy is not None, "returns of greedy episodes come with the baseline that needs them"
    difference: Float64s = matrix - greedy
    return difference


BASELINES: Mapping[Baseline, Callable[[Float64s, Float64s | None], Float64s]] = {
    Baseline.NONE: _subtract_nothing,
    Baseline.GROUP_MEAN: _subtract_mean,
    Baseline.LEAVE_ONE_OUT: _subtract_mean_of_others,
    Baseline.BATCH_MEAN: _subtract_mean,
    Baseline.GREEDY: _subtract_greedy,
}
"""Return minus baseline; the second matrix holds the greedy episodes' returns."""


def _keep_scale(difference: Float64s, matrix: Float64s) -> Float64s:
    return difference


def _divide_by_std(difference: Float64s, matrix: Float64s) -> Float64s:
    """difference / (std(x) + 1e-6), std unbiased; 0 where std is 0: equal returns carry no signal."""
    std = _map_columns(std_of, matrix)
    scaled: Float64s = np.where(std > 0, difference / (std + EPSILON), 0.0)
    return scaled


NORMALISERS: Mapping[Normalise, Callable[[Float64s, Float64s], Float64s]] = {
    Normalise.NONE: _keep_scale,
    Normalise.GROUP_STD: _divide_by_std,
    # over the tokens of the batch, once they have their numbers
    Normalise.BATCH_STD: _keep_scale,
}
"""Difference divided by the standard deviation of the returns, or not."""
