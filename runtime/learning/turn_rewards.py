"""Rewards of an episode by turn, over its sampled tokens: what the environment wrote enters no statistic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Float64s", "TurnRewards", "TurnRewardsError"]

Float64s = NDArray[np.float64]


class TurnRewardsError(ValueError):
    """Numbers of an episode that do not fit each other, or a missing one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnRewards:
    """Rewards of one episode, checked."""

    lengths: tuple[int, ...]
    """Sampled tokens of each turn; at least one."""
    rewards: tuple[float, ...]
    """Reward of each turn, on its last sampled token; the outcome is added to that of the last turn."""
    states: tuple[str, ...] | None = None
    """Names of the states that the turns were taken from; empty where unknown."""
    loss_mask: tuple[bool, ...] | None = None
    """Turns that are trained on; all without it. Other turns have advantage 0 and enter no statistic over tokens; their
    rewards and their time count for the others."""
    values: Float64s | None = None
    """Critic value before each sampled token."""
    token_rewards: Float64s | None = None
    """Further reward of each sampled token: minus the KL penalty."""
    greedy: TurnRewards | None = None
    """The greedy episode of the same task."""

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1:
            raise TurnRewardsError(f"every turn needs a sampled token, got turns of {list(self.lengths)}")
        for name in ("rewards", "states", "loss_mask"):
            turns = getattr(self, name)
            if turns is not None and len(turns) != len(self.lengths):
                raise TurnRewardsError(f"expected {name} for {len(self.lengths)} turns, got {len(turns)}")
        for name, array in (("values", self.values), ("token_rewards", self.token_rewards)):
            if array is not None and array.shape != (self.num_tokens,):
                raise TurnRewardsError(f"expected {name} for {self.num_tokens} tokens, got shape {array.shape}")
        # NaN or infinity would spread over the whole batch by its mean
        for name in ("rewards", "values", "token_rewards"):
            numbers = getattr(self, name)
            if numbers is not None and not np.isfinite(numbers).all():
                raise TurnRewardsError(f"expected finite {name}, got {np.asarray(numbers)}")

    @property
    def num_turns(self) -> int:
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        return sum(self.lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Index of the first token of each turn."""
        return self.ends - np.asarray(self.lengths, np.int64) + 1

    @property
    def ends(self) -> NDArray[np.int64]:
        """Index of the last token of each turn."""
        return np.cumsum(self.lengths, dtype=np.int64) - 1

    @property
    def turn_rewards(self) -> Float64s:
        return np.asarray(self.rewards, np.float64)

    @property
    def token_rewards_or_zeros(self) -> Float64s:
        return np.zeros(self.num_tokens) if self.token_rewards is None else self.token_rewards.astype(np.float64)

    @property
    def token_mask(self) -> NDArray[np.bool_]:
        """Loss mask of each token."""
        loss_mask = [True] * self.num_turns if self.loss_mask is None else self.loss_mask
        return np.asarray(loss_mask, np.bool_)[self.turns]

    @property
    def known_values(self) -> Float64s:
        if self.values is None:
            raise TurnRewardsError("baseline 'critic' needs the critic's values, which this episode lacks")
        return self.values.astype(np.float64)

    @property
    def turns(self) -> NDArray[np.int64]:
        """Turn of each token."""
        return np.repeat(np.arange(self.num_turns, dtype=np.int64), self.lengths)
