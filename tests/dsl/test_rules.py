"""Rules: for each, recipes that it refuses, with the key and the words, and recipes that it lets pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.catalog import Catalog
from agym.dsl.codes import CODES
from agym.dsl.diagnostics import Diagnostic, Severity
from agym.dsl.expression.expr import Expr
from agym.dsl.model.algorithm import (
    Algorithm,
    Baseline,
    Correction,
    DataSource,
    Estimator,
    KLPlace,
    Level,
    LossKind,
    Normalise,
    Preset,
    Relabel,
)
from agym.dsl.model.model_sizes import find_shape
from agym.dsl.model.recipe import (
    Dialect,
    DType,
    Environment,
    Eval,
    Format,
    Gpu,
    Harness,
    Init,
    Judge,
    Launcher,
    Layout,
    Lora,
    MemoryKind,
    Model,
    ModelShape,
    Offload,
    Planning,
    Recipe,
    Reflection,
    RewardSource,
    Sink,
    Tasks,
    TaskSelection,
)
from agym.dsl.planning.lower import lower
from agym.dsl.rules import all_rules as rules
from agym.dsl.rules.context import Case
from agym.dsl.rules.run import STEP_METRICS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .listed import Listed
from .test_plan_properties import problems

Changes = dict[str, Any]
Fires = tuple[Changes, str, str]
"""Changes of the small recipe, the key at which it is said, a part of what is said."""


def al(**algorithm: Any) -> Changes:
    return {f"schedule.*.algorithm.{key.replace('__', '.')}": value for key, value in algorithm.items()}


def world(environment: Environment) -> Changes:
    return {"schedule.*.environments": {"craft": environment}}


def tasks(**both: TaskSelection) -> Changes:
    return world(Environment(use="textcraft", tasks=Tasks(**both)))


def init(**sizes: Any) -> Changes:
    return {"model": Model(init=Init(**sizes))}


def judged(source: RewardSource, **changes: Any) -> Changes:
    judge = Judge(url="http://127.0.0.1:1/v1", model="x", **changes)
    return {"schedule.*.reward.source": source, "schedule.*.reward.judge": judge}


TOY = ModelShape(layers=1, hidden=8, heads=4, kv_heads=2, intermediate=8, vocab=8)
CRITIC = al(advantage__baseline=Baseline.CRITIC, advantage__normalise=Normalise.BATCH_STD)
SFT, DPO, EVAL = al(use=Preset.SFT), al(use=Preset.DPO), al(use=Preset.EVAL)
ONE_UPDATE = al(groups_per_update=None)
DISTILL = al(use=Preset.DISTILL, kl__coef=1.0, kl__place=KLPlace.REWARD)
RELAY = al(use=Preset.RELAY, data__relabel=Relabel.HINDSIGHT)
DPO_ROLLOUT = DPO | al(data__source=DataSource.ROLLOUT)
RANKED = DPO_ROLLOUT | al(use=Preset.TURN_DPO, preference__level=Level.TURN)
FOUR: Changes = {"hardware.gpus_per_node": 4}
SPLIT: Changes = FOUR | {"hardware.layout": Layout.SPLIT}
H100: Changes = {"hardware.gpus_per_node": 8, "hardware.gpu": Gpu.H100}
SEVEN: Changes = {"model.path": "Qwen/Qwen2.5-7B-Instruct"}
GUIDED = "schedule.*.agent.guided"
MEMORY, REFLECTION = "schedule.*.agent.memory.kind", "schedule.*.agent.reflection"
RELABELLED: Changes = al(use=Preset.AGENT_EVOL, data__source=DataSource.ROLLOUT, data__relabel=Relabel.HINDSIGHT)
TOLD: Changes = al(use=Preset.TURN_DPO, data__source=DataSource.ROLLOUT, critic__privileged=True)
A_SECOND: Changes = {"schedule.1.stage": "exploit"}
FOREIGN = Environment(url="http://x", dialect=Dialect.AGENTGYM, kind="babyai")
BEST = "checkpoint.best"

OWN_AGENT = Harness(command=("python", "-m", "agent"))
HARNESS = "schedule.*.agent.harness"
OPPONENT = "environments.duel.options.opponent"


def meeting(*opponents: str) -> Changes:
    """A game against them."""
    return {"schedule.*.environments": {"duel": Environment(use="duel", options={"opponent": opponents})}}


CASES: dict[str, tuple[list[Fires], list[Changes]]] = {
    # --- harness
    "harness.harness_has_one_origin": (
        [
            ({HARNESS: Harness()}, "agent.harness", "a harness needs 'use' or 'command'"),
            ({HARNESS: replace(OWN_AGENT, use="mine")}, "agent.harness.command", "give only one of them"),
        ],
        [{}, {HARNESS: OWN_AGENT}, {HARNESS: Harness(use="mine")}],
    ),
    "harness.harness_is_registered": (
        [({HARNESS: Harness(use="mine")}, "agent.harness.use", "harness 'mine' is not installed")],
        [{}, {HARNESS: OWN_AGENT}],
    ),
    "harness.harness_can_play": (
        [
            ({"schedule.*.algorithm.use": preset, HARNESS: OWN_AGENT}, "agent.harness", "samples turns by itself")
            for preset in (Preset.AGENT_EVOL, Preset.TURN_DPO)
        ],
        [{}, {HARNESS: OWN_AGENT}],
    ),
    # --- model
    "model.model_has_one_origin": (
        [
            ({"model": Model()}, "model", "needs 'path' or 'init'"),
            ({"model.init": Init()}, "model.init", "give only one of them"),
        ],
        [{}, init()],
    ),
    "model.heads_divide": (
        [
            (init(hidden=100, heads=3), "model.init.heads", "3 heads do not divide 'hidden' (100)"),
            (init(hidden=20, heads=4), "model.init.heads", "the head size must be even"),
            (init(heads=4, kv_heads=3), "model.init.kv_heads", "3 key-value heads do not divide 4 heads"),
        ],
        [{}, init(), init(hidden=64, heads=2, kv_heads=1)],
    ),
    "model.heads_suit_a_cpu": (
        [
            (init(hidden=64, heads=4), "model.init.heads", "does not support a head size of 16"),
            (init(hidden=96, heads=2), "model.init.heads", "does not support a head size of 48"),
        ],
        [{}, init(hidden=64, heads=2), init(hidden=64, heads=4) | FOUR],
    ),
    "model.shape_divides": (
        [
            ({"model.shape": replace(TOY, hidden=9)}, "model.shape.heads", "4 heads do not divide 'hidden' (9)"),
            ({"model.shape": replace(TOY, kv_heads=3)}, "model.shape.kv_heads", "3 key-value heads"),
        ],
        [{"model.shape": TOY}, {"model.shape": replace(TOY, hidden=9, head_dim=4)}],
    ),
    "model.within_positions": (
        [
            (
                {"schedule.*.agent.context_tokens": 32_769},
                "agent.context_tokens",
                "32769 tokens exceed the context length",
            )
        ],
        [
            {"schedule.*.agent.context_tokens": 32_768},
            {"schedule.*.agent.context_tokens": 10**6, "model.path": "./mine"},
        ],
    ),
    "model.adapters_exist": (
        [
            ({"model.lora": Lora(targets=("q_proj", "qproj"))}, "model.lora.targets.1", "no layer 'qproj'"),
            ({"model.lora": Lora(targets=())}, "model.lora.targets", "at least one target layer"),
        ],
        [{}, {"model.lora": Lora()}, {"model": Model(path="./mine", lora=Lora(targets=("c_attn",)))}],
    ),
    "model.precision_fits": (
        [
            ({"model.dtype": DType.FP16}, "model.dtype", "fp16 needs a GPU"),
            (FOUR | {"model.dtype": DType.FP16}, "model.dtype", "fp16 is too narrow to learn in"),
            (
                {"model.dtype": DType.BF16, "hardware.train.zero": 0},
                "hardware.train.zero",
                "gets the first update wrong",
            ),
            (FOUR | {"hardware.train.zero": 0}, "hardware.train.zero", "expected stage 1 or higher"),
        ],
        [{"hardware.train.zero": 0}, FOUR | {"hardware.train.zero": 0, "model.dtype": DType.FP32}, FOUR],
    ),
    # --- environments
    "environment.at_least_one": (
        [
            ({"environments": {}}, "environments", "at least one environment"),
            ({"schedule.1.environments": {}}, "schedule.1.environments", "has no environment left"),
        ],
        [{}],
    ),
    "environment.environment_has_one_origin": (
        [
            (world(Environment()), "environments.craft", "'craft' needs 'use' or 'url'"),
            (world(Environment(use="textcraft", url="http://x")), "environments.craft.url", "give only one of them"),
        ],
        [{}, world(Environment(url="http://x"))],
    ),
    "environment.registered": (
        [(world(Environment(use="textcarft")), "environments.craft.use", "'textcarft' is not registered")],
        [{}, world(Environment(url="http://x"))],
    ),
    "environment.kind_given": (
        [(world(replace(FOREIGN, kind=None)), "environments.craft", "needs 'kind'")],
        [{}, world(FOREIGN), world(Environment(url="http://x"))],
    ),
    "environment.options_are_known": (
        [
            (
                world(Environment(use="textcraft", options={"max_dept": 3})),
                "environments.craft.options.max_dept",
                "has no option 'max_dept'",
            )
        ],
        [world(Environment(use="textcraft", options={"max_depth": 3})), world(Environment(use="?", options={"a": 1}))],
    ),
    "environment.required_options_are_given": (
        [
            (world(Environment(use="gym")), "environments.craft", "environment 'gym' needs the option 'id'"),
            (
                world(Environment(use="gym", options={"seeds": 3})),
                "environments.craft.options",
                "needs the option 'id'",
            ),
        ],
        [world(Environment(use="gym", options={"id": "Taxi-v4"})), world(Environment(use="textcraft"))],
    ),
    "environment.options_are_valid": (
        [
            (
                world(Environment(use="textcraft", options={"max_depth": 0})),
                "environments.craft.options.max_depth",
                "option 'max_depth': must be at least 1, got 0",
            ),
            (
                world(Environment(use="textcraft", options={"max_depth": "x" * 300})),
                "environments.craft.options.max_depth",
                "...",
            ),
        ],
        [world(Environment(use="textcraft", options={"max_depth": 3, "other": ()}))],
    ),
    "environment.selections_whole": (
        [
            (tasks(train=TaskSelection()), "environments.craft.tasks.train", "'split', 'ids' or 'file'"),
            (tasks(eval=TaskSelection(ids=())), "environments.craft.tasks.eval.ids", "at least one task"),
            (
                tasks(eval=TaskSelection(split="test", file="x")),
                "environments.craft.tasks.eval.file",
                "'split' and 'file' both select the tasks",
            ),
        ],
        [{}, tasks(train=TaskSelection(ids=("a",)), eval=TaskSelection(file="x"))],
    ),
    "environment.splits_known": (
        [(tasks(train=TaskSelection(split="trian")), "environments.craft.tasks.train.split", "no split 'trian'")],
        [{}, world(Environment(url="http://x", tasks=Tasks(train=TaskSelection(split="any"))))],
    ),
    "environment.eval_split_known": (
        [({"eval.tasks": "tset"}, "eval.tasks", "'textcraft' has no split 'tset'")],
        [{"eval.tasks": "test"}, {"eval": None}],
    ),
    "environment.ranges_fit": (
        [
            (
                tasks(train=TaskSelection(split="train", range=(5, 5))),
                "environments.craft.tasks.train.range",
                "must start below its end (5), got 5",
            ),
            (
                tasks(eval=TaskSelection(split="test", range=(0, 101))),
                "environments.craft.tasks.eval.range",
                "the range ends at 101, but split 'test' has 100 tasks",
            ),
        ],
        [tasks(train=TaskSelection(split="train", range=(0, 400)))],
    ),
    "environment.not_evaluated_on_training_tasks": (
        [
            (
                tasks(eval=TaskSelection(split="train")),
                "environments.craft.tasks.eval",
                "split 'train' is used for both",
            ),
            ({"eval.tasks": "train"}, "eval.tasks", "split 'train' is used for both"),
            (
                tasks(train=TaskSelection(ids=("a", "b")), eval=TaskSelection(ids=("b", "c"))),
                "environments.craft.tasks.eval",
                "task 'b' is used for both",
            ),
            (
                tasks(train=TaskSelection(file="x"), eval=TaskSelection(file="x")),
                "environments.craft.tasks.eval",
                "file 'x' is used for both",
            ),
            (
                tasks(
                    train=TaskSelection(split="train", range=(0, 50)), eval=TaskSelection(split="train", range=(49, 60))
                ),
                "environments.craft.tasks.eval",
                "split 'train' is used for both",
            ),
        ],
        [
            {},
            tasks(eval=TaskSelection(split="train")) | {"eval": None},
            tasks(eval=TaskSelection(split="train")) | {"eval.tasks": "test"},
            tasks(train=TaskSelection(split="train", range=(0, 50)), eval=TaskSelection(split="train", range=(50, 60))),
        ],
    ),
    "environment.some_weight": (
        [({"schedule.*.environments.craft.weight": 0}, "environments", "every environment has weight 0")],
        [{}, {"schedule.*.environments.craft.weight": Expr("linear(0, 1, 10)")}],
    ),
    "environment.experts_exist": (
        [
            (SFT | world(FOREIGN), "algorithm.data.source", "without scripted solutions"),
            (
                world(FOREIGN) | {"schedule.*.agent.demonstrations": 1},
                "agent.demonstrations",
                "without scripted solutions",
            ),
        ],
        [SFT, world(FOREIGN), SFT | world(Environment(url="http://x"))],
    ),
    "environment.noise_can_be_followed": (
        [
            (
                al(use=Preset.SFT, data__noise=0.2) | world(Environment(use="web")),
                "algorithm.data.noise",
                "has solutions only from the start of a task",
            )
        ],
        [al(use=Preset.SFT, data__noise=0.2), SFT | world(Environment(use="web")), world(Environment(use="web"))],
    ),
    "environment.seats_can_be_played": (
        [
            (meeting("earlier") | {"checkpoint.export": False}, OPPONENT, "which need 'checkpoint.export: true'"),
            (meeting("earlier") | {"hardware.gpus_per_node": 2}, OPPONENT, "'hardware.gpus_per_node' is 2"),
            (
                meeting("policy", "earlier") | {"hardware.launcher": Launcher.RAY},
                OPPONENT,
                "'hardware.launcher: inline'",
            ),
            (
                meeting("random", "policy") | {HARNESS: OWN_AGENT},
                OPPONENT,
                "'policy' plays in the form of our own agent",
            ),
            (SFT | meeting("policy") | {HARNESS: OWN_AGENT}, OPPONENT, "this stage's 'agent.harness'"),
        ],
        [
            {},
            meeting("policy", "earlier"),
            meeting("policy") | {"checkpoint.export": False, "hardware.gpus_per_node": 2},
            meeting("random") | {HARNESS: OWN_AGENT},
            # where nothing is played, there are no opponents
            SFT | meeting("earlier") | {"eval": None, "checkpoint.export": False},
        ],
    ),
    # --- algorithm
    "algorithm.updates_divide_a_step": (
        [
            (
                al(groups_per_update=5),
                "algorithm.groups_per_update",
                "'groups_per_update' (5) does not divide 'groups_per_step' (16)",
            ),
            (al(groups_per_update=32), "algorithm.groups_per_update", "'groups_per_update' (32) does not divide"),
        ],
        [{}, al(groups_per_update=None), SFT | al(groups_per_update=5)],
    ),
    "algorithm.updates_share_a_step": (
        [
            (
                al(groups_per_update=None, updates_per_pass=3),
                "algorithm.updates_per_pass",
                "'updates_per_pass' (3) does not divide 'groups_per_step' (16)",
            ),
            (
                al(groups_per_update=None, updates_per_pass=32),
                "algorithm.updates_per_pass",
                "'updates_per_pass' (32) does not divide",
            ),
        ],
        [
            {},
            al(groups_per_update=None, updates_per_pass=16),
            al(updates_per_pass=3),
            SFT | al(groups_per_update=None, updates_per_pass=3),
        ],
    ),
    "algorithm.clips_have_an_effect": (
        [
            (ONE_UPDATE | al(loss__kind=kind), "algorithm.loss.kind", f"every ratio is 1, so '{kind}' bounds nothing")
            for kind in (LossKind.GSPO, LossKind.CISPO, LossKind.SAPO, LossKind.DPPO)
        ]
        + [(ONE_UPDATE | al(loss__clip__high=0.28), "algorithm.loss.kind", "'ppo_clip' bounds nothing")],
        [
            {},
            ONE_UPDATE,
            al(loss__kind=LossKind.CISPO),
            ONE_UPDATE | al(loss__kind=LossKind.CISPO, epochs=2),
            ONE_UPDATE | al(loss__kind=LossKind.CISPO, updates_per_pass=2),
            ONE_UPDATE | al(loss__kind=LossKind.CISPO, importance__correction=Correction.NONE),
            ONE_UPDATE | al(loss__kind=LossKind.CISPO) | {"hardware.staleness": 1},
        ],
    ),
    "algorithm.rates_fit_what_is_trained": (
        [(al(use=Preset.LOOP, lr=5e-5), "algorithm.use", "(5e-05) is for adapters, and all weights are trained")],
        [{}, al(use=Preset.LOOP, lr=5e-5) | {"model.lora": Lora()}],
    ),
    "algorithm.students_have_a_teacher": (
        [
            (DISTILL, "algorithm.use", "'distill' needs a teacher"),
            (DISTILL | al(distill__teacher="some/model", kl__coef=0.0), "algorithm.kl.coef", "never asked"),
        ],
        [{}, DISTILL | al(distill__teacher="some/model")],
    ),
    "algorithm.groups_have_a_comparison": (
        [
            (al(group_size=1), "algorithm.group_size", "advantage 0"),
            (al(group_size=1, advantage__baseline=Baseline.CRITIC), "algorithm.group_size", "advantage 0"),
            (
                CRITIC | al(group_size=1, advantage__estimator=Estimator.STEP_GROUPS),
                "algorithm.group_size",
                "no other steps to compare",
            ),
        ],
        [{}, CRITIC | al(group_size=1), SFT | al(group_size=1)],
    ),
    "algorithm.groups_pass_the_filter": (
        [
            (
                CRITIC | al(group_size=1, filter__groups=Expr("std > 0")),
                "algorithm.filter.groups",
                "drops every group",
            ),
            (
                CRITIC | al(group_size=1, filter__groups=Expr("std > 0.1 or size > 1")),
                "algorithm.filter.groups",
                "every",
            ),
        ],
        [
            {},
            CRITIC | al(group_size=1),
            CRITIC | al(group_size=1, filter__groups=Expr("true")),
            CRITIC | al(group_size=1, filter__groups=Expr("mean > 0.5")),
            CRITIC | al(group_size=1, filter__groups=Expr("std >= 0")),
        ],
    ),
    "algorithm.estimator_has_its_baseline": (
        [
            (
                al(advantage__estimator=Estimator.GAE),
                "algorithm.advantage.estimator",
                "'gae' needs the values of a critic",
            ),
            (
                CRITIC | al(advantage__estimator=Estimator.STEP_GROUPS),
                "algorithm.advantage.baseline",
                "it takes no critic as its baseline",
            ),
        ],
        [{}, CRITIC | al(advantage__estimator=Estimator.BILEVEL_GAE), al(advantage__estimator=Estimator.STEP_GROUPS)],
    ),
    "algorithm.a_run_has_one_critic": (
        [
            (
                CRITIC | {"schedule.1.algorithm.critic.path": "Qwen/Qwen2.5-0.5B"},
                "schedule.1.algorithm.critic.path",
                "a critic with another backbone",
            )
        ],
        [{}, CRITIC, CRITIC | al(critic__path="Qwen/Qwen2.5-0.5B")],
    ),
    "algorithm.ratio_fits_the_loss": (
        [
            (al(loss__kind=LossKind.GSPO), "algorithm.loss.ratio", "per episode, not per token"),
            (al(loss__kind=LossKind.CISPO, loss__ratio=Level.TURN), "algorithm.loss.ratio", "per token, not per turn"),
            (al(loss__kind=LossKind.SAPO, loss__ratio=Level.TURN), "algorithm.loss.ratio", "per token, not per turn"),
            (al(loss__kind=LossKind.DPPO, loss__ratio=Level.TURN), "algorithm.loss.ratio", "per token, not per turn"),
        ],
        [{}, al(loss__kind=LossKind.GSPO, loss__ratio=Level.EPISODE), al(loss__ratio=Level.TURN)],
    ),
    "algorithm.repeated_updates_have_a_ratio": (
        [(al(loss__kind=LossKind.POLICY_GRADIENT), "algorithm.loss.kind", "several updates")],
        [{}, al(loss__kind=LossKind.POLICY_GRADIENT, groups_per_update=None)],
    ),
    "algorithm.penalty_has_tokens_to_sit_on": (
        [
            (
                al(kl__coef=0.1, kl__place=KLPlace.REWARD, advantage__estimator=Estimator.STEP_GROUPS),
                "algorithm.kl.place",
                "the KL penalty cannot be part of the reward",
            )
        ],
        [
            al(kl__coef=0.1, kl__place=KLPlace.REWARD),
            al(kl__place=KLPlace.REWARD, advantage__estimator=Estimator.STEP_GROUPS),
        ],
    ),
    "algorithm.stale_episodes_are_corrected": (
        [
            (
                {"hardware.staleness": 2} | al(importance__correction=Correction.NONE),
                "algorithm.importance.correction",
                "2 versions old",
            )
        ],
        [{"hardware.staleness": 2}, al(importance__correction=Correction.NONE)],
    ),
    "algorithm.weights_have_a_range": (
        [
            (
                al(importance__correction=Correction.MASK, importance__floor=2.0),
                "algorithm.importance.floor",
                "'floor' (2) must be below 'cap' (2)",
            ),
            (
                al(importance__reject__geometric=(1.01, 0.99)),
                "algorithm.importance.reject.geometric",
                "expected the lower bound first",
            ),
        ],
        [{}, al(importance__floor=2.0), al(importance__correction=Correction.MASK, importance__floor=0.5)],
    ),
    "algorithm.sampling_explores": (
        [({"schedule.*.sampling.temperature": 0}, "sampling.temperature", "all attempts are the same")],
        [
            {},
            SFT | {"schedule.*.sampling.temperature": 0},
            {"schedule.*.sampling.temperature": Expr("linear(1, 0, 9)")},
        ],
    ),
    "algorithm.sampled_distribution_is_the_trained_one": (
        [
            ({"schedule.*.sampling.top_p": 0.9}, "sampling.top_p", "'top_p' drops tokens"),
            ({"schedule.*.sampling.top_k": 20}, "sampling.top_k", "'top_k' drops tokens"),
            ({"schedule.*.sampling.min_p": 0.1}, "sampling.min_p", "'min_p' drops tokens"),
        ],
        [{}, DPO_ROLLOUT | {"schedule.*.sampling.top_p": 0.9}],
    ),
    "algorithm.judge_is_given": (
        [({"schedule.*.reward.source": RewardSource.JUDGE}, "reward.source", "'source: judge' needs a judge")],
        [{}, judged(RewardSource.JUDGE), SFT | {"schedule.*.reward.source": RewardSource.JUDGE}],
    ),
    "algorithm.pairs_are_compared": (
        [
            (al(use=Preset.MTPO), "algorithm.use", "'mtpo' needs a judge"),
            (judged(RewardSource.PAIRWISE) | al(group_size=1), "algorithm.group_size", "no pair to compare"),
        ],
        [{}, judged(RewardSource.PAIRWISE) | al(use=Preset.MTPO)],
    ),
    "algorithm.reward_ranges_are_in_order": (
        [
            ({"schedule.*.reward.clip": (1.0, 1.0)}, "reward.clip", "got 1 and 1"),
            (judged(RewardSource.JUDGE, scale=(10.0, 0.0)), "reward.judge.scale", "got 10 and 0"),
        ],
        [{}, {"schedule.*.reward.clip": (-1.0, 1.0)}, judged(RewardSource.JUDGE)],
    ),
    "algorithm.data_has_a_path": (
        [(SFT | al(data__source=DataSource.FILE), "algorithm.data.source", "'source: file' needs a 'path'")],
        [SFT, SFT | al(data__source=DataSource.EPISODES, data__path="runs/x"), al(data__source=DataSource.FILE)],
    ),
    "algorithm.hindsight_has_episodes": (
        [
            (
                RELAY | al(data__source=DataSource.EPISODES),
                "algorithm.data.source",
                "only episodes that the stage itself plays",
            )
        ],
        [RELAY, RELAY | al(data__source=DataSource.ROLLOUT), SFT | al(data__source=DataSource.EPISODES)],
    ),
    "algorithm.pairs_can_be_made": (
        [
            (DPO, "algorithm.data.source", "only the best episode of a task"),
            (DPO_ROLLOUT | al(group_size=1), "algorithm.group_size", "no pair to learn from"),
            (DPO_ROLLOUT | al(preference__level=Level.TOKEN), "algorithm.preference.level", "one of episode, turn"),
        ],
        [DPO_ROLLOUT, SFT],
    ),
    "algorithm.candidates_can_be_drawn": (
        [
            (RANKED | al(data__source=DataSource.EPISODES), "algorithm.data.source", "for turns that were just played"),
            (RANKED | al(preference__level=Level.EPISODE), "algorithm.preference.level", "pairs turns, not episodes"),
            (RANKED | al(preference__candidates=1), "algorithm.preference.candidates", "not enough to rank"),
        ],
        [RANKED, DPO_ROLLOUT | al(preference__level=Level.EPISODE)],
    ),
    # --- schedule
    "schedule.at_least_one_stage": ([({"schedule": ()}, "schedule", "at least one stage")], [{}]),
    "schedule.names_differ": ([(A_SECOND, "schedule.1.stage", "two stages are named 'exploit'")], [{}]),
    "schedule.stages_end": (
        [({"schedule.1.until": None}, "schedule.1", "stage 'explore' needs 'until'")],
        [{}, EVAL | {"schedule.*.until": None}, al(use=Preset.AGENT_EVOL) | {"schedule.*.until": None}],
    ),
    "schedule.ends_are_bounded": (
        [
            ({"schedule.1.until": Expr("last(success) > 0.9")}, "schedule.1.until", "'until' has no step limit"),
            ({"schedule.1.until": Expr("true")}, "schedule.1.until", "is always true"),
            ({"schedule.1.until": Expr("1 > 2")}, "schedule.1.until", "is never true"),
        ],
        [{}, {"schedule.1.until": None}, {"schedule.1.until": Expr("step > 3 and total_step > 110")}],
    ),
    "schedule.turns_are_given": (
        [({"schedule.1.turns": None}, "schedule.1", "stage 'explore' needs 'turns'")],
        [{}, {"schedule.1.turns": None, "schedule.1.environments.craft.turns": 20}, SFT | {"schedule.*.turns": None}],
    ),
    "schedule.horizon_grows": (
        [
            ({"schedule.1.turns": 7}, "schedule.1.turns", "the stage before ends with more turns"),
            ({"schedule.0.turns": Expr("4 + step")}, "schedule.1.turns", "the stage before ends with more turns"),
            ({"schedule.0.turns": Expr("8 - step // 20")}, "schedule.0.turns", "shrinks within this stage"),
            (
                {"schedule.1.turns": Expr("5 if default(last(success), 0) > 0.5 else 7")},
                "schedule.1.turns",
                "the stage before ends with more turns",
            ),
            (
                {"schedule.1.environments.craft.turns": 5},
                "schedule.1.environments.craft.turns",
                "the stage before ends with more turns",
            ),
        ],
        [
            {},
            {"schedule.1.turns": 7, "schedule.1.shrink": True},
            {"schedule.1.turns": 8},
            {"schedule.0.turns": Expr("clip(step, 4, 16)")},
            {"schedule.1.turns": Expr("7 if default(last(success), 0) > 0.5 else 9")},
            {"schedule.0.algorithm.use": Preset.SFT, "schedule.0.turns": 99},
        ],
    ),
    "schedule.a_turn_fits_the_context": (
        [
            (
                {"schedule.*.agent.tokens_per_turn": 8192},
                "agent.tokens_per_turn",
                "(8192) leaves no room in 'agent.context_tokens' (8192)",
            ),
            (
                {"schedule.*.agent.observation_tokens": 9000},
                "agent.observation_tokens",
                "'observation_tokens' (9000) exceeds",
            ),
            (
                {"schedule.*.agent.planning": Planning(tokens=9000)},
                "agent.planning",
                "'planning.tokens' (9000) exceeds",
            ),
            (
                {"schedule.*.agent.reflection": Reflection(tokens=9000)},
                "agent.reflection",
                "'reflection.tokens' (9000) exceeds",
            ),
        ],
        [{}, {"schedule.*.agent.tokens_per_turn": 8191}],
    ),
    "schedule.horizon_is_a_turn_or_more": (
        [
            ({"schedule.1.turns": Expr("step")}, "schedule.1.turns", "at least 1, but at step 0 it is 0"),
            ({"schedule.0.turns": Expr("3 - step")}, "schedule.0.turns", "at step 3 it is 0"),
        ],
        [{}, {"schedule.1.turns": Expr("1 + step")}, SFT | {"schedule.*.turns": Expr("step")}],
    ),
    "schedule.guided_replies_are_lists": (
        [
            (
                {"schedule.*.agent.guided": True, "schedule.*.agent.format": Format.CODE},
                "agent.guided",
                "a list of valid actions",
            )
        ],
        [{GUIDED: True}, {"schedule.*.agent.format": Format.CODE}],
    ),
    "schedule.guided_replies_are_not_trained_on": (
        [({GUIDED: True}, "agent.guided", "guided sampling changes the log-probs")],
        [{}, {GUIDED: True, **al(use=Preset.EVAL)}, {GUIDED: True, **al(use=Preset.SFT)}],
    ),
    "schedule.guided_replies_hold_the_action_alone": (
        [({GUIDED: True}, "agent.guided", "the action alone, but 'format: react' allows thoughts")],
        [
            {},
            {GUIDED: True, "schedule.*.agent.thinking": False},
            {GUIDED: True, "schedule.*.agent.format": Format.PLAIN},
        ],
    ),
    "schedule.relabelled_episodes_are_one_sequence": (
        [
            (
                {**RELABELLED, MEMORY: MemoryKind.WINDOW},
                "algorithm.data.relabel",
                "an episode with 'memory' cannot be relabelled",
            ),
            ({**RELABELLED, REFLECTION: Reflection()}, "algorithm.data.relabel", "an episode with 'reflection'"),
            (
                {**RELABELLED, "schedule.*.agent.planning": Planning()},
                "algorithm.data.relabel",
                "an episode with 'planning'",
            ),
            (
                {**al(use=Preset.SFT, data__relabel=Relabel.HINDSIGHT), HARNESS: OWN_AGENT},
                "algorithm.data.relabel",
                "an episode with 'harness' cannot be relabelled",
            ),
            (
                {**TOLD, REFLECTION: Reflection()},
                "algorithm.critic.privileged",
                "the first prompt, but 'reflection' makes",
            ),
        ],
        [
            {**RELABELLED, MEMORY: MemoryKind.FULL},
            {**al(use=Preset.SFT, data__relabel=Relabel.HINDSIGHT), MEMORY: MemoryKind.WINDOW},
            {**TOLD, "schedule.*.agent.planning": Planning()},
        ],
    ),
    # --- hardware
    "hardware.engines_fit_the_machines": (
        [
            (FOUR | {"hardware.rollout.tensor_parallel": 7}, "hardware.rollout.tensor_parallel", "a node has only 4"),
            (FOUR | {"hardware.rollout.tensor_parallel": 4}, "hardware.rollout.tensor_parallel", "14 heads equally"),
            (
                {"model.shape": replace(TOY, heads=12, kv_heads=3), "hardware.rollout.tensor_parallel": 2} | FOUR,
                "hardware.rollout.tensor_parallel",
                "3 key-value heads equally",
            ),
            (
                {"hardware.gpus_per_node": 3, "hardware.rollout.tensor_parallel": 2},
                "hardware.rollout.tensor_parallel",
                "3 sampling GPUs do not divide into engines of 2",
            ),
            (
                SPLIT | {"hardware.nodes": 2, "hardware.train.gpus": 2, "hardware.rollout.tensor_parallel": 3},
                "hardware.rollout.tensor_parallel",
                "have to span two nodes",
            ),
            ({"hardware.rollout.tensor_parallel": 4}, "hardware.rollout.tensor_parallel", "4 processes cannot share"),
        ],
        [
            {},
            {"hardware.rollout.tensor_parallel": 2},
            SPLIT | {"hardware.rollout.tensor_parallel": 2},
            FOUR | {"hardware.rollout.tensor_parallel": 2},
            FOUR | SEVEN | {"hardware.rollout.tensor_parallel": 4},
            FOUR | {"hardware.rollout.tensor_parallel": 4, "model.path": "./mine"},
            # key-value heads are copied where there are fewer of them than GPUs
            FOUR | {"model.shape": replace(TOY, kv_heads=1), "hardware.rollout.tensor_parallel": 4},
        ],
    ),
    "hardware.ranks_divide_rows": (
        [
            (
                {"hardware.gpus_per_node": 3, "hardware.train.sequence_parallel": 2},
                "hardware.train.sequence_parallel",
                "does not divide the number of ranks (3)",
            ),
            (
                SPLIT | {"hardware.train.gpus": 1, "hardware.train.sequence_parallel": 2},
                "hardware.train.sequence_parallel",
                "the number of ranks (1)",
            ),
            ({"hardware.train.sequence_parallel": 2}, "hardware.train.sequence_parallel", "the number of ranks (1)"),
            (
                FOUR | {"hardware.train.sequence_parallel": 4},
                "hardware.train.sequence_parallel",
                "does not divide the model's 14 heads",
            ),
            (
                {"model.shape": replace(TOY, heads=12, kv_heads=3), "hardware.train.sequence_parallel": 2} | FOUR,
                "hardware.train.sequence_parallel",
                "neither divides the model's 3 key-value heads nor is a multiple of them",
            ),
            (
                FOUR
                | SEVEN
                | {"hardware.train.sequence_parallel": 4, **al(use=Preset.PPO, critic__path="Qwen/Qwen2.5-0.5B")},
                "hardware.train.sequence_parallel",
                "does not divide the critic's 14 heads",
            ),
        ],
        [
            {},
            FOUR | {"hardware.train.sequence_parallel": 2},
            SPLIT | {"hardware.train.sequence_parallel": 2},
            FOUR | SEVEN | {"hardware.train.sequence_parallel": 4},
            {"hardware.workers_per_node": 2, "hardware.train.sequence_parallel": 2},
            # sizes that are not known here are checked when the engine starts
            FOUR | {"hardware.train.sequence_parallel": 4, "model.path": "./mine"},
            # key-value heads are copied where there are fewer of them than ranks
            FOUR | {"model.shape": replace(TOY, kv_heads=1), "hardware.train.sequence_parallel": 4},
        ],
    ),
    "hardware.split_adds_up": (
        [
            (SPLIT | {"hardware.rollout.gpus": 4}, "hardware.rollout.gpus", "0 GPUs for learning and 4 for sampling"),
            (
                SPLIT | {"hardware.rollout.gpus": 1, "hardware.train.gpus": 2},
                "hardware.rollout.gpus",
                "do not add up to 4",
            ),
            (SPLIT | {"hardware.train.gpus": 5}, "hardware.train.gpus", "5 GPUs for learning and -1 for sampling"),
            (
                {"hardware.gpus_per_node": 1, "hardware.layout": Layout.SPLIT},
                "hardware.layout",
                "needs at least two GPUs",
            ),
        ],
        [{}, FOUR, SPLIT, SPLIT | {"hardware.rollout.gpus": 1}],
    ),
    "hardware.one_process_has_one_gpu": (
        [
            (FOUR | {"hardware.launcher": Launcher.INLINE}, "hardware.launcher", "cannot use 4 GPUs"),
            ({"hardware.nodes": 2, "hardware.launcher": Launcher.INLINE}, "hardware.launcher", "cannot use 2 nodes"),
            (
                {"hardware.workers_per_node": 2, "hardware.launcher": Launcher.INLINE},
                "hardware.launcher",
                "cannot use 2 workers",
            ),
        ],
        [{}, FOUR, {"hardware.gpus_per_node": 1, "hardware.launcher": Launcher.INLINE}],
    ),
    "hardware.offload_has_its_stage": (
        [
            (
                FOUR | {"hardware.train.offload": Offload.ALL, "hardware.train.zero": 2},
                "hardware.train.offload",
                "needs ZeRO stage 3, not 2",
            ),
            (
                FOUR | {"hardware.train.offload": Offload.OPTIMIZER, "hardware.train.zero": 0},
                "hardware.train.offload",
                "stage 1 or higher, not 0",
            ),
        ],
        [{}, FOUR | {"hardware.train.offload": Offload.ALL, "hardware.train.zero": 3}],
    ),
    "hardware.in_flight_needs_processes": (
        [({"hardware.staleness": 1, "hardware.in_flight": True}, "hardware.in_flight", "both are in one process")],
        [{"hardware.staleness": 1, "hardware.in_flight": True, "hardware.launcher": Launcher.RAY}, {}],
    ),
    "hardware.overlap_needs_room": (
        [(FOUR | {"hardware.staleness": 1}, "hardware.staleness", "share the same GPUs")],
        [{"hardware.staleness": 1}, SPLIT | {"hardware.staleness": 1}, FOUR],
    ),
    "hardware.micro_batch_holds_an_episode": (
        [
            (
                {"hardware.train.tokens_per_micro_batch": 8191},
                "hardware.train.tokens_per_micro_batch",
                "(8191) is below 'agent.context_tokens' (8192)",
            )
        ],
        [{}, {"hardware.train.tokens_per_micro_batch": 8192}],
    ),
    "hardware.cache_holds_an_episode": (
        [
            (
                {"hardware.rollout.kv_cache_gb": 0.2},
                "hardware.rollout.kv_cache_gb",
                "needs 0.2 GB, but 'kv_cache_gb' is 0.2",
            )
        ],
        [{}, {"hardware.rollout.kv_cache_gb": 0.21}, {"hardware.rollout.kv_cache_gb": 1e-6, "model.path": "./mine"}],
    ),
    "hardware.everything_fits_in_gpu_memory": (
        [
            (
                H100 | {"model.path": "Qwen/Qwen2.5-72B-Instruct", "hardware.train.zero": 3},
                "hardware.gpu",
                "an h100 has 84.8",
            ),
            (SEVEN | FOUR | {"hardware.gpu_memory_gb": 30.0}, "hardware.gpu_memory_gb", "the GPU has 30.0"),
        ],
        [{}, H100 | SEVEN, FOUR | SEVEN, H100 | {"model.path": "./mine"}],
    ),
    "hardware.engine_fits_its_share": (
        [
            (
                H100 | SEVEN | {"hardware.rollout.memory_share": 0.2},
                "hardware.rollout.memory_share",
                "its share of the GPU is",
            ),
        ],
        [H100 | SEVEN, {"hardware.rollout.memory_share": 0.01}],
    ),
    # --- the run
    "run.eval_stages_have_settings": (
        [
            (
                EVAL | {"eval": None},
                "algorithm.use",
                "stage 'explore' evaluates by the settings of 'eval', but 'eval' is null",
            )
        ],
        [{}, EVAL, {"eval": None}],
    ),
    "run.best_metric_exists": (
        [
            ({BEST: "success"}, BEST, "expected a metric written 'group/name', got 'success'"),
            ({BEST: "eval/score"}, BEST, "expected 'eval/environment/metric'"),
            ({BEST: "eval/carft/success"}, BEST, "no environment 'carft'"),
            ({BEST: "eval/all/success"}, BEST, "no environment 'all'"),
            ({BEST: "eval/craft/sucess"}, BEST, "unknown evaluation metric 'sucess'"),
            ({BEST: "eval/craft/pass@8"}, BEST, "never computed: 'eval.samples' is 1"),
            ({BEST: "eval/craft/greedy_success"}, BEST, "unknown evaluation metric 'greedy_success'"),
            ({BEST: "eval/craft@9/success"}, BEST, "no evaluation is cut at '9' turns"),
            ({BEST: "eval/craft/success", "eval": None}, BEST, "this recipe has no 'eval' section"),
            ({BEST: "training/loss"}, BEST, "no metrics 'training'"),
            ({BEST: "train/los"}, BEST, "unknown metric 'train/los'"),
            ({BEST: "critic/loss"}, BEST, "never computed: no stage has a critic"),
            ({BEST: "judge/calls"}, BEST, "never computed: no reward comes from a judge"),
            (SFT | {BEST: "rollout/success"}, BEST, "never computed: no stage plays training tasks"),
        ],
        [
            {},
            {BEST: "eval/craft/success"},
            {BEST: "eval/success"},
            {BEST: "eval/craft/pass@8", "eval": Eval(samples=8)},
            {BEST: "eval/craft@10/greedy_success", "eval": Eval(greedy=True, turns=(10, 20))},
            {BEST: "rollout/reward", "eval": None},
            {BEST: "rollout/craft/success"},
            SFT | {BEST: "train/loss"},
        ],
    ),
    "run.conditions_read_what_is_measured": (
        [
            (
                {"schedule.*.until": Expr("eval_success > 0.9 or step >= 9"), "eval": None},
                "schedule.0.until",
                "'eval_success' never has a value here: 'eval' is null",
            ),
            (
                {"schedule.*.algorithm.lr": Expr("1e-6 * default(last(eval_success), 1)"), "eval": None},
                "schedule.0.algorithm.lr",
                "'eval_success' never has a value",
            ),
            (
                SFT | {"schedule.*.until": Expr("success > 0.9 or step >= 9")},
                "schedule.0.until",
                "'success' never has a value here: no stage so far plays training tasks",
            ),
        ],
        [{}, {"eval": None}, {"schedule.*.until": Expr("eval_success > 0.9 or success > 0.9 or loss < 1")}],
    ),
    "run.sink_options": (
        [
            ({"logging": (Sink(use="wandb", options={"grup": "a"}),)}, "logging.0.options.grup", "no option 'grup'"),
            ({"logging": (Sink(use="wandb", options={"group": 3}),)}, "logging.0.options.group", "expected"),
        ],
        [{}, {"logging": (Sink(use="wandb", options={"group": "a"}), Sink(use="mine", options={"a": 1}))}],
    ),
    "run.sinks_exist": (
        [
            ({"logging": (Sink(use="tensorbord"),)}, "logging.0.use", "unknown sink 'tensorbord'"),
            ({"logging": (Sink(use="wandb"), Sink(use="wandb"))}, "logging.1.use", "sink 'wandb' is listed twice"),
        ],
        [{}, {"logging": (Sink(use="wandb"), Sink(use="tensorboard"))}],
    ),
}


def name_of(rule: Any) -> str:
    return f"{rule.__module__.rsplit('.', 1)[-1]}.{rule.__name__}"


RULES = {name_of(rule): rule for rule in rules.RULES}


@pytest.fixture
def say(change: Callable[..., Any], recipe: Recipe, catalog: Catalog) -> Callable[..., list[Diagnostic]]:
    """What one rule says about the small recipe with changes, where a person wrote one key."""

    def said(name: str, changes: Changes, key: str = "name") -> list[Diagnostic]:
        changed = change(recipe, changes)
        shape = find_shape(changed.model)
        case = Case(recipe=changed, places=Listed([key]), catalog=catalog, shape=shape)
        return list(RULES[name](case))

    return said


def test_every_rule_has_cases_of_both_sorts() -> None:
    assert set(CASES) == set(RULES)
    assert all(fires and passes for fires, passes in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_a_rule_speaks_at_the_key_that_is_wrong(say: Callable[..., list[Diagnostic]], name: str) -> None:
    for changes, key, words in CASES[name][0]:
        found = [(diagnostic.span.text, diagnostic.message) for diagnostic in say(name, changes, key)]
        assert any(text == key and words in message for text, message in found), (key, words, found)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_is_silent_where_all_is_well(say: Callable[..., list[Diagnostic]], name: str) -> None:
    for changes in CASES[name][1]:
        assert [diagnostic.message for diagnostic in say(name, changes)] == [], changes


@pytest.mark.parametrize("name", CASES)
def test_what_a_rule_says_is_one_plain_sentence(say: Callable[..., list[Diagnostic]], name: str) -> None:
    for changes, key, _ in CASES[name][0]:
        for diagnostic in say(name, changes, key):
            assert diagnostic.code in CODES, diagnostic.code
            assert diagnostic.message[:1] == diagnostic.message[:1].lower() or diagnostic.message.startswith("ZeRO")
            assert not diagnostic.message.endswith(".") or diagnostic.message.endswith("...")
            assert "\n" not in diagnostic.message


WARNINGS = {
    "algorithm.rates_fit_what_is_trained",
    "algorithm.clips_have_an_effect",
    "algorithm.repeated_updates_have_a_ratio",
    "algorithm.sampled_distribution_is_the_trained_one",
}


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"schedule.ends_are_bounded"}))
def test_what_may_work_is_a_warning_and_what_cannot_an_error(say: Callable[..., list[Diagnostic]], name: str) -> None:
    wanted = Severity.WARNING if name in WARNINGS else Severity.ERROR
    for changes, key, _ in CASES[name][0]:
        assert {diagnostic.severity for diagnostic in say(name, changes, key)} == {wanted}


def test_a_stage_without_a_bound_is_a_warning(say: Callable[..., list[Diagnostic]]) -> None:
    unbounded = say("schedule.ends_are_bounded", {"schedule.1.until": Expr("last(success) > 0.9")})
    assert [(each.code, each.severity) for each in unbounded] == [("unbounded-stage", Severity.WARNING)]
    assert unbounded[0].help == "write 'last(success) > 0.9 or step >= 1000'"


def test_a_long_condition_is_not_cut_in_the_middle(say: Callable[..., list[Diagnostic]]) -> None:
    long = " and ".join(f"mean(success, {size}) > 0.9" for size in range(10, 14))
    assert (
        say("schedule.ends_are_bounded", {"schedule.1.until": Expr(long)})[0].help == "add 'or step >= 1000' at the end"
    )


# --- what is said --------------------------------------------------------------------------------------------------


def test_near_names_are_offered(say: Callable[..., list[Diagnostic]]) -> None:
    helps = {
        "environment.registered": "did you mean 'textcraft'?",
        "environment.options_are_known": "did you mean 'max_depth'?",
        "environment.splits_known": "did you mean 'train'?",
        "environment.eval_split_known": "did you mean 'test'?",
        "run.sinks_exist": "did you mean 'tensorboard'?",
    }
    for name, text in helps.items():
        assert say(name, CASES[name][0][0][0])[0].help == text


def test_the_first_of_two_stages_is_pointed_at(say: Callable[..., list[Diagnostic]]) -> None:
    (found,) = say("schedule.names_differ", A_SECOND, "schedule.0.stage")
    assert [note.span.text for note in found.notes] == ["schedule.0.stage"]


def test_memory_comes_with_its_table_and_what_helps(say: Callable[..., list[Diagnostic]]) -> None:
    learner = SEVEN | FOUR | {"hardware.gpu_memory_gb": 30.0, "hardware.layout": Layout.SPLIT}
    found = {each.message: each.help for each in say("hardware.everything_fits_in_gpu_memory", learner)}
    # 15.23 + 91.39 / 2 + 30.46 / 2 + 2 + 6.98 + 0.94 + 2.18 + 1.5
    (message,) = found
    assert message == "needs 89.8 GB per GPU; the GPU has 30.0 GB"
    assert found[message] == (
        "learner: weights 15.2, optimizer 45.7, gradients 15.2, buckets 2.0, activations 7.0, logits 3.1, "
        "process 1.5 GB; to fit, write model: {lora: {rank: 16}}, or hardware: {train: {zero: 3, offload: all}}"
    )


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"hardware.gpu_memory_gb": 25.0}, "to fit, write hardware: {train: {zero: 3, offload: all}}"),
        (
            {"hardware.gpu_memory_gb": 57.0, "hardware.train.zero": 1},
            "write hardware: {train: {zero: 3}}, or hardware: ",
        ),
        ({"hardware.gpu_memory_gb": 5.0}, "no setting makes it fit: use a smaller model"),
    ],
)
def test_what_does_not_fit_is_answered_with_the_cheapest_settings_that_do(
    say: Callable[..., list[Diagnostic]], changes: Changes, advice: str
) -> None:
    (report,) = say("hardware.everything_fits_in_gpu_memory", SEVEN | FOUR | changes)
    assert advice in (report.help or "")


# --- all together --------------------------------------------------------------------------------------------------


def test_the_small_recipe_is_right(recipe: Recipe, catalog: Catalog) -> None:
    assert rules.check_rules(recipe, Listed(["name"]), catalog) == ()


def test_what_two_stages_inherit_is_said_once_and_in_file_order(
    change: Callable[..., Any], recipe: Recipe, catalog: Catalog
) -> None:
    wrong = change(
        recipe, al(groups_per_update=5) | {"schedule.*.sampling.temperature": 0, "logging": (Sink(use="x"),)}
    )
    keys = ["logging.0.use", "algorithm.groups_per_update", "sampling.temperature", "guards.on_grad_norm"]
    found = rules.check_rules(wrong, Listed(keys), catalog)
    assert [diagnostic.span.text for diagnostic in found] == keys
    assert [diagnostic.code for diagnostic in found] == ["unknown-name", "not-divisible", "no-signal", "no-effect"]


def test_sizes_that_the_caller_read_are_used(change: Callable[..., Any], recipe: Recipe, catalog: Catalog) -> None:
    folder = change(recipe, FOUR | {"model.path": "./mine", "hardware.rollout.tensor_parallel": 4})
    assert rules.check_rules(folder, Listed(["name"]), catalog) == ()
    codes = [each.code for each in rules.check_rules(folder, Listed(["name"]), catalog, replace(TOY, heads=6))]
    assert codes == ["not-divisible"]


POOL: dict[str, list[Any]] = {
    "model.path": ["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "./mine"],
    "model.lora": [None, Lora(rank=4)],
    "model.dtype": list(DType),
    "eval": [None, Eval(), Eval(every=3)],
    "hardware.nodes": [1, 2],
    "hardware.gpus_per_node": [0, 1, 2, 4],
    "hardware.gpu": [None, Gpu.A10, Gpu.H200],
    "hardware.layout": list(Layout),
    "hardware.launcher": list(Launcher),
    "hardware.staleness": [0, 1],
    "hardware.rollout.tensor_parallel": [1, 2],
    "hardware.rollout.gpus": [None, 1, 2],
    "hardware.train.zero": [0, 1, 2, 3],
    "hardware.train.offload": list(Offload),
    "schedule.0.turns": [None, 1, 8, Expr("4 + step // 10"), Expr("clip(total_step, 2, 6)"), Expr("9 - step")],
    "schedule.1.turns": [8, 20, Expr("8 + total_step // 100"), Expr("20 if default(last(success), 0) > 0.5 else 10")],
    "schedule.0.until": [None, Expr("step >= 1"), Expr("step >= 60 or last(success) > 0.9"), Expr("last(kl) > 1")],
    "schedule.1.until": [Expr("total_step >= 150"), Expr("step >= 20"), Expr("step >= 200000")],
    "schedule.1.shrink": [False, True],
    "schedule.0.environments.craft.turns": [None, 12],
    "schedule.0.algorithm": [
        *(Algorithm(use=preset) for preset in (Preset.SFT, Preset.EVAL, Preset.AGENT_EVOL, Preset.GRPO)),
        Algorithm(use=Preset.DPO, data=replace(Algorithm().data, source=DataSource.ROLLOUT)),
        Algorithm(use=Preset.DPO, data=replace(Algorithm().data, source=DataSource.FILE, path="x")),
        Algorithm(use=Preset.TURN_DPO, data=replace(Algorithm().data, source=DataSource.ROLLOUT)),
    ],
    "schedule.1.algorithm.group_size": [1, 2, 8],
    "schedule.1.algorithm.groups_per_update": [None, 4, 5],
    "schedule.1.algorithm.advantage.baseline": list(Baseline),
    "schedule.1.algorithm.kl.coef": [0, 0.1, Expr("linear(0, 1, 10)")],
    "schedule.*.agent.context_tokens": [512, 600, 8192, 30_000],
    "schedule.1.agent.reflection": [None, Reflection(attempts=3)],
}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in POOL.items()}))
def test_whatever_the_rules_let_pass_lowers_to_a_plan_that_can_run(
    change: Callable[..., Any], recipe: Recipe, catalog: Catalog, changes: Changes
) -> None:
    changed = change(recipe, changes)
    found = rules.check_rules(changed, Listed(["name"]), catalog)
    if any(each.severity is Severity.ERROR for each in found):
        return
    assert problems(lower(changed, find_shape(changed.model), (), "0" * 64, catalog)) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": ["full", "small"]},
        {"type": "boolean"},
        {"type": "integer", "minimum": 1, "maximum": 9},
        {"type": "number", "minimum": 0, "maximum": 1, "default": 0.25},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string"},
        {"type": ["integer", "null"]},
    ],
    ids=str,
)
def test_what_is_taken_to_be_right_without_jsonschema_is_right_by_jsonschema(schema: dict[str, Any]) -> None:
    from agym.dsl.rules.environment import _clearly_right
    from jsonschema import Draft7Validator

    values = [True, False, None, 0, 1, 2, 9, 10, -1, 0.5, 1.0, 1.5, "full", "1", "", [], {}]
    taken = [value for value in values if _clearly_right(value, {**schema, "description": "an option"})]
    assert all(Draft7Validator(schema).is_valid(value) for value in taken)
    if schema.keys() <= {"enum", "type", "minimum", "maximum", "default"} and isinstance(schema.get("type", ""), str):
        assert taken or schema == {"type": "string"}


def test_the_metrics_of_a_step_are_those_that_a_run_writes(root: Path) -> None:
    files = [path for path in (root / "runtime").rglob("*.py") if "sinks" not in path.parts]
    literal = re.compile(rf'"({"|".join(STEP_METRICS)})/([a-z_]+)"')
    written = {match.groups() for file in files for match in literal.finditer(file.read_text(encoding="utf-8"))}
    named = {group: names.split() for group, (names, _, _) in STEP_METRICS.items() if names}
    assert {(group, name) for group, name in written if group in named and name not in named[group]} == set()
    assert {(group, name) for group, names in named.items() for name in names} <= written
