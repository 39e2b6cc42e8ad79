"""The objective: each term against its definition, and what must not depend on how an update is cut up."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from agym.dsl.model.algorithm import Aggregation, Correction, Importance, KLEstimator, LossKind
from agym.runtime.learning.importance import importance_weights
from agym.runtime.learning.loss import (
    Head,
    LossInputs,
    compute_logprobs,
    compute_loss,
    compute_token_scale,
    estimate_kl,
    weigh_by_own_logprobs,
)
from agym.runtime.protocols import LossSettings, Normaliser

ALL = 1 << 30


def inputs(
    logprobs: list[float], advantages: list[float], old: list[float] | None = None, **more: object
) -> LossInputs:
    count = len(logprobs)
    return LossInputs(
        **{
            "logprobs_N": torch.tensor(logprobs, requires_grad=True),
            "entropy_N": torch.ones(count),
            "advantages_N": torch.tensor(advantages),
            "scale_N": torch.full((count,), 1 / max(count, 1)),
            "old_N": None if old is None else torch.tensor(old),
            **more,
        }
    )


def head(tokens: int = 7, hidden: int = 5, vocab: int = 11) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(tokens, hidden, generator=generator, requires_grad=True),
        torch.randn(vocab, hidden, generator=generator, requires_grad=True),
        torch.randint(vocab, (tokens,), generator=generator),
    )


# --- log-probs


def test_logprobs_and_entropy_are_those_of_the_tempered_distribution():
    hidden, weight, targets = head()
    logprobs, entropy = compute_logprobs(hidden, weight, targets, 0.7, ALL)
    distribution = torch.distributions.Categorical(logits=hidden @ weight.T / 0.7)
    torch.testing.assert_close(logprobs, distribution.log_prob(targets))
    torch.testing.assert_close(entropy, distribution.entropy())


@pytest.mark.parametrize("elements", [11, 30, 76])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logits_in_pieces_give_the_same_values_and_gradients(elements: int, temperature: float):
    results = []
    for limit in (ALL, elements):
        hidden, weight, targets = head()
        logprobs, entropy = compute_logprobs(hidden, weight, targets, temperature, limit)
        (logprobs * torch.arange(7.0) + 0.3 * entropy.square()).sum().backward()
        results.append((logprobs.detach(), entropy.detach(), hidden.grad, weight.grad))
    for whole, pieces in zip(*results, strict=True):
        torch.testing.assert_close(whole, pieces, rtol=1e-5, atol=1e-5)


def test_logits_in_pieces_pass_a_gradient_check_in_double_precision():
    hidden, weight, targets = (tensor.double() if tensor.is_floating_point() else tensor for tensor in head(4, 3, 5))
    pieces = [tensor.detach().requires_grad_() for tensor in (hidden, weight)]
    # log-probs are taken in single precision, which bounds how well differences can agree
    assert torch.autograd.gradcheck(
        lambda h, w: compute_logprobs(h, w, targets, 1.0, 5), pieces, eps=1e-2, atol=1e-3, rtol=1e-2
    )


def test_entropy_is_a_number_where_a_token_is_impossible():
    weight = torch.tensor([[1.0], [-math.inf]])
    _, entropy = compute_logprobs(torch.ones(1, 1), weight, torch.tensor([0]), 1.0, ALL)
    assert entropy.tolist() == [0.0]


@pytest.mark.parametrize("shape", [Head(scale=0.3), Head(softcap=2.0), Head(scale=1.5, softcap=3.0)])
def test_a_factor_and_a_cap_of_logits_are_part_of_log_probs_and_gradients(shape: Head):
    results = []
    for limit in (ALL, 30):
        hidden, weight, targets = head()
        logprobs, entropy = compute_logprobs(hidden, weight, targets, 0.7, limit, shape)
        logits = hidden.detach() @ weight.detach().T * shape.scale
        capped = logits if shape.softcap is None else shape.softcap * torch.tanh(logits / shape.softcap)
        distribution = torch.distributions.Categorical(logits=capped / 0.7)
        torch.testing.assert_close(logprobs, distribution.log_prob(targets))
        (logprobs * torch.arange(7.0) + 0.3 * entropy.square()).sum().backward()
        results.append((hidden.grad, weight.grad))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("limit", [ALL, 3 * 5000])
def test_an_fp32_head_rounds_no_logits_and_has_the_gradients_of_one_that_does(limit: int):
    hidden, weight, targets = (each.detach() for each in head(tokens=16, hidden=64, vocab=5000))
    hidden, weight = hidden.bfloat16(), (weight / 4).bfloat16()
    exact, _ = compute_logprobs(hidden.double().float(), weight.double().float(), targets, 1.0, ALL)
    errors, gradients = [], []
    for fp32 in (False, True):
        leaves = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        logprobs, _ = compute_logprobs(*leaves, targets, 1.0, limit, Head(fp32=fp32))
        logprobs.sum().backward()
        errors.append(float((logprobs.detach() - exact).abs().max()))
        gradients.append([leaf.grad.float() for leaf in leaves])
    assert errors[1] < 1e-4 < 3e-3 < errors[0]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0.05, atol=0.02)


# --- surrogates


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient_flows"),
    [
        (1.0, 1.0, -1.0, True),
        (1.5, 1.0, -1.2, False),
        (0.5, 1.0, -0.5, True),
        (1.5, -1.0, 1.5, True),
        (0.5, -1.0, 0.8, False),
    ],
)
def test_clipping_cuts_the_gradient_only_on_the_side_that_would_run_away(
    ratio: float, advantage: float, loss: float, gradient_flows: bool
):
    given = inputs([math.log(ratio)], [advantage], [0.0])
    terms = compute_loss(given, LossSettings())
    terms.loss.backward()
    assert terms.loss.item() == pytest.approx(loss)
    assert (given.logprobs_N.grad != 0).all() == gradient_flows
    assert float(terms.clipped_low + terms.clipped_high) == (0 if gradient_flows else 1)


def test_dual_clip_bounds_the_loss_of_a_bad_token_that_got_likelier():
    given = inputs([math.log(9.0), math.log(9.0)], [-1.0, 1.0], [0.0, 0.0])
    plain = compute_loss(given, LossSettings()).loss.item()
    dual = compute_loss(given, LossSettings(dual_clip=3.0)).loss.item()
    assert plain == pytest.approx((9.0 - 1.2) / 2)
    assert dual == pytest.approx((3.0 - 1.2) / 2)


def test_ratio_far_beyond_a_float_is_still_a_number():
    terms = compute_loss(inputs([200.0, -200.0], [0.0, 0.0], [0.0, 0.0]), LossSettings())
    assert math.isfinite(terms.loss.item())
    assert math.isfinite(terms.sampler_kl.item())


def test_policy_gradient_with_advantage_one_is_the_cross_entropy():
    given = inputs([-0.5, -1.5], [1.0, 1.0])
    terms = compute_loss(given, LossSettings(kind=LossKind.POLICY_GRADIENT))
    terms.loss.backward()
    assert terms.loss.item() == pytest.approx(1.0)
    assert given.logprobs_N.grad.tolist() == [-0.5, -0.5]
    assert float(terms.ratio) == 2.0


def test_clipped_loss_without_old_logprobs_is_refused():
    with pytest.raises(ValueError, match="needs the old log-probs"):
        compute_loss(inputs([0.0], [1.0]), LossSettings())


def test_importance_weights_scale_the_policy_term_and_not_the_others():
    given = inputs([0.0, 0.0], [1.0, 1.0], [0.0, 0.0], weights_N=torch.tensor([2.0, 0.0]))
    terms = compute_loss(given, LossSettings(entropy_coef=0.5))
    assert terms.policy_loss.item() == pytest.approx(-1.0)
    assert terms.loss.item() == pytest.approx(-1.0 - 0.5)


# --- ratios that tokens share

UNITS = {"unit_N": torch.tensor([0, 0, 1, 2, 2, 2])}
NEW = [-0.4, -1.3, -0.2, -2.0, -0.9, -0.1]
OLD = [-0.9, -0.8, -0.3, -1.2, -1.0, -0.6]


def geometric(new: list[float], old: list[float], units: list[int]) -> list[float]:
    """Each token's ratio: the product of those of its unit, to the power of one over their number."""
    ratios = []
    for unit in units:
        members = [at for at, other in enumerate(units) if other == unit]
        product = math.prod(math.exp(new[at] - old[at]) for at in members)
        ratios.append(product ** (1 / len(members)))
    return ratios


@pytest.mark.parametrize("correction", list(Correction))
def test_weights_of_this_pass_are_those_computed_before_it(correction: Correction):
    importance = Importance(correction=correction, cap=1.5, floor=0.6)
    sampled_N, own_N = torch.tensor([-1.0, -2.0, -3.0, -0.5, -30.0]), torch.tensor([-1.0, -1.2, -3.9, -0.6, -1.0])
    inputs = LossInputs(
        logprobs_N=own_N.clone().requires_grad_(),
        entropy_N=torch.zeros(5),
        advantages_N=torch.ones(5),
        scale_N=torch.ones(5),
        old_N=sampled_N,
    )
    weighed = weigh_by_own_logprobs(inputs, importance)
    expected = importance_weights(own_N.numpy(), sampled_N.numpy(), np.ones(5, bool), importance)
    assert weighed.weights_N is not None
    assert weighed.old_N is not None
    assert np.array_equal(weighed.weights_N.numpy(), expected)
    assert torch.equal(weighed.old_N, own_N)
    assert not weighed.old_N.requires_grad
    assert not weighed.weights_N.requires_grad


def test_weights_without_the_samplers_log_probs_are_refused():
    inputs = LossInputs(
        logprobs_N=torch.zeros(1), entropy_N=torch.zeros(1), advantages_N=torch.ones(1), scale_N=torch.ones(1)
    )
    with pytest.raises(ValueError, match="log-probs that the tokens were sampled with"):
        weigh_by_own_logprobs(inputs, Importance())


def test_a_shared_ratio_is_the_geometric_mean_of_its_tokens():
    terms = compute_loss(inputs(NEW, [1.0] * 6, OLD, **UNITS), LossSettings(clip_low=1.0, clip_high=9.0))
    expected = geometric(NEW, OLD, [0, 0, 1, 2, 2, 2])
    assert terms.ratio.item() == pytest.approx(sum(expected), rel=1e-6)
    assert terms.loss.item() == pytest.approx(-sum(expected) / 6, rel=1e-6)


def test_a_unit_of_one_token_has_that_tokens_ratio():
    alone = {"unit_N": torch.arange(6)}
    with_units = compute_loss(inputs(NEW, [1.0, -1, 1, -1, 1, -1], OLD, **alone), LossSettings())
    without = compute_loss(inputs(NEW, [1.0, -1, 1, -1, 1, -1], OLD), LossSettings())
    torch.testing.assert_close(with_units.loss, without.loss)


def test_with_one_advantage_the_gradient_is_that_of_the_shared_ratio():
    given = inputs(NEW, [2.0] * 6, OLD, scale_N=torch.tensor([0.5, 0.5, 1, 1 / 3, 1 / 3, 1 / 3]), **UNITS)
    compute_loss(given, LossSettings(clip_low=1.0, clip_high=9.0)).loss.backward()
    new = torch.tensor(NEW, requires_grad=True)
    spans = [(0, 2), (2, 3), (3, 6)]
    (-2.0 * sum((new - torch.tensor(OLD))[a:b].mean().exp() for a, b in spans)).backward()
    torch.testing.assert_close(given.logprobs_N.grad, new.grad)


def test_tokens_of_one_ratio_keep_advantages_of_their_own():
    given = inputs([-1.0, -1.0], [3.0, -1.0], [-1.0, -1.0], unit_N=torch.zeros(2, dtype=torch.long))
    compute_loss(given, LossSettings()).loss.backward()
    assert given.logprobs_N.grad.tolist() == pytest.approx([-1.5, 0.5])


def test_a_shared_ratio_is_clipped_for_all_its_tokens_or_for_none():
    given = inputs(NEW, [1.0] * 6, OLD, **UNITS)
    terms = compute_loss(given, LossSettings(kind=LossKind.GSPO, clip_low=3e-4, clip_high=4e-4))
    terms.loss.backward()
    outside = [ratio > 1 + 4e-4 for ratio in geometric(NEW, OLD, [0, 0, 1, 2, 2, 2])]
    assert 0 < sum(outside) < 6
    assert [grad == 0 for grad in given.logprobs_N.grad.tolist()] == outside
    assert terms.clipped_high.item() == sum(outside)


# --- a clipped weight


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_cispo_leaves_no_token_without_a_gradient(advantage: float):
    old = [-1.0, -6.0, -1.0]
    given = inputs([-1.0, -1.0, -9.0], [advantage] * 3, old)
    compute_loss(given, LossSettings(kind=LossKind.CISPO, clip_low=1.0, clip_high=4.0)).loss.backward()
    # ratios 1, e^5 and e^-8, of which the second is cut to 5
    expected = [-advantage / 3, -5 * advantage / 3, -advantage * math.exp(-8) / 3]
    assert given.logprobs_N.grad.tolist() == pytest.approx(expected, rel=1e-5)


def test_cispo_weighs_the_log_prob_by_the_clipped_ratio():
    terms = compute_loss(inputs([-1.0], [2.0], [-6.0]), LossSettings(kind=LossKind.CISPO, clip_low=1.0, clip_high=4.0))
    assert terms.loss.item() == pytest.approx(-5 * 2 * -1)
    assert (terms.clipped_low.item(), terms.clipped_high.item()) == (0, 1)


def test_cispo_at_its_start_has_the_gradient_of_the_clipped_surrogate():
    grads = []
    for kind in (LossKind.CISPO, LossKind.PPO_CLIP, LossKind.POLICY_GRADIENT):
        given = inputs(OLD, [1.0, -1, 2, -2, 0.5, 0], OLD)
        compute_loss(given, LossSettings(kind=kind)).loss.backward()
        grads.append(given.logprobs_N.grad)
    torch.testing.assert_close(grads[0], grads[1])
    torch.testing.assert_close(grads[0], grads[2])


# --- divergences


def test_kl_estimates_are_those_of_their_definitions():
    logprobs, other = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    log_ratio = other - logprobs
    expected = {
        KLEstimator.K1: -log_ratio,
        KLEstimator.K2: log_ratio.square() / 2,
        KLEstimator.K3: log_ratio.exp() - log_ratio - 1,
    }
    for estimator, values in expected.items():
        torch.testing.assert_close(estimate_kl(estimator, logprobs, other), values)


@pytest.mark.parametrize("estimator", [KLEstimator.K1, KLEstimator.K3])
def test_kl_estimates_have_the_divergence_as_their_mean(estimator: KLEstimator):
    generator = torch.Generator().manual_seed(1)
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.3, 0.3, 0.4])
    drawn = torch.multinomial(p, 200_000, replacement=True, generator=generator)
    estimate = estimate_kl(estimator, p.log()[drawn], q.log()[drawn]).mean()
    assert estimate.item() == pytest.approx((p * (p / q).log()).sum().item(), abs=3e-3)


def test_divergence_from_the_reference_enters_the_loss_with_its_weight_and_clamp():
    given = inputs([0.0, 0.0], [0.0, 0.0], [0.0, 0.0], reference_N=torch.tensor([-1.0, -30.0]))
    terms = compute_loss(given, LossSettings(kl_coef=0.1, kl_estimator=KLEstimator.K1, kl_clamp=5.0))
    assert terms.reference_kl.item() == pytest.approx(6.0)
    assert terms.loss.item() == pytest.approx(0.1 * 6.0 / 2)


def test_divergence_without_reference_logprobs_is_refused():
    with pytest.raises(ValueError, match="the KL divergence from the reference needs its log-probs"):
        compute_loss(inputs([0.0], [1.0], [0.0]), LossSettings(kl_coef=0.1))


@pytest.mark.parametrize(("estimator", "expected"), [("k1", 0.5), ("k2", 0.125), ("k3", math.exp(-0.5) - 0.5)])
def test_divergence_from_the_policy_before_the_step_enters_the_loss_as_that_from_the_reference(
    estimator: str, expected: float
):
    given = inputs([-0.5, -1.0], [0.0, 0.0], [-1.0, -1.0], reference_N=torch.tensor([-0.5, -3.0]))
    settings = LossSettings(previous_coef=0.4, kl_estimator=KLEstimator(estimator))
    assert compute_loss(given, settings).loss.item() == pytest.approx(0.4 * expected / 2)
    both = compute_loss(given, dataclasses.replace(settings, kl_coef=0.4, kl_clamp=0.1))
    reference = compute_loss(given, LossSettings(kl_coef=0.4, kl_estimator=KLEstimator(estimator), kl_clamp=0.1))
    assert both.loss.item() == pytest.approx(reference.loss.item() + 0.4 * min(expected, 0.1) / 2)


@pytest.mark.parametrize("estimator", [KLEstimator.K2, KLEstimator.K3])
@pytest.mark.parametrize("moved", [0.7, -0.7, 0.0])
def test_the_policy_before_the_step_draws_back_whatever_has_moved_away(estimator: KLEstimator, moved: float):
    given = inputs([moved - 1.0], [0.0], [-1.0])
    compute_loss(given, LossSettings(previous_coef=1.0, kl_estimator=estimator)).loss.backward()
    assert math.copysign(1, given.logprobs_N.grad.item()) == math.copysign(1, moved) or moved == 0
    assert (given.logprobs_N.grad.item() == 0) == (moved == 0)


def test_importance_weights_leave_the_divergence_from_the_policy_before_the_step_alone():
    given = inputs([-0.5], [1.0], [-1.0], weights_N=torch.tensor([0.0]))
    assert compute_loss(given, LossSettings(previous_coef=1.0, kl_estimator=KLEstimator.K1)).loss.item() == 0.5


def test_divergence_from_a_policy_whose_logprobs_are_missing_is_refused():
    with pytest.raises(ValueError, match="the KL divergence from the policy before the step needs its log-probs"):
        compute_loss(inputs([0.0], [1.0]), LossSettings(kind=LossKind.POLICY_GRADIENT, previous_coef=0.1))


def test_entropy_bonus_lowers_the_loss():
    terms = compute_loss(inputs([0.0], [0.0], [0.0]), LossSettings(entropy_coef=0.25))
    assert terms.loss.item() == pytest.approx(-0.25)


# --- aggregation


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (Aggregation.TOKEN_MEAN, [1 / 4] * 4),
        (Aggregation.SEQUENCE_MEAN, [1 / 2, 1 / 6, 1 / 6, 1 / 6]),
        (Aggregation.FIXED_LENGTH, [1 / 20] * 4),
    ],
)
def test_aggregation_gives_each_token_its_share(aggregation: Aggregation, expected: list[float]):
    lengths, sequence = torch.tensor([1, 3]), torch.tensor([0, 1, 1, 1])
    scale = compute_token_scale(lengths, sequence, aggregation, 10, Normaliser(tokens=4, sequences=2))
    assert scale.tolist() == pytest.approx(expected)


def test_fixed_length_without_a_length_is_refused():
    with pytest.raises(ValueError, match="'fixed_length' needs a length"):
        compute_token_scale(
            torch.tensor([1]), torch.tensor([0]), Aggregation.FIXED_LENGTH, None, Normaliser(tokens=1, sequences=1)
        )


@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_losses_of_micro_batches_add_up_to_that_of_the_update(aggregation: Aggregation):
    generator = torch.Generator().manual_seed(2)
    lengths = torch.tensor([3, 1, 5])
    whole = Normaliser(tokens=9, sequences=3)
    logprobs, old, advantages = torch.randn(3, 9, generator=generator)
    settings = LossSettings(aggregation=aggregation, length=6, entropy_coef=0.1)

    def loss(tokens: slice, sequences: slice) -> float:
        own = lengths[sequences]
        scale = compute_token_scale(own, torch.arange(len(own)).repeat_interleave(own), aggregation, 6, whole)
        given = inputs([], [], [], entropy_N=torch.ones(int(own.sum())), scale_N=scale)
        given = dataclasses.replace(
            given, logprobs_N=logprobs[tokens], advantages_N=advantages[tokens], old_N=old[tokens]
        )
        return compute_loss(given, settings).loss.item()

    parts = loss(slice(0, 4), slice(0, 2)) + loss(slice(4, 9), slice(2, 3))
    assert parts == pytest.approx(loss(slice(0, 9), slice(0, 3)), abs=1e-6)
