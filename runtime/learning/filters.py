"""Which groups, episodes and turns an update learns from.

Enters: scored episodes, the `filter` settings and the agent's policies. Leaves: decisions for the caller to act on and
to count. In order: episodes that say nothing of the policy are never seen by anybody
(`countable`); groups are left out whole (`passes`, `highest`); episodes and turns are masked, and still count for the
baseline (`mask`); what has hardly an advantage is left out last (`sizeable`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

import numpy as np

from ...dsl.expression.expr import Expr
from ...dsl.model.algorithm import Filter
from ...dsl.model.recipe import OnInvalidTurn, OnTruncated
from ..rollout.episode import Episode
from .baselines import spread_of
from .reward import Scored, StepNames, episode_facts, group_facts
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
    """Why an episode is not learnt from."""

    RULE = "rule"
    """`filter.episodes` was not true of it."""
    TRUNCATED = "truncated"
    """It ran out of turns or tokens, under `on_truncated: mask`."""
    INVALID_TURN = "invalid_turn"
    """A reply of it held no action, under `on_invalid_turn: mask_episode`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskPolicies:
    """What masks an episode or some of its turns."""

    episodes: Expr | None = None
    on_truncated: OnTruncated = OnTruncated.TRAIN
    on_invalid_turn: OnInvalidTurn = OnInvalidTurn.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class LossMask:
    """Of one episode, what is learnt from."""

    turns: tuple[bool, ...]
    reason: MaskReason | None = None
    """Why no turn is; None if the episode as such is learnt from."""


def is_countable(episode: Episode) -> bool:
    """Whether it tells anything of the policy: no fault, not cancelled, something sampled.

    What is not countable stays out of the baseline too: a fault is not a failure.
    """
    return episode.ending.trainable and episode.sampled_tokens > 0


# --- groups ---------------------------------------------------------------------------------------------------------


def keeps_group(group: Sequence[Scored], settings: Filter, clock: StepNames) -> bool:
    """Whether `filter.groups` is true of the group; a group without episodes never passes."""
    return bool(group) and settings.groups.holds(group_facts(group, clock))


def top_groups(groups: Sequence[Sequence[Scored]], share: float) -> tuple[int, ...]:
    """Places of the groups with the highest standard deviation of reward, in the order in which they came.

    A share of n groups is rounded up, so that at least one remains; of equals the earlier ones stay.
    """
    # in binary, 0.07 of 100 is a little above 7
    kept = ceil(share * len(groups) - 1e-9)
    spreads = [spread_of(scored.total for scored in group) for group in groups]
    ranked = sorted(range(len(groups)), key=lambda place: -spreads[place])
    return tuple(sorted(ranked[:kept]))


def groups_missing(passing: int, wanted: int, rounds: int, settings: Filter) -> int:
    """How many further groups to sample after so many rounds of it; `passing` groups are there before `top_share`."""
    if not settings.resample or rounds >= settings.max_resamples:
        return 0
    return max(wanted - passing, 0)


# --- episodes and turns ---------------------------------------------------------------------------------------------


def mask_episode(scored: Scored, policies: MaskPolicies, clock: StepNames) -> LossMask:
    """What is learnt from an episode of a group that is learnt from."""
    reason = next((reason for reason, applies in _REASONS.items() if applies(scored.episode, policies, clock)), None)
    if reason is not None:
        return LossMask(turns=(False,) * len(scored.episode.turns), reason=reason)
    invalid_too = policies.on_invalid_turn is not OnInvalidTurn.MASK_TURN
    return LossMask(turns=tuple(invalid_too or not turn.invalid for turn in scored.episode.turns))


def _fails_rule(episode: Episode, policies: MaskPolicies, clock: StepNames) -> bool:
    return policies.episodes is not None and not policies.episodes.holds(episode_facts(episode, clock))


def _cut_off(episode: Episode, policies: MaskPolicies, clock: StepNames) -> bool:
    return policies.on_truncated is OnTruncated.MASK and episode.ending.truncated


def _has_invalid_turn(episode: Episode, policies: MaskPolicies, clock: StepNames) -> bool:
    return policies.on_invalid_turn is OnInvalidTurn.MASK_EPISODE and episode.invalid_turns > 0


_REASONS: Mapping[MaskReason, Callable[[Episode, MaskPolicies, StepNames], bool]] = {
    MaskReason.TRUNCATED: _cut_off,
    MaskReason.INVALID_TURN: _has_invalid_turn,
    MaskReason.RULE: _fails_rule,
}
"""The first that applies is the one that is counted."""


def has_large_advantage(advantages: Sequence[Sequence[Float64s]], drop_below: float) -> list[list[bool]]:
    """Whether any token of each episode has an advantage of at least that size.

    The largest decides, not the mean: one turn with much credit is worth an update, however long the rest is.
    """
    return [[float(np.abs(tokens).max(initial=0.0)) >= drop_below for tokens in group] for group in advantages]
