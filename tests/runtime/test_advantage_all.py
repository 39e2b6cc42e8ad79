"""What holds for every combination of estimator, baseline and normalisation that is supported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.advantage_support import READS, explain_unsupported
from agym.dsl.model.algorithm import Advantage, Baseline, Estimator, Normalise
from agym.runtime.learning.advantage import compute_advantages
from agym.runtime.learning.turn_rewards import TurnRewards
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SUPPORTED = [
    parts
    for parts in (
        Advantage(estimator=estimator, baseline=baseline, normalise=normalise)
        for estimator, baseline, normalise in product(Estimator, Baseline, Normalise)
    )
    if explain_unsupported(parts) is None
]
CENTRED = {Baseline.GROUP_MEAN, Baseline.LEAVE_ONE_OUT, Baseline.BATCH_MEAN}


def named(parts: Advantage) -> str:
    return f"{parts.estimator}-{parts.baseline}-{parts.normalise}"


every_combination = pytest.mark.parametrize("parts", SUPPORTED, ids=named)
# an estimator of rewards per token alone, such as a teacher's, reads no outcome
BY_OUTCOME = [parts for parts in SUPPORTED if parts.estimator is not Estimator.TOKEN_REWARDS]
every_combination_by_outcome = pytest.mark.parametrize("parts", BY_OUTCOME, ids=named)


def played(outcome: float, lengths: tuple[int, ...]) -> TurnRewards:
    """An episode with nothing but an outcome; it began where all of its group began."""
    turns = len(lengths)
    return TurnRewards(
        lengths=lengths,
        rewards=(0.0,) * (turns - 1) + (outcome,),
        states=("start", *(f"{lengths}-{k}" for k in range(1, turns))),
        values=np.zeros(sum(lengths)),
        greedy=TurnRewards(lengths=(2, 1), rewards=(0.0, 0.0)),
    )


def driven(parts: Advantage, first: float, second: float) -> tuple[Any, Any]:
    pair = [played(first, (2, 1, 3)), played(second, (1, 2))]
    ((a, b),) = compute_advantages([pair], parts)
    return a, b


def test_an_estimator_of_rewards_per_token_reads_no_outcome() -> None:
    parts = [each for each in SUPPORTED if each not in BY_OUTCOME]
    assert parts
    assert not any(tokens.any() for each in parts for tokens in driven(each, 1, 0))


@every_combination
def test_two_failures_teach_nothing(parts: Advantage) -> None:
    a, b = driven(parts, 0, 0)
    assert not a.any()
    assert not b.any()


@every_combination_by_outcome
def test_success_next_to_failure_is_pushed_up_at_every_token(parts: Advantage) -> None:
    won, lost = driven(parts, 1, 0)
    assert (won > 0).all()
    if parts.baseline in CENTRED or parts.normalise is Normalise.BATCH_STD:
        assert (lost < 0).all()
    else:
        assert not lost.any()


@every_combination_by_outcome
def test_two_successes_are_pushed_up_or_left_alone_but_never_down(parts: Advantage) -> None:
    a, b = driven(parts, 1, 1)
    if parts.baseline in CENTRED or parts.normalise is Normalise.BATCH_STD:
        assert not a.any()
        assert not b.any()
    else:
        assert (a > 0).all()
        assert (b > 0).all()


@every_combination
def test_one_token_turns_and_a_turn_of_many_tokens_get_finite_numbers(parts: Advantage) -> None:
    group = [played(1, (1,)), played(0.5, (1, 1, 1)), played(0, (40,))]
    (got,) = compute_advantages([group], parts)
    assert [tokens.shape for tokens in got] == [(1,), (3,), (40,)]
    assert all(np.isfinite(tokens).all() and tokens.dtype == np.float64 for tokens in got)


@every_combination_by_outcome
def test_what_is_not_learnt_has_no_advantage(parts: Advantage) -> None:
    group = [replace(played(1, (2, 1)), loss_mask=(True, False)), played(0, (1, 1))]
    ((first, _),) = compute_advantages([group], parts)
    assert first[2] == 0
    assert first[:2].all()


# --- what does not matter -------------------------------------------------------------------------------------------

numbers = st.sampled_from([0.0, 1.0, 0.1, 1 / 3, -0.7])


@st.composite
def groups_of_episodes(draw: Any) -> list[list[TurnRewards]]:
    return [[draw(drawn_episode()) for _ in range(draw(st.integers(1, 4)))] for _ in range(draw(st.integers(1, 3)))]


@st.composite
def drawn_episode(draw: Any) -> TurnRewards:
    lengths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    turns, tokens = len(lengths), sum(lengths)
    return TurnRewards(
        lengths=tuple(lengths),
        rewards=tuple(draw(st.lists(numbers, min_size=turns, max_size=turns))),
        states=tuple(draw(st.lists(st.sampled_from(["", "a", "b"]), min_size=turns, max_size=turns))),
        loss_mask=tuple(draw(st.lists(st.booleans(), min_size=turns, max_size=turns))),
        values=np.array(draw(st.lists(numbers, min_size=tokens, max_size=tokens))),
        token_rewards=np.array(draw(st.lists(numbers, min_size=tokens, max_size=tokens))),
        greedy=TurnRewards(lengths=(1, 1), rewards=(0.3, draw(numbers))),
    )


def shuffled(groups: Sequence[Sequence[TurnRewards]], random: Random) -> list[list[TurnRewards]]:
    mixed = [random.sample(group, len(group)) for group in groups]
    return random.sample(mixed, len(mixed))


def by_episode(groups: Sequence[Sequence[TurnRewards]], parts: Advantage) -> dict[int, list[float]]:
    pairs = zip(groups, compute_advantages(groups, parts), strict=True)
    return {id(credit): tokens.tolist() for group, found in pairs for credit, tokens in zip(group, found, strict=True)}


@every_combination
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(groups=groups_of_episodes(), random=st.randoms(use_true_random=False))
def test_the_order_of_episodes_and_groups_changes_no_bit(
    parts: Advantage, groups: list[list[TurnRewards]], random: Random
) -> None:
    parts = replace(parts, gamma=0.9, turn_gamma=0.8, lam=0.7, turn_lam=0.6)
    assert by_episode(shuffled(groups, random), parts) == by_episode(groups, parts)


@pytest.mark.parametrize("parts", [p for p in SUPPORTED if p.normalise is not Normalise.BATCH_STD], ids=named)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(groups=groups_of_episodes())
def test_other_groups_change_nothing_where_nothing_is_taken_over_the_batch(
    parts: Advantage, groups: list[list[TurnRewards]]
) -> None:
    if parts.baseline is Baseline.BATCH_MEAN:
        return
    together = compute_advantages(groups, parts)
    alone = [compute_advantages([group], parts)[0] for group in groups]
    assert [[t.tolist() for t in g] for g in together] == [[t.tolist() for t in g] for g in alone]


# --- which numbers matter -------------------------------------------------------------------------------------------


def rich(parts: Advantage) -> list[list[TurnRewards]]:
    """Episodes in which every number of the settings could make a difference."""
    return [
        [
            TurnRewards(
                lengths=(2, 3, 1),
                rewards=(0.5 + i, -1.0, 2.0 * i),
                states=("a", "b" if i else "a", "c"),
                values=np.array([0.1, 0.4, -0.2, 0.3, 0.6, -0.5]) * (i + 1),
                greedy=TurnRewards(lengths=(1, 2), rewards=(0.2, 0.7)),
                token_rewards=np.arange(6.0) * i if parts.estimator is Estimator.TOKEN_REWARDS else None,
            )
            for i in range(3)
        ]
    ]


@pytest.mark.parametrize("name", ["gamma", "lam", "turn_gamma", "turn_lam", "step_weight"])
@every_combination
def test_a_number_changes_the_result_just_where_it_is_said_to_be_read(parts: Advantage, name: str) -> None:
    base = replace(parts, gamma=0.9, lam=0.9, turn_gamma=0.9, turn_lam=0.9)
    pairs = zip(
        compute_advantages(rich(parts), base)[0],
        compute_advantages(rich(parts), replace(base, **{name: 0.5}))[0],
        strict=True,
    )
    same = all((a == b).all() for a, b in pairs)
    assert same is (name not in READS[parts.estimator])
