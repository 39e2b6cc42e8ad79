"""Keys without effect: for each key of the tables, a recipe in which it has no effect and one in which it has one."""

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
    Gpu,
    Harness,
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
    SavedEpisodes,
    SaveEpisodes,
    Sink,
    Transport,
    WeightTransfer,
)
from agym.dsl.model.stage_kinds import kind_of
from agym.dsl.source import Source
from agym.runtime.sinks.registry import SINKS

from ..memory_library import MemoryLibrary
from .listed import Listed

Changes = dict[str, Any]
Cases = dict[str, tuple[list[Changes], list[Changes]]]
"""Key: recipes in which it has no effect, recipes in which it has one."""
Check = Callable[[Changes, Sequence[str]], list[str]]


SAVES_ALL: Changes = {"checkpoint": Checkpoint(episodes=SavedEpisodes(which=SaveEpisodes.ALL))}


@pytest.fixture
def reported(change: Callable[..., Any], recipe: Recipe) -> Check:
    """Dotted keys that are reported when a person wrote `keys` in the small recipe with changes."""

    def check(changes: Changes, keys: Sequence[str]) -> list[str]:
        found = list(relevance.find_keys_without_effect(change(recipe, changes), Listed(keys), Catalog(sinks=SINKS)))
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
URL: Changes = {"schedule.*.environments.craft.url": "http://127.0.0.1:1", "schedule.*.environments.craft.use": None}
ASKED = URL | {"schedule.*.reward.judge": JUDGE}
"""A judge that answers only what an environment asks."""
FOLDER: Changes = {"schedule.*.environments.craft.use": "./mine", "schedule.*.reward.judge": JUDGE}
"""An environment in a folder that was not read."""
PAIRWISE = JUDGED | {"schedule.*.reward.source": RewardSource.PAIRWISE}
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

HARNESS = {"schedule.*.agent.harness": Harness(command=("python", "-m", "agent"))}
OF_OUR_OWN_AGENT = (
    *("parsing", "prompt", "observation_tokens", "guided", "show_actions", "demonstrations", "on_invalid"),
    *("on_invalid_turn", "planning", "reflection", "memory"),
)

AGENT: Cases = {
    **{f"agent.{key}": ([HARNESS], [{}]) for key in OF_OUR_OWN_AGENT},
    "agent.harness.limits": ([{"schedule.*.agent.harness": Harness(use="mine")}], [HARNESS]),
    "agent.parallel_calls": ([{}, HARNESS], [{"schedule.*.agent.format": Format.TOOLS}]),
    "agent.thoughts": ([{"schedule.*.agent.thinking": False}, HARNESS], [{}]),
    "agent.memory.turns": ([{}], [{"schedule.*.agent.memory.kind": MemoryKind.WINDOW}]),
    "agent.memory.tokens": (
        [{}, {"schedule.*.agent.memory.kind": MemoryKind.WINDOW}],
        [{"schedule.*.agent.memory.kind": MemoryKind.SUMMARY}],
    ),
    "agent.invalid_limit": ([{"schedule.*.agent.on_invalid": OnInvalid.END}, HARNESS], [{}]),
}

STAGE: Cases = {
    "agent.format": ([HARNESS, EVAL | HARNESS], [{}, SFT, SFT | HARNESS]),
    "sampling.temperature": ([SFT, EVAL], [{}, EVOLVE]),
    "sampling.top_p": ([SFT], [{}]),
    "sampling.top_k": ([SFT], [{}]),
    "sampling.min_p": ([SFT], [{}]),
    "agent.on_truncated": ([SFT, EVAL], [{}]),
    "agent.on_invalid_turn": ([SFT], [{}]),
    "reward": ([SFT, DPO, EVAL], [{}, PLAYED_DPO, EVAL | ASKED]),
    "reward.source": ([EVAL | ASKED], [{}, ASKED]),
    "reward.episode": ([EVAL | ASKED], [{}, ASKED]),
    "reward.turn": ([EVAL | ASKED], [{}, ASKED]),
    "reward.invalid_turn": ([EVAL | ASKED], [{}, ASKED]),
    "reward.overlong": ([EVAL | ASKED], [{}, ASKED]),
    "reward.clip": ([EVAL | ASKED], [{}, ASKED]),
    "reward.normalise": ([EVAL | ASKED], [{}, ASKED]),
    "reward.judge": ([{"schedule.*.reward.judge": JUDGE}], [JUDGED, PAIRWISE, ASKED, EVAL | ASKED, FOLDER]),
    "reward.judge.prompt": ([ASKED], [JUDGED, PAIRWISE]),
    "reward.judge.samples": ([ASKED, EVAL | ASKED | JUDGED], [JUDGED, PAIRWISE]),
    "reward.judge.scope": ([PAIRWISE, ASKED], [JUDGED]),
    "reward.judge.scale": ([PAIRWISE, ASKED], [JUDGED]),
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
    "hardware.network_gb_per_s": (
        [{}, GPUS, {"hardware.nodes": 2}],
        [GPUS | {"hardware.nodes": 2, "hardware.gpu": Gpu.H100}],
    ),
    "hardware.layout": ([{"hardware.layout": Layout.SPLIT}], [{}, GPUS, SPLIT]),
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
    "hardware.weight_transfer": (
        [{"hardware.weight_transfer": WeightTransfer.OBJECT_STORE}],
        [GPUS | {"hardware.weight_transfer": WeightTransfer.OBJECT_STORE, "hardware.launcher": Launcher.RAY}, GPUS, {}],
    ),
    "hardware.in_flight": (
        [{"hardware.in_flight": True}],
        [{"hardware.staleness": 1, "hardware.in_flight": True}, {"hardware.staleness": 1}],
    ),
    "hardware.max_restarts": ([{}], [{"hardware.launcher": Launcher.RAY}, GPUS]),
    "hardware.staleness": ([SFT | {"hardware.staleness": 1}], [SFT, {"hardware.staleness": 1}]),
    "hardware.train": ([EVAL], [{}]),
    "guards": ([EVAL], [{}]),
    "guards.on_kl": ([{"guards.kl_max": None}], [{}]),
    "guards.on_grad_norm": ([{}], [{"guards.grad_norm_max": 1.0}]),
    "guards.patience": (
        [{}, {"guards.mismatch_max": 0.1}],
        [{"guards.entropy_min": 0.1}, {"guards.zero_std_max": 0.9}, {"guards.invalid_max": 0.9}],
    ),
    "eval.samples": (
        [{"eval": Eval(temperature=0, samples=8)}],
        [{}, {"eval": Eval(temperature=0)}, {"eval": Eval(samples=8)}],
    ),
    "eval.greedy": (
        [{"eval": Eval(temperature=0, greedy=True)}],
        [{}, {"eval": Eval(temperature=0)}, {"eval": Eval(greedy=True)}],
    ),
    "guards.max_roll_backs": (
        [NO_ROLL_BACK, NO_ROLL_BACK | {"guards.on_grad_norm": OnFault.ROLL_BACK}],
        [
            {},
            NO_ROLL_BACK | {"guards.kl_max": 1.0},
            NO_ROLL_BACK | {"guards.on_grad_norm": OnFault.ROLL_BACK, "guards.grad_norm_max": 1.0},
        ],
    ),
    "guards.kl_max": ([SFT], [{}]),
    "guards.entropy_min": ([SFT], [{}]),
    "guards.zero_std_max": ([SFT], [{}]),
    "guards.invalid_max": ([SFT], [{}]),
    "guards.mismatch_max": ([SFT], [{}]),
    "guards.mismatch_ratio_max": ([SFT], [{}]),
    "checkpoint.every": ([EVAL], [{}]),
    "checkpoint.keep": ([EVAL], [{}]),
    "checkpoint.keep_exports": ([EVAL, {"checkpoint": Checkpoint(export=False)}], [{}]),
    "checkpoint.best": ([EVAL], [{}]),
    "checkpoint.export": ([EVAL], [{}]),
    "checkpoint.episodes.train": ([SAVES_ALL, EVAL, SFT], [{}]),
    "checkpoint.episodes.eval": ([SAVES_ALL], [{}]),
    "eval.every": ([EVAL], [{}]),
    "eval.at_start": ([EVAL], [{}]),
    "eval.at_end": ([EVAL], [{}]),
}


def logs(use: str) -> Changes:
    return {"logging": (Sink(use=use),)}


SINK: Cases = {
    "project": ([logs("tensorboard")], [logs("wandb"), logs("mlflow"), logs("trackio"), logs("mine")]),
    "entity": ([logs("tensorboard"), logs("mlflow"), logs("trackio")], [logs("wandb"), logs("mine")]),
    "uri": ([logs("tensorboard"), logs("wandb")], [logs("mlflow"), logs("trackio"), logs("mine")]),
    "offline": ([logs("tensorboard"), logs("trackio")], [logs("wandb"), logs("mlflow"), logs("mine")]),
    "options": ([logs("tensorboard"), logs("mlflow")], [logs("wandb"), logs("trackio"), logs("mine")]),
}

TOP: Cases = (
    {f"algorithm.{key}": case for key, case in ALGORITHM.items()}
    | AGENT
    | STAGE
    | {f"environments.craft.{key}": case for key, case in ENVIRONMENT.items()}
    | RECIPE
    | {f"logging.0.{key}": case for key, case in SINK.items()}
)
IN_STAGE: Cases = {
    key: case
    for key, case in TOP.items()
    if key.split(".")[0] in ("algorithm", "agent", "reward", "sampling", "environments")
} | {
    "turns": ([SFT], [{}, EVAL, EVOLVE]),
    "until": ([EVAL], [{}, SFT]),
    "shrink": ([], [{}]),
    "eval_every": ([{"eval": None}, EVAL], [{}, SFT]),
}


@pytest.mark.parametrize("key", TOP)
def test_a_key_of_the_recipe_is_reported_where_it_is_in_vain(reported: Check, key: str) -> None:
    for changes in TOP[key][0]:
        assert reported(changes, [key]) == [key], changes


@pytest.mark.parametrize("key", TOP)
def test_a_key_of_the_recipe_is_not_reported_where_it_matters(reported: Check, key: str) -> None:
    for changes in TOP[key][1]:
        assert reported(changes, [key]) == [], changes


@pytest.mark.parametrize("key", IN_STAGE)
def test_a_key_of_a_stage_is_judged_in_that_stage(reported: Check, key: str) -> None:
    for changes in IN_STAGE[key][0]:
        assert reported(changes, [f"schedule.1.{key}"]) == [f"schedule.1.{key}"], changes
    for changes in IN_STAGE[key][1]:
        assert reported(changes, [f"schedule.1.{key}"]) == [], changes


def test_every_condition_has_a_case() -> None:
    tables: list[tuple[Any, set[str]]] = [
        (effects.ALGORITHM, set(ALGORITHM)),
        (effects.AGENT, {key.removeprefix("agent.") for key in AGENT}),
        (effects.STAGE, {*STAGE, "turns", "until"}),
        (effects.ENTRY, {"shrink", "eval_every"}),
        (effects.ENVIRONMENT, set(ENVIRONMENT)),
        (effects.RECIPE, set(RECIPE)),
    ]
    for conditions, cases in tables:
        assert {key for condition in conditions for key in condition.keys.split()} == cases


# --- several stages ------------------------------------------------------------------------------------------------

WARM_UP: Changes = {"schedule.0.algorithm.use": Preset.SFT}


def test_one_stage_in_which_it_matters_is_enough(reported: Check) -> None:
    assert reported(WARM_UP, ["algorithm.batch_size", "algorithm.group_size", "algorithm.data", "sampling.top_p"]) == []


def test_a_key_must_matter_wholly_in_one_stage(reported: Check) -> None:
    # the first stage is not reinforcement, the second makes one update per step: neither has anything to stop
    one_update = WARM_UP | {"schedule.1.algorithm.groups_per_update": None, "schedule.0.algorithm.epochs": 3}
    assert reported(one_update, ["algorithm.kl_stop"]) == ["algorithm.kl_stop"]


def test_the_reason_is_that_of_the_stage_that_comes_closest(change: Callable[..., Any], recipe: Recipe) -> None:
    (found,) = relevance.find_keys_without_effect(
        change(recipe, WARM_UP), Listed(["algorithm.advantage.lam"]), Catalog(sinks=SINKS)
    )
    assert found.message.endswith("only 'gae' and 'bilevel_gae' have a lambda")


def test_a_stage_s_own_key_must_matter_there(reported: Check) -> None:
    keys = ["schedule.0.algorithm.group_size", "schedule.1.algorithm.group_size"]
    assert reported(WARM_UP, keys) == ["schedule.0.algorithm.group_size"]


def test_an_inherited_key_is_not_reported_in_the_stage(reported: Check) -> None:
    assert reported(WARM_UP, ["algorithm.group_size", "schedule.0.algorithm.use"]) == []


def test_a_section_is_reported_once_and_without_its_keys(reported: Check) -> None:
    assert reported({}, ["algorithm.critic", "algorithm.critic.lr"]) == ["algorithm.critic"]
    assert reported(SFT, ["algorithm.advantage", "algorithm.advantage.lam"]) == ["algorithm.advantage"]


MEASURED = """
agym: 1
name: mine
model: Qwen/Qwen3-0.6B
environments: {textcraft: textcraft}
schedule: [{stage: go, turns: 3, until: step >= 9, eval_every: 3}]
"""


def test_shrink_says_nothing_in_the_first_stage(reported: Check) -> None:
    assert reported({}, ["schedule.0.shrink", "schedule.1.shrink"]) == ["schedule.0.shrink"]


def test_null_takes_away_what_a_base_gave_and_is_not_in_vain(catalog: Catalog) -> None:
    def codes(*settings: str) -> list[str]:
        compiled = compile_recipe(Source("a.yaml", MEASURED), MemoryLibrary({}), settings, {}, catalog)
        return [found.code for found in compiled.diagnostics]

    assert codes("eval=null", "schedule.0.eval_every=2") == ["no-effect"]
    assert codes("eval=null", "schedule.0.eval_every=null") == []


def test_what_nobody_wrote_is_not_reported(reported: Check) -> None:
    assert reported(EVAL | {"hardware.layout": Layout.SPLIT}, ["name"]) == []


def test_the_message_names_the_key_and_the_reason(recipe: Recipe) -> None:
    found: list[Diagnostic] = list(
        relevance.find_keys_without_effect(recipe, Listed(["algorithm.advantage.lam"]), Catalog(sinks=SINKS))
    )
    assert [diagnostic.message for diagnostic in found] == [
        "'algorithm.advantage.lam' has no effect: only 'gae' and 'bilevel_gae' have a lambda"
    ]
    assert found[0].help == "remove it"


# --- for inheriting ------------------------------------------------------------------------------------------------


def test_relevance_of_a_path_with_and_without_its_section() -> None:
    imitating = Algorithm(use=Preset.SFT)
    assert relevance.explain_no_effect(("advantage", "lam"), imitating) == relevance.explain_no_effect(
        ("algorithm", "advantage", "lam"), imitating
    )
    assert relevance.explain_no_effect(("advantage", "lam"), imitating) is not None
    assert relevance.explain_no_effect(("lr",), imitating) is None


@pytest.mark.parametrize("preset", Preset)
def test_kinds_are_those_of_the_presets(preset: Preset) -> None:
    assert kind_of(Algorithm(use=preset)) is load_presets()[preset].kind
