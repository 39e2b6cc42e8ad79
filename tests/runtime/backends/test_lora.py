"""LoRA with the real engines: what an adapter adds, what stays as it was, and that the sampler has what was learned."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agym.dsl.model.recipe import DType, Lora
from agym.runtime.backends.checks.checksums import checksums
from agym.runtime.backends.hf_models import ModelSource, load_tokenizer
from agym.runtime.errors import RunError
from agym.runtime.protocols import (
    LearnerSettings,
    OptimizerSettings,
    SamplerSettings,
    SyncError,
    TrainSequence,
    UpdateFault,
    UpdateLimits,
    UpdateSettings,
    ValueSettings,
)

from .conftest import REAL, model_folder
from .test_sampler import PROBE, episodes, handover, request, run, whole

pytestmark = REAL

LORA = Lora(rank=4, alpha=8.0)
SOME = Lora(rank=3, alpha=7.0, targets=("q_proj", "v_proj", "up_proj", "o_proj"))
STEP = UpdateSettings(lr=1e-2)
Make = Callable[..., Any]
Sequences = Callable[..., list[TrainSequence]]
Weights = dict[str, torch.Tensor]


def learnt(learner: Any) -> Weights:
    return {name: tensor.clone() for name, tensor in learner.weights()}


def frozen(learner: Any) -> Weights:
    """All but the adapters, as the engine has them."""
    parameters = learner._policy.causal.named_parameters()
    found = {}
    for name, parameter in parameters:
        if not parameter.requires_grad:
            with learner.gather_parameters(parameter):
                found[name] = parameter.detach().clone()
    return found


def same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def furthest(one: Weights, other: Weights) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def said(learner: Any, sequences: list[TrainSequence]) -> np.ndarray:
    return np.concatenate(learner.logprobs(sequences, 1.0))


def move(learner: Any, names: set[str] | None = None) -> None:
    """Moves adapters, as an update would."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in learner.weights():
            if names is None or name in names:
                tensor += 0.1 * torch.randn(tensor.shape, generator=generator)


# --- what an adapter adds ------------------------------------------------------------------------------------------


def test_new_adapters_change_not_a_bit_of_what_the_model_says(learner: Make, sequences: Sequences):
    batch = sequences(0)
    np.testing.assert_array_equal(said(learner(lora=LORA), batch), said(learner(), batch))


class ByHand:
    """The same with nothing but transformers and PyTorch, one sequence at a time."""

    def __init__(
        self, model: Path, adapters: Weights, lora: Lora, lr: float, dtype: torch.dtype = torch.float32
    ) -> None:
        from transformers import AutoModelForCausalLM

        self.causal = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).requires_grad_(False)
        self.adapters = {name: tensor.to(dtype, copy=True).requires_grad_() for name, tensor in adapters.items()}
        self.optimizer = torch.optim.AdamW(self.adapters.values(), lr=lr, weight_decay=0.0)
        for name, module in self.causal.named_modules():
            if f"{name}.lora_A" in adapters:
                down, up = self.adapters[f"{name}.lora_A"], self.adapters[f"{name}.lora_B"]
                module.register_forward_hook(
                    lambda _, given, out, down=down, up=up: out + lora.alpha / lora.rank * given[0] @ (up @ down).T
                )

    def update(self, sequences: list[TrainSequence]) -> tuple[float, float]:
        self.optimizer.zero_grad()
        tokens, total = sum(int(each.loss_mask.sum()) for each in sequences), 0.0
        for each in sequences:
            ratio = (self.logprobs(each) - torch.from_numpy(each.old_logprobs)[1:]).exp()
            advantages = torch.from_numpy(each.advantages)[1:]
            worse = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
            loss = (worse * torch.from_numpy(each.loss_mask)[1:]).sum() / tokens
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(self.adapters.values(), 1.0)
        self.optimizer.step()
        return total, float(norm)

    def logprobs(self, sequence: TrainSequence) -> torch.Tensor:
        ids = torch.from_numpy(sequence.ids).long()
        return self.causal(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]

    def said(self, sequences: list[TrainSequence]) -> np.ndarray:
        """As a learner's: nothing where nothing is trained."""
        with torch.no_grad():
            each = [np.append(0.0, self.logprobs(sequence)) * sequence.loss_mask for sequence in sequences]
        return np.concatenate(each)


@pytest.mark.parametrize("lora", [LORA, SOME])
def test_updates_are_the_steps_that_plain_pytorch_takes(model: Path, learner: Make, sequences: Sequences, lora: Lora):
    engine = learner(lora=lora)
    adapters = learnt(engine)
    assert {name.split(".")[-2] for name in adapters} == set(lora.targets)
    plain = ByHand(model, adapters, lora, 1e-3)
    for at in range(3):
        batch = sequences(at)
        loss, norm = plain.update(batch)
        metrics = engine.update(batch, dataclasses.replace(STEP, lr=1e-3))
        assert metrics.fault is None
        assert metrics.loss == pytest.approx(loss, abs=1e-6)
        assert metrics.grad_norm == pytest.approx(norm, rel=1e-4)
    assert furthest(learnt(engine), {name: tensor.detach() for name, tensor in plain.adapters.items()}) < 2e-5


def test_merged_weights_are_as_exact_as_adapters(model: Path, tmp_path: Path, learner: Make, sequences: Sequences):
    engine, batch = learner(lora=SOME), sequences(9)
    base = said(engine, batch)
    for at in range(5):
        engine.update(sequences(at), STEP)
    engine.export(tmp_path)
    merged = learner(model=tmp_path)
    exact = ByHand(model, learnt(engine), SOME, 0.0, torch.float64).said(batch)
    by_adapters, by_merged = (np.abs(said(each, batch) - exact).max() for each in (engine, merged))
    assert by_merged < 2 * by_adapters < 1e-4
    assert np.abs(said(engine, batch) - base).max() > 0.1


def test_exported_adapters_are_read_by_others(tmp_path: Path, learner: Make, sequences: Sequences):
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    engine = learner(lora=SOME)
    engine.update(sequences(0), STEP)
    engine.export(tmp_path)
    helper = PEFTHelper.from_local_dir(str(tmp_path / "adapter"), None)
    read = LoRAModel.from_local_checkpoint(str(tmp_path / "adapter"), set(SOME.targets), helper, device="cpu")
    ours = learnt(engine)
    assert len(read.loras) * 2 == len(ours)
    for name, layer in read.loras.items():
        assert torch.equal(layer.lora_a, ours[f"{name}.lora_A"])
        assert torch.equal(layer.lora_b, ours[f"{name}.lora_B"])
        assert layer.scaling == 7 / 3


def test_a_layer_that_the_model_lacks_is_named(learner: Make):
    with pytest.raises(RunError, match=r"model\.lora\.targets: the model has no linear layer 'c_attn'"):
        learner(lora=Lora(targets=("q_proj", "c_attn")))
    # it is read without being called
    with pytest.raises(RunError, match="no linear layer 'lm_head'"):
        learner(lora=Lora(targets=("lm_head",)))


def test_adapters_begin_as_their_seed_says_and_leave_other_draws_alone(learner: Make):
    before = torch.get_rng_state()
    one, again, other = (learnt(learner(lora=LORA, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert same(one, again)
    assert not any(torch.equal(one[name], other[name]) for name in one if name.endswith("lora_A"))
    assert not any(tensor.any() for name, tensor in one.items() if name.endswith("lora_B"))


# --- what learns and what does not ---------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_frozen_weights_do_not_change_by_a_bit(learner: Make, sequences: Sequences, zero: int):
    engine = learner(lora=LORA, zero=zero, optimizer=OptimizerSettings(weight_decay=0.1))
    before, base = learnt(engine), frozen(engine)
    assert len(base) == len(dict(learner().weights())) - 1  # the output layer is tied
    for at in range(4):
        assert engine.update(sequences(at), STEP).fault is None
    assert same(frozen(engine), base)
    after = learnt(engine)
    assert not any(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_each_stage_of_zero_takes_the_same_steps(learner: Make, sequences: Sequences, zero: int):
    one, other = (learner(lora=LORA, tokens_per_micro_batch=300, zero=stage) for stage in (0, zero))
    step = dataclasses.replace(STEP, lr=1e-3)
    for at in range(3):
        first, second = one.update(sequences(at), step), other.update(sequences(at), step)
        assert first.loss == pytest.approx(second.loss, abs=1e-6)
        assert first.grad_norm == pytest.approx(second.grad_norm, rel=1e-5)
    assert furthest(learnt(one), learnt(other)) < 2e-5
    np.testing.assert_allclose(said(one, sequences(5)), said(other, sequences(5)), atol=1e-5)


def test_logits_in_pieces_and_activations_computed_twice_change_nothing_but_rounding(
    learner: Make, sequences: Sequences
):
    plain, frugal = learner(lora=LORA), learner(lora=LORA, logit_elements=2000, activation_checkpointing=True)
    step = dataclasses.replace(STEP, lr=1e-3)
    for at in range(2):
        first, second = plain.update(sequences(at), step), frugal.update(sequences(at), step)
        assert first.grad_norm == pytest.approx(second.grad_norm, rel=1e-5)
    assert furthest(learnt(plain), learnt(frugal)) < 2e-5


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_refused_update_leaves_adapters_and_optimiser_as_they_were(learner: Make, sequences: Sequences, zero: int):
    poisoned = sequences(7)
    poisoned[3].advantages[:] = np.nan
    undisturbed, disturbed = learner(lora=LORA, zero=zero), learner(lora=LORA, zero=zero)
    for engine in (undisturbed, disturbed):
        assert engine.update(sequences(0), STEP).fault is None
    before = learnt(disturbed)
    for batch, limits, fault in (
        (poisoned, UpdateLimits(), UpdateFault.NAN),
        (sequences(8), UpdateLimits(grad_norm=1e-9), UpdateFault.GRAD_NORM),
        ([], UpdateLimits(), UpdateFault.EMPTY),
    ):
        assert disturbed.update(batch, dataclasses.replace(STEP, limits=limits)).fault is fault
        assert same(learnt(disturbed), before)
    assert undisturbed.update(sequences(1), STEP) == disturbed.update(sequences(1), STEP)
    assert same(learnt(undisturbed), learnt(disturbed))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_saved_learner_goes_on_bit_for_bit_and_saves_nothing_that_is_frozen(
    tmp_path: Path, model: Path, learner: Make, sequences: Sequences, zero: int
):
    lora = Lora(rank=2, dropout=0.1)
    engine = learner(lora=lora, zero=zero)
    engine.update(sequences(0), STEP)
    engine.save(tmp_path / "saved")
    expected = engine.update(sequences(1), STEP), learnt(engine)
    engine.update(sequences(2), STEP)
    engine.load(tmp_path / "saved")
    fresh = learner(lora=lora, zero=zero, seed=0)
    torch.rand(5)  # somebody else draws
    fresh.load(tmp_path / "saved")
    for resumed in (engine, fresh):
        assert resumed.update(sequences(1), STEP) == expected[0]
        assert same(learnt(resumed), expected[1])
    kept = sum(file.stat().st_size for file in (tmp_path / "saved").rglob("*") if file.is_file())
    assert kept < (model / "model.safetensors").stat().st_size / 2


def test_what_is_dropped_is_dropped_in_updates_alone(learner: Make, sequences: Sequences):
    plain, dropping = learner(lora=LORA), learner(lora=dataclasses.replace(LORA, dropout=0.5))
    batch = sequences(9)
    for at in range(2):
        for engine in (plain, dropping):
            assert engine.update(sequences(at), STEP).fault is None
    assert not same(learnt(plain), learnt(dropping))
    np.testing.assert_array_equal(said(dropping, batch), said(dropping, batch))


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_half_precision_learns_too(learner: Make, sequences: Sequences, zero: int):
    one, half = learner(lora=LORA, zero=zero), learner(lora=LORA, zero=zero, dtype=DType.BF16)
    for at in range(2):
        first, second = one.update(sequences(at), STEP), half.update(sequences(at), STEP)
        assert second.fault is None
    assert second.grad_norm == pytest.approx(first.grad_norm, rel=0.1)
    assert next(iter(learnt(half).values())).dtype is torch.bfloat16


def test_a_learner_begins_with_adapters_from_a_folder_and_measures_from_there(
    tmp_path: Path, learner: Make, sequences: Sequences
):
    engine, batch = learner(lora=SOME), sequences(9)
    engine.update(sequences(0), STEP)
    engine.export(tmp_path)
    later = learner(lora=dataclasses.replace(SOME, path=str(tmp_path / "adapter")))
    at_first = said(later, batch)
    np.testing.assert_array_equal(at_first, said(engine, batch))
    later.update(sequences(1), STEP)
    np.testing.assert_array_equal(said(later.reference(None), batch), at_first)
    assert np.abs(said(later, batch) - at_first).max() > 1e-3


# --- references ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [0, 3])
def test_the_base_and_an_earlier_stage_are_references_without_a_second_model(
    tmp_path: Path, learner: Make, sequences: Sequences, zero: int
):
    engine, batch = learner(lora=LORA, zero=zero), sequences(9)
    at_first = said(engine, batch)
    engine.update(sequences(0), STEP)
    engine.export(tmp_path)
    at_stage = said(engine, batch)
    for at in range(1, 3):
        engine.update(sequences(at), STEP)
    now = said(engine, batch)
    base, stage = engine.reference(None), engine.reference(tmp_path)
    for _ in range(2):
        np.testing.assert_array_equal(said(base, batch), at_first)
        np.testing.assert_array_equal(said(stage, batch), at_stage)
        np.testing.assert_array_equal(said(engine, batch), now)
    assert np.abs(now - at_stage).max() > 1e-2


def test_a_learner_that_begins_as_an_earlier_one_needs_it_no_more_once_it_is_saved(
    tmp_path: Path, model: Path, learner: Make, sequences: Sequences
):
    from agym.runtime.backends.deepspeed import DeepSpeedLearner

    engine, batch = learner(lora=LORA), sequences(9)
    engine.update(sequences(0), STEP)
    engine.export(tmp_path / "exported")
    later = DeepSpeedLearner(LearnerSettings(model=model, lora=LORA), tmp_path / "exported")
    np.testing.assert_array_equal(said(later, batch), said(engine, batch))
    later.update(sequences(1), STEP)
    later.save(tmp_path / "saved")
    engine.load(tmp_path / "saved")
    np.testing.assert_array_equal(said(later, batch), said(engine, batch))
    later.close()


# --- a critic ------------------------------------------------------------------------------------------------------


def judged(sequences: list[TrainSequence]) -> list[TrainSequence]:
    rng = np.random.default_rng(0)
    return [
        dataclasses.replace(
            each,
            values=np.zeros(len(each.ids), np.float32),
            value_targets=rng.normal(size=len(each.ids)).astype(np.float32),
        )
        for each in sequences
    ]


@pytest.mark.parametrize("zero", [0, 2, 3])
def test_a_critic_learns_by_adapters_that_begin_as_the_policys(
    tmp_path: Path, model: Path, learner: Make, sequences: Sequences, zero: int
):
    from agym.runtime.backends.critic import DeepSpeedCritic
    from agym.runtime.backends.lora import named_adapters

    policy = learner(lora=LORA, zero=zero)
    policy.update(sequences(0), STEP)
    settings = LearnerSettings(model=model, lora=LORA, zero=zero)
    critic = DeepSpeedCritic(settings, policy.weights())

    def parameters(engine: DeepSpeedCritic, *, learning: bool) -> Weights:
        found = {}
        for name, parameter in engine._engine.module.named_parameters():
            if parameter.requires_grad is learning:
                with engine.gather_parameters(parameter):
                    found[name] = parameter.detach().clone()
        return found

    begun = parameters(critic, learning=True)
    assert {name.replace("backbone.", "model.") for name in begun} == {"head.weight", *learnt(policy)}
    assert all(torch.equal(begun[name.replace("model.", "backbone.", 1)], each) for name, each in policy.weights())
    base = parameters(critic, learning=False)
    batch, step = judged(sequences(1)), ValueSettings(lr=1e-2)
    # the first step moves the output layer alone, which begins at 0
    losses = [critic.update(batch, step).loss for _ in range(15)]
    assert losses[-1] < 0.9 * losses[0]
    assert same(parameters(critic, learning=False), base)
    assert not same(parameters(critic, learning=True), begun)
    critic.save(tmp_path / "critic")
    resumed = DeepSpeedCritic(settings, learner(lora=LORA, zero=zero).weights())
    resumed.load(tmp_path / "critic")
    assert resumed.update(batch, step) == critic.update(batch, step)
    for one, other in zip(resumed.values(batch), critic.values(batch), strict=True):
        np.testing.assert_array_equal(one, other)
    assert dict(named_adapters(critic._engine.module)).keys() == begun.keys() - {"head.weight"}
    resumed.close()
    critic.close()


# --- the sampler ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["all targets", "some targets", "wide"])
def adapted(
    request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, SamplerSettings]]:
    """A sampler that gets adapters, and its settings; wide models are multiplied with packed weights."""
    from agym.runtime.backends.vllm.sampler import VllmSampler

    torch.set_num_threads(1)
    folder = model_folder(tmp_path_factory.mktemp("wide"), hidden=192) if request.param == "wide" else model
    lora = SOME if request.param == "some targets" else LORA
    settings = SamplerSettings(model=folder, context_tokens=512, slots=64, lora=lora)
    engine = VllmSampler(settings, load_tokenizer(ModelSource(path=str(folder))).decode)
    yield engine, settings
    asyncio.run(engine.close())


@pytest.fixture
def pair(adapted: tuple[Any, SamplerSettings], learner: Make) -> tuple[Any, Any]:
    """A sampler and a learner of the same model."""
    sampler, settings = adapted
    return sampler, learner(model=settings.model, lora=settings.lora)


def test_what_is_sampled_after_updates_is_what_the_learner_would_say(pair: tuple[Any, Any]):
    sampler, engine = pair

    async def scenario() -> None:
        first = None
        for version in range(6):
            update = handover(engine, version)
            assert {name.rpartition(".")[2] for name, _ in update.tensors} == {"lora_A", "lora_B"}
            await sampler.load(handover(engine, version))
            played = await episodes(sampler, 24, temperature=0.7 if version % 2 else 1.0)
            scored = engine.logprobs(played, 0.7 if version % 2 else 1.0)
            worst = max(np.abs(one - each.old_logprobs).max() for one, each in zip(scored, played, strict=True))
            assert worst < 1e-4
            first = played if first is None else first
            if not version % 2:
                metrics = engine.update(played, STEP)
                assert metrics.fault is None
                assert metrics.ratio_error < 1e-4
        assert np.abs(said(engine, first) - said(engine.reference(None), first)).max() > 0.1

    run(scenario)


def test_a_change_of_any_adapter_reaches_the_sampler(pair: tuple[Any, Any]):
    sampler, engine = pair
    move(engine)

    async def scenario() -> None:
        before = np.inf
        for version, name in enumerate(["", *(name for name, _ in engine.weights())]):
            move(engine, {name})
            await sampler.load(handover(engine, version, tolerance=1e-4))
            after = await sampler.score(PROBE)
            assert np.abs(after - before).max() > 1e-4, name
            before = after

    run(scenario)


def test_a_sampler_with_other_adapters_is_found_out_and_repaired(pair: tuple[Any, Any], learner: Make):
    sampler, one = pair
    other = learner(model=one._settings.model, lora=one._settings.lora)
    move(other, {next(name for name, _ in other.weights() if "layers.1" in name and name.endswith("v_proj.lora_B"))})

    async def scenario() -> None:
        with pytest.raises(SyncError, match="does not hold version 1 of the weights"):
            await sampler.load(dataclasses.replace(handover(one, 1), tensors=other.weights()))
        await sampler.load(handover(one, 1))

    run(scenario)


def test_handing_over_leaves_the_learners_adapters_as_they_are(pair: tuple[Any, Any]):
    sampler, engine = pair
    move(engine)
    before = learnt(engine)
    for version in range(2):
        run(lambda version=version: sampler.load(handover(engine, version, tolerance=1e-4)))
    assert same(learnt(engine), before)


def test_nothing_cached_under_old_adapters_is_used_with_new_ones(pair: tuple[Any, Any]):
    sampler, engine = pair
    prompt = PROBE * 3

    async def scenario() -> tuple[Any, Any]:
        await sampler.load(handover(engine, 0))
        before = await sampler.sample(request(prompt, 0))
        move(engine)
        await sampler.load(handover(engine, 1, tolerance=1e-4))
        return before, await sampler.sample(request(prompt, 0))

    before, after = run(scenario)
    scored = engine.logprobs([whole([*prompt, *after.ids])], 1.0)[0][len(prompt) :]
    np.testing.assert_allclose(after.logprobs, scored, atol=1e-4)
    assert before.logprobs != after.logprobs


def test_an_adapter_of_a_layer_that_the_engine_lacks_is_refused(adapted: tuple[Any, SamplerSettings], learner: Make):
    from agym.runtime.backends.vllm.sampler import VllmSampler
    from agym.runtime.protocols import SamplerError

    _, settings = adapted
    engine = learner(model=settings.model, lora=settings.lora)
    strange = [(name.replace("layers.0", "layers.7"), tensor) for name, tensor in engine.weights()]

    async def scenario() -> None:
        sampler = VllmSampler(settings)
        with pytest.raises(SamplerError, match=r"the engine has no layer 'model\.layers\.7"):
            await sampler.load(dataclasses.replace(handover(engine, 0), tensors=strange, checksums=checksums(strange)))
        await sampler.close()

    run(scenario)
