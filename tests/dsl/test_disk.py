"""Space on the disk: episodes of evaluations, counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agym.dsl.catalog import Catalog, EnvironmentInfo, SeatOption
from agym.dsl.expression.expr import Expr
from agym.dsl.model.algorithm import Algorithm, Preset
from agym.dsl.model.model_sizes import find_shape
from agym.dsl.model.plan import DiskUse
from agym.dsl.model.recipe import Environment, Eval, Recipe, SavedEpisodes, SaveEpisodes, TaskSelection
from agym.dsl.planning.lower import lower

Change = Callable[..., Any]
EvaluationEpisodes = Callable[[dict[str, Any]], tuple[int, int] | None]

PLAIN = {"schedule.1.until": Expr("step >= 50"), "eval": Eval(every=40, at_start=False, at_end=False)}
"""150 steps: evaluations are due after 40, 80 and 120."""


@pytest.fixture
def evaluation_episodes(change: Change, recipe: Recipe, catalog: Catalog) -> EvaluationEpisodes:
    def count(changes: dict[str, Any]) -> tuple[int, int] | None:
        made = change(recipe, PLAIN | changes)
        disk = lower(made, find_shape(made.model), (), "0" * 64, catalog).budget.disk
        return next(((item.count, item.bytes) for item in disk if item.use is DiskUse.EVALUATIONS), None)

    return count


def test_each_evaluation_plays_each_task_of_the_split(evaluation_episodes: EvaluationEpisodes) -> None:
    assert evaluation_episodes({}) == (300, 300 * 8192 * 30)


@pytest.mark.parametrize(
    ("changes", "episodes"),
    [
        ({"eval.at_start": True}, 4 * 100),
        ({"eval.at_end": True}, 4 * 100),
        ({"eval.at_end": True, "eval.every": 50}, 3 * 100),  # the last step's own is due anyway
        ({"eval.samples": 3, "eval.greedy": True, "eval.turns": (4, 8)}, 3 * 100 * 7),
        ({"eval.limit": 30}, 3 * 30),
        ({"eval.tasks": "train"}, 3 * 400),
        ({"schedule.*.environments.craft.tasks.eval": TaskSelection(split="test", range=(10, 30))}, 3 * 20),
        ({"schedule.*.environments.craft.tasks.eval": TaskSelection(ids=("a", "b"))}, 3 * 2),
        ({"schedule.1.eval_every": 10}, 7 * 100),  # 40 and 80, then 110 to 150
        ({"schedule.1.algorithm": Algorithm(use=Preset.EVAL), "schedule.1.until": None}, 3 * 100),
    ],
)
def test_episodes_of_evaluations_by_hand(
    evaluation_episodes: EvaluationEpisodes, changes: dict[str, Any], episodes: int
) -> None:
    assert evaluation_episodes(changes) == (episodes, episodes * 8192 * 30)


@pytest.mark.parametrize(
    "changes",
    [
        {"eval": None},
        {"checkpoint.episodes": SavedEpisodes(which=SaveEpisodes.NONE)},
        {"schedule.*.environments.craft.use": "gym"},
        {"schedule.*.environments.craft.tasks.eval": TaskSelection(file="mine.txt")},
        {"schedule.1.until": Expr("mean(success, 10) >= 0.8")},
    ],
)
def test_what_is_not_saved_or_not_known_is_not_counted(
    evaluation_episodes: EvaluationEpisodes, changes: dict[str, Any]
) -> None:
    assert evaluation_episodes(changes) is None


@pytest.mark.parametrize(
    ("opponent", "plays_earlier", "kept"), [("policy", False, 3), (("policy", "earlier"), True, 4)]
)
def test_where_earlier_checkpoints_play_one_more_is_kept(
    change: Change, recipe: Recipe, opponent: Any, plays_earlier: bool, kept: int
) -> None:
    seats = SeatOption(option="opponent", models=("policy", "earlier"))
    known = Catalog(environments={"game": EnvironmentInfo(name="game", summary="", splits={}, seats=seats)})
    world = {"game": Environment(use="game", options={"opponent": opponent})}
    made = change(recipe, {"schedule.1.until": Expr("step >= 50"), "schedule.*.environments": world})
    plan = lower(made, find_shape(made.model), (), "0" * 64, known)
    assert plan.plays_earlier == plays_earlier
    assert {item.use: item.count for item in plan.budget.disk}[DiskUse.CHECKPOINTS] == kept
