"""Filters and loss masks: the groups, episodes and turns that an update trains on. Pure.

In order: uncountable episodes are never used; groups are dropped whole; episodes and turns are masked, and still count
for the baseline; episodes with hardly any advantage are dropped last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil
from typing import Self

import numpy as np

from ...dsl.expression.expr import Expr
from ...dsl.model.algorithm import Algorithm, Baseline, Filter, KLPlace, Normalise
from ...dsl.model.recipe import Agent, OnInvalidTurn, OnTruncated
from ...dsl.model.stage_kinds import pulls_to_reference
from ..rollout.episode import Episode
from .advantage import compute_advantages
from .baselines import std_of
from .reward import Scored, StepNames, assign_turn_rewards, episode_facts, group_facts
from .turn_rewards import Float64s

__all__ = [
    "LossMask",
    "MaskPolicies",
    "MaskReason",
    "groups_missing",
    "has_large_advantage",
    "is_countable",
    "keeps_group",
    "mask_episode",
    "top_groups",
]


class MaskReason(StrEnum):
    """Reason for masking an episode."""

    RULE = "rule"
    """`filter.episodes` was false."""
    TRUNCATED = "truncated"
    """Out of turns or tokens, under `on_truncated: mask`."""
    INVALID_TURN = "invalid_turn"
    """A reply without an action, under `on_invalid_turn: mask_episode`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskPolicies:
    """Settings that mask an episode or some of its turns."""

    episodes: Expr | None = None
    on_truncated: OnTruncated = OnTruncated.TRAIN
    on_invalid_turn: OnInvalidTurn = OnInvalidTurn.KEEP

    @classmethod
    def of(cls, agent: Agent, episodes: Expr | None) -> Self:
        return cls(episodes=episodes, on_truncated=agent.on_truncated, on_invalid_turn=agent.on_invalid_turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossMask:
    """Turns of an episode that are trained on."""

    turns: tuple[bool, ...]
    reason: MaskReason | None = None
    """Reason why no turn is; None if the episode is trained on."""


def is_countable(episode: Episode) -> bool:
    """Return whether the episode is a sample of the policy: no fault, not cancelled, something sampled.

    Other episodes stay out of the baseline too: a fault is not a failure.
    """
    return episode.ending.trainable and episode.sampled_tokens > 0


def keeps_group(group: Sequence[Scored], algorithm: Algorithm, step_names: StepNames) -> bool:
    """Return whether `filter.groups` is true of the group; without it, whether the group has anything to teach. False
    for a group without episodes."""
    condition = algorithm.filter.groups
    if not group or condition is None:
        return bool(group) and _has_signal(group, algorithm)
    return condition.holds(group_facts(group, step_names))


def _has_signal(group: Sequence[Scored], algorithm: Algorithm) -> bool:
    """Return whether any advantage may differ from 0: equal rewards can come from turns that are not equal."""
    in_reward = pulls_to_reference(algorithm) and algorithm.kl.place is KLPlace.REWARD
    if in_reward or algorithm.advantage.baseline not in _WITHIN_THE_GROUP:
        return True
    settings = replace(algorithm.advantage, normalise=Normalise.NONE)
    (advantages,) = compute_advantages([[assign_turn_rewards(each) for each in group]], settings)
    return any(float(np.abs(tokens).max(initial=0.0)) > _ROUNDING for tokens in advantages)


_WITHIN_THE_GROUP = (Baseline.GROUP_MEAN, Baseline.LEAVE_ONE_OUT)
_ROUNDING = 1e-9
"""How much sums of the same rewards in another order may differ."""


def top_groups(groups: Sequence[Sequence[Scored]], share: float) -> tuple[int, ...]:
    """Return the indices of the groups with the highest standard deviation of reward, in order.

    A share of n groups is rounded up, so at least one remains; of equals the earlier ones stay.
    """
    # in binary, 0.07 of 100 is a little above 7
    kept = ceil(share * len(groups) - 1e-9)
    stds = [std_of(scored.total for scored in group) for group in groups]
    ranked = sorted(range(len(groups)), key=lambda place: -stds[place])
    return tuple(sorted(ranked[:kept]))


def groups_missing(passing: int, wanted: int, rounds: int, settings: Filter) -> int:
    """Count the groups still to sample after so many rounds; `passing` counts groups before `top_share`."""
    if not settings.resample or rounds >= settings.max_resamples:
        return 0
    return max(wanted - passing, 0)


def mask_episode(scored: Scored, policies: MaskPolicies, step_names: StepNames) -> LossMask:
    """Return the loss mask of an episode in a kept group."""
    reason = _find_reason(scored.episode, policies, step_names)
    if reason is not None:
        return LossMask(turns=(False,) * len(scored.episode.turns), reason=reason)
    keeps_invalid = policies.on_invalid_turn is not OnInvalidTurn.MASK_TURN
    return LossMask(turns=tuple(keeps_invalid or not turn.invalid for turn in scored.episode.turns))


def _find_reason(episode: Episode, policies: MaskPolicies, step_names: StepNames) -> MaskReason | None:
    """Find the first reason that applies, which is the one that is counted."""
    if policies.on_truncated is OnTruncated.MASK and episode.ending.truncated:
        return MaskReason.TRUNCATED
    if policies.on_invalid_turn is OnInvalidTurn.MASK_EPISODE and episode.invalid_turns > 0:
        return MaskReason.INVALID_TURN
    if policies.episodes is not None and not policies.episodes.holds(episode_facts(episode, step_names)):
        return MaskReason.RULE
    return None


def has_large_advantage(advantages: Sequence[Sequence[Float64s]], drop_below: float) -> list[list[bool]]:
    """Return whether any token of each episode has an advantage of at least that size.

    The largest decides, not the mean: one turn with much credit is worth an update, however long the rest is.
    """
    return [[float(np.abs(tokens).max(initial=0.0)) >= drop_below for tokens in group] for group in advantages]
