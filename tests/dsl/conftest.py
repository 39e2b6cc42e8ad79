"""A small recipe that is right, and a way to change it key by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from agym.dsl.catalog import Catalog, EnvironmentInfo, SeatOption
from agym.dsl.expression.expr import Expr
from agym.dsl.model.algorithm import Algorithm
from agym.dsl.model.recipe import Environment, Model, Recipe, Stage
from agym.runtime.sinks.registry import SINKS

Change = Callable[..., Any]


def changed(value: Any, changes: Mapping[str, Any]) -> Any:
    """A copy with other values at dotted keys; `schedule.*.turns` changes all stages."""
    for key, new in changes.items():
        value = _at(value, key.split("."), new)
    return value


def _at(value: Any, path: list[str], new: Any) -> Any:
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(value, tuple):
        return tuple(_at(item, rest, new) if head in ("*", str(i)) else item for i, item in enumerate(value))
    if isinstance(value, Mapping):
        names = list(value) if head == "*" else [head]
        return {**value, **{name: _at(value.get(name), rest, new) for name in names}}
    return replace(value, **{head: _at(getattr(value, head), rest, new)})


@pytest.fixture
def change() -> Change:
    return changed


@pytest.fixture
def recipe() -> Recipe:
    """GRPO with a growing horizon, on a CPU."""
    worlds = {"craft": Environment(use="textcraft")}
    algorithm = Algorithm(group_size=4, groups_per_step=16, groups_per_update=8)

    def stage(name: str, turns: int, until: str) -> Stage:
        return Stage(stage=name, turns=turns, until=Expr(until), algorithm=algorithm, environments=worlds)

    return Recipe(
        agym=1,
        name="craft",
        model=Model(path="Qwen/Qwen2.5-0.5B-Instruct"),
        environments=worlds,
        algorithm=algorithm,
        schedule=(stage("exploit", 8, "step >= 100"), stage("explore", 16, "step >= 50 or mean(success, 10) >= 0.8")),
    )


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(
        environments={
            "textcraft": EnvironmentInfo(
                name="textcraft",
                summary="crafting",
                splits={"train": 400, "test": 100},
                options={"max_depth": {"type": "integer", "minimum": 1}},
                light=True,
            ),
            "web": EnvironmentInfo(name="web", summary="pages", splits={"train": 50, "test": 20}, fixed_solutions=True),
            "duel": EnvironmentInfo(
                name="duel",
                summary="a game for two",
                splits={"train": None, "test": None},
                options={"opponent": {"description": "Who plays against the agent."}},
                seats=SeatOption(option="opponent", models=("policy", "earlier")),
            ),
            "gym": EnvironmentInfo(
                name="gym",
                summary="any of them",
                splits={"train": None, "test": None},
                options={"id": {"type": "string", "description": "The one."}, "seeds": {"type": "integer"}},
                required=("id",),
            ),
        },
        sinks=SINKS,
    )
