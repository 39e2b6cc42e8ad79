"""Inferred facts about a value before a run: its type, its limits, whether it may be unknown."""

from __future__ import annotations

import math

from ..frozen import frozen
from .functions import EVERYTHING, Interval, Whole
from .nodes import ExprProblem, Value
from .scopes import ExprType

NUMBERS = (ExprType.NUMBER, ExprType.INTEGER)


@frozen(kw_only=False)
class Shape:
    """What is known about a value."""

    type: ExprType | None
    """None after a mistake, so that it is not reported again by what is around it."""
    limits: Interval = EVERYTHING
    doubt: ExprProblem | None = None
    """Why the value may be unknown."""
    constant: Value | None = None
    """The value, if it is the same always."""

    @property
    def is_number(self) -> bool:
        return self.type in NUMBERS

    def is_like(self, other: Shape) -> bool:
        """Whether both are numbers, or both of the same other type."""
        return self.type is other.type or (self.is_number and other.is_number)


POISON = Shape(None)


def fits(shape: Shape, want: ExprType) -> bool:
    """Whether a value may be used where a type is wanted; a constant such as 20 / 2 is as whole as its value."""
    if shape.type is want or (want is ExprType.NUMBER and shape.is_number):
        return True
    return want is ExprType.INTEGER and isinstance(shape.constant, float) and shape.constant.is_integer()


def first_doubt(*shapes: Shape) -> ExprProblem | None:
    return next((shape.doubt for shape in shapes if shape.doubt), None)


def drop_overflow(limits: Interval) -> Interval:
    """Drop limits that overflow has made meaningless."""
    low, high = limits
    return limits if low <= high and low < math.inf and high > -math.inf else EVERYTHING


def binary_type(operator: str, left: Shape, right: Shape) -> ExprType:
    both = left.type is right.type is ExprType.INTEGER
    whole = both and (operator in ("+", "-", "*", "%") or (operator == "**" and right.limits[0] >= 0))
    return ExprType.INTEGER if whole or operator == "//" else ExprType.NUMBER


def result_type(whole: Whole, shapes: list[Shape]) -> ExprType:
    all_whole = all(shape.type is ExprType.INTEGER for shape in shapes)
    return ExprType.INTEGER if whole is Whole.ALWAYS or (whole is Whole.OF_WHOLE and all_whole) else ExprType.NUMBER


def power_is_safe(base: Shape, exponent: Shape) -> bool:
    """Whether the power has a value, except where it is too large."""
    low, high = base.limits
    if isinstance(exponent.constant, float) and exponent.constant.is_integer():
        return exponent.constant >= 0 or not low <= 0 <= high
    return low > 0 or (low == 0 and exponent.limits[0] >= 0)


def type_words(type_: ExprType | None) -> str:
    return f"a {type_}" if type_ in NUMBERS else str(type_)


def kind_words(type_: ExprType | None) -> str:
    """Kind of a value, whole or not, condition or text."""
    return "a number" if type_ in NUMBERS else "a condition" if type_ is ExprType.BOOLEAN else "text"


def range_words(limits: Interval) -> str:
    low, high = limits
    if math.isinf(high):
        return f"never below {low:g}"
    return f"never above {high:g}" if math.isinf(low) else f"always between {low:g} and {high:g}"
