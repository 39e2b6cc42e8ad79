"""Credit refuses numbers that do not fit each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agym.runtime.learning.turn_rewards import TurnRewards, TurnRewardsError


def credit(**changes: Any) -> TurnRewards:
    return TurnRewards(**({"lengths": (2, 1), "rewards": (0.0, 1.0)} | changes))


def test_tokens_know_their_turns() -> None:
    found = credit(loss_mask=(False, True))
    assert found.starts.tolist() == [0, 2]
    assert found.ends.tolist() == [1, 2]
    assert found.turns.tolist() == [0, 0, 1]
    assert found.token_mask.tolist() == [False, False, True]
    assert credit().token_mask.all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lengths": (), "rewards": ()}, r"every turn needs a sampled token, got turns of \[\]"),
        ({"lengths": (2, 0)}, r"every turn needs a sampled token, got turns of \[2, 0\]"),
        ({"rewards": (1.0,)}, "expected rewards for 2 turns, got 1"),
        ({"states": ("a",)}, "expected states for 2 turns, got 1"),
        ({"loss_mask": (True,) * 3}, "expected loss_mask for 2 turns, got 3"),
        ({"values": np.zeros(2)}, r"expected values for 3 tokens, got shape \(2,\)"),
        ({"token_rewards": np.zeros((3, 1))}, r"expected token_rewards for 3 tokens, got shape \(3, 1\)"),
        ({"rewards": (0.0, float("nan"))}, "expected finite rewards"),
        ({"values": np.array([0, np.inf, 0])}, "expected finite values"),
        ({"token_rewards": np.array([0, np.nan, 0])}, "expected finite token_rewards"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TurnRewardsError, match=message):
        credit(**changes)
