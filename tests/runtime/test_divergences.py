"""Soft gates, divergence bounds, straight-through KL, rejected episodes and a teacher's rewards, by numbers worked out
by hand."""

from __future__ import annotations

from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agym.dsl.model.algorithm import (
    Advantage,
    Algorithm,
    Baseline,
    Correction,
    Divergence,
    Estimator,
    Importance,
    KLEstimator,
    LossKind,
    Normalise,
    Reject,
)
from agym.runtime.engine import OutcomeKind
from agym.runtime.learning.advantage import compute_advantages
from agym.runtime.learning.filters import keeps_group
from agym.runtime.learning.importance import importance_weights, is_truncated, share_log_ratios, weigh_sequences
from agym.runtime.learning.loss import LossInputs, LossTerms, compute_loss
from agym.runtime.learning.reward import Scored
from agym.runtime.learning.turn_rewards import TurnRewards
from agym.runtime.protocols import LossSettings, TrainSequence

from .conftest import echoing
from .factories import make_episode, make_segment, make_turn

CLOCK = {"step": 0.0, "total_step": 0.0, "stage": "exploit", "stage_index": 1.0}


def loss_of(
    new: list[float], old: list[float], advantages: list[float], settings: LossSettings, **more: Any
) -> tuple[LossTerms, list[float]]:
    """Of tokens with these probabilities, summed; and its gradient by their log-probs."""
    logprobs = torch.tensor(new).log().requires_grad_()
    terms = compute_loss(
        LossInputs(
            logprobs_N=logprobs,
            entropy_N=torch.zeros(len(new)),
            advantages_N=torch.tensor(advantages),
            scale_N=torch.ones(len(new)),
            old_N=torch.tensor(old).log(),
            **more,
        ),
        settings,
    )
    terms.loss.backward()
    assert logprobs.grad is not None
    return terms, logprobs.grad.tolist()


# --- sapo


@pytest.mark.parametrize(
    ("new", "advantage", "loss"),
    # 4 / tau * sigmoid(tau * (ratio - 1)), tau 1 above and 1.05 below
    [(0.4, 1.0, -2.924234), (0.1, -1.0, 1.415940), (0.2, 1.0, -2.0), (0.2, -2.0, 2 * 2 / 1.05)],
)
def test_sapo_gates_by_a_sigmoid_of_the_ratio(new: float, advantage: float, loss: float) -> None:
    terms, _ = loss_of([new], [0.2], [advantage], LossSettings(kind=LossKind.SAPO))
    assert terms.loss.item() == pytest.approx(loss, rel=1e-5)
    assert (terms.clipped_low.item(), terms.clipped_high.item()) == (0, 0)


@pytest.mark.parametrize("advantage", [1.0, -0.5])
def test_sapo_is_the_policy_gradient_where_nothing_has_moved_and_fades_on_both_sides(advantage: float) -> None:
    settings = LossSettings(kind=LossKind.SAPO, gate_positive=1.0, gate_negative=1.05)
    (_, (here,)), (_, (near,)), (_, (far,)) = (loss_of([p], [0.2], [advantage], settings) for p in (0.2, 0.4, 0.9))
    assert here == pytest.approx(-advantage)
    assert abs(far) < abs(near) < 2 * abs(here)


# --- dppo


@pytest.mark.parametrize(
    ("divergence", "bound", "new", "old", "advantage", "loss"),
    [
        # a rare token may grow fivefold, as hardly any probability moves
        (Divergence.TV, 0.15, 0.05, 0.01, 1.0, -5.0),
        (Divergence.TV, 0.15, 0.7, 0.5, 1.0, 0.0),
        # what moved against its advantage is free to come back
        (Divergence.TV, 0.15, 0.7, 0.5, -1.0, 1.4),
        (Divergence.TV, 0.15, 0.3, 0.5, -1.0, 0.0),
        (Divergence.TV, 0.25, 0.3, 0.5, -1.0, 0.6),
        # 0.5 * ln(0.5 / 0.7) + 0.5 * ln(0.5 / 0.3) = 0.0872
        (Divergence.KL, 0.05, 0.7, 0.5, 1.0, 0.0),
        (Divergence.KL, 0.09, 0.7, 0.5, 1.0, -1.4),
        (Divergence.KL, 0.05, 0.7, 0.5, -1.0, 1.4),
    ],
)
def test_dppo_bounds_the_divergence_and_not_the_ratio(
    divergence: Divergence, bound: float, new: float, old: float, advantage: float, loss: float
) -> None:
    settings = LossSettings(kind=LossKind.DPPO, divergence=divergence, clip_low=bound, clip_high=bound)
    terms, (gradient,) = loss_of([new], [old], [advantage], settings)
    assert terms.loss.item() == pytest.approx(loss, abs=1e-6)
    assert gradient == pytest.approx(loss, abs=1e-6)
    assert terms.clipped_low.item() + terms.clipped_high.item() == (loss == 0)


def test_dppo_is_a_number_at_the_ends_of_probability() -> None:
    settings = LossSettings(kind=LossKind.DPPO, divergence=Divergence.KL, clip_low=0.05, clip_high=0.05)
    terms, gradient = loss_of([1.0, 1e-9, 1.0], [1.0, 1.0, 1e-9], [1.0, -1.0, 1.0], settings)
    assert np.isfinite([terms.loss.item(), *gradient]).all()


# --- the gradient of the KL


@pytest.mark.parametrize(
    ("value", "gradient", "loss", "slope"),
    # log-prob -1, reference -1.5: k1 = 0.5, k2 = 0.125, k3 = e^-0.5 + 0.5 - 1
    [
        (KLEstimator.K3, None, exp(-0.5) - 0.5, 1 - exp(-0.5)),
        (KLEstimator.K3, KLEstimator.K2, exp(-0.5) - 0.5, 0.5),
        (KLEstimator.K1, KLEstimator.K2, 0.5, 0.5),
        (KLEstimator.K2, KLEstimator.K1, 0.125, 1.0),
    ],
)
def test_a_kl_may_take_its_gradient_from_another_estimator(
    value: KLEstimator, gradient: KLEstimator | None, loss: float, slope: float
) -> None:
    settings = LossSettings(kl_coef=1.0, kl_estimator=value, kl_gradient=gradient)
    reference = torch.tensor([-1.5])
    terms, (found,) = loss_of([exp(-1)], [exp(-1)], [0.0], settings, reference_N=reference)
    assert terms.loss.item() == pytest.approx(loss, rel=1e-5)
    assert terms.reference_kl.item() == pytest.approx(loss, rel=1e-5)
    assert found == pytest.approx(slope, rel=1e-5)


def test_its_gradient_has_a_clamp_of_its_own() -> None:
    settings = LossSettings(kl_coef=1.0, kl_estimator=KLEstimator.K3, kl_gradient=KLEstimator.K2, kl_clamp=0.11)
    terms, (found,) = loss_of([exp(-1)], [exp(-1)], [0.0], settings, reference_N=torch.tensor([-1.5]))
    assert (terms.loss.item(), found) == (pytest.approx(exp(-0.5) - 0.5, rel=1e-5), 0.0)


# --- rejected episodes


@pytest.mark.parametrize(
    ("log_ratios", "kept"),
    [
        ([0.02, 0.0], False),
        ([0.018, 0.0], True),
        ([0.5, -0.5], True),
        ([-0.03, 0.0, 0.0], True),
        ([-0.04, 0, 0], False),
    ],
)
@pytest.mark.parametrize("correction", [Correction.TRUNCATE, Correction.MASK])
def test_an_episode_is_left_out_by_the_geometric_mean_of_its_ratios(
    log_ratios: list[float], kept: bool, correction: Correction
) -> None:
    settings = Importance(correction=correction, reject=Reject(geometric=(0.99, 1.01)))
    learner, mask = np.array([0.0, *log_ratios], np.float32), np.array([False, *[True] * len(log_ratios)])
    found = importance_weights(learner, np.zeros_like(learner), mask, settings)
    assert found.tolist() == pytest.approx([1.0, *(np.exp(log_ratios) if kept else np.zeros(len(log_ratios)))])
    assert is_truncated(found[mask], settings).all() == (not kept)


def sequence(sampled: list[float], advantages: list[float], episode: int) -> TrainSequence:
    count = len(sampled)
    return TrainSequence(
        ids=np.arange(count + 1, dtype=np.int32),
        loss_mask=np.array([False] + [True] * count),
        advantages=np.array([0.0, *advantages], np.float32),
        old_logprobs=np.array([0.0, *sampled], np.float32),
        episode=episode,
    )


@pytest.mark.parametrize(
    ("advantages", "new", "kept"),
    [
        # the sampler found its tokens e^0.6 times likelier than the learner does now
        ([-1.0, -1.0], [exp(-1.6), exp(-1.6)], [0, 0]),
        ([1.0, -1.0], [exp(-1.6), exp(-1.6)], [1, 0]),
        ([-1.0, -1.0], [exp(-2.4), exp(-0.5)], [1, 1]),
        ([-1.0, -1.0], [exp(-0.1), exp(-0.1)], [1, 1]),
    ],
)
def test_what_the_policy_would_no_longer_do_is_not_discouraged(
    advantages: list[float], new: list[float], kept: list[int]
) -> None:
    settings = LossSettings(kind=LossKind.POLICY_GRADIENT, off_policy=0.5)
    old = [exp(-1.0), exp(-1.0)]
    _, gradient = loss_of(new, old, advantages, settings, episode_N=torch.zeros(2, dtype=torch.long))
    assert gradient == pytest.approx([-a * k for a, k in zip(advantages, kept, strict=True)])


def test_drift_counts_from_the_sampler_and_over_all_segments() -> None:
    pieces = [sequence([-1.0], [-1.0], 0), sequence([-1.0, -1.0], [-1.0, -1.0], 0), sequence([-1.0], [-1.0], 1)]
    before = [np.array([0.0, -1.3], np.float32), np.array([0, -1.3, -1.3], np.float32), np.array([0, -1.0], np.float32)]
    weighed = weigh_sequences(pieces, before, Importance(reject=Reject(off_policy=0.5)))
    now = [np.array([0.0, -1.9], np.float32), np.array([0, -1.6, -1.6], np.float32), np.array([0, -1.2], np.float32)]
    shared = share_log_ratios(weighed, now)
    drift = [each.shared_drift[1] for each in shared if each.shared_drift is not None]
    ratio = [each.shared_log_ratio[1] for each in shared if each.shared_log_ratio is not None]
    assert drift == pytest.approx([0.7, 0.7, 0.2])
    assert ratio == pytest.approx([-0.4, -0.4, -0.2])


# --- what a group has to teach


def scored(rewards: list[float], states: list[str], outcome: float) -> Scored:
    turns = [make_turn(2 * k + 1, 2 * k + 2, state=state) for k, state in enumerate(states)]
    return Scored(
        episode=make_episode([make_segment([False, True] * len(states))], turns),
        outcome=outcome,
        turn_rewards=tuple(rewards),
    )


@pytest.mark.parametrize(
    ("advantage", "kept"),
    [
        (Advantage(), False),
        (Advantage(estimator=Estimator.TURN_RETURNS, turn_gamma=0.9), True),
        (Advantage(estimator=Estimator.TURN_RETURNS, turn_gamma=1.0), False),
        (Advantage(estimator=Estimator.STEP_GROUPS, turn_gamma=0.95), True),
        (Advantage(estimator=Estimator.STEP_GROUPS, turn_gamma=0.95, step_weight=0.0), False),
        (Advantage(estimator=Estimator.OUTCOME, normalise=Normalise.BATCH_STD), False),
        (Advantage(baseline=Baseline.BATCH_MEAN, normalise=Normalise.NONE), True),
    ],
)
def test_a_group_of_equal_rewards_is_kept_where_its_turns_are_not_equal(advantage: Advantage, kept: bool) -> None:
    """One episode reached the reward in two turns, the other in three, by way of the same states."""
    group = [scored([0.5, 0.5], ["a", "b"], 0.0), scored([0.5, 0.0, 0.5], ["a", "c", "b"], 0.0)]
    assert keeps_group(group, Algorithm(advantage=advantage), CLOCK) is kept
    assert not keeps_group([], Algorithm(advantage=advantage), CLOCK)


def test_a_run_of_gigpo_learns_from_equal_rewards(new_run: Any) -> None:
    run = new_run("schedule.1.algorithm={use: gigpo, advantage: {turn_gamma: 0.5}, kl: {coef: 0.01, target: null}}")
    run.go()
    rows = [row for row in run.steps() if row["stage"] == "exploit"]
    unequal = [round(4 * (1 - row["group/zero_std_frac"])) for row in rows]
    assert any(row["filter/kept_groups"] > count for row, count in zip(rows, unequal, strict=True))


# --- a teacher


def test_each_token_is_worth_how_much_likelier_the_teacher_finds_it() -> None:
    student, teacher = np.log([0.5, 0.2, 0.9]), np.log([0.25, 0.4, 0.9])
    episode = TurnRewards(
        lengths=(2, 1),
        rewards=(0.0, 1.0),
        states=("", ""),
        loss_mask=None,
        values=None,
        token_rewards=teacher - student,
        greedy=None,
    )
    settings = Advantage(estimator=Estimator.TOKEN_REWARDS, baseline=Baseline.NONE, normalise=Normalise.NONE, gamma=0.0)
    assert compute_advantages([[episode]], settings)[0][0] == pytest.approx([-log(2), log(2), 0.0])


DISTILL = echoing("""
algorithm: {use: distill, groups_per_step: 16, lr: 4, optimizer: {betas: [0.5, 0.9]}, distill: teacher}
schedule: [{stage: distill, turns: 4, until: step >= 8}]
eval: {every: 8, turns: 4}
""")


def test_a_student_becomes_its_teacher(new_run: Any) -> None:
    run = new_run(text=DISTILL)
    assert run.go().kind is OutcomeKind.FINISHED
    first, *_, last = [row["eval/echo/success"] for row in run.rows() if "eval/echo/success" in row]
    kl = [row["reward/kl"] for row in run.steps()]
    assert last > first + 0.3
    assert kl[-1] < 0.25 * kl[0]


def test_the_teacher_of_a_stage_is_what_its_divergence_is_measured_from(new_run: Any) -> None:
    run, asked = new_run(text=DISTILL), []
    around = run.around

    class Watched:
        def __init__(self, workers: Any) -> None:
            self._workers = workers

        def __getattr__(self, name: str) -> Any:
            return getattr(self._workers, name)

        async def learner(self, method: Any, *args: Any, **options: Any) -> Any:
            if method.__name__ == "refer_to":
                asked.append(*args)
            return await self._workers.learner(method, *args, **options)

    run.around = lambda workers: Watched(around(workers))
    run.go()
    assert asked == [Path("teacher")]
