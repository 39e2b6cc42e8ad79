"""Combinations of estimator, baseline and normalisation: each has a meaning or a reason why it has none."""

from __future__ import annotations

from itertools import product

import pytest
from agym.dsl.model.advantage_support import READS, explain_unsupported
from agym.dsl.model.algorithm import Advantage, Baseline, Estimator, Normalise

ALL = [
    Advantage(estimator=estimator, baseline=baseline, normalise=normalise)
    for estimator, baseline, normalise in product(Estimator, Baseline, Normalise)
]


def test_the_defaults_go_together() -> None:
    assert explain_unsupported(Advantage()) is None


def test_as_many_combinations_as_documented_are_supported() -> None:
    # three estimators take three other baselines with two, and two comparing ones with all three, normalisations; steps
    # are compared, critics and the rewards of tokens are not
    assert sum(explain_unsupported(settings) is None for settings in ALL) == 3 * (3 * 2 + 2 * 3) + 2 * 3 + 2 * 2 + 2


@pytest.mark.parametrize("estimator", Estimator)
def test_every_estimator_can_be_used(estimator: Estimator) -> None:
    assert any(explain_unsupported(settings) is None for settings in ALL if settings.estimator is estimator)


@pytest.mark.parametrize("baseline", Baseline)
def test_every_baseline_can_be_used(baseline: Baseline) -> None:
    assert any(explain_unsupported(settings) is None for settings in ALL if settings.baseline is baseline)


def test_an_estimator_with_a_critic_names_the_baseline_that_it_takes() -> None:
    reason = explain_unsupported(Advantage(estimator=Estimator.GAE))
    assert reason == "estimator 'gae' takes baseline 'critic', not 'group_mean'"


def test_an_estimator_without_a_critic_lists_the_baselines_that_it_takes() -> None:
    reason = explain_unsupported(Advantage(baseline=Baseline.CRITIC))
    assert reason == (
        "estimator 'outcome' takes baseline 'none', 'group_mean', 'leave_one_out', 'batch_mean' or 'greedy', "
        "not 'critic'"
    )


def test_step_groups_compare_within_the_group_only() -> None:
    reason = explain_unsupported(Advantage(estimator=Estimator.STEP_GROUPS, baseline=Baseline.GREEDY))
    assert reason == "estimator 'step_groups' takes baseline 'group_mean' or 'leave_one_out', not 'greedy'"


@pytest.mark.parametrize("baseline", [Baseline.NONE, Baseline.BATCH_MEAN, Baseline.GREEDY])
def test_a_groups_spread_is_refused_with_a_baseline_from_elsewhere(baseline: Baseline) -> None:
    assert explain_unsupported(Advantage(baseline=baseline)) == (
        "normalise 'group_std' is the spread around a group's mean and takes baseline "
        f"'group_mean' or 'leave_one_out', not '{baseline}'"
    )


def test_every_number_is_read_by_some_estimator() -> None:
    assert frozenset().union(*READS.values()) == {"gamma", "lam", "turn_gamma", "turn_lam", "step_weight"}
