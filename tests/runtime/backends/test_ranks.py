"""Ranks under any ZeRO stage take the steps that one rank takes, however unevenly the sequences are divided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from agym.dsl.model.recipe import Lora
from agym.runtime.protocols import LearnerSettings, UpdateFault
from agym.runtime.workers.division import divide, join
from gang import Gang
from packing import make_tiny_model
from ranks import Outcome, divide_rows, draw_batch, read, resume, score, train, wait
from safetensors.torch import load_file

from .conftest import REAL

pytestmark = REAL

SEQUENCES = 13


@pytest.fixture(scope="module")
def gang() -> Iterator[Gang]:
    with Gang(4) as gang:
        yield gang


@pytest.fixture(scope="module")
def settings(model: Path) -> LearnerSettings:
    return LearnerSettings(model=model, tokens_per_micro_batch=150)


@pytest.fixture(scope="module")
def alone(gang: Gang, settings: LearnerSettings) -> Outcome:
    return gang.run(1, train, settings, SEQUENCES, None)[0]


@pytest.fixture(scope="module")
def alone_with_adapters(gang: Gang, settings: LearnerSettings) -> Outcome:
    return gang.run(1, train, replace(settings, lora=Lora(rank=4)), SEQUENCES, None)[0]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_under_a_stage_train_as_one_rank_does(
    gang: Gang, settings: LearnerSettings, alone: Outcome, ranks: int, zero: int
):
    assert_alike(gang.run(ranks, train, replace(settings, zero=zero), SEQUENCES, None), alone)


@pytest.mark.parametrize(("ranks", "zero"), [(2, 2), (2, 3), (4, 3)])
def test_ranks_train_adapters_as_one_rank_does(
    gang: Gang, settings: LearnerSettings, alone_with_adapters: Outcome, ranks: int, zero: int
):
    changed = replace(settings, zero=zero, lora=Lora(rank=4))
    assert_alike(gang.run(ranks, train, changed, SEQUENCES, None), alone_with_adapters)


@pytest.mark.parametrize("zero", [0, 3])
def test_ranks_without_a_sequence_go_along(gang: Gang, settings: LearnerSettings, zero: int):
    (alone,) = gang.run(1, train, replace(settings, zero=zero), 2, None)
    assert_alike(gang.run(4, train, replace(settings, zero=zero), 2, None), alone, sequences=2)


# --- ranks that divide rows


@pytest.mark.parametrize(("ranks", "zero"), [(2, 0), (2, 1), (2, 2), (2, 3), (4, 3)])
def test_two_ranks_that_divide_rows_train_as_one_rank_does(
    gang: Gang, settings: LearnerSettings, alone: Outcome, ranks: int, zero: int
):
    changed = replace(settings, zero=zero, sequence_parallel=2)
    assert_alike(gang.run(ranks, train, changed, SEQUENCES, None), alone, divided=2)


def test_ranks_that_divide_rows_recompute_activations_and_logits_in_pieces_and_train_adapters(
    gang: Gang, settings: LearnerSettings, alone_with_adapters: Outcome
):
    changed = replace(settings, lora=Lora(rank=4), activation_checkpointing=True, logit_elements=2000)
    found = gang.run(2, train, replace(changed, zero=2, sequence_parallel=2), SEQUENCES, None)
    assert_alike(found, alone_with_adapters, divided=2)


def test_four_ranks_divide_short_rows_with_fewer_key_value_heads_than_ranks(
    gang: Gang, settings: LearnerSettings, tmp_path: Path
):
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    make_tiny_model("qwen3", vocab_size=300, **heads).save_pretrained(tmp_path)
    changed = replace(settings, model=tmp_path, tokens_per_micro_batch=1)
    (alone,) = gang.run(1, train, changed, 3, None)
    found = gang.run(4, train, replace(changed, zero=3, sequence_parallel=4), 3, None)
    assert_alike(found, alone, sequences=3, divided=4)


DIVIDED = {
    "llama": "",
    "gpt2": "",
    "gemma2": "",
    "gpt_oss": "",
    "llama4_text": "",
    "lfm2": "'Lfm2ShortConv' would mix several",
    "qwen3_next": "'Qwen3NextGatedDeltaNet' would mix several",
    "deepseek_v3": "'DeepseekV3Attention' has keys and values of different widths",
}
"""Architectures, and why their rows cannot be divided."""


def test_each_kind_of_layer_keeps_its_log_probs_and_gradients_when_rows_are_divided_or_is_refused_by_name(
    gang: Gang, tmp_path: Path
):
    for name in DIVIDED:
        make_tiny_model(name, vocab_size=300).save_pretrained(tmp_path / name)
    for found in gang.run(2, divide_rows, {name: tmp_path / name for name in DIVIDED}):
        for name, reason in DIVIDED.items():
            apart, gradients, said = found[name]
            assert reason in said, name
            if not reason:
                assert (said, apart < 1e-4, gradients < 1e-3) == ("", True, True), (name, apart, gradients)
            else:
                assert "'hardware.train.sequence_parallel: 1'" in said


def assert_alike(found: list[Outcome], alone: Outcome, sequences: int = SEQUENCES, divided: int = 1) -> None:
    first = found[0]
    for each in found:
        assert each.metrics == first.metrics
        assert each.critic == first.critic
        # a refused update leaves every bit of every rank as it was, and all refuse it for the same reason
        assert each.digests == [first.digests[0]] * 3
        assert [metrics.fault for metrics in each.refused] == [UpdateFault.GRAD_NORM, UpdateFault.NAN]
    for name, tensor in alone.weights.items():
        assert first.weights[name] == pytest.approx(tensor, rel=0, abs=1e-5), name
    for one, several in zip(alone.metrics, first.metrics, strict=True):
        assert several.fault is None
        assert (several.tokens, several.sequences) == (one.tokens, one.sequences)
        for name in ("loss", "grad_norm", "entropy", "ratio_error", "sampler_kl"):
            assert getattr(several, name) == pytest.approx(getattr(one, name), rel=1e-5, abs=1e-5), name
    for one, several in zip(alone.critic, first.critic, strict=True):
        assert several.fault is None
        assert (several.loss, several.clipped) == pytest.approx((one.loss, one.clipped), rel=1e-4, abs=1e-6)
        assert several.grad_norm == pytest.approx(one.grad_norm, rel=1e-3)
    shares = divide(draw_batch(0, sequences), len(found) // divided)
    for name in ("logprobs", "reference", "values"):
        joined = join(shares, [getattr(each, name) for each in found[::divided]])
        for one, several in zip(getattr(alone, name), joined, strict=True):
            assert several == pytest.approx(one, abs=1e-4), name


# --- checkpoints


def saved(folder: Path) -> dict[str, torch.Tensor]:
    return {name: each for file in folder.rglob("state-*.safetensors") for name, each in load_file(file).items()}


def test_what_some_ranks_saved_others_load_and_take_the_same_next_step(
    gang: Gang, settings: LearnerSettings, tmp_path: Path
):
    gang.run(2, train, replace(settings, zero=3), SEQUENCES, tmp_path)
    outcomes, first = {}, saved(tmp_path / "saved")
    assert {name.split("/")[0] for name in first} == {"weight", "exp_avg", "exp_avg_sq", "generator"}
    source = tmp_path / "saved"
    # each loads what the one before it saved, the last as the first did
    for ranks, zero, divided in ((2, 3, 1), (1, 0, 1), (2, 2, 1), (1, 3, 1), (4, 1, 2), (2, 3, 1)):
        folder = tmp_path / f"{ranks}-{zero}-{len(outcomes)}"
        changed = replace(settings, zero=zero, sequence_parallel=divided)
        outcomes[folder] = gang.run(ranks, resume, changed, source, folder)
        again = saved(folder)
        assert again.keys() == first.keys()
        assert all(torch.equal(again[name], first[name]) for name in first), folder.name
        source = folder
    expected, (metrics, *_) = next(iter(outcomes.items()))
    following = saved(expected.with_name(f"{expected.name}-next"))
    for folder, found in outcomes.items():
        for each in found:
            assert each.loss == pytest.approx(metrics.loss, abs=1e-6)
            assert each.grad_norm == pytest.approx(metrics.grad_norm, rel=1e-6)
        others = saved(folder.with_name(f"{folder.name}-next"))
        for name, tensor in following.items():
            if name.startswith("weight/"):
                torch.testing.assert_close(others[name], tensor, rtol=0, atol=1e-6)


def test_a_model_exported_by_ranks_is_the_one_that_they_hold(gang: Gang, settings: LearnerSettings, tmp_path: Path):
    first, *_ = gang.run(2, train, replace(settings, zero=3), SEQUENCES, tmp_path)
    exported = load_file(tmp_path / "exported/model.safetensors")
    # the output layer is the embedding, and is written once
    held = {name: each for name, each in first.weights.items() if name != "lm_head.weight"}
    assert exported.keys() == held.keys()
    assert all(torch.equal(exported[name], torch.from_numpy(each)) for name, each in held.items())


# --- a model that is divided


def test_no_rank_holds_a_whole_model_under_stage_3(gang: Gang, settings: LearnerSettings):
    found = gang.run(4, score, replace(settings, zero=3))
    for held in found:
        for part, whole in held:
            assert part <= whole / 4 + 100, "policy, then reference: elements that are this rank's own"


@pytest.mark.parametrize("ranks", [2, 3])
def test_parts_that_ranks_read_make_up_the_model_of_the_file(gang: Gang, settings: LearnerSettings, ranks: int):
    expected = load_file(settings.model / "model.safetensors")
    found = gang.run(ranks, read, replace(settings, zero=3))[0]
    assert expected.keys() <= found.keys()
    assert all(torch.equal(torch.from_numpy(found[name]), each) for name, each in expected.items())


def test_ranks_of_a_model_with_convolutions_choose_the_rows_that_one_chooses(
    gang: Gang, settings: LearnerSettings, tmp_path: Path
):
    make_tiny_model("lfm2", vocab_size=300).save_pretrained(tmp_path / "model")
    changed = replace(settings, model=tmp_path / "model", zero=3)
    alone, *several = (each for ranks in (1, 2) for each in gang.run(ranks, train, changed, SEQUENCES, None))
    assert "'Lfm2ShortConv' would mix several" in alone.notes[0]
    assert several[0].notes == several[1].notes == alone.notes
    # a row for each sequence
    assert [metrics.micro_batches for metrics in alone.metrics] == [13, 13, 13]
    shares = divide(draw_batch(0, SEQUENCES), 2)
    for one, other in zip(alone.logprobs, join(shares, [each.logprobs for each in several]), strict=True):
        assert other == pytest.approx(one, abs=1e-4)


@pytest.mark.parametrize(("seconds", "reason"), [(6.0, "Timed out"), (None, "Connection ")])
def test_a_rank_that_is_late_or_gone_ends_the_others_with_an_error_by_name(seconds: float | None, reason: str):
    with Gang(2, timeout_s=3.0) as gang, pytest.raises(AssertionError, match="rank 0 of 2") as raised:
        gang.run(2, wait, seconds)
    lost = [line for line in str(raised.value).splitlines() if "LearnerLost: a rank of the learner is gone" in line]
    assert reason in lost[0]
