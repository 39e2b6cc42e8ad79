"""Numbers about episodes and updates, guards, and which task comes next."""

from __future__ import annotations

import asyncio
import json
import random
import re
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.algorithm import KL, Correction, Importance, Level
from agym.dsl.model.recipe import Guards, OnFault, TaskSelection
from agym.envs.clients.client import InlineEnv
from agym.envs.counter import create
from agym.envs.protocol import TaskInfo
from agym.runtime.guards import GuardSignals, apply_guards
from agym.runtime.learning.importance import importance_weights
from agym.runtime.learning.metrics import bootstrap, mean, pass_at, rate
from agym.runtime.learning.reward import Moments
from agym.runtime.progress import HISTORY, GuardState, Progress, StageFacts
from agym.runtime.protocols import UpdateFault
from agym.runtime.rollout.task_sampler import SelectionError, TaskMixture, TaskPool, select_tasks
from agym.runtime.seeds import derive
from agym.runtime.steps.rl import kl_factor
from agym.runtime.steps.stage_context import equal_parts
from hypothesis import given
from hypothesis import strategies as st

# --- numbers ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30), st.randoms())
def test_mean_is_the_same_in_any_order(values: list[float], shuffle: random.Random) -> None:
    moved = list(values)
    shuffle.shuffle(moved)
    assert mean(values) == mean(moved)


@pytest.mark.parametrize("values", [[], [1.0, nan], [inf, -inf], [inf]])
def test_mean_of_what_was_not_measured_is_no_number(values: list[float]) -> None:
    assert isnan(mean(values))


def test_rate_without_time_is_no_number() -> None:
    assert rate(6, 2) == 3
    assert isnan(rate(6, 0))


def test_interval_holds_the_mean_and_narrows_with_the_tasks() -> None:
    few, many = bootstrap([0, 1] * 5, 0.95, 0), bootstrap([0, 1] * 50, 0.95, 0)
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    assert many[1] - many[0] == pytest.approx(2 * 1.96 * 0.05, rel=0.1)
    assert bootstrap([0, 1] * 5, 0.95, 0) == few
    assert isnan(bootstrap([1.0], 0.95, 0)[0])


def test_pass_at_k_is_the_chance_that_one_of_k_succeeds() -> None:
    assert [pass_at(k, 4, 1) for k in (1, 2, 4)] == [0.25, 0.5, 1.0]
    assert pass_at(2, 4, 0) == 0
    with pytest.raises(ValueError, match="expected k from 1 to 4, got 5"):
        pass_at(5, 4, 1)


def test_seeds_are_told_apart_by_their_names() -> None:
    seeds = [derive(0), derive(1), derive(0, "a", "bc"), derive(0, "ab", "c"), derive(0, 1), derive(0, "1")]
    assert len(set(seeds)) == len(seeds)


def test_kl_weight_doubles_in_as_many_updates_as_the_recipe_says() -> None:
    settings = KL(coef=0.1, target=0.05, target_steps=10)
    assert kl_factor(0.1, settings) ** 10 == pytest.approx(2)
    assert kl_factor(9.0, settings) ** 10 == pytest.approx(2)
    assert kl_factor(0.0, settings) ** 10 == pytest.approx(0.5)
    assert kl_factor(0.05, settings) == 1
    assert kl_factor(9.0, KL(coef=0.1)) == 1


@given(st.integers(1, 60), st.integers(1, 20))
def test_parts_are_few_equal_and_whole(count: int, most: int) -> None:
    cut = equal_parts(range(count), most)
    sizes = [len(part) for part in cut]
    assert [place for part in cut for place in part] == list(range(count))
    assert len(cut) == -(-count // most)
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1


# --- importance ------------------------------------------------------------------------------------------------------


def weights(**settings: Any) -> list[float]:
    loss_mask = np.array([False, True, True, False, True])
    sampler = np.array([0, -1, -2, 0, -1], np.float32)
    learner = sampler + np.log(np.array([1, 2, 0.5, 9, 4], np.float32))
    found = importance_weights(learner, sampler, loss_mask, Importance(**settings))
    return [round(float(each), 5) for each in found]


def test_weights_by_token_turn_and_episode() -> None:
    assert weights(level=Level.TOKEN, cap=9.0) == [1, 2, 0.5, 1, 4]
    assert weights(level=Level.TURN, cap=9.0) == [1, 1, 1, 1, 4]
    assert weights(level=Level.EPISODE, cap=9.0) == [1, 4, 4, 1, 4]


def test_weights_are_capped_left_out_or_not_looked_at() -> None:
    assert weights(cap=1.5) == [1, 1.5, 0.5, 1, 1.5]
    assert weights(correction=Correction.MASK, floor=1.0, cap=3.0) == [1, 2, 0, 1, 0]
    assert weights(correction=Correction.NONE) == [1, 1, 1, 1, 1]


# --- guards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "action"),
    [(UpdateFault.NAN, OnFault.ROLL_BACK), (UpdateFault.KL, OnFault.STOP), (UpdateFault.GRAD_NORM, OnFault.SKIP)],
)
def test_each_fault_of_an_update_leads_to_what_the_recipe_says(fault: UpdateFault, action: OnFault) -> None:
    guards = Guards(on_kl=OnFault.STOP)
    assert apply_guards(guards, GuardState(), GuardSignals(fault=fault)).action is action
    assert apply_guards(guards, GuardState(), GuardSignals(fault=UpdateFault.EMPTY)).action is None


def test_decay_stops_only_when_it_stays() -> None:
    guards, counted = Guards(entropy_min=0.1, patience=3), GuardState()
    seen = [0.05, 0.05, 0.2, 0.05, 0.05, nan, 0.05, 0.05, 0.05]
    actions = [apply_guards(guards, counted, GuardSignals(entropy=value)).action for value in seen]
    assert actions == [None] * 8 + [OnFault.STOP]


def test_a_step_that_measured_nothing_is_no_decay() -> None:
    guards, counted = Guards(zero_std_max=0.5, patience=2), GuardState()
    for value in (0.9, None, 0.9):
        verdict = apply_guards(guards, counted, GuardSignals(zero_std_frac=value))
    assert verdict.action is None


def test_engines_that_disagree_stop_the_run_at_once() -> None:
    verdict = apply_guards(Guards(mismatch_max=0.01), GuardState(), GuardSignals(mismatch_kl=0.02))
    assert verdict.action is OnFault.STOP
    assert verdict.reason == "guard 'mismatch_max': 0.02, limit 0.01"
    verdict = apply_guards(Guards(), GuardState(), GuardSignals(mismatch_kl=0.04, mismatch_ratio=120.0))
    assert (verdict.action, verdict.reason) == (OnFault.STOP, "guard 'mismatch_ratio_max': 120, limit 100")
    assert "set 'model.dtype: fp32'" in verdict.help
    unguarded = Guards(mismatch_max=None, mismatch_ratio_max=None)
    assert apply_guards(unguarded, GuardState(), GuardSignals(mismatch_kl=9.0, mismatch_ratio=999.0)).action is None


# --- progress --------------------------------------------------------------------------------------------------------


def test_progress_comes_back_from_its_text_as_it_was() -> None:
    progress = Progress(total_step=7, best=0.1 + 0.2, scales={"a": Moments(count=3, mean=1 / 3, squares=0.7)})
    progress.measure({"success": 1 / 3, "loss": nan})
    progress.mixture.owed["a"] = 0.1
    progress.guarding.strikes["entropy_min"] = 2
    again = Progress.from_json(progress.to_json())
    assert again == progress
    assert "loss" not in again.history


def test_a_copy_of_progress_is_apart_in_what_a_step_draws() -> None:
    progress = Progress()
    before = progress.copy()
    progress.mixture.drawn["a"] = 1
    progress.mixture.owed["a"] = 0.5
    progress.scales["a"] = Moments()
    progress.episodes = 3
    assert before == Progress()


def test_windows_are_those_of_the_stage_and_no_longer_than_can_be_asked_for() -> None:
    progress = Progress()
    for at in range(HISTORY + 5):
        progress.measure({"success": float(at)})
    facts = StageFacts(progress, "explore", "until")
    assert facts.window("success", 2) == [HISTORY + 3.0, HISTORY + 4.0]
    assert len(progress.history["success"]) == HISTORY
    progress.next_stage()
    assert facts.value("success") is None
    assert (facts.value("stage"), facts.value("stage_index"), facts.value("step")) == ("explore", 1, 0)


# --- tasks -----------------------------------------------------------------------------------------------------------


def pool(name: str, count: int) -> TaskPool:
    return TaskPool(environment=name, tasks=tuple(TaskInfo(id=f"{name}-{at}") for at in range(count)))


def test_every_task_comes_once_per_pass_in_an_order_of_its_own() -> None:
    pools, mixture = {"a": pool("a", 5)}, TaskMixture()
    ids = [task.id for task in mixture.draw(pools, {"a": 1.0}, 15, 0)]
    assert [len(set(ids[at : at + 5])) for at in (0, 5, 10)] == [5, 5, 5]
    assert ids[:5] != ids[5:10]


@given(st.floats(0.1, 9), st.integers(0, 40), st.integers(0, 40))
def test_shares_hold_to_within_one_group_and_do_not_depend_on_the_steps(weight: float, one: int, two: int) -> None:
    pools, weights = {"a": pool("a", 3), "b": pool("b", 3)}, {"a": 1.0, "b": weight}
    whole, equal_parts = TaskMixture(), TaskMixture()
    at_once = whole.draw(pools, weights, one + two, 0)
    assert [*equal_parts.draw(pools, weights, one, 0), *equal_parts.draw(pools, weights, two, 0)] == at_once
    assert abs(whole.drawn.get("b", 0) - (one + two) * weight / (1 + weight)) <= 1


def test_an_environment_without_weight_is_not_drawn_and_all_without_is_an_error() -> None:
    pools = {"a": pool("a", 3), "b": pool("b", 3)}
    assert {task.environment for task in TaskMixture().draw(pools, {"a": 0.0, "b": 1.0}, 9, 0)} == {"b"}
    with pytest.raises(SelectionError, match="all environments have weight 0"):
        TaskMixture().draw(pools, {"a": 0.0, "b": 0.0}, 1, 0)


def selected(selection: TaskSelection, listed: list[str] | None = None) -> list[str]:
    async def go() -> list[str]:
        client = InlineEnv(lambda: create({}))
        return [task.id for task in await select_tasks(client, selection, listed, "counter", 0)]

    return asyncio.run(go())


def test_tasks_are_selected_by_split_ids_file_range_and_limit() -> None:
    whole = selected(TaskSelection(split="test"))
    assert whole[:2] == ["reach-3", "reach-6"]
    assert selected(TaskSelection(ids=("reach-6",))) == ["reach-6"]
    assert selected(TaskSelection(file="x"), ["reach-9"]) == ["reach-9"]
    assert selected(TaskSelection(split="test", range=(1, 3))) == whole[1:3]
    few = selected(TaskSelection(split="test", limit=4))
    assert len(few) == 4
    assert few == [task for task in whole if task in few]
    with pytest.raises(SelectionError, match="range 5 to 99 exceeds its 10 tasks"):
        selected(TaskSelection(split="test", range=(5, 99)))


# --- the page that says what other trainers call them ----------------------------------------------------------------


def test_the_page_of_metrics_names_only_what_runs_write(root: Path) -> None:
    page = (root / "docs" / "metrics.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([a-z_]+/[a-z_]+)`", cell)}
    files = (root / "tests" / "runtime" / "golden").glob("*.jsonl")
    written = {name for file in files for line in file.read_text().splitlines() for name in json.loads(line)}
    # the golden rows leave out what no two runs have in common: times, and what depends on them
    timed = {"timing_s/step", "perf/tokens_per_s", "rollout/lag_mean", "rollout/lag_max"}
    # and in none of them was a worker lost, or a game before the agent's turn
    lost = {
        "rollout/uncontested",
        "workers/discarded_steps",
        "workers/learner_restarts",
        "workers/replaced_learner",
        "workers/replaced_rollout",
    }
    assert len(named) > 20
    assert named - timed - lost <= written
