"""The DeepSpeed critic, real: what it says and where, one step against plain PyTorch, and what must leave no trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agym.dsl.model.recipe import DType
from agym.runtime.backends.critic import DeepSpeedCritic
from agym.runtime.protocols import LearnerSettings, OptimizerSettings, TrainSequence, UpdateFault, UpdateSettings
from agym.runtime.protocols import ValueSettings as Settings

from .conftest import REAL

pytestmark = REAL

STEP = Settings(lr=1e-3)
Make = Callable[..., DeepSpeedCritic]
Sequences = Callable[..., list[TrainSequence]]


@pytest.fixture
def critic(model: Path) -> Iterator[Make]:
    """`critic(weights, zero=2)` makes one."""
    torch.set_num_threads(1)
    made: list[DeepSpeedCritic] = []

    def make(weights: Any = None, **settings: Any) -> DeepSpeedCritic:
        made.append(DeepSpeedCritic(LearnerSettings(**{"model": model, **settings}), weights))
        return made[-1]

    yield make
    for each in made:
        each.close()


def judged(sequences: list[TrainSequence], seed: int = 0) -> list[TrainSequence]:
    """With values that were 0, and targets that follow from the token seen before."""
    rng = np.random.default_rng(seed)
    coins = rng.normal(size=300).astype(np.float32)
    return [
        dataclasses.replace(
            each,
            values=np.zeros(len(each.ids), np.float32),
            value_targets=np.append(np.float32(0), coins[each.ids[:-1]]),
        )
        for each in sequences
    ]


def answers(critic: DeepSpeedCritic, sequences: list[TrainSequence]) -> np.ndarray:
    return np.concatenate(critic.values(sequences))


def before(critic: DeepSpeedCritic, sequences: list[TrainSequence]) -> np.ndarray:
    """What comes before each trained token."""
    pairs = zip(critic.values(sequences), sequences, strict=True)
    return np.concatenate([said[np.flatnonzero(each.loss_mask) - 1] for said, each in pairs])


def targets(sequences: list[TrainSequence]) -> np.ndarray:
    return np.concatenate([each.value_targets[each.loss_mask] for each in sequences])


class ByHand:
    """The same with nothing but transformers and PyTorch, one sequence at a time."""

    def __init__(self, model: Path, lr: float) -> None:
        from transformers import AutoModel

        self.backbone = AutoModel.from_pretrained(model)
        self.head = torch.nn.Linear(self.backbone.config.hidden_size, 1, bias=False)
        torch.nn.init.zeros_(self.head.weight)
        self.parameters = [*self.backbone.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=lr, weight_decay=0.0)

    def values(self, sequence: TrainSequence) -> torch.Tensor:
        return self.head(self.backbone(torch.from_numpy(sequence.ids).long()[None]).last_hidden_state)[0, :, 0]

    def update(self, sequences: list[TrainSequence], clip: float) -> tuple[float, float]:
        self.optimizer.zero_grad()
        tokens, total = sum(int(each.loss_mask.sum()) for each in sequences), 0.0
        for each in sequences:
            said = self.values(each)[:-1]
            old, target = (torch.from_numpy(given)[1:] for given in (each.values, each.value_targets))
            held = torch.clamp(said, old - clip, old + clip)
            worse = torch.maximum((said - target) ** 2, (held - target) ** 2)
            loss = 0.5 * (worse * torch.from_numpy(each.loss_mask)[1:]).sum() / tokens
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return total, float(norm)


def test_updates_are_the_steps_that_plain_pytorch_takes(model: Path, critic: Make, sequences: Sequences):
    engine, plain = critic(), ByHand(model, 1e-2)
    step = dataclasses.replace(STEP, lr=1e-2)
    for at in range(4):
        batch = judged(sequences(at))
        loss, norm = plain.update(batch, 0.2)
        metrics = engine.update(batch, step)
        assert metrics.fault is None
        assert metrics.loss == pytest.approx(loss, abs=2e-5)
        assert metrics.grad_norm == pytest.approx(norm, rel=1e-3)
    batch = sequences(9, count=30)
    for said, each in zip(engine.values(batch), batch, strict=True):
        used = np.flatnonzero(each.loss_mask)[-1] + 1
        with torch.no_grad():
            alone = plain.values(each).numpy()
        np.testing.assert_allclose(said[:used], alone[:used], atol=2e-3)
        assert not said[used:].any()


def test_a_new_critic_expects_nothing_and_soon_something(critic: Make, sequences: Sequences):
    engine, batch = critic(), judged(sequences(0))
    assert not answers(engine, batch).any()
    engine.update(batch, STEP)
    assert answers(engine, batch).any()


def test_it_begins_as_the_policy_stands(model: Path, critic: Make, learner: Callable[..., Any], sequences: Sequences):
    policy = learner()
    policy.update(sequences(0), UpdateSettings(lr=1e-2))
    of_model, of_policy = critic(), critic(policy.weights())
    weights = {name.removeprefix("model."): tensor for name, tensor in policy.weights()}

    def same(engine: DeepSpeedCritic) -> bool:
        named = engine._engine.module.backbone.named_parameters()
        return all(torch.equal(parameter, weights[name]) for name, parameter in named)

    assert same(of_policy)
    assert not same(of_model)


def test_it_learns_to_say_what_comes(critic: Make, sequences: Sequences):
    engine, step = critic(), Settings(lr=3e-3, clip=None)
    batch = judged(sequences(0, count=20))
    for _ in range(60):
        engine.update(batch, step)
    left = targets(batch) - before(engine, batch)
    assert left.var() < 0.1 * targets(batch).var()


def test_what_has_moved_far_from_its_old_value_is_moved_no_further(critic: Make, sequences: Sequences):
    held, free = critic(), critic()
    batch = judged(sequences(0, count=20))
    shares = [held.update(batch, Settings(lr=3e-3, clip=0.1)).clipped for _ in range(30)]
    free_shares = [free.update(batch, Settings(lr=3e-3, clip=None)).clipped for _ in range(30)]
    assert shares[0] == 0
    assert shares[-1] > 0.5
    assert not any(free_shares)
    assert np.abs(before(held, batch)).mean() < 0.9 * np.abs(before(free, batch)).mean()


def test_cutting_an_update_into_micro_batches_changes_nothing_but_rounding(critic: Make, sequences: Sequences):
    results = []
    for capacity in (100_000, 150):
        engine = critic(tokens_per_micro_batch=capacity)
        for at in range(3):
            metrics = engine.update(judged(sequences(at)), STEP)
        results.append((metrics, answers(engine, sequences(5))))
    (whole, one), (cut, other) = results
    for name in ("loss", "clipped", "grad_norm"):
        assert getattr(whole, name) == pytest.approx(getattr(cut, name), rel=1e-4, abs=1e-6)
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_sharing_prefixes_changes_nothing_but_rounding(critic: Make, sequences: Sequences):
    batch = judged(sequences(0))
    for at, common in enumerate((20, 12, 30, 9), 1):
        batch[at].ids[:common] = batch[0].ids[: len(batch[at].ids)][:common]
    one, other = critic(share_prefixes=False), critic()
    plain, shared = one.update(batch, STEP), other.update(batch, STEP)
    assert plain.grad_norm == pytest.approx(shared.grad_norm, rel=1e-5)
    np.testing.assert_allclose(answers(one, batch), answers(other, batch), atol=1e-5)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_each_stage_of_zero_takes_the_same_steps(critic: Make, sequences: Sequences, zero: int):
    one, other = critic(tokens_per_micro_batch=300), critic(tokens_per_micro_batch=300, zero=zero)
    for at in range(3):
        first, second = (engine.update(judged(sequences(at)), STEP) for engine in (one, other))
        assert first.grad_norm == pytest.approx(second.grad_norm, rel=1e-4)
    np.testing.assert_allclose(answers(one, sequences(5)), answers(other, sequences(5)), atol=1e-4)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_an_update_that_is_no_number_leaves_critic_and_optimiser_as_they_were(
    critic: Make, sequences: Sequences, zero: int
):
    poisoned = judged(sequences(7))
    poisoned[3].value_targets[:] = np.nan
    undisturbed, disturbed = critic(zero=zero), critic(zero=zero)
    for engine in (undisturbed, disturbed):
        assert engine.update(judged(sequences(0)), STEP).fault is None
    said = answers(disturbed, sequences(5))
    for batch, fault in ((poisoned, UpdateFault.NAN), ([], UpdateFault.EMPTY)):
        assert disturbed.update(batch, STEP).fault is fault
        np.testing.assert_array_equal(answers(disturbed, sequences(5)), said)
    batch = judged(sequences(1))
    assert undisturbed.update(batch, STEP) == disturbed.update(batch, STEP)
    np.testing.assert_array_equal(answers(undisturbed, batch), answers(disturbed, batch))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_saved_critic_goes_on_bit_for_bit(tmp_path: Path, critic: Make, sequences: Sequences, zero: int):
    engine = critic(zero=zero)
    engine.update(judged(sequences(0)), STEP)
    engine.save(tmp_path / "critic")
    batch = judged(sequences(1))
    expected = engine.update(batch, STEP), answers(engine, batch)
    engine.update(judged(sequences(2)), STEP)
    engine.load(tmp_path / "critic")
    fresh = critic(zero=zero)
    fresh.load(tmp_path / "critic")
    for resumed in (engine, fresh):
        assert resumed.update(batch, STEP) == expected[0]
        np.testing.assert_array_equal(answers(resumed, batch), expected[1])


@pytest.mark.parametrize("zero", [0, 2])
def test_optimiser_made_fresh_takes_the_step_of_a_new_one(critic: Make, sequences: Sequences, zero: int):
    used, new = critic(zero=zero), critic(zero=zero)
    for at in range(3):
        used.update(judged(sequences(at)), dataclasses.replace(STEP, lr=0.0))
    for engine in (used, new):
        engine.set_optimizer(OptimizerSettings(betas=(0.8, 0.9), eps=1e-6), fresh=engine is used)
        engine.update(judged(sequences(4)), STEP)
    np.testing.assert_array_equal(answers(used, sequences(5)), answers(new, sequences(5)))


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_half_precision_says_numbers_in_full_and_learns_too(critic: Make, sequences: Sequences, zero: int):
    one, half = critic(zero=zero), critic(zero=zero, dtype=DType.BF16, activation_checkpointing=True)
    batch = judged(sequences(0))
    first, second = one.update(batch, STEP), half.update(batch, STEP)
    assert second.fault is None
    assert second.grad_norm == pytest.approx(first.grad_norm, rel=0.05)
    said = torch.from_numpy(answers(half, batch))
    assert not torch.equal(said, said.bfloat16().float())
