"""What expressions evaluate to, known and unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from agym.dsl.expression.expr import Expr, Facts, MappingFacts, StageStart, bound_steps, tabulate
from agym.dsl.expression.over_steps import MAX_SCAN, MAX_TABLE

RISING = (0.1, 0.2, 0.4, 0.7)
UNTIL = MappingFacts("until", {"step": 7, "total_step": 107, "stage": "b"}, {"success": RISING, "kl": (0.5, 0.2, 0.3)})


def schedule(text: str, step: float, total_step: float = 0) -> object:
    return Expr(text).evaluate(MappingFacts("schedule", {"step": step, "total_step": total_step}))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("success", 0.7),
        ("last(success)", 0.7),
        ("last(success, 3)", 0.2),
        ("mean(success, 2)", 0.55),
        ("mean(success, 4)", 0.35),
        ("mean(success, 5)", None),
        ("std(success, 2)", 0.15),
        ("min(success, 3)", 0.2),
        ("max(kl, 3)", 0.5),
        ("max(kl, 0.9)", 0.9),
        ("slope(success, 3)", 0.25),
        ("rises_for(success, 3)", True),
        ("rises_for(success, 4)", None),
        ("rises_for(kl, 1)", True),
        ("rises_for(kl, 2)", False),
        ("falls_for(kl, 1)", False),
        ("reward", None),
        ("mean(reward, 1)", None),
    ],
)
def test_windows_look_back_over_the_last_values(text: str, value: float | bool | None) -> None:
    result = Expr(text).evaluate(UNTIL)
    assert result == (pytest.approx(value) if isinstance(value, float) else value)


def test_a_window_with_a_value_that_is_no_number_is_unknown() -> None:
    facts = MappingFacts("until", {}, {"loss": (1.0, math.nan, 2.0), "kl": (math.inf,)})
    assert Expr("mean(loss, 2)").evaluate(facts) is None
    assert Expr("last(loss)").evaluate(facts) == 2.0
    assert Expr("kl").evaluate(facts) is None


def test_the_mean_of_equal_values_is_that_value() -> None:
    facts = MappingFacts("until", {}, {"success": (0.1,) * 10})
    assert Expr("mean(success, 3) == 0.1 and mean(success, 10) >= 0.1").holds(facts)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("reward > 1", None),
        ("not reward > 1", None),
        ("reward > 1 or step == 7", True),
        ("step == 7 or reward > 1", True),
        ("reward > 1 or step == 8", None),
        ("reward > 1 and step == 8", False),
        ("step == 7 and reward > 1", None),
        ("0 < reward < 1", None),
        ("8 < step < reward", False),
        ("reward in (1, 2)", None),
        ("stage in ('a', 'b')", True),
        ("stage not in ('a', 'b')", False),
        ("stage != 'a'", True),
        ("1 if reward > 1 else 2", None),
        ("default(reward, 3)", 3),
        ("default(reward > 1, true)", True),
        ("default(step, 3)", 7),
        ("reward * 0", None),
        ("min(reward, 2.5)", None),
        ("1 / (step - 7)", None),
        ("log(step - 8)", None),
        ("exp(step * 1000)", None),
        ("1e308 * step", None),
        ("(step - 8) ** 0.5", None),
        ("round(1e300) > 1", True),
    ],
)
def test_what_is_unknown_stays_so_unless_something_else_decides(text: str, value: object) -> None:
    assert Expr(text).evaluate(UNTIL) == value


def test_a_condition_holds_only_if_it_is_known_to_be_true() -> None:
    assert not Expr("reward > 1").holds(UNTIL)
    assert not Expr("not reward > 1").holds(UNTIL)
    assert Expr("step > 1").holds(UNTIL)


@pytest.mark.parametrize(
    ("text", "at", "value"),
    [
        ("linear(10, 30, 100)", 0, 10),
        ("linear(10, 30, 100)", 50, 20),
        ("linear(10, 30, 100)", 100, 30),
        ("linear(10, 30, 100)", 1000, 30),
        ("linear(10, 30, 100, step - 20)", 20, 10),
        ("linear(10, 30, 100, step - 20)", 70, 20),
        ("cosine(1, 0, 100)", 0, 1),
        ("cosine(1, 0, 100)", 50, 0.5),
        ("cosine(1, 0, 100)", 25, (1 + math.cos(math.pi / 4)) / 2),
        ("cosine(1, 0, 100)", 100, 0),
        ("ramp(1, 3, 10, 20)", 10, 1),
        ("ramp(1, 3, 10, 20)", 15, 2),
        ("ramp(1, 3, 10, 20)", 21, 3),
        ("steps(10, 100, 20, 200, 30)", 99, 10),
        ("steps(10, 100, 20, 200, 30)", 100, 20),
        ("steps(10, 100, 20, 200, 30)", 500, 30),
        ("min(10 + 10 * (step // 100), 30)", 199, 20),
        ("clip(step, 3, 5)", 9, 5),
        ("abs(3 - step) + floor(2.7) + ceil(2.1) + round(2.5) + round(3.5)", 1, 13),
        ("sqrt(16) + exp(0) + log(1) + min(3, 1, 2) + max(1, 3, 2)", 0, 9),
        ("10 % 4 + -7 % 4", 0, 3),
    ],
)
def test_numbers_follow_the_step(text: str, at: int, value: float) -> None:
    assert schedule(text, at) == pytest.approx(value)


def test_a_schedule_may_count_the_steps_of_the_run() -> None:
    assert schedule("linear(10, 30, 100, total_step)", step=0, total_step=50) == 20
    assert schedule("steps(1, 100, 2, total_step)", step=0, total_step=100) == 2


def test_a_schedule_ends_exactly_at_its_last_value() -> None:
    assert schedule("linear(1e-6, 1e-7, 3)", 3) == 1e-7
    assert schedule("cosine(0.1, 0.3, 7)", 7) == 0.3


def test_values_come_in_the_type_that_was_checked() -> None:
    facts = MappingFacts("schedule", {"step": 150})
    assert Expr("10 + 10 * (step // 100)").whole(facts) == 20
    assert type(Expr("step // 100").whole(facts)) is int
    assert type(Expr("step // 100").number(facts)) is float
    assert Expr("default(last(kl), step)").number(facts) == 150
    assert Expr("round(last(kl))").whole(facts) is None


def test_min_of_a_name_and_a_number_is_a_window_only_for_metrics() -> None:
    episode = MappingFacts("episode", {"turns": 12})
    until = MappingFacts("until", {}, {"turns": [9.0] * 9 + [12.0]})
    assert Expr("min(turns, 10)").evaluate(episode) == 10
    assert Expr("min(turns, 10)").evaluate(until) == 9


def test_names_of_groups_and_functions_of_the_same_name_live_side_by_side() -> None:
    group = MappingFacts("group", {"mean": 0.4, "std": 0.2, "min": 0.1, "max": 0.9})
    assert Expr("std > 0 and max(mean, min) == mean and min(std, max) == std").holds(group)


def test_any_object_with_the_two_methods_is_facts() -> None:
    class Counting:
        scope = "until"

        def value(self, name: str) -> float | bool | str | None:
            return float(len(name))

        def window(self, name: str, size: int) -> Sequence[float]:
            return [float(i) for i in range(size)]

    facts: Facts = Counting()
    assert Expr("step + mean(success, 3)").evaluate(facts) == 5


def test_an_expression_that_was_never_checked_is_an_error_of_the_program() -> None:
    with pytest.raises(ValueError, match="not an expression"):
        Expr("1 +").evaluate(UNTIL)


# --- what is known before a run ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("step >= 100", 100),
        ("step > 100", 101),
        ("100 <= step", 100),
        ("step == 7", 7),
        ("step >= 0", 1),
        ("true", 1),
        ("false", None),
        ("step < 0", None),
        ("not step < 50", 50),
        ("step * 3 >= 100", 34),
        ("step * 0.1 >= 10", 100),
        ("step / 2 + 3 >= 10 - step", 5),
        ("step >= 1e12", 10**12),
        ("step >= 100 or step >= 50", 50),
        ("step >= 100 and step >= 50", 100),
        ("step >= 100 or mean(success, 10) >= 0.8", 100),
        ("step >= 100 and mean(success, 10) >= 0.8", None),
        ("mean(success, 10) >= 0.8", None),
        ("(step >= 9 or kl > 1) and (step >= 5 or success > 1)", 9),
        ("not (step < 20 or step < 30)", 30),
        ("default(mean(success, 10), 1) > 0.5", None),
        ("default(mean(success, 10), 1) > 0.5 or step >= 9", 9),
        ("(default(last(kl), 0) > 0) == false or step >= 9", 9),
        ("step // 10 >= 3", 30),
        ("step % 5 == 0 and step > 12", 15),
        (f"step // 2 >= {MAX_SCAN}", None),
        ("total_step >= 300", 200),
        ("total_step >= 300 and step >= 250", 250),
        ("step >= 20 and stage == 'explore'", 20),
        ("step >= 20 and stage == 'other'", None),
        ("step >= 20 and stage_index == 2", 20),
        ("step >= 10 + 5 * stage_index", 20),
        ("step >= linear(10, 5, 10)", 7),
    ],
)
def test_the_step_by_which_a_stage_must_end(text: str, bound: int | None) -> None:
    assert bound_steps(Expr(text), StageStart(stage="explore", stage_index=2, total_step=100)) == bound


def test_steps_of_the_run_bound_from_below_where_the_start_is_not_known() -> None:
    unknown = StageStart(total_step=None)
    assert bound_steps(Expr("total_step >= 300"), unknown) == 300
    assert bound_steps(Expr("400 < total_step and step >= 10"), unknown) == 401
    assert bound_steps(Expr("total_step < 300"), unknown) is None
    assert bound_steps(Expr("not total_step >= 300"), unknown) is None
    assert bound_steps(Expr("total_step >= 300 or step >= 50"), unknown) == 50


def test_a_table_holds_the_steps_at_which_a_number_changes() -> None:
    start = StageStart(stage="a", stage_index=0, total_step=50)
    assert tabulate(Expr("min(10 + 10 * (total_step // 100), 30)"), 300, start) == ((0, 10), (50, 20), (150, 30))
    assert tabulate(Expr("steps(10, 100, 20)"), 100, start) == ((0, 10),)
    assert tabulate(Expr("7 if stage == 'a' else 8"), 300, start) == ((0, 7),)


def test_there_is_no_table_of_what_more_than_steps_decide() -> None:
    assert tabulate(Expr("default(last(success), 1)"), 300, StageStart()) is None
    assert tabulate(Expr("total_step"), 300, StageStart(total_step=None)) is None
    assert tabulate(Expr("step"), MAX_TABLE + 1, StageStart()) is None


def test_a_large_expression_is_followed_over_fewer_steps() -> None:
    large = Expr(" + ".join(["step"] * 90))
    assert tabulate(large, 1000, StageStart()) is not None
    assert tabulate(large, 10_000, StageStart()) is None
