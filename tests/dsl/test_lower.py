"""Lowering: what a recipe's stages become, op by op, worker by worker, number by number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from agym.dsl.catalog import Catalog
from agym.dsl.expression.expr import Expr
from agym.dsl.model.algorithm import Baseline, DataSource, KLPlace, Level, Preset, RetrainFrom
from agym.dsl.model.model_sizes import find_shape
from agym.dsl.model.plan import Op, OpKind, Plan, PlanStage, PortType, Role
from agym.dsl.model.recipe import (
    DType,
    Gpu,
    Hardware,
    Judge,
    Launcher,
    Layout,
    Lora,
    Memory,
    MemoryKind,
    Planning,
    Recipe,
    Reflection,
    RewardSource,
    Transport,
)
from agym.dsl.model.stage_kinds import episodes_at_once
from agym.dsl.planning.lower import lower
from agym.dsl.publish.plan_json import dump_json

from .test_plan_properties import problems

Change = Callable[..., Any]
SHA = "0" * 64


@pytest.fixture
def plan_of(change: Change, recipe: Recipe, catalog: Catalog) -> Callable[[dict[str, Any]], Plan]:
    """The plan of the small recipe with changes; checked to be a valid one."""

    def made(changes: dict[str, Any]) -> Plan:
        changed = change(recipe, changes)
        plan = lower(changed, find_shape(changed.model), (), SHA, catalog)
        assert problems(plan) == []
        return plan

    return made


PlanOf = Callable[[dict[str, Any]], Plan]


def flow(stage: PlanStage) -> list[str]:
    """Ops as `what it takes from -> its id`; a dash behind what is of the step before."""
    return [f"{' '.join(wire.op + '-' * wire.previous for wire in op.inputs)} -> {op.id}" for op in stage.ops]


def op(stage: PlanStage, id_: str) -> Op:
    return next(op for op in stage.ops if op.id == id_)


def use(preset: Preset, **algorithm: Any) -> dict[str, Any]:
    return {"schedule.*.algorithm.use": preset} | {f"schedule.*.algorithm.{k}": v for k, v in algorithm.items()}


# --- ops -----------------------------------------------------------------------------------------------------------


def test_group_learning_samples_with_the_weights_of_the_step_before(plan_of: PlanOf) -> None:
    assert flow(plan_of({}).stages[0]) == [
        "update- -> sync",
        " -> tasks",
        "tasks sync -> rollout",
        "rollout -> reward",
        "reward -> advantage",
        "advantage -> update",
        "update -> eval",
        "update -> save",
    ]


def test_measuring_and_saving_happen_every_so_many_steps(plan_of: PlanOf) -> None:
    stage = plan_of({"eval.every": 7, "checkpoint.every": 9}).stages[0]
    assert (op(stage, "eval").every, op(stage, "save").every, op(stage, "update").every) == (7, 9, None)


def test_no_eval_op_without_eval(plan_of: PlanOf) -> None:
    assert OpKind.EVAL not in {op.kind for op in plan_of({"eval": None}).stages[0].ops}


def test_a_critic_gives_values_and_learns_from_the_batch(plan_of: PlanOf) -> None:
    shown = flow(plan_of({"schedule.*.algorithm.advantage.baseline": Baseline.CRITIC}).stages[0])
    assert "reward -> values" in shown
    assert "reward values -> advantage" in shown
    assert "advantage -> critic" in shown


def test_divergence_in_the_loss_goes_to_the_update(plan_of: PlanOf) -> None:
    shown = flow(plan_of({"schedule.*.algorithm.kl.coef": 1e-3}).stages[0])
    assert "advantage -> reference" in shown
    assert "advantage reference -> update" in shown


def test_divergence_in_the_reward_goes_to_the_advantage(plan_of: PlanOf) -> None:
    changes = {"schedule.*.algorithm.kl.coef": 1e-3, "schedule.*.algorithm.kl.place": KLPlace.REWARD}
    shown = flow(plan_of(changes).stages[0])
    assert "reward reference -> advantage" in shown
    assert "advantage -> update" in shown


def test_a_weight_that_changes_needs_the_reference(plan_of: PlanOf) -> None:
    plan = plan_of({"schedule.1.algorithm.kl.coef": Expr("linear(0, 1e-3, 50)")})
    assert "advantage -> reference" not in flow(plan.stages[0])
    assert "advantage -> reference" in flow(plan.stages[1])


def test_a_judge_scores_before_rewards_and_resampling_comes_last_of_what_may_run_ahead(plan_of: PlanOf) -> None:
    judge = {
        "schedule.*.reward.source": RewardSource.JUDGE,
        "schedule.*.reward.judge": Judge(url="http://a", model="b"),
    }
    stage = plan_of({**judge, "schedule.*.algorithm.filter.resample": True}).stages[0]
    assert flow(stage)[3:6] == ["rollout -> judge", "judge sync -> resample", "resample -> reward"]
    assert [op.id for op in stage.ops if op.ahead] == ["sync", "tasks", "rollout", "judge", "resample"]


def test_old_logprobs_are_computed_where_the_samplers_are_not_the_learners(plan_of: PlanOf) -> None:
    assert "old_logprobs" not in {op.id for op in plan_of({"model.dtype": DType.FP32}).stages[0].ops}
    for changes in ({"model.dtype": DType.BF16}, {"model.dtype": DType.FP32, "hardware.staleness": 1}):
        shown = flow(plan_of(changes).stages[0])
        assert "advantage -> old_logprobs" in shown
        assert "advantage old_logprobs -> update" in shown


def test_an_update_of_the_whole_batch_gives_the_old_logprobs_itself(plan_of: PlanOf) -> None:
    changes: dict[str, Any] = {"model.dtype": DType.BF16, "schedule.*.algorithm.groups_per_update": None}
    changes |= {"schedule.*.algorithm.updates_per_pass": 1}
    stage = plan_of(changes).stages[0]
    assert "old_logprobs" not in {op.id for op in stage.ops}
    assert PortType.OLD_LOGPROBS in {port.type for port in op(stage, "update").outputs}
    for other in (
        {"schedule.*.algorithm.importance.level": Level.TURN},
        {"schedule.*.algorithm.loss.ratio": Level.EPISODE},
        {"schedule.*.algorithm.importance.reject.geometric": (0.9, 1.1)},
        {"schedule.*.algorithm.importance.reject.off_policy": 0.5},
    ):
        stage = plan_of(changes | other).stages[0]
        assert "old_logprobs" in {op.id for op in stage.ops}
        assert PortType.OLD_LOGPROBS not in {port.type for port in op(stage, "update").outputs}


def test_what_is_imitated_or_preferred_never_runs_ahead(plan_of: PlanOf) -> None:
    for preset in (Preset.SFT, Preset.DPO, Preset.TURN_DPO, Preset.AGENT_EVOL):
        stage = plan_of(use(preset, **{"data.source": DataSource.ROLLOUT})).stages[0]
        assert "rollout" in {op.id for op in stage.ops}
        assert not any(op.ahead for op in stage.ops)


def test_adapters_are_their_own_reference(plan_of: PlanOf) -> None:
    plan = plan_of({"model.lora": Lora(), "schedule.*.algorithm.kl.coef": 1e-3})
    assert op(plan.stages[0], "reference").role is Role.LEARNER
    assert Role.REFERENCE not in {worker.role for worker in plan.placement.workers}
    assert plan.budget.trainable_parameters == 8_798_208


def test_imitation_reads_data_and_plays_nothing(plan_of: PlanOf) -> None:
    plan = plan_of(use(Preset.SFT) | {"eval": None})
    assert flow(plan.stages[0]) == [" -> data", "data -> update", "update -> save"]
    assert {worker.role for worker in plan.placement.workers} == {Role.LEARNER}


def test_preferences_from_rollouts_are_paired_before_the_reference_sees_them(plan_of: PlanOf) -> None:
    plan = plan_of(use(Preset.DPO, **{"data.source": DataSource.ROLLOUT}) | {"eval": None})
    assert flow(plan.stages[0])[4:7] == ["reward -> pairs", "pairs -> reference", "pairs reference -> update"]


def test_preferences_from_a_file_start_with_data(plan_of: PlanOf) -> None:
    plan = plan_of(use(Preset.DPO, **{"data.source": DataSource.FILE, "data.path": "pairs.jsonl"}))
    assert flow(plan.stages[0])[:2] == [" -> data", "data -> reference"]


def test_turn_preferences_are_ranked_by_a_critic(plan_of: PlanOf) -> None:
    plan = plan_of(use(Preset.TURN_DPO, **{"data.source": DataSource.ROLLOUT}))
    assert flow(plan.stages[0])[4:8] == [
        "reward -> candidates",
        "candidates -> critic",
        "candidates critic -> pairs",
        "pairs -> reference",
    ]


def test_evolving_explores_then_retrains(plan_of: PlanOf) -> None:
    plan = plan_of(use(Preset.AGENT_EVOL))
    assert flow(plan.stages[0])[3:7] == ["rollout -> reward", "reward -> data", " -> reset", "data reset -> update"]
    last = plan_of(use(Preset.AGENT_EVOL, **{"evolve.retrain_from": RetrainFrom.LAST}))
    assert "reset" not in {op.id for op in last.stages[0].ops}


def test_a_stage_may_only_measure(plan_of: PlanOf) -> None:
    plan = plan_of(use(Preset.EVAL))
    assert flow(plan.stages[0]) == [" -> eval", " -> save"]
    assert op(plan.stages[0], "eval").every is None
    assert plan.budget.trainable_parameters == 0
    assert {worker.role for worker in plan.placement.workers} == {Role.ROLLOUT}


# --- budget --------------------------------------------------------------------------------------------------------


def test_a_step_of_group_learning_by_hand(plan_of: PlanOf) -> None:
    budget = plan_of({"schedule.*.algorithm.epochs": 2}).stages[0].budget
    assert budget.episodes_per_step == 4 * 16
    assert budget.updates_per_step == 2 * 2
    assert budget.max_sampled_tokens_per_step == 64 * 8 * 512
    assert budget.max_trained_tokens_per_step == 64 * 8192 * 2
    assert budget.max_steps == 100


def test_the_context_bounds_what_is_sampled(plan_of: PlanOf) -> None:
    budget = plan_of({"schedule.*.agent.context_tokens": 1000}).stages[0].budget
    assert budget.max_sampled_tokens_per_step == 64 * 1000


def test_plans_and_second_attempts_are_sampled_too(plan_of: PlanOf) -> None:
    extras = {"schedule.*.agent.planning": Planning(tokens=88), "schedule.*.agent.reflection": Reflection(attempts=2)}
    assert plan_of(extras).stages[0].budget.max_sampled_tokens_per_step == 64 * (8 * (512 + 88) * 2 + 256)


def test_a_memory_that_is_cut_makes_several_sequences_of_one_episode(plan_of: PlanOf) -> None:
    memory = Memory(kind=MemoryKind.SUMMARY, turns=3, tokens=40)
    budget = plan_of({"schedule.*.agent.memory": memory}).stages[0].budget
    assert budget.max_sampled_tokens_per_step == 64 * 8 * (512 + 40)
    assert budget.max_trained_tokens_per_step == 64 * 8192 * 6


def test_a_greedy_baseline_plays_one_more_per_group(plan_of: PlanOf) -> None:
    budget = plan_of({"schedule.*.algorithm.advantage.baseline": Baseline.GREEDY}).stages[0].budget
    assert budget.episodes_per_step == 5 * 16
    assert budget.max_trained_tokens_per_step == 64 * 8192


def test_a_step_of_imitation_by_hand(plan_of: PlanOf) -> None:
    budget = plan_of(use(Preset.SFT, batch_size=24)).stages[0].budget
    assert (budget.episodes_per_step, budget.max_turns, budget.horizon) == (0, 0, ())
    assert (budget.updates_per_step, budget.max_trained_tokens_per_step) == (1, 24 * 8192)


def test_a_step_of_preferences_by_hand(plan_of: PlanOf) -> None:
    budget = plan_of(use(Preset.DPO, batch_size=10, **{"data.source": DataSource.ROLLOUT})).stages[0].budget
    assert budget.episodes_per_step == 4 * 16
    assert budget.updates_per_step == 7  # 16 groups of 4 pairs, ten at a time
    assert budget.max_trained_tokens_per_step == 2 * 64 * 8192


def test_evolving_ends_with_its_rounds(plan_of: PlanOf) -> None:
    changes = use(Preset.AGENT_EVOL, **{"evolve.samples": 3, "evolve.rounds": 5}) | {"schedule.*.until": None}
    budget = plan_of(changes).stages[0].budget
    assert (budget.max_steps, budget.episodes_per_step) == (5, 16 * 3)


def test_a_stage_without_a_bound_has_no_number_of_steps(plan_of: PlanOf) -> None:
    assert plan_of({"schedule.1.until": Expr("mean(success, 10) >= 0.8")}).stages[1].budget.max_steps is None


def test_horizon_that_depends_on_steps_is_a_table(plan_of: PlanOf) -> None:
    plan = plan_of({"schedule.0.turns": Expr("min(4 + 2 * (step // 40), 30)")})
    assert plan.stages[0].budget.horizon == ((0, 4), (40, 6), (80, 8))
    assert plan.stages[0].budget.max_turns == 8


def test_horizon_counts_the_steps_of_stages_before(plan_of: PlanOf) -> None:
    plan = plan_of({"schedule.1.turns": Expr("8 + total_step // 100"), "schedule.1.until": Expr("step >= 150")})
    assert plan.stages[1].budget.horizon == ((0, 9), (100, 10))


def test_horizon_is_unknown_after_a_stage_that_may_end_early(plan_of: PlanOf) -> None:
    early = {"schedule.0.until": Expr("step >= 100 or last(success) >= 0.9")}
    budget = plan_of(early | {"schedule.1.turns": Expr("clip(total_step, 9, 20)")}).stages[1].budget
    assert (budget.horizon, budget.max_turns) == ((), 20)


def test_horizon_by_metric_is_bounded_by_what_it_can_be(plan_of: PlanOf) -> None:
    budget = plan_of({"schedule.1.turns": Expr("20 if default(last(success), 0) > 0.5 else 10")}).stages[1].budget
    assert (budget.horizon, budget.max_turns) == ((), 20)


def test_horizon_is_the_widest_of_all_environments(plan_of: PlanOf, recipe: Recipe) -> None:
    craft = recipe.environments["craft"]
    worlds = {"a": replace(craft, turns=Expr("10 if step < 30 else 14")), "b": replace(craft, turns=12)}
    assert plan_of({"schedule.0.environments": worlds}).stages[0].budget.horizon == ((0, 12), (30, 14))


# --- placement -----------------------------------------------------------------------------------------------------


def seats(plan: Plan, role: Role) -> list[tuple[int, tuple[int, ...]]]:
    return [(worker.node, worker.gpus) for worker in plan.placement.workers if worker.role is role]


def test_a_laptop_runs_one_of_each_in_one_process(plan_of: PlanOf) -> None:
    plan = plan_of({})
    assert plan.placement.launcher == "inline"
    assert [worker.id for worker in plan.placement.workers] == ["rollout/0", "learner/0"]


def test_one_gpu_needs_no_ray_and_two_do(plan_of: PlanOf) -> None:
    assert plan_of({"hardware.gpus_per_node": 1}).placement.launcher == "inline"
    assert plan_of({"hardware.gpus_per_node": 2}).placement.launcher == "ray"


def test_a_cluster_s_address_means_ray(plan_of: PlanOf) -> None:
    assert plan_of({"hardware.ray_address": "auto"}).placement.launcher == "ray"


def test_machines_without_gpus_have_one_rank_each(plan_of: PlanOf) -> None:
    plan = plan_of({"hardware.nodes": 2})
    assert seats(plan, Role.LEARNER) == seats(plan, Role.ROLLOUT) == [(0, ()), (1, ())]


def test_colocated_engines_span_the_learners_gpus(plan_of: PlanOf) -> None:
    hardware = {"hardware.nodes": 2, "hardware.gpus_per_node": 4, "hardware.rollout.tensor_parallel": 2}
    plan = plan_of(hardware)
    assert seats(plan, Role.ROLLOUT) == [(0, (0, 1)), (0, (2, 3)), (1, (0, 1)), (1, (2, 3))]
    assert seats(plan, Role.LEARNER) == [(node, (gpu,)) for node in (0, 1) for gpu in range(4)]


def test_split_gives_learners_the_first_gpus(plan_of: PlanOf) -> None:
    hardware = {"hardware.gpus_per_node": 4, "hardware.layout": Layout.SPLIT, "hardware.train.gpus": 3}
    plan = plan_of(hardware)
    assert seats(plan, Role.LEARNER) == [(0, (0,)), (0, (1,)), (0, (2,))]
    assert seats(plan, Role.ROLLOUT) == [(0, (3,))]


def test_split_by_halves_where_nothing_is_said(plan_of: PlanOf) -> None:
    plan = plan_of({"hardware.gpus_per_node": 8, "hardware.layout": Layout.SPLIT})
    assert (len(seats(plan, Role.LEARNER)), len(seats(plan, Role.ROLLOUT))) == (4, 4)


def test_critic_and_reference_sit_with_the_learners(plan_of: PlanOf) -> None:
    changes = {"schedule.*.algorithm.advantage.baseline": Baseline.CRITIC, "schedule.*.algorithm.kl.coef": 1e-3}
    plan = plan_of(changes | {"hardware.gpus_per_node": 2})
    assert seats(plan, Role.CRITIC) == seats(plan, Role.REFERENCE) == seats(plan, Role.LEARNER)


def test_servers_are_placed_for_what_is_not_light(plan_of: PlanOf, recipe: Recipe) -> None:
    craft = recipe.environments["craft"]
    worlds = {
        "light": craft,
        "heavy": replace(craft, use="web", replicas=2),
        "forced": replace(craft, transport=Transport.HTTP),
        "inline": replace(craft, use="web", transport=Transport.INLINE),
        "foreign": replace(craft, use=None, url="http://127.0.0.1:8200"),
    }
    plan = plan_of({"schedule.*.environments": worlds})
    servers = [worker for worker in plan.placement.workers if worker.role is Role.ENVIRONMENT]
    assert [(worker.id, worker.rank) for worker in servers] == [
        ("environment/heavy/0", 0),
        ("environment/heavy/1", 1),
        ("environment/forced/0", 2),
    ]


def test_each_engine_has_servers_of_its_own_on_its_node(plan_of: PlanOf, recipe: Recipe) -> None:
    worlds = {"web": replace(recipe.environments["craft"], use="web", replicas=2)}
    plan = plan_of({"schedule.*.environments": worlds, "hardware.nodes": 2, "hardware.workers_per_node": 2})
    assert seats(plan, Role.ROLLOUT) == seats(plan, Role.LEARNER) == [(0, ()), (0, ()), (1, ()), (1, ())]
    assert [node for node, _ in seats(plan, Role.ENVIRONMENT)] == [0, 0, 0, 0, 1, 1, 1, 1]


# --- the whole -----------------------------------------------------------------------------------------------------


def test_everything_of_the_recipe_is_in_the_plan(recipe: Recipe) -> None:
    plan = lower(recipe, find_shape(recipe.model), (("seed", "3"), ("algorithm.lr", "1e-06")), SHA)
    assert plan.choices == {"seed": "3", "algorithm.lr": "1e-06"}
    assert (plan.recipe_sha256, plan.name, plan.model, plan.guards) == (SHA, "craft", recipe.model, recipe.guards)
    assert tuple(stage.settings for stage in plan.stages) == recipe.schedule


def test_equal_recipes_give_equal_plans(recipe: Recipe, catalog: Catalog) -> None:
    plans = {dump_json(lower(recipe, find_shape(recipe.model), (), SHA, catalog)) for _ in range(3)}
    assert len(plans) == 1


def test_unknown_sizes_leave_the_estimate_out(plan_of: PlanOf) -> None:
    budget = plan_of({"model.path": "someone/something"}).budget
    assert (budget.parameters, budget.trainable_parameters, budget.memory) == (None, None, ())


@pytest.mark.parametrize(
    "hardware",
    [
        Hardware(gpus_per_node=8, gpu=Gpu.H100),
        Hardware(nodes=2, gpus_per_node=8, gpu=Gpu.A100_80, layout=Layout.SPLIT),
        Hardware(gpus_per_node=1, gpu=Gpu.L4, launcher=Launcher.RAY),
    ],
)
def test_a_card_s_memory_is_in_the_plan(plan_of: PlanOf, hardware: Hardware) -> None:
    budget = plan_of({"hardware": hardware}).budget
    assert budget.capacity_bytes is not None
    assert {use.role for use in budget.memory} == {Role.LEARNER, Role.ROLLOUT}


@pytest.mark.parametrize(
    ("sessions", "at_once"),
    [
        ({"craft": None}, 64),
        ({"craft": 3}, 3),
        ({"craft": 500}, 64),
        ({"craft": 3, "more": 4}, 7),
        ({"craft": 3, "more": None}, 64),
    ],
)
def test_no_more_episodes_are_planned_at_once_than_the_environments_have_room_for(
    recipe: Recipe, sessions: dict[str, int | None], at_once: int
) -> None:
    (stage, *_), craft = recipe.schedule, next(iter(recipe.environments.values()))
    limited = {name: replace(craft, sessions=limit) for name, limit in sessions.items()}
    assert episodes_at_once(replace(stage, environments=limited), 64) == at_once
