"""The published schema of plans: what the code says, and what plans of every kind fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agym.dsl.expression.expr import Expr
from agym.dsl.model.algorithm import Baseline, DataSource, Preset
from agym.dsl.model.model_sizes import find_shape
from agym.dsl.model.plan import Plan
from agym.dsl.model.recipe import Gpu, Layout, Recipe
from agym.dsl.planning.lower import lower
from agym.dsl.publish.json_schemas import make_plan_schema
from agym.dsl.publish.plan_json import to_json
from jsonschema import Draft7Validator

from .test_plan_properties import problems

Change = Callable[..., Any]


def lowered(recipe: Recipe) -> Plan:
    return lower(recipe, find_shape(recipe.model), (), "0" * 64)


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


def test_plans_of_every_kind_can_run(plans: dict[str, Plan]) -> None:
    assert [(name, each) for name, plan in plans.items() for each in problems(plan)] == []


def test_plans_of_every_kind_fit_the_published_schema(plans: dict[str, Plan]) -> None:
    Draft7Validator.check_schema(make_plan_schema())
    validator = Draft7Validator(make_plan_schema())
    for name, plan in plans.items():
        assert [error.message for error in validator.iter_errors(to_json(plan))] == [], name


@pytest.mark.parametrize("key", ["stages", "placement", "budget", "model"])
def test_a_plan_that_lacks_a_part_does_not_fit(plan: Plan, key: str) -> None:
    data = {name: part for name, part in to_json(plan).items() if name != key}
    assert not Draft7Validator(make_plan_schema()).is_valid(data)
