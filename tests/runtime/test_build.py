"""From a plan to the model's folder and the engines' settings, without an engine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers  # noqa: F401 - a model is made
from agym.dsl.model.model_sizes import find_shape
from agym.dsl.model.recipe import Environment, Lora, TokenizerInit, TokenizerKind
from agym.dsl.planning.memory import activation_bytes, width
from agym.envs.clients.client import InlineEnv
from agym.envs.errors import EnvFault
from agym.runtime.backends.hf_models import ModelSource, load_tokenizer, make_tokenizer
from agym.runtime.errors import RunError
from agym.runtime.protocols import Transfer
from agym.runtime.rollout.env_connections import OpenEnvs
from agym.runtime.workers.build import (
    critic_backbone,
    find_teachers,
    learner_settings,
    list_earlier_models,
    prepare_model,
    weight_transfer,
)

from .conftest import RECIPE, echoing, plan_of


@pytest.fixture
def prepared(new_run: Any, echo: Any, tmp_path: Path) -> Any:
    async def opened(name: str, settings: object) -> Any:
        return InlineEnv(echo)

    def prepare(*settings: str, **model: Any) -> Any:
        plan = new_run(*settings).plan
        plan = replace(plan, model=replace(plan.model, **model))
        return asyncio.run(prepare_model(plan, tmp_path, OpenEnvs(opened)))

    return prepare


def test_a_model_made_from_scratch_knows_the_words_of_cuts_where_observations_are_cut(prepared: Any) -> None:
    source = prepared("agent.observation_tokens=20")
    assert load_tokenizer(source).encode_known("the middle is left out")


def test_a_model_that_is_there_is_not_made_again(prepared: Any, tmp_path: Path) -> None:
    prepared()
    before = (tmp_path / "start/model.safetensors").stat().st_mtime_ns
    assert prepared().path == str(tmp_path / "start")
    assert (tmp_path / "start/model.safetensors").stat().st_mtime_ns == before


def test_a_folder_without_a_tokenizer_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(RunError, match="has no tokenizer that can be read"):
        load_tokenizer(ModelSource(path=str(tmp_path)))


def test_half_a_model_is_made_again(prepared: Any, tmp_path: Path) -> None:
    (tmp_path / ".unfinished-start").mkdir()
    (tmp_path / ".unfinished-start/config.json").write_text("{")
    assert load_tokenizer(prepared())
    assert not (tmp_path / ".unfinished-start").exists()


def test_a_folder_is_taken_as_it_is_and_one_that_is_not_there_is_told(prepared: Any, tmp_path: Path) -> None:
    assert prepared(init=None, path=str(tmp_path)).path == str(tmp_path)
    with pytest.raises(RunError, match=r"model: there is no folder '\./nowhere'"):
        prepared(init=None, path="./nowhere")


def test_a_name_that_the_hub_does_not_have_is_told_with_the_one_that_was_meant(
    prepared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, **_: object) -> str:
        raise OSError(f"404 Client Error.\n\nno model {name}")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(RunError, match=r"the hub: 404 Client Error\. no model smolm2; did you mean 'smollm2'\?$"):
        prepared(init=None, path="smolm2")
    with pytest.raises(RunError, match=r"'Qwen/Qwen9' could not be fetched .* no model Qwen/Qwen9$"):
        prepared(init=None, path="Qwen/Qwen9")


def test_a_run_goes_on_only_from_the_model_and_the_adapters_that_it_began_from(prepared: Any, tmp_path: Path) -> None:
    for name in ("model", "adapter"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    lora = Lora(path=str(tmp_path / "adapter"))

    def prepare() -> Any:
        return prepared(init=None, path=str(tmp_path / "model"), lora=lora)

    assert prepare() == prepare()
    (tmp_path / "adapter/config.json").write_text("[]")
    changed = r"adapter' does not hold the adapters that this run began from: 'config\.json' has changed; restore it"
    with pytest.raises(RunError, match=changed):
        prepare()
    (tmp_path / "adapter/config.json").write_text("{}")
    (tmp_path / "model/config.json").write_text("[]")
    with pytest.raises(RunError, match=r"model' is not the model that this run began from: 'config\.json' has changed"):
        prepare()


def test_a_run_that_noted_no_adapters_goes_on(prepared: Any, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    before = prepared(init=None, path=str(tmp_path / "model"))
    assert prepared(init=None, path=str(tmp_path / "model"), lora=Lora(path=str(tmp_path))) == before


def test_adapters_that_are_not_there_are_told(prepared: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"model\.lora\.path: there is no folder '\./nowhere'"):
        prepared(init=None, path=str(tmp_path), lora=Lora(path="./nowhere"))


def test_a_critic_of_another_model_has_to_read_the_same_tokens(prepared: Any, new_run: Any, tmp_path: Path) -> None:
    policy, other = prepared(), tmp_path / "other"
    make_tokenizer(TokenizerInit(kind=TokenizerKind.WORD), ["go north"]).save_pretrained(other)

    def found(path: Path) -> Any:
        return critic_backbone(new_run(f"algorithm={{use: ppo, critic: {{path: {path}}}}}").plan, policy)

    assert critic_backbone(new_run("algorithm=ppo").plan, policy) is None
    assert found(Path(policy.path)).path == policy.path
    with pytest.raises(RunError, match=r"critic\.path: '.*other' reads other tokens than the policy says"):
        found(other)
    with pytest.raises(RunError, match=r"algorithm\.critic\.path: there is no folder '.*nowhere'"):
        found(tmp_path / "nowhere")


def test_a_teacher_has_the_policys_tokenizer(prepared: Any, new_run: Any, tmp_path: Path) -> None:
    policy, other = prepared(), tmp_path / "other"
    make_tokenizer(TokenizerInit(kind=TokenizerKind.WORD), ["go north"]).save_pretrained(other)

    def found(path: Path | str) -> Any:
        text = echoing(
            f"algorithm: {{use: distill, distill: '{path}'}}\nschedule: [{{stage: a, turns: 2, until: step >= 2}}]\n"
        )
        return find_teachers(new_run(text=text).plan, policy)

    assert find_teachers(new_run().plan, policy) == {}
    assert found(policy.path) == {Path(policy.path): Path(policy.path)}
    with pytest.raises(RunError, match=r"distill\.teacher: '.*other' has another tokenizer than the policy"):
        found(other)
    with pytest.raises(RunError, match=r"algorithm\.distill\.teacher: there is no folder '.*nowhere'"):
        found(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("settings", "is_fp32"),
    [
        ((), False),
        (("hardware.gpus_per_node=1", "hardware.gpu=h100"), True),
        (("hardware.gpus_per_node=1", "hardware.gpu=h100", "hardware.train.fp32_head=false"), False),
        (("model.dtype=bf16", "hardware.train.fp32_head=true"), True),
    ],
)
def test_logits_are_in_fp32_where_the_recipe_says_so_and_by_default_on_gpus(
    new_run: Any, settings: tuple[str, ...], is_fp32: bool
) -> None:
    assert learner_settings(new_run(*settings).plan, ModelSource(path="m")).fp32_head is is_fp32


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("agent.context_tokens=4096",),
        ("hardware.train.tokens_per_micro_batch=512",),
        ("hardware.gpus_per_node=1", "hardware.gpu=h100"),
        ("hardware.gpus_per_node=1", "hardware.gpu=h100", "hardware.train.activation_checkpointing=false"),
    ],
)
def test_activations_of_the_plan_are_those_of_the_rows_that_run(new_run: Any, settings: tuple[str, ...]) -> None:
    plan = new_run(*settings).plan
    (planned,) = [item.bytes for use in plan.budget.memory for item in use.items if item.what == "activations"]
    made, shape = learner_settings(plan, ModelSource(path="m")), find_shape(plan.model)
    assert shape is not None
    size = width(plan.model.dtype, plan.hardware.gpus_per_node > 0)
    assert planned == activation_bytes(shape, made.tokens_per_micro_batch, size, made.activation_checkpointing)


def test_ranks_divide_rows_as_the_recipe_says(new_run: Any) -> None:
    settings = ("hardware.workers_per_node=4", "hardware.train.sequence_parallel=2")
    assert learner_settings(new_run(*settings).plan, ModelSource(path="m")).sequence_parallel == 2
    assert learner_settings(new_run().plan, ModelSource(path="m")).sequence_parallel == 1


def test_an_environment_that_nobody_serves_is_told_by_its_name_and_address() -> None:
    class Nobody:
        async def spec(self) -> Any:
            raise EnvFault("no connection")

    async def opened(name: str, settings: object) -> Any:
        return Nobody()

    with pytest.raises(RunError, match="environment 'mine' at http://there: no connection"):
        asyncio.run(OpenEnvs(opened).get("mine", Environment(url="http://there")))


def test_an_environment_that_keeps_its_words_is_told_by_its_name(new_run: Any, echo: Any, tmp_path: Path) -> None:
    class Mute(InlineEnv):
        async def corpus(self) -> tuple[str, ...]:
            raise EnvFault("no answer")

    async def opened(name: str, settings: object) -> Any:
        return Mute(echo)

    with pytest.raises(RunError, match=r"environment '.*': no answer"):
        asyncio.run(prepare_model(new_run().plan, tmp_path, OpenEnvs(opened)))


@pytest.mark.parametrize(
    ("settings", "transfer"),
    [
        ([], Transfer.DIRECT),
        (["hardware={gpus_per_node: 1, gpu: h100}"], Transfer.DIRECT),
        (["hardware={gpus_per_node: 1, gpu: h100, launcher: ray}"], Transfer.IPC),
        (["hardware={gpus_per_node: 2, gpu: h100}"], Transfer.IPC),
        (["hardware={gpus_per_node: 2, gpu: h100, layout: split}"], Transfer.NCCL),
        (["hardware={gpus_per_node: 2, gpu: h100, weight_transfer: object_store}"], Transfer.DIRECT),
        (["hardware={gpus_per_node: 2, gpu: h100}", "model.lora={rank: 4}"], Transfer.DIRECT),
    ],
)
def test_weights_go_by_what_connects_learner_and_samplers(settings: list[str], transfer: Transfer) -> None:
    assert weight_transfer(plan_of(RECIPE, *settings)) is transfer


@pytest.mark.parametrize(("every", "keep", "met"), [(4, 2, {9: [4, 8], 8: [4]}), (1, 1, {9: [8]})])
def test_who_plays_as_an_earlier_checkpoint_is_the_same_whether_the_run_had_ended_or_not(
    new_run: Any, every: int, keep: int, met: dict[int, list[int]]
) -> None:
    run = new_run(f"checkpoint={{every: {every}, keep: {keep}}}")
    run.plan = replace(run.plan, plays_earlier=True)
    run.go()
    found = {step: list_earlier_models(run.plan.checkpoint, run.root, step) for step in met}
    assert {step: [each.step for each in models] for step, models in found.items()} == met
