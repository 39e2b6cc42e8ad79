"""Interval arithmetic: limits of an operator's result, and of names where a condition holds.

The limits contain every possible result; they may be wider than necessary, never narrower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from .functions import EVERYTHING, OPERATORS, Interval

__all__ = ["LIMITS", "NEGATED", "compare_intervals", "hull", "narrow_interval"]


def hull(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])


def _corners(function: Callable[[float, float], float], a: Interval, b: Interval) -> Interval:
    values = [function(x, y) for x in a for y in b]
    return EVERYTHING if any(v != v for v in values) else (min(values), max(values))


def _product(x: float, y: float) -> float:
    return 0.0 if 0.0 in (x, y) else x * y


def _quotient(x: float, y: float) -> float:
    return 0.0 if math.isinf(y) else x / y


def _divide(a: Interval, b: Interval) -> Interval:
    return EVERYTHING if b[0] <= 0 <= b[1] else _corners(_quotient, a, b)


def _floor_divide(a: Interval, b: Interval) -> Interval:
    return EVERYTHING if b[0] <= 0 <= b[1] else _corners(_floor_quotient, a, b)


def _floor_quotient(x: float, y: float) -> float:
    if math.isinf(y):
        return -1.0 if x * y < 0 else 0.0
    return x // y if math.isfinite(x) else x * y


def _remainder(_: Interval, b: Interval) -> Interval:
    return min(b[0], 0.0), max(b[1], 0.0)


def _raise(a: Interval, b: Interval) -> Interval:
    if a[0] >= 0 and (a[0] > 0 or b[0] >= 0):
        return _corners(_powered, a, b)
    if b[0] == b[1] and b[0] >= 0 and b[0] % 2 == 0:
        return 0.0, max(_powered(abs(a[0]), b[0]), _powered(abs(a[1]), b[0]))
    return EVERYTHING


def _powered(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.inf


LIMITS: Mapping[str, Callable[[Interval, Interval], Interval]] = {
    "+": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "-": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "*": lambda a, b: _corners(_product, a, b),
    "/": _divide,
    "//": _floor_divide,
    "%": _remainder,
    "**": _raise,
}
assert LIMITS.keys() == OPERATORS.keys()


# --- conditions ----------------------------------------------------------------------------------------------------

_CERTAIN: Mapping[str, Callable[[Interval, Interval], bool | None]] = {
    "<": lambda a, b: True if a[1] < b[0] else False if a[0] >= b[1] else None,
    "<=": lambda a, b: True if a[1] <= b[0] else False if a[0] > b[1] else None,
    ">": lambda a, b: True if a[0] > b[1] else False if a[1] <= b[0] else None,
    ">=": lambda a, b: True if a[0] >= b[1] else False if a[1] < b[0] else None,
    "==": lambda a, b: False if a[1] < b[0] or b[1] < a[0] else None,
    "!=": lambda a, b: True if a[1] < b[0] or b[1] < a[0] else None,
}

NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def compare_intervals(operator: str, a: Interval, b: Interval) -> bool | None:
    """What a comparison must come to, or None where it can go either way."""
    return _CERTAIN[operator](a, b)


def _below(x: float, whole: bool) -> float:
    return math.ceil(x) - 1.0 if whole and math.isfinite(x) else math.nextafter(x, -math.inf)


def _above(x: float, whole: bool) -> float:
    return math.floor(x) + 1.0 if whole and math.isfinite(x) else math.nextafter(x, math.inf)


def _without(a: Interval, b: Interval, whole: bool) -> Interval:
    if b[0] != b[1]:
        return a
    return (_above(a[0], whole) if a[0] == b[0] else a[0]), (_below(a[1], whole) if a[1] == b[0] else a[1])


_NARROWED: Mapping[str, Callable[[Interval, Interval, bool], Interval]] = {
    "<": lambda a, b, whole: (a[0], min(a[1], _below(b[1], whole))),
    "<=": lambda a, b, _: (a[0], min(a[1], b[1])),
    ">": lambda a, b, whole: (max(a[0], _above(b[0], whole)), a[1]),
    ">=": lambda a, b, _: (max(a[0], b[0]), a[1]),
    "==": lambda a, b, _: (max(a[0], b[0]), min(a[1], b[1])),
    "!=": _without,
}


def narrow_interval(operator: str, a: Interval, b: Interval, whole: bool) -> Interval:
    """The limits of a number in `a` once its comparison with one in `b` is true; `a` if that cannot be."""
    low, high = _NARROWED[operator](a, b, whole)
    return (low, high) if low <= high else a
