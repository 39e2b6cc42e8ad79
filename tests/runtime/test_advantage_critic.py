"""Advantages by a critic, against a slow implementation that walks over observation tokens too."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.algorithm import Advantage, Baseline, Estimator, Normalise
from agym.runtime.learning.advantage import compute_advantages, compute_value_targets
from agym.runtime.learning.turn_rewards import TurnRewards, TurnRewardsError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

GAE = Advantage(estimator=Estimator.GAE, baseline=Baseline.CRITIC, normalise=Normalise.NONE)
BILEVEL = replace(GAE, estimator=Estimator.BILEVEL_GAE)

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

rewards = st.sampled_from([0.0, 0.0, 1.0, -0.5])
values = st.floats(-2, 2)
shares = st.sampled_from([0.0, 0.3, 0.9, 1.0])


@st.composite
def episodes(draw: Any) -> TurnRewards:
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    tokens = sum(lengths)
    return TurnRewards(
        lengths=tuple(lengths),
        rewards=tuple(draw(st.lists(rewards, min_size=len(lengths), max_size=len(lengths)))),
        values=np.array(draw(st.lists(values, min_size=tokens, max_size=tokens))),
        token_rewards=draw(st.none() | st.lists(st.floats(-0.1, 0.1), min_size=tokens, max_size=tokens).map(np.array)),
    )


def one(credit: TurnRewards, settings: Advantage) -> list[float]:
    found: list[float] = compute_advantages([[credit]], settings)[0][0].tolist()
    return found


def targets(credit: TurnRewards, settings: Advantage) -> list[float]:
    found: list[float] = compute_value_targets([[credit]], settings)[0][0].tolist()
    return found


def slow_gae(credit: TurnRewards, gamma: float, lam: float) -> list[float]:
    """Over a dense row: three observation tokens, with absurd values, before each turn and after the last."""
    row: list[tuple[bool, float, float]] = []
    at = 0
    for length, reward in zip(credit.lengths, credit.rewards, strict=True):
        row += [(False, 99.0, 99.0)] * 3
        for place in range(length):
            extra = 0.0 if credit.token_rewards is None else float(credit.token_rewards[at])
            assert credit.values is not None
            row.append((True, extra + (reward if place == length - 1 else 0.0), float(credit.values[at])))
            at += 1
    row += [(False, 99.0, 99.0)] * 3
    next_value, running = 0.0, 0.0
    found: list[float] = []
    for sampled, reward, value in reversed(row):
        if sampled:
            running = reward + gamma * next_value - value + gamma * lam * running
            next_value = value
            found.insert(0, running)
    return found


def slow_bilevel(credit: TurnRewards, s: Advantage) -> list[float]:
    """By definition: the return of each turn as a mixture of all longer looks ahead, then tokens turn by turn."""
    assert credit.values is not None
    extra = np.zeros(sum(credit.lengths)) if credit.token_rewards is None else credit.token_rewards
    starts = [sum(credit.lengths[:k]) for k in range(len(credit.lengths))]
    found: list[float] = []
    for k, (start, length) in enumerate(zip(starts, credit.lengths, strict=True)):
        # return of turn k: own reward, then by weight a stop at the next turn's value or a look further
        back = 0.0
        for later in reversed(range(k, len(credit.lengths))):
            own = 0.0 if later == k else float(extra[starts[later] : starts[later] + credit.lengths[later]].sum())
            if later == len(credit.lengths) - 1:
                ahead = 0.0
            else:
                ahead = (1 - s.turn_lam) * float(credit.values[starts[later + 1]]) + s.turn_lam * back
            back = credit.rewards[later] + own + s.turn_gamma * ahead
        part: list[float] = []
        running, next_value = 0.0, 0.0
        for j in reversed(range(start, start + length)):
            reward = float(extra[j]) + (back if j == start + length - 1 else 0.0)
            running = reward + s.gamma * next_value - float(credit.values[j]) + s.gamma * s.lam * running
            next_value = float(credit.values[j])
            part.insert(0, running)
        found += part
    return found


# --- over tokens ----------------------------------------------------------------------------------------------------


def test_gae_by_hand_across_a_turn_border() -> None:
    credit = TurnRewards(lengths=(2, 1), rewards=(1, 2), values=np.array([0.5, 1.0, 0.25]))
    settings = replace(GAE, gamma=0.5, lam=0.5)
    # surprises: 0 + .5 * 1 - .5 = 0; 1 + .5 * .25 - 1 = .125; 2 - .25 = 1.75
    last = 1.75
    middle = 0.125 + 0.25 * last
    assert one(credit, settings) == pytest.approx([0 + 0.25 * middle, middle, last], abs=1e-15)


@pytest.mark.parametrize("settings", [GAE, BILEVEL])
def test_nothing_is_expected_after_the_last_token(settings: Advantage) -> None:
    assert one(TurnRewards(lengths=(1,), rewards=(0,), values=np.array([0.25])), settings) == [-0.25]


@pytest.mark.parametrize("settings", [GAE, BILEVEL])
def test_a_critic_without_values_is_refused(settings: Advantage) -> None:
    with pytest.raises(TurnRewardsError, match="needs the critic's values"):
        one(TurnRewards(lengths=(1,), rewards=(0,)), settings)


@patient
@given(episodes(), shares, shares)
def test_gae_is_that_of_a_row_with_its_observation_tokens_skipped(
    credit: TurnRewards, gamma: float, lam: float
) -> None:
    got = one(credit, replace(GAE, gamma=gamma, lam=lam))
    assert got == pytest.approx(slow_gae(credit, gamma, lam), abs=1e-12)


@patient
@given(episodes())
def test_gae_of_zero_values_looking_all_the_way_is_reward_to_go(credit: TurnRewards) -> None:
    blind = replace(credit, values=np.zeros(credit.num_tokens))
    plain = Advantage(estimator=Estimator.REWARD_TO_GO, baseline=Baseline.NONE, normalise=Normalise.NONE)
    for gamma in (1.0, 0.7):
        expected = one(blind, replace(plain, gamma=gamma))
        assert one(blind, replace(GAE, gamma=gamma)) == pytest.approx(expected, abs=1e-12)


@patient
@given(episodes(), st.floats(-3, 3))
def test_looking_all_the_way_values_only_shift_each_token(credit: TurnRewards, by: float) -> None:
    assert credit.values is not None
    shifted = one(replace(credit, values=credit.values + by), GAE)
    assert shifted == pytest.approx([number - by for number in one(credit, GAE)], abs=1e-12)


# --- over turns and tokens ------------------------------------------------------------------------------------------


def test_bilevel_by_hand() -> None:
    credit = TurnRewards(lengths=(2, 1), rewards=(1, 2), values=np.array([0.5, 1.0, 0.25]))
    settings = replace(BILEVEL, turn_gamma=0.5, turn_lam=0.5, gamma=0.9, lam=0.8)
    # returns of turns: 2, and 1 + .5 * (.5 * .25 + .5 * 2) = 1.5625
    last_of_first = 1.5625 - 1.0
    first = 0.9 * 1.0 - 0.5 + 0.72 * last_of_first
    assert one(credit, settings) == pytest.approx([first, last_of_first, 2 - 0.25], abs=1e-15)


def test_a_last_turn_rewarded_exactly_zero_is_a_turn() -> None:
    credit = TurnRewards(lengths=(1, 2), rewards=(1, 0), values=np.array([0.5, 0.25, 0.125]))
    settings = replace(BILEVEL, turn_gamma=0.5)
    assert one(credit, settings) == pytest.approx([1 + 0.5 * 0 - 0.5, -0.25, -0.125], abs=1e-15)


def test_turns_without_any_reward_discount_the_outcome_by_turns() -> None:
    credit = TurnRewards(lengths=(2, 3, 1), rewards=(0, 0, 1), values=np.zeros(6))
    settings = replace(BILEVEL, turn_gamma=0.5)
    assert one(credit, settings) == [0.25, 0.25, 0.5, 0.5, 0.5, 1.0]


@patient
@given(episodes(), shares, shares, shares, shares)
def test_bilevel_is_its_definition(
    credit: TurnRewards, gamma: float, lam: float, turn_gamma: float, turn_lam: float
) -> None:
    settings = replace(BILEVEL, gamma=gamma, lam=lam, turn_gamma=turn_gamma, turn_lam=turn_lam)
    assert one(credit, settings) == pytest.approx(slow_bilevel(credit, settings), abs=1e-12)


@patient
@given(episodes())
def test_looking_all_the_way_at_both_levels_is_gae(credit: TurnRewards) -> None:
    assert one(credit, BILEVEL) == pytest.approx(one(credit, GAE), abs=1e-12)


@patient
@given(episodes(), shares, shares)
def test_turns_of_one_token_make_bilevel_gae_over_turns_alone(credit: TurnRewards, gamma: float, lam: float) -> None:
    assert credit.values is not None
    num = credit.num_turns
    short = replace(credit, lengths=(1,) * num, values=credit.values[:num], token_rewards=None)
    over_turns = one(short, replace(BILEVEL, turn_gamma=gamma, turn_lam=lam, gamma=0.5, lam=0.5))
    assert over_turns == pytest.approx(one(short, replace(GAE, gamma=gamma, lam=lam)), abs=1e-12)


# --- value targets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalise", [Normalise.NONE, Normalise.BATCH_STD])
def test_value_targets_are_values_plus_advantages_before_whitening(normalise: Normalise) -> None:
    credit = TurnRewards(lengths=(2,), rewards=(1,), values=np.array([0.5, 0.25]))
    assert targets(credit, replace(GAE, gamma=0.5, lam=0.0, normalise=normalise)) == [0.5 * 0.25, 1.0]


@patient
@given(episodes(), shares)
def test_looking_all_the_way_targets_are_the_rewards_still_to_come(credit: TurnRewards, gamma: float) -> None:
    plain = Advantage(estimator=Estimator.REWARD_TO_GO, baseline=Baseline.NONE, normalise=Normalise.NONE, gamma=gamma)
    assert targets(credit, replace(GAE, gamma=gamma)) == pytest.approx(one(credit, plain), abs=1e-12)


def test_a_critic_that_is_right_has_nothing_to_learn_and_nothing_to_say() -> None:
    right = TurnRewards(lengths=(2, 1), rewards=(0, 1), values=np.array([0.25, 0.5, 1.0]))
    settings = replace(GAE, gamma=0.5, lam=0.9)
    assert one(right, settings) == pytest.approx([0, 0, 0], abs=1e-15)
    assert targets(right, settings) == pytest.approx([0.25, 0.5, 1.0], abs=1e-15)


# --- after estimating -----------------------------------------------------------------------------------------------


def test_advantages_of_a_critic_are_whitened_over_learnt_tokens() -> None:
    credit = TurnRewards(lengths=(1, 1), rewards=(0, 1), values=np.array([0.5, 0.0]))
    other = TurnRewards(lengths=(1,), rewards=(9,), values=np.zeros(1), loss_mask=(False,))
    settings = replace(GAE, normalise=Normalise.BATCH_STD)
    # advantages .5 and 1: mean .75, variance .125
    root = sqrt(0.125 + 1e-8)
    got = compute_advantages([[credit, other]], settings)[0]
    assert got[0].tolist() == pytest.approx([-0.25 / root, 0.25 / root], rel=1e-12)
    assert got[1].tolist() == [0.0]


def test_inputs_are_left_as_they_were() -> None:
    values_, extra = np.array([0.5, 0.25]), np.array([0.1, 0.2])
    credit = TurnRewards(lengths=(1, 1), rewards=(0, 1), values=values_, token_rewards=extra)
    one(credit, replace(BILEVEL, gamma=0.5)), one(credit, GAE)
    assert (values_.tolist(), extra.tolist()) == ([0.5, 0.25], [0.1, 0.2])
