"""Expressions in recipes: `min(10 + 10 * (total_step // 100), 30)`.

Typed, total, free of side effects; depth and cost are bounded. docs/expressions.md is the guide.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ..diagnostics import Diagnostic, Severity
from ..frozen import frozen
from ..source import Text
from .check import infer
from .evaluate import Facts, MappingFacts, compile_expression
from .inferred import type_words
from .nodes import ExprProblem, Value
from .over_steps import StageStart, collect_used_names, find_first_true, tabulate_changes
from .parse import parse_checked
from .scopes import ExprType

__all__ = [
    "Expr",
    "ExprType",
    "Facts",
    "MappingFacts",
    "StageStart",
    "bound_steps",
    "check_expression",
    "collect_names",
    "evaluate_constant",
    "infer_range",
    "tabulate",
    "type_words",
]


@frozen(kw_only=False)
class Expr:
    """A checked expression, as its text; equal texts are equal expressions."""

    text: str

    def evaluate(self, facts: Facts) -> float | bool | str | None:
        """The value; None where it is not known. Numbers are floats."""
        value = compile_expression(self.text, facts.scope)(facts)
        return value if value == value else None

    def number(self, facts: Facts) -> float | None:
        """The value of an expression that was checked to be a number."""
        value = self.evaluate(facts)
        assert not isinstance(value, bool | str), f"{self.text!r} was not checked to be a number"
        return value

    def whole(self, facts: Facts) -> int | None:
        """The value of an expression that was checked to be a whole number."""
        value = self.number(facts)
        return None if value is None else int(value)

    def holds(self, facts: Facts) -> bool:
        """Whether a condition is true; what is not known is not true."""
        return self.evaluate(facts) is True


def check_expression(text: Text, scope: str, want: ExprType) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with an expression, in the order of the text; warnings too."""
    _, problems = infer(text.value, scope, want)
    return _diagnostics(text, problems)


def evaluate_constant(text: Text, want: ExprType) -> tuple[int | float | bool | str | None, tuple[Diagnostic, ...]]:
    """The value of an expression without names, an int if a whole number is wanted; None if it is wrong."""
    shape, problems = infer(text.value, "constant", want)
    value = None if problems else shape.constant
    whole = want is ExprType.INTEGER and isinstance(value, float)
    return (int(value) if whole and value is not None else value), _diagnostics(text, problems)


def _diagnostics(text: Text, problems: Iterable[ExprProblem]) -> tuple[Diagnostic, ...]:
    return tuple(
        Diagnostic(
            code=problem.code,
            message=problem.message,
            span=text.span(problem.start, problem.end),
            help=problem.help,
            severity=Severity.WARNING if problem.warning else Severity.ERROR,
        )
        for problem in sorted(problems, key=lambda p: (p.start, p.end))
    )


@lru_cache(maxsize=4096)
def collect_names(expr: Expr) -> frozenset[str]:
    """All names it uses, with the `step` that a schedule function counts by itself."""
    return collect_used_names(parse_checked(expr.text))


def infer_range(expr: Expr, scope: str) -> tuple[float, float]:
    """Limits that hold for every value of a checked number; infinite where there are none."""
    return infer(expr.text, scope, None)[0].limits


@lru_cache(maxsize=4096)
def bound_steps(expr: Expr, start: StageStart) -> int | None:
    """The step at which an `until` is true for any values of the metrics; None if it may go on for ever."""
    return find_first_true(parse_checked(expr.text), start)


def tabulate(expr: Expr, steps: int, start: StageStart) -> tuple[tuple[int, Value], ...] | None:
    """(step, value) at step 0 and wherever the value changes before `steps`; None if more than steps decide it."""
    return tabulate_changes(parse_checked(expr.text), steps, start)
