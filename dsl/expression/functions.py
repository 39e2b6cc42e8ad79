"""Functions and operators of expressions: what they compute, and the limits of the result.

From doubles they compute a finite double, true or false, or NaN for "not known". Nothing here raises, and nothing takes
longer for a larger number. Three kinds: plain functions of numbers, windows over a metric, schedules over steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from itertools import pairwise

from ..frozen import frozen

__all__ = [
    "COMPARISONS",
    "MAX_WINDOW",
    "NAN",
    "OPERATORS",
    "PLAIN",
    "SCHEDULES",
    "SIGNATURES",
    "WINDOWS",
    "Interval",
    "Plain",
    "Schedule",
    "Whole",
    "Window",
]

NAN = math.nan
MAX_WINDOW = 10_000
"""Values of a metric that one window may reach back."""

Interval = tuple[float, float]
"""Lowest and highest value that a number can have."""
EVERYTHING: Interval = (-math.inf, math.inf)


class Whole(Enum):
    """When a result is a whole number."""

    ALWAYS = auto()
    NEVER = auto()
    OF_WHOLE = auto()
    """When all arguments are."""


def _total(function: Callable[..., float]) -> Callable[..., float]:
    """The function with NaN wherever it has no finite value."""

    def wrapped(*arguments: float) -> float:
        try:
            result = function(*arguments)
        except (ArithmeticError, ValueError):
            return NAN
        return result if -math.inf < result < math.inf else NAN

    return wrapped


# --- operators -----------------------------------------------------------------------------------------------------


def _power(base: float, exponent: float) -> float:
    return math.pow(base, exponent)


OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": _total(lambda a, b: a + b),
    "-": _total(lambda a, b: a - b),
    "*": _total(lambda a, b: a * b),
    "/": _total(lambda a, b: a / b),
    "//": _total(lambda a, b: a // b),
    "%": _total(lambda a, b: a % b),
    "**": _total(_power),
}

COMPARISONS: Mapping[str, Callable[[object, object], bool]] = {
    "<": lambda a, b: a < b,  # type: ignore[operator]
    "<=": lambda a, b: a <= b,  # type: ignore[operator]
    ">": lambda a, b: a > b,  # type: ignore[operator]
    ">=": lambda a, b: a >= b,  # type: ignore[operator]
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


# --- plain functions -----------------------------------------------------------------------------------------------


@frozen(kw_only=False)
class Plain:
    """A function of numbers."""

    signature: str
    doc: str
    compute: Callable[..., float]
    limits: Callable[..., Interval]
    """From the limits of the arguments."""
    whole: Whole = Whole.NEVER
    above: float = -math.inf
    """What the first argument must be larger than, for the function to have a value."""

    @property
    def fewest(self) -> int:
        return self.signature.removesuffix(", ...)").count(",") + 1

    @property
    def most(self) -> int | None:
        return None if "..." in self.signature else self.fewest


def _least(*values: float) -> float:
    return NAN if any(v != v for v in values) else min(values)


def _greatest(*values: float) -> float:
    return NAN if any(v != v for v in values) else max(values)


def _clip(x: float, low: float, high: float) -> float:
    return _least(_greatest(x, low), high)


def _rising(function: Callable[[float], float]) -> Callable[[Interval], Interval]:
    """Limits of a function that never falls."""

    def end(value: float, otherwise: float) -> float:
        try:
            return function(value)
        except (ArithmeticError, ValueError):
            return otherwise

    return lambda x: (end(x[0], -math.inf), end(x[1], math.inf))


def _rounding(name: str, doc: str, function: Callable[[float], float]) -> Plain:
    return Plain(f"{name}(x)", doc, _total(lambda x: float(function(x))), _rising(function), whole=Whole.ALWAYS)


def _size_limits(x: Interval) -> Interval:
    low = 0.0 if x[0] <= 0 <= x[1] else min(abs(x[0]), abs(x[1]))
    return low, max(abs(x[0]), abs(x[1]))


def _least_limits(*xs: Interval) -> Interval:
    return min(low for low, _ in xs), min(high for _, high in xs)


def _greatest_limits(*xs: Interval) -> Interval:
    return max(low for low, _ in xs), max(high for _, high in xs)


_TINIEST = math.ulp(0.0)

PLAIN: Mapping[str, Plain] = {
    "min": Plain("min(a, b, ...)", "the smallest of two or more numbers", _least, _least_limits, whole=Whole.OF_WHOLE),
    "max": Plain(
        "max(a, b, ...)", "the largest of two or more numbers", _greatest, _greatest_limits, whole=Whole.OF_WHOLE
    ),
    "clip": Plain(
        "clip(x, low, high)",
        "x limited to the range from low to high",
        _clip,
        lambda x, low, high: _least_limits(_greatest_limits(x, low), high),
        whole=Whole.OF_WHOLE,
    ),
    "abs": Plain("abs(x)", "x without its sign", abs, _size_limits, whole=Whole.OF_WHOLE),
    "floor": _rounding("floor", "x rounded down to a whole number", math.floor),
    "ceil": _rounding("ceil", "x rounded up to a whole number", math.ceil),
    "round": _rounding("round", "the nearest whole number; halves round to even, as in Python", round),
    "sqrt": Plain(
        "sqrt(x)",
        "the square root",
        _total(math.sqrt),
        lambda x: _rising(math.sqrt)((max(x[0], 0.0), max(x[1], 0.0))),
        above=-_TINIEST,
    ),
    "exp": Plain(
        "exp(x)",
        "e to the power of x",
        _total(math.exp),
        lambda x: (math.exp(min(x[0], 709.0)), _rising(math.exp)(x)[1]),
    ),
    "log": Plain("log(x)", "the natural logarithm", _total(math.log), _rising(math.log), above=0.0),
}


# --- windows -------------------------------------------------------------------------------------------------------


@frozen(kw_only=False)
class Window:
    """A function of a metric's last values."""

    signature: str
    doc: str
    compute: Callable[[Sequence[float]], float | bool]
    """Of the values, oldest first; as many as were asked for, all finite."""
    limits: Callable[[Interval], Interval] | None
    """From the limits of the metric; None where the result is true or false."""
    smallest: int = 1
    """Least size that means something."""
    more: int = 0
    """Values that are needed beyond the size."""
    default: int | None = None
    """Size if none is given."""


def _mean(values: Sequence[float]) -> float:
    # rounding must not carry the mean of equal values past them: `mean(success, 10) >= 0.8` counts on it
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def _std(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))


def _slope(values: Sequence[float]) -> float:
    """Of the straight line with the least squares, per value."""
    middle = (len(values) - 1) / 2
    across = math.fsum((i - middle) * v for i, v in enumerate(values))
    return across / math.fsum((i - middle) ** 2 for i in range(len(values)))


def _width(x: Interval) -> float:
    return math.inf if math.inf in (-x[0], x[1]) else x[1] - x[0]


def _trend(name: str, how: str, holds: Callable[[float, float], bool]) -> Window:
    doc = f"whether each of the last n values was {how} than the one before it"
    return Window(f"{name}(metric, n)", doc, lambda values: all(holds(a, b) for a, b in pairwise(values)), None, more=1)


WINDOWS: Mapping[str, Window] = {
    "mean": Window("mean(metric, n)", "mean of the last n values", _total(_mean), lambda x: x),
    "std": Window(
        "std(metric, n)",
        "standard deviation of the last n values (divided by n)",
        _total(_std),
        lambda x: (0.0, _width(x)),
        smallest=2,
    ),
    "min": Window("min(metric, n)", "smallest of the last n values", min, lambda x: x, smallest=2),
    "max": Window("max(metric, n)", "largest of the last n values", max, lambda x: x, smallest=2),
    "slope": Window(
        "slope(metric, n)",
        "slope, per value, of the straight line through the last n values",
        _total(_slope),
        lambda x: (-_width(x), _width(x)),
        smallest=2,
    ),
    "rises_for": _trend("rises_for", "higher", lambda a, b: a < b),
    "falls_for": _trend("falls_for", "lower", lambda a, b: a > b),
    "last": Window(
        "last(metric[, k])", "the newest value, or the k-th newest", lambda values: values[0], lambda x: x, default=1
    ),
}


# --- schedules -----------------------------------------------------------------------------------------------------


@frozen
class Schedule:
    """A function of steps: numbers it runs between, written-out points of time, and what is counted."""

    signature: str
    doc: str
    points: Callable[[int], Sequence[int]]
    """Which arguments are points of time, for so many arguments without the counter."""
    fits: Callable[[int], bool]
    """Whether it takes so many arguments, without the counter."""
    wants: str
    """How many that is, in words."""
    flaw: Callable[[Sequence[float]], str | None]
    """What is wrong with the points of time."""
    compute: Callable[[Sequence[float], float], float]
    """Of the arguments and the count."""
    whole: Whole = Whole.NEVER


def _share(count: float, start: float, end: float) -> float:
    """The fraction of the way from start to end, between 0 and 1."""
    return min(max((count - start) / (end - start), 0.0), 1.0)


def _between(first: float, last: float, share: float) -> float:
    value = first + (last - first) * share
    return last if share >= 1.0 else min(max(value, min(first, last)), max(first, last))


def _linear(arguments: Sequence[float], count: float) -> float:
    first, last, over = arguments
    return _ramp((first, last, 0.0, over), count)


def _cosine(arguments: Sequence[float], count: float) -> float:
    first, last, over = arguments
    return _between(first, last, (1.0 - math.cos(math.pi * _share(count, 0.0, over))) / 2.0)


def _ramp(arguments: Sequence[float], count: float) -> float:
    first, last, start, end = arguments
    return _between(first, last, _share(count, start, end))


def _steps(arguments: Sequence[float], count: float) -> float:
    value = arguments[0]
    for at, following in zip(arguments[1::2], arguments[2::2], strict=True):
        if count >= at:
            value = following
    return value


def _must_last(points: Sequence[float]) -> str | None:
    return None if points[0] > 0 else "must run over more than 0 steps"


def _must_rise(points: Sequence[float]) -> str | None:
    return None if all(a < b for a, b in pairwise(points)) else "needs steps in increasing order"


def _easing(name: str, way: str, compute: Callable[[Sequence[float], float], float]) -> Schedule:
    return Schedule(
        signature=f"{name}(first, last, over[, count])",
        doc=f"{way} from first to last over so many steps, then last",
        points=lambda _: (2,),
        fits=lambda n: n == 3,
        wants="3 arguments, or 4 with a counter",
        flaw=_must_last,
        compute=compute,
    )


SCHEDULES: Mapping[str, Schedule] = {
    "linear": _easing("linear", "a straight line", _linear),
    "cosine": _easing("cosine", "half a cosine wave", _cosine),
    "ramp": Schedule(
        signature="ramp(first, last, start, end[, count])",
        doc="first until the step start, a straight line until the step end, then last",
        points=lambda _: (2, 3),
        fits=lambda n: n == 4,
        wants="4 arguments, or 5 with a counter",
        flaw=_must_rise,
        compute=_ramp,
    ),
    "steps": Schedule(
        signature="steps(first, at1, value1, at2, value2, ...[, count])",
        doc="first until the step at1, then value1 until the step at2, and so on",
        points=lambda n: range(1, n, 2),
        fits=lambda n: n >= 3 and n % 2 == 1,
        wants="a first value, then steps and values in turn",
        flaw=_must_rise,
        compute=_steps,
        whole=Whole.OF_WHOLE,
    ),
}

DEFAULT = "default(x, instead)"
"""The one function that asks whether a value is known; the checker and the evaluator know it by name."""

SIGNATURES: Mapping[str, str] = {
    "default": DEFAULT,
    **{name: window.signature for name, window in WINDOWS.items()},
    **{name: schedule.signature for name, schedule in SCHEDULES.items()},
    **{name: plain.signature for name, plain in PLAIN.items()},
}
"""How each function is called; `min` and `max` of numbers, not of a metric."""
