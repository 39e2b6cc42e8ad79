"""Proof of plans: each of many ways to spoil a right plan is caught, and named where it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from agym.dsl.expression.expr import Expr
from agym.dsl.model.algorithm import Baseline, DataSource, Preset
from agym.dsl.model.model_sizes import shape_of
from agym.dsl.model.plan import MemoryItem, Op, Plan, Role
from agym.dsl.model.recipe import Environment, Gpu, Layout, Model, Recipe, Stage
from agym.dsl.planning.lower import lower
from agym.dsl.planning.verify import verify_plan
from agym.dsl.publish.plan_json import CodecError, dumps, loads, to_json
from agym.dsl.publish.plan_schema import SCHEMA_FILE, plan_schema
from agym.dsl.publish.plan_schema import text as schema_text
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

Change = Callable[..., Any]


def lowered(recipe: Recipe) -> Plan:
    return lower(recipe, shape_of(recipe.model), (), "0" * 64)


@pytest.fixture
def plan(change: Change, recipe: Recipe) -> Plan:
    """A critic, a reference, four GPUs, two stages, a horizon that grows: every sort of op and worker of RL."""
    return lowered(
        change(
            recipe,
            {
                "schedule.*.algorithm.advantage.baseline": Baseline.CRITIC,
                "schedule.*.algorithm.kl.coef": 1e-3,
                "schedule.0.turns": Expr("4 + 2 * (step // 40)"),
                "hardware.gpus_per_node": 4,
                "hardware.gpu": Gpu.H100,
                "hardware.rollout.tensor_parallel": 2,
            },
        )
    )


@pytest.fixture
def plans(change: Change, recipe: Recipe, plan: Plan) -> dict[str, Plan]:
    """One plan of each kind of stage."""

    def using(preset: Preset, **changes: Any) -> Plan:
        given = {f"schedule.*.algorithm.{key}": value for key, value in changes.items()}
        return lowered(change(recipe, {"schedule.*.algorithm.use": preset} | given))

    rollout = {"data.source": DataSource.ROLLOUT}
    return {
        "rl": plan,
        "cpu": lowered(recipe),
        "split": lowered(change(recipe, {"hardware.gpus_per_node": 4, "hardware.layout": Layout.SPLIT})),
        "sft": using(Preset.SFT),
        "dpo": using(Preset.DPO, **rollout),
        "given pairs": using(Preset.DPO, **{"data.source": DataSource.FILE, "data.path": "x"}),
        "turn dpo": using(Preset.TURN_DPO, **rollout),
        "evolve": using(Preset.AGENT_EVOL),
        "eval": using(Preset.EVAL),
    }


def with_op(plan: Plan, id_: str, **changes: Any) -> Plan:
    """The plan with another op in its first stage."""
    stage = plan.stages[0]
    ops = tuple(replace(op, **changes) if op.id == id_ else op for op in stage.ops)
    return replace(plan, stages=(replace(stage, ops=ops), *plan.stages[1:]))


def op_of(plan: Plan, id_: str) -> Op:
    return next(op for op in plan.stages[0].ops if op.id == id_)


def with_budget(plan: Plan, **changes: Any) -> Plan:
    stage = plan.stages[0]
    return replace(plan, stages=(replace(stage, budget=replace(stage.budget, **changes)), *plan.stages[1:]))


def with_worker(plan: Plan, id_: str, **changes: Any) -> Plan:
    workers = tuple(replace(each, **changes) if each.id == id_ else each for each in plan.placement.workers)
    return replace(plan, placement=replace(plan.placement, workers=workers))


def said(plan: Plan) -> str:
    return "\n".join(f"{problem.where}: {problem.message}" for problem in verify_plan(plan))


def test_nothing_is_said_of_right_plans(plans: dict[str, Plan]) -> None:
    assert {name: said(plan) for name, plan in plans.items()} == dict.fromkeys(plans, "")


# --- stages and budgets --------------------------------------------------------------------------------------------


def test_no_stage_is_no_plan(plan: Plan) -> None:
    assert "stages: expected at least one" in said(replace(plan, stages=()))


def test_stages_out_of_order(plan: Plan) -> None:
    assert "stages[0]: expected index 0, not 1" in said(replace(plan, stages=plan.stages[::-1]))


def test_two_stages_of_one_name(plan: Plan) -> None:
    second = replace(plan.stages[1], settings=replace(plan.stages[1].settings, stage="exploit"))
    assert "two are called 'exploit'" in said(replace(plan, stages=(plan.stages[0], second)))


SPOILT_BUDGETS: dict[str, dict[str, Any]] = {
    "no episodes": {"episodes_per_step": 0},
    "another number of episodes": {"episodes_per_step": 63},
    "no turns": {"max_turns": 0, "horizon": ()},
    "more turns than the horizon": {"max_turns": 99},
    "fewer turns than the horizon": {"max_turns": 5},
    "no tokens": {"max_sampled_tokens_per_step": 0},
    "more tokens than fit": {"max_sampled_tokens_per_step": 10**9},
    "nothing trained": {"max_trained_tokens_per_step": 0},
    "no update": {"updates_per_step": 0},
    "negative updates": {"updates_per_step": -1},
    "no steps": {"max_steps": 0},
    "a horizon from the middle": {"horizon": ((1, 8),)},
    "a horizon out of order": {"horizon": ((0, 4), (0, 8))},
    "a horizon that falls": {"horizon": ((0, 8), (10, 4))},
    "a horizon of nothing": {"horizon": ((0, 0), (10, 8))},
    "a horizon past the end": {"horizon": ((0, 4), (100, 8))},
}


@pytest.mark.parametrize("name", SPOILT_BUDGETS)
def test_a_budget_that_does_not_add_up_is_caught(plan: Plan, name: str) -> None:
    assert "stages[0].budget" in said(with_budget(plan, **SPOILT_BUDGETS[name]))


def test_figures_of_what_does_not_happen_are_caught(plans: dict[str, Plan]) -> None:
    assert "updates_per_step: expected 0, not 1" in said(with_budget(plans["eval"], updates_per_step=1))
    assert "episodes_per_step: expected 0, not 8" in said(with_budget(plans["sft"], episodes_per_step=8))


def test_a_horizon_that_falls_between_stages_is_caught_unless_it_may(plan: Plan) -> None:
    last = plan.stages[1]
    lower_one = replace(last, budget=replace(last.budget, horizon=((0, 3),), max_turns=3))
    assert "stages[1].budget.horizon: falls from 8 turns to 3" in said(
        replace(plan, stages=(plan.stages[0], lower_one))
    )
    allowed = replace(lower_one, settings=replace(lower_one.settings, shrink=True))
    assert verify_plan(replace(plan, stages=(plan.stages[0], allowed))) == ()


# --- placement -----------------------------------------------------------------------------------------------------

SPOILT_WORKERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a node that there is not": ("learner/0", {"node": 1}, "node 1 is not one of 1"),
    "a negative node": ("learner/0", {"node": -1}, "node -1 is not one of 1"),
    "a card that there is not": ("learner/0", {"gpus": (4,)}, "GPU 4 is not one of 4"),
    "a card twice": ("rollout/0", {"gpus": (0, 0)}, "has a GPU twice"),
    "too few cards": ("rollout/0", {"gpus": (0,)}, "expected 2 GPUs, not 1"),
    "no cards": ("learner/2", {"gpus": ()}, "expected 1 GPUs, not 0"),
    "another's card": ("learner/1", {"gpus": (0,)}, "two workers of 'learner' share it"),
    "another engine's card": ("rollout/1", {"gpus": (1, 2)}, "two workers of 'rollout' share it"),
    "a gap in the ranks": ("learner/3", {"rank": 4}, "ranks of 'learner' are not 0 to 3"),
    "a rank twice": ("learner/3", {"rank": 2}, "ranks of 'learner' are not 0 to 3"),
    "a name twice": ("learner/3", {"id": "learner/2"}, "two workers are called 'learner/2'"),
    "a critic elsewhere": ("critic/0", {"gpus": (3,)}, "'critic' does not sit where the learners do"),
    "another role": ("critic/0", {"role": Role.REFERENCE}, "ranks of"),
}


@pytest.mark.parametrize("name", SPOILT_WORKERS)
def test_a_worker_where_none_can_be_is_caught(plan: Plan, name: str) -> None:
    id_, changes, message = SPOILT_WORKERS[name]
    assert message in said(with_worker(plan, id_, **changes))


@pytest.mark.parametrize("role", [Role.ROLLOUT, Role.LEARNER, Role.CRITIC, Role.REFERENCE])
def test_ops_without_workers_are_caught(plan: Plan, role: Role) -> None:
    workers = tuple(worker for worker in plan.placement.workers if worker.role is not role)
    spoilt = replace(plan, placement=replace(plan.placement, workers=workers))
    assert f"no worker has the role '{role}'" in said(spoilt)


def test_one_process_holds_one_of_each(plan: Plan) -> None:
    spoilt = replace(plan, placement=replace(plan.placement, launcher="inline"))
    assert "one process cannot hold 4 workers of 'learner'" in said(spoilt)


def test_an_unknown_launcher_is_caught(plan: Plan) -> None:
    assert "not 'auto'" in said(replace(plan, placement=replace(plan.placement, launcher="auto")))


def test_split_cards_are_not_shared(plan: Plan) -> None:
    assert "samples and learns" in said(replace(plan, hardware=replace(plan.hardware, layout=Layout.SPLIT)))


def test_cards_on_a_machine_without_any_are_caught(plan: Plan) -> None:
    assert "expected 0 GPUs" in said(replace(plan, hardware=replace(plan.hardware, gpus_per_node=0)))


# --- memory --------------------------------------------------------------------------------------------------------


def test_memory_over_the_card_is_caught(plan: Plan) -> None:
    assert "a card of 'learner' holds" in said(replace(plan, budget=replace(plan.budget, capacity_bytes=10**9)))


def test_memory_of_nobody_and_less_than_none_are_caught(plans: dict[str, Plan]) -> None:
    plan = plans["cpu"]
    use = replace(plan.budget.memory[0], role=Role.CRITIC, items=(MemoryItem(what="air", bytes=-1),))
    shown = said(replace(plan, budget=replace(plan.budget, memory=(use,))))
    assert "no worker has the role 'critic'" in shown
    assert "'air' takes -1 bytes" in shown


@pytest.mark.parametrize(
    "counts", [(None, None), (10, None), (None, 10), (10, 11), (0, 0), (10, -1)], ids=lambda counts: str(counts)
)
def test_counts_of_parameters_that_cannot_be_are_caught(plan: Plan, counts: tuple[int | None, int | None]) -> None:
    budget = replace(plan.budget, parameters=counts[0], trainable_parameters=counts[1])
    assert "budget" in said(replace(plan, budget=budget))


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_plan_of_another_version_is_not_read_further(plan: Plan) -> None:
    assert said(replace(plan, version=2, stages=())) == "version: expected 1, not 2"


def test_plans_of_every_kind_survive_their_file(plans: dict[str, Plan]) -> None:
    for plan in plans.values():
        text = dumps(plan)
        assert loads(Plan, text) == plan
        assert dumps(loads(Plan, text)) == text


def test_a_plan_that_was_cut_off_is_refused(plan: Plan) -> None:
    text = dumps(plan)
    for end in range(0, len(text) - 2, len(text) // 40):
        with pytest.raises(CodecError):
            loads(Plan, text[:end])


def _places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from _places(value, (*path, key))


def _put(data: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(data, dict):
        return {**data, head: _put(data[head], rest, new)}
    return [_put(each, rest, new) if i == head else each for i, each in enumerate(data)]


def _small() -> Plan:
    worlds = {"craft": Environment(use="textcraft")}
    stage = Stage(stage="only", turns=Expr("4 + step"), until=Expr("step >= 3"), environments=worlds)
    return lowered(
        Recipe(agym=1, name="x", model=Model(path="Qwen/Qwen2.5-0.5B"), environments=worlds, schedule=(stage,))
    )


DATA = json.loads(dumps(_small()))
ANYTHING = st.sampled_from([None, True, -1, 0, 2.5, 10**30, "", "x", "1 +", "inline", [], [[]], [0], {}, {"a": 1}])


@given(st.sampled_from(list(_places(DATA))), ANYTHING)
def test_any_value_anywhere_in_a_file_is_refused_or_judged(path: tuple[Any, ...], value: Any) -> None:
    try:
        made = loads(Plan, json.dumps(_put(DATA, path, value)))
    except CodecError:
        return
    verify_plan(made)
    assert to_json(made) == json.loads(dumps(made))


# --- the published schema ------------------------------------------------------------------------------------------


def test_the_published_schema_is_what_the_code_says() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()


def test_plans_of_every_kind_fit_the_published_schema(plans: dict[str, Plan]) -> None:
    Draft7Validator.check_schema(plan_schema())
    validator = Draft7Validator(plan_schema())
    for name, plan in plans.items():
        assert [error.message for error in validator.iter_errors(to_json(plan))] == [], name


@pytest.mark.parametrize("key", ["stages", "placement", "budget", "model"])
def test_a_plan_that_lacks_a_part_does_not_fit(plan: Plan, key: str) -> None:
    data = {name: part for name, part in to_json(plan).items() if name != key}
    assert not Draft7Validator(plan_schema()).is_valid(data)
    with pytest.raises(CodecError, match=f"{key}: is missing"):
        loads(Plan, json.dumps(data))


@given(st.sampled_from(list(_places(DATA))), ANYTHING)
def test_what_the_codec_takes_fits_the_schema(path: tuple[Any, ...], value: Any) -> None:
    data = _put(DATA, path, value)
    try:
        loads(Plan, json.dumps(data))
    except CodecError:
        return
    assert Draft7Validator(plan_schema()).is_valid(data)
