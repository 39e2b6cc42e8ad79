"""The best play of a world whose every probability is known, by value iteration over its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = ["TransitionTable", "is_certain", "value_actions"]

TransitionTable: TypeAlias = Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]
"""By state and action, all that may happen: its probability, the next state, the reward, whether that is the end."""

_PATIENCE = 0.999
"""What a later reward is worth: below 1, or going in circles would be as good as going to the goal."""
_SWEEPS = 20_000


def is_certain(table: TransitionTable) -> bool:
    return all(len(outcomes) == 1 for actions in table.values() for outcomes in actions.values())


def value_actions(table: TransitionTable) -> list[list[float]]:
    """Optimal value of each action in each state."""
    most = max(len(outcomes) for actions in table.values() for outcomes in actions.values())
    shape = (len(table), len(table[0]), most)
    chance, earned, goes_on, target = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape, int)
    for state, actions in table.items():
        for action, outcomes in actions.items():
            for number, (share, following, reward, over) in enumerate(outcomes):
                at = state, action, number
                chance[at], earned[at], goes_on[at], target[at] = share, reward, not over, following
    return _converged(chance * earned, _PATIENCE * chance * goes_on, target)


def _converged(earned: Any, kept: Any, target: Any) -> list[list[float]]:
    values = np.zeros(len(earned))
    for _ in range(_SWEEPS):
        worth = (earned + kept * values[target]).sum(axis=2)
        before, values = values, worth.max(axis=1)
        if np.abs(values - before).max() < 1e-10:
            break
    # rounded: what is equally good must not be told apart by how a machine rounds sums
    rounded: list[list[float]] = worth.round(8).tolist()
    return rounded
