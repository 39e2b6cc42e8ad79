"""Values known before a run: constants, limits of expressions, the length of a stage, the table of the horizon."""

from __future__ import annotations

from functools import lru_cache

from ..expression.check import infer
from ..expression.expr import Expr, StageStart, bound_steps, collect_names, infer_range, tabulate
from ..frozen import frozen

__all__ = [
    "NumberOrExpr",
    "StageSpan",
    "Steps",
    "bound_value",
    "constant_truth",
    "constant_value",
    "is_zero",
    "locate_stages",
    "tabulate_horizon",
]

NumberOrExpr = int | float | Expr

_CLOCK = frozenset({"step", "total_step", "stage", "stage_index"})
LONGEST_TABLE = 10_000
"""Steps of a stage that a table covers; what changes later is not known here."""

Steps = tuple[tuple[int, int], ...]
"""(step, value) at step 0 and at each step at which the value changes."""


@frozen
class StageSpan:
    """When a stage runs."""

    start: StageStart
    steps: int | None
    """The most steps that it can take; None without a bound."""


def constant_value(value: NumberOrExpr) -> float | None:
    """The number, if it is the same at every step."""
    if not isinstance(value, Expr):
        return float(value)
    constant = infer(value.text, "schedule", None)[0].constant
    return float(constant) if isinstance(constant, int | float) else None


def is_zero(value: NumberOrExpr) -> bool:
    """Whether it is 0 at every step."""
    return constant_value(value) == 0


def bound_value(value: NumberOrExpr) -> tuple[float, float]:
    """Lowest and highest possible value; never too narrow."""
    return infer_range(value, "schedule") if isinstance(value, Expr) else (float(value), float(value))


def constant_truth(condition: Expr, scope: str) -> bool | None:
    """The value of a condition that is always true or always false; None if it depends."""
    constant = infer(condition.text, scope, None)[0].constant
    return constant if isinstance(constant, bool) else None


@lru_cache(maxsize=256)
def locate_stages(stages: tuple[tuple[str, Expr | None, int | None], ...]) -> tuple[StageSpan, ...]:
    """Start and length of each stage, from its name, its `until` and a bound of its own.

    After a stage that may end early, start steps are unknown.
    """
    made: list[StageSpan] = []
    total: int | None = 0
    for index, (name, until, bound) in enumerate(stages):
        start = StageStart(stage=name, stage_index=index, total_step=total)
        bounds = (bound_steps(until, start) if until is not None else None, bound)
        steps = min((each for each in bounds if each is not None), default=None)
        made.append(StageSpan(start=start, steps=steps))
        exact = until is None or collect_names(until) <= _CLOCK
        total = total + steps if exact and total is not None and steps is not None else None
    return tuple(made)


def tabulate_horizon(turns: NumberOrExpr, span: StageSpan) -> Steps | None:
    """The horizon from each step of a stage on; None if it depends on more than steps, or the stage is too long."""
    if not isinstance(turns, Expr):
        return ((0, int(turns)),)
    steps = LONGEST_TABLE if span.steps is None else span.steps
    if steps > LONGEST_TABLE:
        return None
    changes = tabulate(turns, steps, span.start)
    if changes is None or any(not isinstance(value, int | float) or value != value for _, value in changes):
        return None
    return tuple((step, int(value)) for step, value in changes if isinstance(value, int | float))
