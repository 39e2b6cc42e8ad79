"""From a plan to workers: the model folder, the engines and their settings. Only here a recipe's terms become an
engine's."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...dsl.model.algorithm import Kind
from ...dsl.model.model_sizes import is_folder
from ...dsl.model.plan import Plan, Role
from ...dsl.model.recipe import Checkpoint, DType, Init, Launcher, Layout, Model, Offload, WeightTransfer
from ...dsl.model.stage_kinds import most_row_tokens, num_slots, recomputes_activations
from ...dsl.suggest import find_nearest
from ..agents.chat import LEFT_OUT, NO_THOUGHTS, Chat
from ..agents.formats import format_for
from ..agents.prompts import prompt_texts
from ..backends.hf_models import ModelSource, load_tokenizer, make_model, make_tokenizer
from ..backends.registry import DEFAULT_LEARNER, DEFAULT_SAMPLER
from ..errors import RunError, read_text
from ..pretrained.catalog import find_folder, list_pretrained
from ..protocols import LearnerSettings, OptimizerSettings, ProbeLimits, Sampler, SamplerSettings, Transfer
from ..rollout.earlier import EarlierCheckpoints, SavedModel
from ..rollout.env_connections import OpenEnvs, stop_on_env_error
from ..seeds import derive
from ..storage.model_files import check_model, record_source
from ..storage.run_folder import MODEL, START, checkpoints_in, sealed_folder
from ..storage.run_reader import read_progress
from .learner_worker import LearnerWorker
from .rollout_worker import RolloutWorker

__all__ = [
    "PROBE_LIMITS",
    "critic_backbone",
    "find_model",
    "import_learner",
    "learner_settings",
    "learner_worker",
    "list_earlier_models",
    "prepare_model",
    "rollout_worker",
    "sampler_settings",
    "weight_transfer",
]

PROBE_LIMITS = {
    DType.FP32: ProbeLimits(floor=1e-4, ceiling=1e-3),
    DType.FP16: ProbeLimits(floor=0.01, ceiling=0.05),
    DType.BF16: ProbeLimits(floor=0.1, ceiling=0.2),
}
"""Healthy engines differ by up to .03 in bf16, those with a fault in all layers by .4 and more."""


@contextmanager
def _defer_garbage_collection() -> Iterator[None]:
    """Pause garbage collection: what engines import lives as long as they do, and scanning it takes a third of a
    start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def prepare_model(plan: Plan, root: Path, envs: OpenEnvs) -> ModelSource:
    """The model to start from; made in the run folder where the recipe says `init`."""
    model, start = plan.model, root / START
    if model.init is None:
        found = find_model(model)
        record_source(start, Path(found.path), str(model.path), model.revision, _adapters_to_start_from(model))
        return found
    if start.is_dir():
        check_model(start)
    else:
        texts = await _texts(plan, model.init, envs)
        with _defer_garbage_collection(), sealed_folder(start) as folder:
            tokenizer = make_tokenizer(model.init.tokenizer, texts)
            make_model(model.init, tokenizer, derive(plan.seed, "model"), folder, positions=_context(plan))
    return ModelSource(path=str(start))


def _adapters_to_start_from(model: Model) -> Path | None:
    if model.lora is None or model.lora.path is None:
        return None
    if not (folder := Path(model.lora.path)).is_dir():
        raise RunError(f"model.lora.path: there is no folder '{model.lora.path}'")
    return folder


def find_model(model: Model, key: str = "model") -> ModelSource:
    """An existing model, in a folder or on the hub."""
    return ModelSource(path=str(_folder(model, key)), trust_remote_code=model.trust_remote_code)


def _folder(model: Model, key: str) -> Path:
    """The model's folder, in this user's cache if we name it; one of the hub is fetched, so that both engines read the
    same files of the same revision."""
    assert model.path is not None, "a verified plan names a model"
    folder = Path(_resolve(model.path)).expanduser()
    if folder.is_dir():
        return folder
    if is_folder(model.path):
        raise RunError(f"{key}: there is no folder '{model.path}'")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model.path, revision=model.revision, ignore_patterns=_NOT_NEEDED))
    except (OSError, ValueError) as error:
        # that there is no such repository stands in a later line than the status
        reason = " ".join(str(error).split())[:200]
        near = find_nearest(model.path, list_pretrained())
        advice = f"; did you mean '{near}'?" if near else ""
        raise RunError(f"{key}: '{model.path}' could not be fetched from the hub: {reason}{advice}") from error


def _resolve(path: str) -> str:
    """The folder of a model that we name; other paths and ids as they are. Each process looks on its own machine."""
    model = list_pretrained().get(path)
    return path if model is None else str(find_folder(model, os.environ))


_NOT_NEEDED = ["*.bin", "*.pt", "*.pth", "*.gguf", "*.onnx", "*.h5", "*.msgpack", "original/*"]
"""The same weights in other formats."""


async def _texts(plan: Plan, init: Init, envs: OpenEnvs) -> list[str]:
    if init.tokenizer.corpus is not None:
        return read_text(init.tokenizer.corpus, "model.init.tokenizer.corpus").splitlines()
    found: list[str] = []
    for stage in plan.stages:
        agent = stage.settings.agent
        form = format_for(agent)
        for env in (await envs.all(stage.settings.environments)).values():
            with stop_on_env_error(f"'{env.name}'"):
                found += [env.spec.prompt, form.rules, *(await env.client.corpus())]
            found += [form.write_step(""), form.write_step(" ", " ")]
            found += [form.read(reply).problem for reply in form.unreadable]
        found += [LEFT_OUT] if agent.observation_tokens else []
        found += [*prompt_texts(agent), *([] if agent.thinking else [NO_THOUGHTS])]
    return list(dict.fromkeys(text for text in found if text))


def _context(plan: Plan) -> int:
    return max(stage.settings.agent.context_tokens for stage in plan.stages)


def _dtype(plan: Plan) -> DType:
    if plan.model.dtype is not DType.AUTO:
        return plan.model.dtype
    return DType.BF16 if plan.hardware.gpus_per_node else DType.FP32


@_defer_garbage_collection()
def rollout_worker(
    plan: Plan,
    model: ModelSource,
    envs: OpenEnvs,
    clock: Callable[[], float],
    *,
    version: int | None = None,
    root: Path | None = None,
) -> RolloutWorker:
    """`root` is the run's folder, where its earlier checkpoints may play in this process."""
    tokenizer = load_tokenizer(_words(plan, model), _template(plan))
    settings = sampler_settings(plan, model, version)
    sampler: Sampler = DEFAULT_SAMPLER.load("sampler")(settings, tokenizer.decode)
    chat = Chat(tokenizer, thoughts=plan.stages[0].settings.agent.thoughts)
    earlier = None if root is None else _earlier_checkpoints(plan, model, root, tokenizer.decode)
    return RolloutWorker(sampler, chat, tokenizer.encode_known, envs, clock, earlier)


def _earlier_checkpoints(
    plan: Plan, model: ModelSource, root: Path, decode: Callable[[Sequence[int]], str]
) -> EarlierCheckpoints | None:
    """None where their models are not saved, or would have to share GPUs that are full."""
    if not plan.checkpoint.export or plan.hardware.gpus_per_node:
        return None

    def start(saved: SavedModel) -> Sampler:
        settings = sampler_settings(
            plan, replace(model, path=str(check_model(saved.folder, trusted=model.trust_remote_code))), saved.version
        )
        sampler: Sampler = DEFAULT_SAMPLER.load("sampler")(settings, decode)
        return sampler

    return EarlierCheckpoints(partial(list_earlier_models, plan.checkpoint, root), start)


def list_earlier_models(settings: Checkpoint, root: Path, step: int) -> list[SavedModel]:
    """List those saved before a step, of the checkpoints that are always kept, so that a resumed run finds the same."""
    saved = [each for each in checkpoints_in(root) if each[0] < step and each[0] % settings.every == 0]
    return [
        SavedModel(step=at, folder=folder / MODEL, version=read_progress(folder).version)
        for at, folder in saved[-settings.keep :]
        if (folder / MODEL).is_dir()
    ]


def sampler_settings(plan: Plan, model: ModelSource, version: int | None = None) -> SamplerSettings:
    """`version` is that of a model which only plays; None where weights follow."""
    weights_follow = version is None
    hardware = plan.hardware.rollout
    stages = [(stage.settings, stage.budget.episodes_per_step) for stage in plan.stages]
    slots = num_slots(stages, plan.rollout, on_gpus=plan.hardware.gpus_per_node > 0)
    return SamplerSettings(
        model=Path(model.path),
        dtype=_dtype(plan),
        context_tokens=_context(plan),
        # each engine has its share, and with it its share of the cache; a model that only plays has one engine
        slots=-(-slots // (_num_engines(plan) if weights_follow else 1)),
        tensor_parallel=hardware.tensor_parallel,
        block_size=hardware.block_size,
        cache_bytes=None if hardware.kv_cache_gb is None else int(hardware.kv_cache_gb * 10**9),
        memory_share=_memory_share(plan),
        shares_gpu=plan.hardware.gpus_per_node > 0 and plan.hardware.layout is Layout.COLOCATED,
        eager=hardware.eager if hardware.eager is not None else plan.hardware.gpus_per_node == 0,
        transfer=weight_transfer(plan),
        weights_follow=weights_follow,
        version=version or 0,
        # a model that only plays has no separate ones: they were merged when it was exported
        lora=plan.model.lora if weights_follow else None,
        trust_remote_code=model.trust_remote_code,
    )


def _num_engines(plan: Plan) -> int:
    return sum(worker.role is Role.ROLLOUT for worker in plan.placement.workers) or 1


def weight_transfer(plan: Plan) -> Transfer:
    """Choose how weights reach the samplers: adapters are small, and in one process tensors are already there."""
    hardware = plan.hardware
    is_between_gpus = hardware.gpus_per_node > 0 and plan.placement.launcher == Launcher.RAY
    if not is_between_gpus or plan.model.lora or hardware.weight_transfer is WeightTransfer.OBJECT_STORE:
        return Transfer.DIRECT
    return Transfer.IPC if plan.hardware.layout is Layout.COLOCATED else Transfer.NCCL


def _words(plan: Plan, model: ModelSource) -> ModelSource:
    return model if plan.model.tokenizer is None else ModelSource(path=_resolve(plan.model.tokenizer))


def _memory_share(plan: Plan) -> float:
    """Share of a card, as the plan computed it: no more than a learner on the same card leaves free while it waits."""
    engine = sum(item.bytes for use in plan.budget.memory if use.role is Role.ROLLOUT for item in use.items)
    share = plan.hardware.rollout.memory_share
    return min(share, engine / plan.budget.capacity_bytes) if plan.budget.capacity_bytes and engine else share


@_defer_garbage_collection()
def import_learner() -> None:
    """Import the learner's engine ahead of `learner_worker`: the import takes most of its time."""
    DEFAULT_LEARNER.load("learner")


@_defer_garbage_collection()
def learner_worker(plan: Plan, model: ModelSource) -> LearnerWorker:
    settings, backbone = learner_settings(plan, model), critic_backbone(plan, model)
    notes: list[str] = []

    def make(part: str, *arguments: Any) -> Any:
        engine = DEFAULT_LEARNER.load(part)(*arguments)
        notes.extend(engine.notes)
        return engine

    learner = make("learner", settings)
    teachers = find_teachers(plan, model)

    def check(folder: Path | None) -> Path | None:
        return None if folder is None else check_model(folder, trusted=model.trust_remote_code)

    def make_reference(folder: Path | None) -> Any:
        if settings.lora and folder not in teachers:
            return learner.reference(check(folder))
        frozen = replace(settings, model=teachers.get(folder) or check(folder) or settings.model, lora=None)
        return make("reference", frozen, learner.device)

    def make_critic() -> Any:
        if backbone is None:
            return make("critic", settings, learner.weights())
        return make("critic", replace(settings, model=Path(backbone.path)), None)

    return LearnerWorker(
        learner,
        make_reference,
        PROBE_LIMITS[_dtype(plan)],
        make_critic,
        lambda folder: make("learner", settings, check(folder)),
        notes,
    )


def critic_backbone(plan: Plan, model: ModelSource) -> ModelSource | None:
    """The one that a recipe names, the same in all its stages; None if the critic begins as the policy."""
    key = "algorithm.critic.path"
    critics = [each.settings.algorithm.critic for each in plan.stages if each.kind is Kind.RL]
    path = next((each.path for each in critics if each.path is not None), None)
    if path is None:
        return None
    found = find_model(Model(path=path, trust_remote_code=model.trust_remote_code), key)
    if load_tokenizer(found).vocabulary != load_tokenizer(_words(plan, model)).vocabulary:
        raise RunError(f"{key}: '{path}' reads other tokens than the policy says")
    return found


def find_teachers(plan: Plan, model: ModelSource) -> Mapping[Path | None, Path]:
    """The folders of all teachers, by their names in the recipe."""
    key = "algorithm.distill.teacher"
    folders: dict[Path | None, Path] = {}
    for stage in plan.stages:
        path = stage.settings.algorithm.distill.teacher
        if path is None:
            continue
        found = find_model(Model(path=path, trust_remote_code=model.trust_remote_code), key)
        if load_tokenizer(found).vocabulary != load_tokenizer(_words(plan, model)).vocabulary:
            raise RunError(
                f"{key}: '{path}' has another tokenizer than the policy, and a teacher scores the policy's own tokens; "
                "choose one of the same family"
            )
        folders[Path(path)] = Path(found.path)
    return folders


def learner_settings(plan: Plan, model: ModelSource) -> LearnerSettings:
    train = plan.hardware.train
    # each stage sets its own constants; here it counts whether any of them decays
    optimizers = [stage.settings.algorithm.optimizer for stage in plan.stages]
    decay = max(optimizer.weight_decay for optimizer in optimizers)
    return LearnerSettings(
        model=Path(model.path),
        dtype=_dtype(plan),
        lora=plan.model.lora,
        seed=derive(plan.seed, "learner"),
        zero=0 if _alone(plan) else train.zero,
        offload=train.offload,
        optimizer=OptimizerSettings(betas=optimizers[0].betas, eps=optimizers[0].eps, weight_decay=decay),
        tokens_per_micro_batch=most_row_tokens([stage.settings for stage in plan.stages], plan.hardware),
        sequence_parallel=train.sequence_parallel,
        share_prefixes=train.share_prefixes,
        activation_checkpointing=recomputes_activations(plan.hardware),
        # a GPU's units for half precision add up in fp32 anyway; a CPU widens the matrix at each update
        fp32_head=plan.hardware.gpus_per_node > 0 if train.fp32_head is None else train.fp32_head,
        trust_remote_code=model.trust_remote_code,
        tokenizer=None if plan.model.tokenizer is None else _resolve(plan.model.tokenizer),
        chat_template=_template(plan),
        base_model=_hub_id(plan.model),
    )


def _hub_id(model: Model) -> str | None:
    is_elsewhere = model.path is not None and not is_folder(model.path) and model.path not in list_pretrained()
    return model.path if is_elsewhere else None


def _alone(plan: Plan) -> bool:
    """Whether ZeRO would have only one rank to share with: the same steps, and a useless copy of every gradient. Half
    precision and offloading need ZeRO all the same."""
    ranks = sum(worker.role is Role.LEARNER for worker in plan.placement.workers)
    return ranks == 1 and _dtype(plan) is DType.FP32 and plan.hardware.train.offload is Offload.NONE


def _template(plan: Plan) -> str | None:
    path = plan.model.chat_template
    return None if path is None else read_text(path, "model.chat_template")
