"""Advantages by comparison of episodes: numbers worked out by hand, at the inputs where implementations differ."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.algorithm import Advantage, Baseline, Estimator, Normalise
from agym.runtime.learning.advantage import AdvantageError, compute_advantages, compute_value_targets
from agym.runtime.learning.turn_rewards import TurnRewards, TurnRewardsError

GRPO = Advantage()
PLAIN = {"baseline": Baseline.NONE, "normalise": Normalise.NONE}
STD = sqrt(0.5) + 1e-6
"""Of the rewards (1, 0), unbiased, and what is added to it."""


def episode(*rewards: float, lengths: tuple[int, ...] | None = None, **rest: Any) -> TurnRewards:
    return TurnRewards(rewards=rewards, lengths=lengths or (1,) * len(rewards), **rest)


def numbers(groups: list[list[TurnRewards]], settings: Advantage) -> list[list[list[float]]]:
    return [[tokens.tolist() for tokens in group] for group in compute_advantages(groups, settings)]


def close(got: list[list[list[float]]], want: list[list[list[float]]]) -> None:
    assert [[len(e) for e in g] for g in got] == [[len(e) for e in g] for g in want]
    for a, b in zip(got, want, strict=True):
        for x, y in zip(a, b, strict=True):
            assert x == pytest.approx(y, rel=1e-12, abs=1e-12)


# --- outcome --------------------------------------------------------------------------------------------------------


def test_outcome_is_on_every_token_of_every_turn() -> None:
    group = [episode(0, 1, lengths=(2, 1)), episode(0, lengths=(2,))]
    close(numbers([group], GRPO), [[[0.5 / STD] * 3, [-0.5 / STD] * 2]])


def test_outcome_sums_the_rewards_of_all_turns() -> None:
    group = [episode(0.25, 0.5, 0.25), episode(0, 0, 0)]
    close(numbers([group], GRPO), [[[0.5 / STD] * 3, [-0.5 / STD] * 3]])


def test_group_std_is_unbiased_with_its_epsilon_outside_the_root() -> None:
    # mean 2.5, sum of squares 2.25 + .25 + .25 + 2.25 = 5, over n - 1 = 3
    group = [episode(reward) for reward in (1, 2, 3, 4)]
    spread = sqrt(5 / 3) + 1e-6
    close(numbers([group], GRPO), [[[-1.5 / spread], [-0.5 / spread], [0.5 / spread], [1.5 / spread]]])


@pytest.mark.parametrize("normalise", [Normalise.NONE, Normalise.GROUP_STD, Normalise.BATCH_STD])
@pytest.mark.parametrize("baseline", [Baseline.GROUP_MEAN, Baseline.LEAVE_ONE_OUT])
@pytest.mark.parametrize("estimator", [Estimator.OUTCOME, Estimator.REWARD_TO_GO, Estimator.TURN_RETURNS])
def test_a_group_of_one_has_advantage_zero(estimator: Estimator, baseline: Baseline, normalise: Normalise) -> None:
    settings = Advantage(estimator=estimator, baseline=baseline, normalise=normalise)
    assert numbers([[episode(0, 0.75, lengths=(2, 1))]], settings) == [[[0.0, 0.0, 0.0]]]


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3])
@pytest.mark.parametrize("normalise", list(Normalise))
def test_equal_rewards_teach_exactly_nothing(reward: float, normalise: Normalise) -> None:
    group = [episode(reward, lengths=(n,)) for n in (1, 2, 1)]
    assert numbers([group], Advantage(normalise=normalise)) == [[[0.0], [0.0, 0.0], [0.0]]]


def test_leave_one_out_compares_with_the_mean_of_the_others() -> None:
    group = [episode(reward) for reward in (1, 0, 0, 2)]
    settings = Advantage(baseline=Baseline.LEAVE_ONE_OUT, normalise=Normalise.NONE)
    close(numbers([group], settings), [[[1 - 2 / 3], [0 - 1], [0 - 1], [2 - 1 / 3]]])


def test_leave_one_out_in_a_group_of_two_still_divides_by_the_groups_spread() -> None:
    settings = Advantage(baseline=Baseline.LEAVE_ONE_OUT)
    close(numbers([[episode(1), episode(0)]], settings), [[[1 / STD], [-1 / STD]]])


def test_groups_do_not_see_each_other() -> None:
    groups = [[episode(1), episode(0)], [episode(5), episode(3)]]
    settings = Advantage(normalise=Normalise.NONE)
    close(numbers(groups, settings), [[[0.5], [-0.5]], [[1.0], [-1.0]]])


def test_batch_mean_counts_every_episode_once_however_long() -> None:
    groups = [[episode(1, lengths=(5,)), episode(0)], [episode(2)]]
    settings = Advantage(baseline=Baseline.BATCH_MEAN, normalise=Normalise.NONE)
    close(numbers(groups, settings), [[[0.0] * 5, [-1.0]], [[1.0]]])


def test_no_baseline_leaves_the_outcome() -> None:
    assert numbers([[episode(0, 1), episode(0)]], Advantage(**PLAIN)) == [[[1.0, 1.0], [0.0]]]


def test_an_empty_batch_and_an_empty_group_stay_empty() -> None:
    assert numbers([], GRPO) == []
    assert numbers([[], [episode(1)]], Advantage(normalise=Normalise.BATCH_STD)) == [[], [[0.0]]]


# --- reward to go ---------------------------------------------------------------------------------------------------


def test_tokens_alone_are_discounted_and_the_reward_reaches_every_turn() -> None:
    settings = Advantage(estimator=Estimator.REWARD_TO_GO, gamma=0.9, **PLAIN)
    got = numbers([[episode(0, 0, 1, lengths=(2, 2, 2))]], settings)
    close(got, [[[0.9**5, 0.9**4, 0.9**3, 0.9**2, 0.9, 1.0]]])


def test_rewards_to_go_leave_out_what_came_before() -> None:
    settings = Advantage(estimator=Estimator.REWARD_TO_GO, gamma=0.5, **PLAIN)
    # 8 on token 1, 4 on token 2, 0 on token 4
    got = numbers([[episode(8, 4, 0, lengths=(2, 1, 2))]], settings)
    close(got, [[[0.5 * 8 + 0.25 * 4, 8 + 0.5 * 4, 4.0, 0.0, 0.0]]])


def test_a_group_compares_rewards_to_go_turn_by_turn() -> None:
    settings = Advantage(estimator=Estimator.REWARD_TO_GO, gamma=0.5, normalise=Normalise.NONE)
    # returns at the last token of each turn: 1 + .5 * .5 * 2 = 1.5, 2 and 0 + .5 * 1 = .5, 1; means 1, 1.5
    group = [episode(1, 2, lengths=(2, 2)), episode(0, 1, lengths=(1, 1))]
    close(numbers([group], settings), [[[0.25, 0.5, 0.25, 0.5], [-0.5, -0.5]]])


def test_without_discount_one_reward_at_the_end_is_an_outcome() -> None:
    groups = [[episode(0, 0, 1, lengths=(2, 1, 3)), episode(0, 0), episode(0.5)]]
    for estimator in (Estimator.REWARD_TO_GO, Estimator.TURN_RETURNS):
        close(numbers(groups, Advantage(estimator=estimator)), numbers(groups, GRPO))


# --- returns of turns -----------------------------------------------------------------------------------------------


def test_turn_returns_are_discounted_by_turns_and_not_by_tokens() -> None:
    settings = Advantage(estimator=Estimator.TURN_RETURNS, turn_gamma=0.5, gamma=0.1, **PLAIN)
    got = numbers([[episode(1, 2, 4, lengths=(3, 1, 2))]], settings)
    close(got, [[[3.0, 3.0, 3.0, 4.0, 4.0, 4.0]]])


def test_turn_rewards_that_all_share_teach_nothing() -> None:
    group = [episode(1, 0, lengths=(1, 2)), episode(1, 0, lengths=(2, 1))]
    got = numbers([group], Advantage(estimator=Estimator.TURN_RETURNS))
    assert got == [[[0.0] * 3, [0.0] * 3]]


def test_credit_goes_to_the_turn_that_made_the_difference() -> None:
    group = [episode(1, 1), episode(1, 0)]
    settings = Advantage(estimator=Estimator.TURN_RETURNS, turn_gamma=0.0, normalise=Normalise.NONE)
    assert numbers([group], settings) == [[[0.0, 0.5], [0.0, -0.5]]]


def test_an_episode_that_ended_early_is_compared_by_its_last_turn() -> None:
    # columns: (1, 0), (1, 0), (1, 0): the success of one turn is no failure at turns it did not need
    group = [episode(1), episode(0, 0, 0)]
    settings = Advantage(estimator=Estimator.TURN_RETURNS, normalise=Normalise.NONE)
    assert numbers([group], settings) == [[[0.5], [-0.5] * 3]]


def test_the_spread_is_that_of_the_turn() -> None:
    group = [episode(0, 4), episode(2, 0)]
    # returns (4, 4) and (2, 0): spreads sqrt(2) and sqrt(8)
    got = numbers([group], Advantage(estimator=Estimator.TURN_RETURNS))
    first, second = 1 / (sqrt(2) + 1e-6), 2 / (sqrt(8) + 1e-6)
    close(got, [[[first, second], [-first, -second]]])


# --- greedy ---------------------------------------------------------------------------------------------------------


def test_greedy_baseline_works_in_a_group_of_one() -> None:
    settings = Advantage(baseline=Baseline.GREEDY, normalise=Normalise.NONE)
    assert numbers([[episode(1, greedy=episode(0.25))]], settings) == [[[0.75]]]


def test_greedy_baseline_is_its_return_from_the_same_turn() -> None:
    settings = Advantage(
        estimator=Estimator.TURN_RETURNS, turn_gamma=0.5, baseline=Baseline.GREEDY, normalise=Normalise.NONE
    )
    # greedy returns 1 + .5 * 2 = 2, then 2; from the third turn on its last
    got = numbers([[episode(0, 0, 8, greedy=episode(1, 2))]], settings)
    assert got == [[[2.0 - 2, 4.0 - 2, 8.0 - 2]]]


def test_a_longer_greedy_episode_is_read_as_far_as_needed() -> None:
    settings = Advantage(estimator=Estimator.TURN_RETURNS, baseline=Baseline.GREEDY, normalise=Normalise.NONE)
    assert numbers([[episode(5, greedy=episode(1, 1, 1))]], settings) == [[[2.0]]]


def test_greedy_baseline_without_a_greedy_episode_is_refused() -> None:
    settings = Advantage(baseline=Baseline.GREEDY, normalise=Normalise.NONE)
    with pytest.raises(TurnRewardsError, match="needs the greedy episode"):
        compute_advantages([[episode(1, greedy=episode(1)), episode(1)]], settings)


# --- steps from the same state --------------------------------------------------------------------------------------

GIGPO = Advantage(estimator=Estimator.STEP_GROUPS, normalise=Normalise.NONE)


def test_steps_from_one_state_are_compared_as_well_as_the_episodes() -> None:
    group = [episode(0, 1, states=("door", "hall")), episode(0, 0, states=("door", "roof"))]
    # door: returns 1 and 0; hall and roof were met once
    assert numbers([group], GIGPO) == [[[1.0, 0.5], [-1.0, -0.5]]]


def test_step_weight_scales_the_second_comparison() -> None:
    group = [episode(0, 1, states=("door", "hall")), episode(0, 0, states=("door", "roof"))]
    settings = Advantage(estimator=Estimator.STEP_GROUPS, normalise=Normalise.NONE, step_weight=0.5)
    assert numbers([group], settings) == [[[0.75, 0.5], [-0.75, -0.5]]]


def test_both_comparisons_are_divided_by_their_own_spread() -> None:
    group = [episode(0, 1, states=("a", "b")), episode(0, 0, states=("a", "c"))]
    settings = Advantage(estimator=Estimator.STEP_GROUPS, turn_gamma=0.5)
    step = 0.25 / (sqrt(0.125) + 1e-6)
    close(numbers([group], settings), [[[0.5 / STD + step, 0.5 / STD], [-0.5 / STD - step, -0.5 / STD]]])


def test_each_episode_counts_once_in_the_episode_statistics() -> None:
    # three turns against one: counted by steps the mean would be 1/4
    group = [episode(0, 0, 0, states=("", "", "")), episode(1, states=("",))]
    assert numbers([group], GIGPO) == [[[-0.5] * 3, [0.5]]]


def test_a_state_met_again_in_the_same_episode_counts_again() -> None:
    # a: returns 1 (first visit), .5 and 1 (later); turn_gamma .5: returns of the first episode .5, 1; of the second 0
    group = [episode(0, 1, states=("a", "a")), episode(0, states=("a",))]
    settings = Advantage(estimator=Estimator.STEP_GROUPS, normalise=Normalise.NONE, turn_gamma=0.5)
    close(numbers([group], settings), [[[0.5 + 0.5 - 0.5, 0.5 + 1 - 0.5], [-0.5 + 0 - 0.5]]])


def test_equal_states_of_different_groups_are_not_merged() -> None:
    groups = [[episode(1, states=("a",))], [episode(0, states=("a",))]]
    assert numbers(groups, GIGPO) == [[[0.0]], [[0.0]]]


def test_states_without_a_name_are_not_the_same_state() -> None:
    group = [episode(1, states=("",)), episode(0, states=("",))]
    assert numbers([group], GIGPO) == [[[0.5], [-0.5]]]


def test_steps_may_be_compared_with_the_others_only() -> None:
    group = [episode(1, states=("a",)), episode(0, states=("a",)), episode(0, states=("b",))]
    settings = Advantage(estimator=Estimator.STEP_GROUPS, baseline=Baseline.LEAVE_ONE_OUT, normalise=Normalise.NONE)
    close(numbers([group], settings), [[[1 + 1], [-0.5 - 1], [-0.5 + 0]]])


def test_episodes_that_name_no_states_are_refused() -> None:
    with pytest.raises(TurnRewardsError, match="needs state names"):
        compute_advantages([[episode(1), episode(0)]], GIGPO)


# --- rewards of tokens ----------------------------------------------------------------------------------------------


def test_token_rewards_reach_back_and_are_not_compared() -> None:
    kl_penalty = np.array([-0.1, -0.2, -0.3])
    group = [episode(0, 1, lengths=(2, 1), token_rewards=kl_penalty), episode(0)]
    close(numbers([group], GRPO), [[[0.5 / STD - 0.6, 0.5 / STD - 0.5, 0.5 / STD - 0.3], [-0.5 / STD]]])


def test_token_rewards_of_equal_episodes_are_not_blown_up() -> None:
    group = [episode(1, token_rewards=np.array([-1e-3])), episode(1, token_rewards=np.array([-2e-3]))]
    close(numbers([group], GRPO), [[[-1e-3], [-2e-3]]])


def test_reward_to_go_discounts_token_rewards_as_all_others() -> None:
    settings = Advantage(estimator=Estimator.REWARD_TO_GO, gamma=0.5, **PLAIN)
    got = numbers([[episode(0, 4, lengths=(1, 2), token_rewards=np.array([1.0, 2.0, 8.0]))]], settings)
    close(got, [[[1 + 0.5 * 2 + 0.25 * 12, 2 + 0.5 * 12, 12.0]]])


# --- whitening ------------------------------------------------------------------------------------------------------


def test_whitening_counts_tokens_and_divides_by_n_minus_one() -> None:
    # tokens 1, 1, 1, 0: mean .75, squares 3 * .0625 + .5625 = .75, over 3
    settings = Advantage(baseline=Baseline.NONE, normalise=Normalise.BATCH_STD)
    root = sqrt(0.25 + 1e-8)
    close(numbers([[episode(1, lengths=(3,))], [episode(0)]], settings), [[[0.25 / root] * 3], [[-0.75 / root]]])


def test_whitening_leaves_masked_tokens_out_and_at_zero() -> None:
    settings = Advantage(baseline=Baseline.NONE, normalise=Normalise.BATCH_STD)
    masked = episode(0, 100, lengths=(1, 2), loss_mask=(False, False))
    partly = episode(1, 0, lengths=(1, 1), loss_mask=(True, False))
    root = sqrt(0.5 + 1e-8)
    close(numbers([[masked, partly, episode(0)]], settings), [[[0.0] * 3, [0.5 / root, 0.0], [-0.5 / root]]])


def test_a_batch_that_is_masked_whole_has_no_advantage() -> None:
    settings = Advantage(baseline=Baseline.NONE, normalise=Normalise.BATCH_STD)
    assert numbers([[episode(1, loss_mask=(False,)), episode(0, loss_mask=(False,))]], settings) == [[[0.0], [0.0]]]


def test_one_learnt_token_alone_has_nothing_to_be_compared_with() -> None:
    settings = Advantage(baseline=Baseline.NONE, normalise=Normalise.BATCH_STD)
    assert numbers([[episode(1)]], settings) == [[[0.0]]]


def test_a_group_baseline_may_be_whitened_over_the_batch() -> None:
    # differences +-.5 and +-1 over 4 tokens: mean 0, squares 2.5 / 3
    settings = Advantage(normalise=Normalise.BATCH_STD)
    root = sqrt(2.5 / 3 + 1e-8)
    groups = [[episode(1), episode(0)], [episode(2), episode(0)]]
    close(numbers(groups, settings), [[[0.5 / root], [-0.5 / root]], [[1 / root], [-1 / root]]])


# --- masks ----------------------------------------------------------------------------------------------------------


def test_a_masked_episode_stays_in_the_baseline_and_is_zero_itself() -> None:
    group = [episode(1), episode(0, loss_mask=(False,))]
    close(numbers([group], GRPO), [[[0.5 / STD], [0.0]]])


def test_a_masked_turn_still_takes_its_time_and_gives_its_reward() -> None:
    settings = Advantage(estimator=Estimator.TURN_RETURNS, turn_gamma=0.5, **PLAIN)
    got = numbers([[episode(0, 2, 4, lengths=(1, 2, 1), loss_mask=(True, False, True))]], settings)
    assert got == [[[2.0, 0.0, 0.0, 4.0]]]


# --- errors ---------------------------------------------------------------------------------------------------------


def test_a_combination_without_meaning_is_refused_with_its_reason() -> None:
    with pytest.raises(AdvantageError, match="takes baseline 'critic'"):
        compute_advantages([[episode(1)]], Advantage(estimator=Estimator.GAE))


def test_value_targets_without_a_critic_are_refused() -> None:
    with pytest.raises(AdvantageError, match="value targets need baseline 'critic', got 'group_mean'"):
        compute_value_targets([[episode(1)]], GRPO)
