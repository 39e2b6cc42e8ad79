"""The divergence from a reference as a cost of each token, against loops."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.algorithm import KL, KLEstimator
from agym.runtime.engine import OutcomeKind
from agym.runtime.learning.kl_penalty import apply_kl_penalty, sampled_sequences
from agym.runtime.learning.reward import Scored, assign_turn_rewards
from agym.runtime.rollout.episode import Segment

from .factories import make_episode, make_scored, make_segment, make_turn

# two segments; turns of 2 and 1 tokens in the first, of 2 in the second
SPANS = ((0, 2, 4), (0, 6, 7), (1, 1, 3))
LOGPROBS = {(0, 2): -0.5, (0, 3): -2.0, (0, 6): -0.1, (1, 1): -1.5, (1, 2): -3.0}
REFERENCE = {(0, 2): -0.7, (0, 3): -1.0, (0, 6): -0.1, (1, 1): -9.0, (1, 2): -2.5}


def segment(number: int, length: int) -> Segment:
    logprobs = [LOGPROBS.get((number, at), 0.0) for at in range(length)]
    sampled = [(number, at) in LOGPROBS for at in range(length)]
    return make_segment(sampled, range(length), logprobs)


def two_segments() -> Scored:
    turns = [make_turn(start, end, segment=at) for at, start, end in SPANS]
    return make_scored(make_episode([segment(0, 8), segment(1, 3)], turns), 1.0)


def reference(number: int, length: int) -> Any:
    return np.array([REFERENCE.get((number, at), 77.0) for at in range(length)], np.float32)


def estimates(kind: KLEstimator) -> list[float]:
    found = []
    for place, logprob in LOGPROBS.items():
        difference = logprob - REFERENCE[place]
        found.append(
            {
                KLEstimator.K1: difference,
                KLEstimator.K2: difference * difference / 2,
                KLEstimator.K3: math.exp(-difference) - 1 + difference,
            }[kind]
        )
    return found


@pytest.mark.parametrize("kind", KLEstimator)
def test_each_sampled_token_costs_its_estimate(kind: KLEstimator) -> None:
    book, mean = apply_kl_penalty([[two_segments()]], [reference(0, 8), reference(1, 3)], KL(estimator=kind), 0.1)
    assert book[0][0].kl_penalty == pytest.approx([-0.1 * each for each in estimates(kind)], rel=1e-5)
    assert mean == pytest.approx(sum(estimates(kind)) / 5, rel=1e-5)


def test_the_estimate_of_a_token_is_held_within_its_clamp() -> None:
    book, _ = apply_kl_penalty(
        [[two_segments()]], [reference(0, 8), reference(1, 3)], KL(estimator=KLEstimator.K1, clamp=0.6), 1
    )
    assert book[0][0].kl_penalty == pytest.approx([-0.2, 0.6, 0.0, -0.6, 0.5], abs=1e-6)


def test_the_pull_is_no_part_of_what_groups_are_compared_by() -> None:
    ((each,),), _ = apply_kl_penalty([[two_segments()]], [reference(0, 8), reference(1, 3)], KL(), 5.0)
    assert each.total == 1.0
    assert assign_turn_rewards(each).token_rewards is each.kl_penalty


def test_the_reference_is_asked_about_all_that_was_sampled_and_nothing_else() -> None:
    first, second = sampled_sequences([[two_segments()]])
    assert np.flatnonzero(first.loss_mask).tolist() == [2, 3, 6]
    assert np.flatnonzero(second.loss_mask).tolist() == [1, 2]


def test_no_episodes_have_no_divergence() -> None:
    assert apply_kl_penalty([], [], KL(), 1.0) == ([], 0.0)


def test_an_adaptive_weight_follows_the_divergence_that_is_taken_off_the_reward(new_run: Any) -> None:
    kl = "{coef: 0.5, target: 1e-4, target_steps: 1}"
    run = new_run(f"schedule.1.algorithm={{use: reinforce_pp, groups_per_step: 8, kl: {kl}}}")
    run.go()
    rows = [row for row in run.steps() if row["stage"] == "exploit"]
    for before, after in pairwise(rows):
        factor = 2 ** min(max(before["reward/kl"] / 1e-4 - 1, -1), 1)
        assert after["reward/kl_coef"] == pytest.approx(before["reward/kl_coef"] * factor)


@pytest.mark.parametrize("preset", ["rloo", "reinforce_pp"])
def test_a_run_takes_it_off_the_reward_and_not_the_loss(preset: str, new_run: Any) -> None:
    sizes = "group_size: 2, groups_per_step: 4" if preset == "rloo" else "groups_per_step: 8"
    run = new_run(f"schedule.1.algorithm={{use: {preset}, {sizes}, kl: {{coef: 0.5, target: null}}}}")
    assert run.go().kind is OutcomeKind.FINISHED
    rows = [row for row in run.steps() if row["stage"] == "exploit"]
    assert {row["reward/kl_coef"] for row in rows} == {0.5}
    assert all(row.get("train/kl", 0.0) == 0.0 for row in rows)
    assert any(row["reward/kl"] != 0.0 for row in rows[1:])
