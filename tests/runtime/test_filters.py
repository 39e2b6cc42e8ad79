"""Which groups, episodes and turns are trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agym.dsl.expression.expr import Expr
from agym.dsl.model.algorithm import Algorithm, Filter
from agym.dsl.model.recipe import OnInvalidTurn, OnTruncated
from agym.runtime.learning.filters import (
    MaskPolicies,
    MaskReason,
    groups_missing,
    has_large_advantage,
    is_countable,
    keeps_group,
    mask_episode,
    top_groups,
)
from agym.runtime.learning.reward import Scored, StepNames
from agym.runtime.rollout.episode import Ending, Episode

from .factories import make_episode, make_scored, make_segment, make_turn

CLOCK: StepNames = {"step": 3.0, "total_step": 13.0, "stage": "explore", "stage_index": 1.0}


def played(*actions: str | None, ending: Ending = Ending.DONE, success: bool = False) -> Episode:
    """One sampled token per turn, one given before each."""
    turns = [make_turn(2 * k + 1, 2 * k + 2, action=action) for k, action in enumerate(actions)]
    segment = make_segment([False, True] * len(actions))
    return make_episode([segment], turns, ending=ending, horizon=4, success=success)


def scored(total: float = 0.0, *actions: str | None, **rest: Any) -> Scored:
    return make_scored(played(*(actions or ("go",)), **rest), total)


def filtering(condition: str) -> Algorithm:
    return Algorithm(filter=Filter(groups=Expr(condition)))


def group(*totals: float) -> list[Scored]:
    return [scored(total) for total in totals]


# --- groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("totals", "kept"), [((1, 0), True), ((0.1, 0.1, 0.1), False), ((1, 1), False), ((1,), False), ((), False)]
)
def test_by_default_groups_without_spread_are_left_out(totals: tuple[float, ...], kept: bool) -> None:
    assert keeps_group(group(*totals), Algorithm(), CLOCK) is kept


def test_groups_are_kept_by_any_expression_of_theirs() -> None:
    rule = filtering("0.2 < mean < 0.8 and size >= 3 and step > 2")
    assert keeps_group(group(1, 0, 0), rule, CLOCK)
    assert not keeps_group(group(1, 0), rule, CLOCK)
    assert not keeps_group(group(1, 1, 1), rule, CLOCK)
    assert not keeps_group(group(1, 0, 0), rule, {**CLOCK, "step": 2.0})


def test_solved_counts_successes_and_not_rewards() -> None:
    rule = filtering("solved == 0.5")
    assert keeps_group([scored(0.1, success=True), scored(0.7)], rule, CLOCK)


def test_the_groups_with_the_widest_spread_are_kept_in_their_order() -> None:
    groups = [group(0.6, 0.4), group(1, 0), group(1, 1), group(0.8, 0)]
    assert top_groups(groups, 0.5) == (1, 3)
    assert top_groups(groups, 1.0) == (0, 1, 2, 3)


def test_of_equally_wide_groups_the_earlier_stay() -> None:
    assert top_groups([group(1, 0), group(0, 1), group(1, 0)], 0.5) == (0, 1)


@pytest.mark.parametrize(
    ("share", "of", "kept"), [(0.25, 8, 2), (0.25, 9, 3), (0.01, 5, 1), (0.07, 100, 7), (0.5, 0, 0)]
)
def test_a_share_of_groups_is_rounded_up(share: float, of: int, kept: int) -> None:
    assert len(top_groups([group(1, 0)] * of, share)) == kept


def test_what_is_missing_is_sampled_for_so_many_rounds() -> None:
    settings = Filter(resample=True, max_resamples=2)
    assert [groups_missing(5, 8, rounds, settings) for rounds in range(4)] == [3, 3, 0, 0]


def test_a_full_step_and_one_that_is_too_full_need_nothing() -> None:
    settings = Filter(resample=True)
    assert groups_missing(8, 8, 0, settings) == 0
    assert groups_missing(9, 8, 0, settings) == 0


def test_nothing_is_sampled_again_unless_asked_for() -> None:
    assert groups_missing(0, 8, 0, Filter()) == 0


# --- episodes and turns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", list(Ending))
def test_faults_and_cancellations_do_not_count_and_failures_do(ending: Ending) -> None:
    assert is_countable(played("go", ending=ending)) is (
        ending not in (Ending.ENV_FAULT, Ending.UNSCORED, Ending.CANCELLED)
    )


def test_an_episode_in_which_nothing_was_sampled_does_not_count() -> None:
    assert not is_countable(played(ending=Ending.BUDGET))


def test_without_policies_everything_is_learnt() -> None:
    found = mask_episode(scored(0.0, "go", None, ending=Ending.HORIZON), MaskPolicies(), CLOCK)
    assert (found.turns, found.reason) == ((True, True), None)


@pytest.mark.parametrize(
    ("ending", "learnt"),
    [(Ending.HORIZON, False), (Ending.BUDGET, False), (Ending.DONE, True), (Ending.INVALID, True)],
)
def test_episodes_that_were_cut_off_can_be_masked(ending: Ending, learnt: bool) -> None:
    found = mask_episode(scored(0.0, "go", "go", ending=ending), MaskPolicies(on_truncated=OnTruncated.MASK), CLOCK)
    assert found.turns == (learnt, learnt)
    assert found.reason is (None if learnt else MaskReason.TRUNCATED)


def test_invalid_turns_can_be_masked_alone() -> None:
    found = mask_episode(scored(0.0, "go", None, "go"), MaskPolicies(on_invalid_turn=OnInvalidTurn.MASK_TURN), CLOCK)
    assert (found.turns, found.reason) == ((True, False, True), None)


def test_an_invalid_turn_can_mask_its_episode() -> None:
    policies = MaskPolicies(on_invalid_turn=OnInvalidTurn.MASK_EPISODE)
    masked = mask_episode(scored(0.0, "go", None, "go"), policies, CLOCK)
    assert (masked.turns, masked.reason) == ((False, False, False), MaskReason.INVALID_TURN)
    assert mask_episode(scored(0.0, "go", "go"), policies, CLOCK).turns == (True, True)


def test_episodes_can_be_masked_by_an_expression() -> None:
    policies = MaskPolicies(episodes=Expr("invalid_turns < 2"))
    assert mask_episode(scored(0.0, "go", None), policies, CLOCK).turns == (True, True)
    found = mask_episode(scored(0.0, None, None), policies, CLOCK)
    assert (found.turns, found.reason) == ((False, False), MaskReason.RULE)


def test_an_expression_without_an_answer_masks() -> None:
    assert mask_episode(scored(), MaskPolicies(episodes=Expr("difficulty < 3")), CLOCK).reason is MaskReason.RULE


def test_an_episode_masked_twice_is_counted_once() -> None:
    policies = MaskPolicies(
        episodes=Expr("success"), on_truncated=OnTruncated.MASK, on_invalid_turn=OnInvalidTurn.MASK_EPISODE
    )
    assert mask_episode(scored(0.0, None, ending=Ending.HORIZON), policies, CLOCK).reason is MaskReason.TRUNCATED


# --- small advantages -----------------------------------------------------------------------------------------------


def test_episodes_with_hardly_an_advantage_are_left_out() -> None:
    advantages = [[np.array([0.1, -0.1]), np.array([0.0, -0.5])], [np.array([0.5, 0.0, 0.0])]]
    assert has_large_advantage(advantages, 0.5) == [[False, True], [True]]


def test_without_a_limit_no_episode_is_too_small() -> None:
    assert has_large_advantage([[np.zeros(2), np.zeros(0)]], 0.0) == [[True, True]]
