"""Time left: from bounds and paces, and honest where one of them is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from agym.dsl.model.plan import Plan
from agym.runtime.sinks.console.state import Remaining, Timing


def timed(plan: Plan, **paces: float) -> Timing:
    timing = Timing(plan)
    for stage, seconds in paces.items():
        timing.step(stage, seconds)
    return timing


def test_nothing_is_said_before_anything_was_timed(plan: Plan) -> None:
    assert Timing(plan).remaining("imitate", 0, 0) is None


def test_a_stage_that_is_not_in_the_plan_has_no_time_left(plan: Plan) -> None:
    assert timed(plan, imitate=1.0).remaining("elsewhere", 0, 0) is None


def test_a_kind_that_was_never_timed_is_not_guessed_at(plan: Plan) -> None:
    assert timed(plan, imitate=0.5).remaining("imitate", 4, 4) == Remaining(seconds=3.0, whole=False)


def test_a_later_stage_takes_the_pace_of_its_kind_until_it_has_its_own(plan: Plan) -> None:
    timing = timed(plan, imitate=0.5, exploit=2.0)
    assert timing.remaining("exploit", 10, 20) == Remaining(seconds=30 * 2.0 + 100 * 2.0, whole=True)
    timing.step("explore", 3.0)
    assert timing.remaining("explore", 90, 140) == Remaining(seconds=10 * 3.0, whole=True)


def test_only_the_last_steps_set_the_pace(plan: Plan) -> None:
    timing = timed(plan)
    for seconds in [100.0] * 50 + [1.0] * 20:
        timing.step("explore", seconds)
    assert timing.remaining("explore", 90, 140) == Remaining(seconds=10.0, whole=True)


def test_measurements_to_come_are_counted(plan: Plan) -> None:
    timing = timed(plan, explore=1.0)
    timing.evals.append(5.0)
    # from step 110 to 150: after 120 and 140, and at the end
    assert timing.remaining("explore", 60, 110) == Remaining(seconds=40.0 + 3 * 5.0, whole=True)


def test_a_run_that_is_over_has_nothing_left(plan: Plan) -> None:
    timing = timed(plan, explore=1.0)
    timing.evals.append(5.0)
    assert timing.remaining("explore", 100, 150) == Remaining(seconds=0.0, whole=True)


@pytest.fixture
def unbounded(plan: Plan) -> Plan:
    def without_bound(stage: Any) -> Any:
        return replace(stage, budget=replace(stage.budget, max_steps=None))

    return replace(plan, stages=(*plan.stages[:2], without_bound(plan.stages[2])))


def test_a_stage_without_a_bound_makes_it_a_least_time(unbounded: Plan) -> None:
    assert timed(unbounded, exploit=2.0).remaining("exploit", 39, 49) == Remaining(seconds=2.0, whole=False)


def test_a_run_without_eval_has_none_to_come(plan: Plan, step_row: Callable[..., Any]) -> None:
    timing = timed(replace(plan, eval=None), explore=1.0)
    timing.evals.append(5.0)
    assert timing.remaining("explore", 60, 110) == Remaining(seconds=40.0, whole=True)
