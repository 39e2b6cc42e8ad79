"""The DeepSpeed learner, real: one step against plain PyTorch, and what must leave no trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from agym.dsl.model.algorithm import Aggregation, Importance, Level, LossKind
from agym.dsl.model.recipe import DType
from agym.runtime.errors import RunError
from agym.runtime.learning.importance import weigh_sequences
from agym.runtime.protocols import (
    LearnerSettings,
    LossSettings,
    OptimizerSettings,
    TrainSequence,
    UpdateFault,
    UpdateLimits,
    UpdateSettings,
)

from .conftest import REAL

pytestmark = REAL

STEP = UpdateSettings(lr=1e-3)
STEADY = OptimizerSettings(eps=1e-4)
"""Keeps rounding small: by default Adam's first step has one size in each coordinate, also where the gradient is little
more than rounding, which differs between processors."""
Make = Callable[..., object]
Sequences = Callable[..., list[TrainSequence]]


def weights(learner: object) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in learner.weights()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def furthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def by_hand(model: Path, sequences: list[TrainSequence], lr: float) -> tuple[float, float, dict[str, torch.Tensor]]:
    """The same step with nothing but transformers and PyTorch, one sequence at a time."""
    from transformers import AutoModelForCausalLM

    causal = AutoModelForCausalLM.from_pretrained(model)
    optimizer = torch.optim.AdamW(causal.parameters(), lr=lr, weight_decay=0.0)
    tokens = sum(int(sequence.loss_mask.sum()) for sequence in sequences)
    total = 0.0
    for sequence in sequences:
        ids = torch.from_numpy(sequence.ids).long()
        logprobs = causal(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        ratio = (logprobs - torch.from_numpy(sequence.old_logprobs)[1:]).exp()
        advantages = torch.from_numpy(sequence.advantages)[1:]
        each = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        loss = (each * torch.from_numpy(sequence.loss_mask)[1:]).sum() / tokens
        loss.backward()
        total += loss.item()
    norm = torch.nn.utils.clip_grad_norm_(causal.parameters(), 1.0)
    optimizer.step()
    return total, float(norm), dict(causal.state_dict())


def test_update_is_the_step_that_plain_pytorch_takes(model: Path, learner: Make, sequences: Sequences):
    batch = sequences(0)
    loss, norm, expected = by_hand(model, batch, 1e-3)
    engine = learner()
    metrics = engine.update(batch, STEP)
    assert metrics.fault is None
    assert metrics.loss == pytest.approx(loss, abs=1e-6)
    assert metrics.grad_norm == pytest.approx(norm, rel=1e-5)
    assert metrics.tokens == sum(int(sequence.loss_mask.sum()) for sequence in batch)
    assert furthest(weights(engine), expected) < 1e-5


def test_first_update_learns_at_the_rate_that_was_asked_for(learner: Make, sequences: Sequences):
    engine = learner()
    before = weights(engine)
    engine.update(sequences(0), STEP)
    # Adam's first step is the learning rate in each coordinate with a gradient worth the name
    assert furthest(weights(engine), before) == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_cutting_an_update_into_micro_batches_changes_nothing_but_rounding(
    learner: Make, sequences: Sequences, aggregation: Aggregation
):
    step = dataclasses.replace(STEP, loss=LossSettings(aggregation=aggregation, length=100, entropy_coef=0.01))
    results = []
    for capacity in (100_000, 150):
        engine = learner(tokens_per_micro_batch=capacity, optimizer=STEADY)
        results.append((engine.update(sequences(0), step), weights(engine)))
    (whole, one), (cut, other) = results
    assert (whole.micro_batches, cut.micro_batches > 3) == (1, True)
    for name in ("loss", "policy_loss", "entropy", "sampler_kl", "ratio_mean", "ratio_error", "grad_norm"):
        assert getattr(whole, name) == pytest.approx(getattr(cut, name), rel=1e-5, abs=1e-6)
    assert furthest(one, other) < 2e-6


@pytest.mark.parametrize(("zero", "capacity"), [(0, 100_000), (0, 150), (2, 150)])
def test_sharing_prefixes_changes_nothing_but_rounding(learner: Make, sequences: Sequences, zero: int, capacity: int):
    """Episodes that begin as the first one does: one at its first trained token, one inside what both train."""
    grouped = sequences(0)
    ids = grouped[0].ids
    for at, common in enumerate((20, 12, 30, 9), 1):
        grouped[at].ids[:common] = ids[: len(grouped[at].ids)][:common]
    results = []
    for shares in (False, True):
        engine = learner(zero=zero, tokens_per_micro_batch=capacity, share_prefixes=shares, optimizer=STEADY)
        own = engine.logprobs(grouped, 1.0)
        results.append((np.concatenate(own), engine.update(grouped, STEP), weights(engine)))
    (plain, one, before), (shared, other, after) = results
    np.testing.assert_allclose(plain, shared, atol=1e-5)
    for name in ("loss", "policy_loss", "entropy", "sampler_kl", "ratio_mean", "ratio_error", "grad_norm"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-5, abs=1e-6)
    assert (one.tokens, one.sequences) == (other.tokens, other.sequences)
    assert furthest(before, after) < 2e-6


@pytest.mark.parametrize("capacity", [100_000, 150])
def test_an_update_that_computes_the_old_log_probs_is_that_which_is_given_them(
    learner: Make, sequences: Sequences, capacity: int
):
    importance = Importance(cap=1.1)
    two_passes, one_pass = (learner(tokens_per_micro_batch=capacity, optimizer=STEADY) for _ in range(2))
    own = two_passes.logprobs(sequences(0), 1.0)
    expected = two_passes.update(weigh_sequences(sequences(0), own, importance), STEP)
    metrics, given = one_pass.update_weighed(sequences(0), STEP, importance)
    np.testing.assert_allclose(np.concatenate(given), np.concatenate(own), atol=1e-5)
    for name in ("loss", "policy_loss", "entropy", "sampler_kl", "ratio_mean", "ratio_error", "grad_norm"):
        assert getattr(metrics, name) == pytest.approx(getattr(expected, name), rel=1e-5, abs=1e-6)
    assert (metrics.fault, metrics.ratio_error) == (None, 0.0)
    assert furthest(weights(one_pass), weights(two_passes)) < 2e-6


@pytest.mark.parametrize("capacity", [100_000, 60])
def test_an_episode_in_segments_has_one_ratio_across_micro_batches(learner: Make, sequences: Sequences, capacity: int):
    """Three segments of one episode: every token's ratio is the geometric mean over all of them."""
    alone = sequences(0)[:5]
    cut = [dataclasses.replace(each, episode=0) for each in alone[:3]] + alone[3:]
    engine = learner(tokens_per_micro_batch=capacity)
    loss = LossSettings(kind=LossKind.GSPO, ratio=Level.EPISODE, aggregation=Aggregation.SEQUENCE_MEAN)
    own = engine.logprobs(cut, 1.0)
    metrics = engine.update(cut, dataclasses.replace(STEP, loss=loss))
    trained = [np.exp((now - each.old_logprobs)[each.loss_mask]) for now, each in zip(own, cut, strict=True)]
    whole = np.exp(np.log(np.concatenate(trained[:3])).mean())
    rest = [np.exp(np.log(ratios).mean()) * len(ratios) for ratios in trained[3:]]
    expected = (whole * sum(map(len, trained[:3])) + sum(rest)) / sum(map(len, trained))
    assert metrics.ratio_mean == pytest.approx(expected, rel=1e-5)
    assert (metrics.sequences, metrics.micro_batches > 1) == (3, capacity == 60)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_each_stage_of_zero_takes_the_same_steps(learner: Make, sequences: Sequences, zero: int):
    one, other = (learner(tokens_per_micro_batch=300, zero=stage, optimizer=STEADY) for stage in (0, zero))
    for at in range(3):
        first, second = one.update(sequences(at), STEP), other.update(sequences(at), STEP)
        assert first.grad_norm == pytest.approx(second.grad_norm, rel=1e-5)
    assert furthest(weights(one), weights(other)) < 2e-6


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_refused_update_leaves_weights_and_optimiser_as_they_were(learner: Make, sequences: Sequences, zero: int):
    poisoned = sequences(7)
    poisoned[3].advantages[:] = np.nan
    refused = [
        (poisoned, UpdateLimits(), UpdateFault.NAN),
        (sequences(8), UpdateLimits(grad_norm=1e-9), UpdateFault.GRAD_NORM),
        (sequences(8), UpdateLimits(kl=1e-9), UpdateFault.KL),
        ([], UpdateLimits(), UpdateFault.EMPTY),
    ]
    undisturbed, disturbed = learner(zero=zero), learner(zero=zero)
    for engine in (undisturbed, disturbed):
        assert engine.update(sequences(0), STEP).fault is None
    before = weights(disturbed)
    for batch, limits, fault in refused:
        assert disturbed.update(batch, dataclasses.replace(STEP, limits=limits)).fault is fault
        assert same(weights(disturbed), before)
    assert undisturbed.update(sequences(1), STEP) == disturbed.update(sequences(1), STEP)
    assert same(weights(undisturbed), weights(disturbed))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_saved_learner_goes_on_bit_for_bit(tmp_path: Path, learner: Make, sequences: Sequences, zero: int):
    engine = learner(zero=zero)
    engine.update(sequences(0), STEP)
    engine.save(tmp_path)
    expected = engine.update(sequences(1), STEP), weights(engine)
    engine.update(sequences(2), STEP)
    engine.load(tmp_path)
    fresh = learner(zero=zero)
    fresh.load(tmp_path)
    for resumed in (engine, fresh):
        assert resumed.update(sequences(1), STEP) == expected[0]
        assert same(weights(resumed), expected[1])


def test_checkpoint_that_is_not_there_is_named(tmp_path: Path, learner: Make):
    with pytest.raises(RunError, match=str(tmp_path)):
        learner().load(tmp_path)


def test_same_updates_give_the_same_bits(learner: Make, sequences: Sequences):
    results = []
    for _ in range(2):
        engine = learner(tokens_per_micro_batch=200)
        results.append(([engine.update(sequences(at), STEP) for at in range(3)], weights(engine)))
    assert results[0][0] == results[1][0]
    assert same(results[0][1], results[1][1])


def test_packed_logprobs_are_as_exact_as_those_of_each_sequence_alone(model: Path, learner: Make, sequences: Sequences):
    from transformers import AutoModelForCausalLM

    batch = sequences(0, count=40)
    packed = learner().logprobs(batch, 0.7)
    assert not any(each[~sequence.loss_mask].any() for each, sequence in zip(packed, batch, strict=True))

    def alone(dtype: torch.dtype) -> np.ndarray:
        causal, said = AutoModelForCausalLM.from_pretrained(model, dtype=dtype), []
        for sequence in batch:
            ids = torch.from_numpy(sequence.ids).long()
            with torch.no_grad():
                logits = causal(ids[None]).logits[0, :-1] / 0.7
            said.append(logits.log_softmax(-1).gather(1, ids[1:, None])[sequence.loss_mask[1:], 0].numpy())
        return np.concatenate(said)

    exact = alone(torch.float64)
    learnt = np.concatenate([each[sequence.loss_mask] for each, sequence in zip(packed, batch, strict=True)])
    by_packing, by_rounding = (np.abs(each - exact).max() for each in (learnt, alone(torch.float32)))
    assert by_packing < 2 * by_rounding < 1e-4


def test_weight_decay_spares_norms(learner: Make, sequences: Sequences):
    plain = learner()
    decayed = learner(optimizer=OptimizerSettings(weight_decay=0.5))
    for engine in (plain, decayed):
        engine.update(sequences(0), STEP)
    one, other = weights(plain), weights(decayed)
    changed = {name for name in one if not torch.equal(one[name], other[name])}
    assert changed == {name for name, tensor in one.items() if tensor.ndim > 1}


@pytest.mark.parametrize("zero", [0, 2])
def test_optimiser_made_fresh_takes_the_step_of_a_new_one(learner: Make, sequences: Sequences, zero: int):
    constants = OptimizerSettings(betas=(0.8, 0.9), eps=1e-6)
    used, new = learner(zero=zero), learner(zero=zero)
    frozen = dataclasses.replace(STEP, lr=0.0)
    for at in range(3):
        used.update(sequences(at), frozen)
    for engine in (used, new):
        engine.set_optimizer(constants, fresh=engine is used)
        engine.update(sequences(4), STEP)
    assert same(weights(used), weights(new))


def test_imitation_makes_the_imitated_likelier(learner: Make, sequences: Sequences):
    batch = [
        dataclasses.replace(each, advantages=np.ones_like(each.advantages), old_logprobs=None) for each in sequences(0)
    ]
    step = UpdateSettings(lr=1e-2, loss=LossSettings(kind=LossKind.POLICY_GRADIENT))
    engine = learner()
    losses = [engine.update(batch, step).loss for _ in range(20)]
    assert losses[-1] < losses[0] - 1


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_half_precision_learns_too(learner: Make, sequences: Sequences, zero: int):
    one, half = learner(zero=zero), learner(zero=zero, dtype=DType.BF16)
    first, second = one.update(sequences(0), STEP), half.update(sequences(0), STEP)
    assert second.fault is None
    assert second.grad_norm == pytest.approx(first.grad_norm, rel=0.05)
    assert next(iter(weights(half).values())).dtype is torch.bfloat16
    poisoned = sequences(1)
    poisoned[0].advantages[:] = np.nan
    before = weights(half)
    assert half.update(poisoned, STEP).fault is UpdateFault.NAN
    assert same(weights(half), before)


def test_half_precision_without_zero_is_refused(learner: Make):
    with pytest.raises(ValueError, match="bf16 needs ZeRO stage 1 or higher"):
        learner(dtype=DType.BF16)


def test_logits_in_pieces_and_activations_computed_twice_change_nothing_but_rounding(
    learner: Make, sequences: Sequences
):
    frugally = {"logit_elements": 2000, "activation_checkpointing": True}
    plain, frugal = (learner(optimizer=STEADY, **settings) for settings in ({}, frugally))
    first, second = plain.update(sequences(0), STEP), frugal.update(sequences(0), STEP)
    assert first.grad_norm == pytest.approx(second.grad_norm, rel=1e-5)
    assert furthest(weights(plain), weights(frugal)) < 2e-6


def test_exported_model_is_the_one_that_learnt(tmp_path: Path, learner: Make, sequences: Sequences):
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    engine = learner()
    engine.update(sequences(0), STEP)
    engine.export(tmp_path)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert same(dict(exported.state_dict()), weights(engine))
    assert exported.config.tie_word_embeddings
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template


def test_reference_stays_as_it_was_while_the_learner_learns(learner: Make, model: Path, sequences: Sequences):
    from agym.runtime.backends.policy import FrozenPolicy

    engine, reference = learner(), FrozenPolicy(LearnerSettings(model=model), torch.device("cpu"))
    batch = sequences(0)
    at_first = reference.logprobs(batch, 1.0)
    np.testing.assert_array_equal(at_first[0], engine.logprobs(batch, 1.0)[0])
    engine.update(batch, STEP)
    np.testing.assert_array_equal(reference.logprobs(batch, 1.0)[0], at_first[0])
    assert (engine.logprobs(batch, 1.0)[0] != at_first[0]).any()
