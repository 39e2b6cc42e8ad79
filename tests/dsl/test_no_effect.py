"""Keys without effect: for each key of the tables, a recipe in which it is in vain and one in which it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from agym.dsl.catalog import Catalog
from agym.dsl.check import effect_tables as effects
from agym.dsl.check import no_effect as relevance
from agym.dsl.check.presets import load_presets
from agym.dsl.compile import compile_recipe
from agym.dsl.diagnostics import Diagnostic
from agym.dsl.expression.expr import Expr
from agym.dsl.model.algorithm import (
    Aggregation,
    Algorithm,
    Baseline,
    Correction,
    DataSource,
    Estimator,
    KLPlace,
    LossKind,
    LossOn,
    Preset,
)
from agym.dsl.model.recipe import (
    Checkpoint,
    Dialect,
    DType,
    Eval,
    Format,
    Init,
    Judge,
    Launcher,
    Layout,
    MemoryKind,
    Model,
    Offload,
    OnFault,
    OnInvalid,
    Recipe,
    RewardSource,
    Sink,
    Transport,
)
from agym.dsl.model.stage_kinds import kind_of
from agym.dsl.source import Source
from agym.runtime.sinks.registry import SINKS

from ..memory_library import MemoryLibrary
from .listed import Listed

Changes = dict[str, Any]
Cases = dict[str, tuple[list[Changes], list[Changes]]]
"""Key: recipes in which it is in vain, recipes in which it is not."""
Check = Callable[[Changes, Sequence[str]], list[str]]


@pytest.fixture
def reported(change: Callable[..., Any], recipe: Recipe) -> Check:
    """Dotted keys that are reported when a person wrote `keys` in the small recipe with changes."""

    def check(changes: Changes, keys: Sequence[str]) -> list[str]:
        found = list(relevance.find_keys_without_effect(change(recipe, changes), Listed(keys), SINKS))
        assert all(diagnostic.code == "no-effect" for diagnostic in found)
        assert all(diagnostic.span.text in keys for diagnostic in found)
        return [diagnostic.span.text for diagnostic in found]

    return check


def use(preset: Preset, **algorithm: Any) -> Changes:
    return {"schedule.*.algorithm.use": preset} | {f"schedule.*.algorithm.{k}": v for k, v in algorithm.items()}


def al(**algorithm: Any) -> Changes:
    """Changes of the algorithm, `__` for a dot."""
    return {f"schedule.*.algorithm.{key.replace('__', '.')}": value for key, value in algorithm.items()}


NO_ROLL_BACK = {"guards.on_nan": OnFault.STOP, "guards.kl_max": None}

SFT, DPO, EVAL, EVOLVE = use(Preset.SFT), use(Preset.DPO), use(Preset.EVAL), use(Preset.AGENT_EVOL)
DISTILL = use(Preset.DISTILL)
PLAYED_DPO = use(Preset.DPO, **{"data.source": DataSource.ROLLOUT})
EXPLORING = EVOLVE | {"schedule.*.algorithm.data.source": DataSource.ROLLOUT}
GIVEN_PAIRS = use(Preset.DPO, **{"data.source": DataSource.FILE})
GPUS: Changes = {"hardware.gpus_per_node": 2}
SPLIT: Changes = GPUS | {"hardware.layout": Layout.SPLIT}
CRITIC = al(advantage__baseline=Baseline.CRITIC)
KL = al(kl__coef=1e-3)
JUDGE = Judge(url="http://127.0.0.1:1/v1", model="x")
JUDGED: Changes = {"schedule.*.reward.judge": JUDGE, "schedule.*.reward.source": RewardSource.JUDGE}
PAIRWISE = JUDGED | {"schedule.*.reward.source": RewardSource.PAIRWISE}
URL: Changes = {"schedule.*.environments.craft.url": "http://127.0.0.1:1", "schedule.*.environments.craft.use": None}
SCRATCH: Changes = {"model": Model(init=Init())}

ALGORITHM: Cases = {
    "lr": ([EVAL], [{}, SFT, DPO, EVOLVE]),
    "max_grad_norm": ([EVAL], [{}, SFT]),
    "optimizer": ([EVAL], [{}, SFT]),
    "group_size": ([SFT, EVOLVE, DPO, EVAL], [{}, PLAYED_DPO]),
    "groups_per_step": ([SFT, DPO, EVAL], [{}, PLAYED_DPO, EVOLVE]),
    "groups_per_update": ([SFT, PLAYED_DPO], [{}]),
    "updates_per_pass": ([SFT, {}], [al(groups_per_update=None)]),
    "batch_size": ([{}, EVAL], [SFT, DPO, EVOLVE]),
    "epochs": ([SFT, DPO, EVAL], [{}, EVOLVE, PLAYED_DPO]),
    "kl_stop": (
        [SFT, al(groups_per_update=None), al(groups_per_update=16)],
        [{}, al(groups_per_update=None, epochs=2)],
    ),
    "advantage": ([SFT, DPO], [{}]),
    "advantage.gamma": (
        [{}, al(advantage__estimator=Estimator.TURN_RETURNS)],
        [al(advantage__estimator=Estimator.REWARD_TO_GO), al(advantage__estimator=Estimator.GAE)],
    ),
    "advantage.lam": (
        [{}, al(advantage__estimator=Estimator.REWARD_TO_GO)],
        [al(advantage__estimator=Estimator.GAE), al(advantage__estimator=Estimator.BILEVEL_GAE)],
    ),
    "advantage.turn_gamma": (
        [{}, al(advantage__estimator=Estimator.GAE)],
        [al(advantage__estimator=Estimator.TURN_RETURNS), al(advantage__estimator=Estimator.STEP_GROUPS)],
    ),
    "advantage.turn_lam": (
        [{}, al(advantage__estimator=Estimator.GAE)],
        [al(advantage__estimator=Estimator.BILEVEL_GAE)],
    ),
    "advantage.step_weight": ([{}], [al(advantage__estimator=Estimator.STEP_GROUPS)]),
    "loss": ([SFT, DPO], [{}]),
    "loss.ratio": ([al(loss__kind=LossKind.POLICY_GRADIENT)], [{}]),
    "loss.clip": (
        [al(loss__kind=LossKind.POLICY_GRADIENT), al(loss__kind=LossKind.SAPO)],
        [{}, al(loss__kind=LossKind.GSPO), al(loss__kind=LossKind.DPPO)],
    ),
    "loss.gate": ([{}, al(loss__kind=LossKind.DPPO)], [al(loss__kind=LossKind.SAPO)]),
    "loss.divergence": ([{}, al(loss__kind=LossKind.SAPO)], [al(loss__kind=LossKind.DPPO)]),
    "loss.clip.dual": ([al(loss__kind=LossKind.GSPO), al(loss__kind=LossKind.CISPO)], [{}]),
    "loss.length": ([{}], [al(loss__aggregation=Aggregation.FIXED_LENGTH)]),
    "kl": ([SFT], [{}, DPO]),
    "kl.coef": ([DPO], [{}]),
    "kl.estimator": ([{}], [KL, al(kl__previous_coef=0.1)]),
    "kl.clamp": ([{}], [KL, al(kl__previous_coef=0.1)]),
    "kl.gradient": ([{}, KL | al(kl__place=KLPlace.REWARD)], [KL, al(kl__previous_coef=0.1)]),
    "kl.place": ([{}, al(kl__previous_coef=0.1), DPO | KL], [KL]),
    "kl.previous_coef": ([DPO, al(groups_per_update=None)], [{}, al(groups_per_update=None, epochs=2)]),
    "kl.reference": (
        [{}, al(kl__previous_coef=0.1), DISTILL | KL],
        [KL, DPO, al(kl__coef=Expr("linear(0, 1e-3, 10)"))],
    ),
    "kl.target": ([{}, al(kl__coef=Expr("0 * 2"))], [KL]),
    "kl.target_steps": ([{}, KL], [KL | al(kl__target=0.05)]),
    "entropy": ([SFT], [{}]),
    "filter": ([SFT], [{}]),
    "filter.max_resamples": ([{}], [al(filter__resample=True)]),
    "importance": ([SFT], [{}]),
    "importance.level": ([al(importance__correction=Correction.NONE)], [{}]),
    "importance.cap": ([al(importance__correction=Correction.NONE)], [{}]),
    "importance.floor": (
        [{}, al(importance__correction=Correction.NONE)],
        [al(importance__correction=Correction.MASK)],
    ),
    "importance.reject.geometric": ([al(importance__correction=Correction.NONE)], [{}]),
    "distill": ([{}, SFT], [DISTILL]),
    "critic": ([{}, SFT, DPO], [CRITIC, use(Preset.TURN_DPO)]),
    **dict.fromkeys(("critic.path", "critic.clip"), ([use(Preset.TURN_DPO)], [CRITIC])),
    "critic.privileged": ([CRITIC], [use(Preset.TURN_DPO)]),
    "data": ([{}, EVAL], [SFT, DPO, EVOLVE]),
    "data.path": (
        [SFT, PLAYED_DPO],
        [SFT | al(data__source=DataSource.FILE), SFT | al(data__source=DataSource.EPISODES)],
    ),
    "data.limit": ([PLAYED_DPO], [SFT]),
    "data.noise": ([SFT | al(data__source=DataSource.FILE)], [SFT]),
    "data.loss_on": (
        [SFT, PLAYED_DPO | al(data__loss_on=LossOn.ALL), SFT | al(data__noise=0.4, data__source=DataSource.FILE)],
        [SFT | al(data__noise=0.4), SFT | al(data__loss_on=LossOn.ALL)],
    ),
    "data.relabel": ([PLAYED_DPO], [SFT, use(Preset.RELAY)]),
    "preference": ([{}, SFT], [DPO, use(Preset.TURN_DPO)]),
    "data.keep": (
        [GIVEN_PAIRS, EXPLORING],
        [PLAYED_DPO, GIVEN_PAIRS | al(data__source=DataSource.EPISODES), SFT, EVOLVE],
    ),
    **dict.fromkeys(
        ("preference.level", "preference.margin", "preference.pairs_per_group"),
        ([GIVEN_PAIRS], [PLAYED_DPO, GIVEN_PAIRS | al(data__source=DataSource.EPISODES)]),
    ),
    "preference.candidates": ([DPO], [use(Preset.TURN_DPO)]),
    "evolve": ([{}, SFT], [EVOLVE]),
    "evolve.keep_demonstrations": ([EXPLORING], [EVOLVE]),
}

AGENT: Cases = {
    "agent.parallel_calls": ([{}], [{"schedule.*.agent.format": Format.TOOLS}]),
    "agent.memory.turns": ([{}], [{"schedule.*.agent.memory.kind": MemoryKind.WINDOW}]),
    "agent.memory.tokens": (
        [{}, {"schedule.*.agent.memory.kind": MemoryKind.WINDOW}],
        [{"schedule.*.agent.memory.kind": MemoryKind.SUMMARY}],
    ),
    "agent.invalid_limit": ([{"schedule.*.agent.on_invalid": OnInvalid.END}], [{}]),
}

STAGE: Cases = {
    "sampling.temperature": ([SFT, EVAL], [{}, EVOLVE]),
    "sampling.top_p": ([SFT], [{}]),
    "sampling.top_k": ([SFT], [{}]),
    "sampling.min_p": ([SFT], [{}]),
    "agent.on_truncated": ([SFT, EVAL], [{}]),
    "agent.on_invalid_turn": ([SFT], [{}]),
    "reward": ([SFT, DPO, EVAL], [{}, PLAYED_DPO]),
    "reward.judge": ([{"schedule.*.reward.judge": JUDGE}], [JUDGED, PAIRWISE]),
    "reward.judge.scope": ([PAIRWISE], [JUDGED]),
    "reward.judge.scale": ([PAIRWISE], [JUDGED]),
}

ENVIRONMENT: Cases = {
    "dialect": ([{}], [URL]),
    "kind": ([{}, URL], [URL | {"schedule.*.environments.craft.dialect": Dialect.AGENTGYM}]),
    "token": ([{}], [URL]),
    "replicas": ([URL, {"schedule.*.environments.craft.transport": Transport.INLINE}], [{}]),
    "transport": ([URL], [{}]),
    "options": ([URL], [{}]),
    "weight": ([SFT, DPO, EVAL], [{}, PLAYED_DPO, EVOLVE]),
}

RECIPE: Cases = {
    "model.revision": ([SCRATCH, {"model.path": "./mine"}, {"model.path": "/mine"}], [{}]),
    "model.trust_remote_code": ([SCRATCH], [{}]),
    "model.shape": ([SCRATCH], [{}]),
    "model.init.tokenizer": ([SCRATCH | {"model.tokenizer": "./mine"}], [SCRATCH]),
    "rollout.limits.score": ([{}, JUDGED | EVAL], [JUDGED, PAIRWISE]),
    "hardware.gpu": ([{}], [GPUS]),
    "hardware.gpu_memory_gb": ([{}], [GPUS]),
    "hardware.workers_per_node": ([GPUS | {"hardware.workers_per_node": 2}], [{"hardware.workers_per_node": 2}, GPUS]),
    "hardware.layout": ([{"hardware.layout": Layout.SPLIT}], [{}, GPUS, SPLIT]),
    "hardware.rollout.tensor_parallel": ([{"hardware.rollout.tensor_parallel": 2}], [{}, GPUS]),
    "hardware.rollout.memory_share": ([{}], [GPUS]),
    "hardware.rollout.kv_cache_gb": ([GPUS], [{}]),
    "hardware.rollout.eager": ([{"hardware.rollout.eager": False}], [{}, {"hardware.rollout.eager": True}, GPUS]),
    "hardware.rollout.gpus": ([{}, GPUS], [SPLIT]),
    "hardware.train.gpus": ([{}, GPUS], [SPLIT]),
    "hardware.train.fp32_head": ([{}, GPUS | {"model.dtype": DType.FP32}], [GPUS, {"model.dtype": DType.BF16}]),
    "hardware.train.offload": ([{"hardware.train.offload": Offload.OPTIMIZER}], [{}, GPUS]),
    "hardware.ray_address": (
        [{"hardware.launcher": Launcher.INLINE, "hardware.ray_address": "auto"}],
        [{"hardware.ray_address": "auto"}, GPUS],
    ),
    "hardware.heartbeat_s": ([{}], [{"hardware.workers_per_node": 2}, GPUS]),
