"""Checks of function calls: which function is meant, whether its arguments are right, the shape of its result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..suggest import did_you_mean, quote
from .functions import MAX_WINDOW, PLAIN, SCHEDULES, SIGNATURES, WINDOWS, Interval, Plain, Schedule, Window
from .inferred import POISON, Shape, drop_overflow, first_doubt, result_type
from .intervals import hull
from .nodes import Call, ExprNode, ExprProblem, Literal, NameNode, Place
from .scopes import CONSTANT, ExprType, Fact, Scope

if TYPE_CHECKING:
    from .check import Checker

__all__ = ["check_call", "is_window", "schedule_parts", "size_of"]

_Narrow = Mapping[str, Interval]


def is_window(node: Call, scope: Scope) -> bool:
    """Whether a call looks back over a metric. `min` and `max` do where a metric's name and a whole number stand."""
    if node.function not in WINDOWS or node.function not in PLAIN:
        return node.function in WINDOWS
    first, *rest = node.arguments or (None,)
    return _metric(first, scope) is not None and len(rest) == 1 and isinstance(rest[0], Literal) and rest[0].whole


def size_of(window: Call) -> int:
    """The number of values that a window of right form looks back over."""
    size = window.arguments[1] if len(window.arguments) == 2 else None
    return int(size.value) if isinstance(size, Literal) and size.whole else WINDOWS[window.function].default or 0


def schedule_parts(node: Call) -> tuple[tuple[ExprNode, ...], ExprNode | None]:
    """The arguments of a schedule and, apart from them, what it counts; None for the steps of the stage."""
    function, arguments = SCHEDULES[node.function], node.arguments
    if not function.fits(len(arguments)) and function.fits(len(arguments) - 1):
        return arguments[:-1], arguments[-1]
    return arguments, None


def check_call(checker: Checker, node: Call, narrow: _Narrow) -> Shape:
    if is_window(node, checker.scope):
        return _window(checker, node, WINDOWS[node.function])
    if node.function == "default":
        return _default(checker, node, narrow)
    if node.function in SCHEDULES:
        return _schedule(checker, node, SCHEDULES[node.function], narrow)
    if node.function in PLAIN:
        return _plain(checker, node, PLAIN[node.function], narrow)
    return _unknown(checker, node, narrow)


def _metric(node: ExprNode | None, scope: Scope) -> Fact | None:
    fact = scope.facts.get(node.name) if isinstance(node, NameNode) else None
    return fact if fact and fact.metric else None


def _at_name(node: Call) -> Place:
    return Place(node.name_start, node.name_start + len(node.function))


def _unknown(checker: Checker, node: Call, narrow: _Narrow) -> Shape:
    # the arguments of an unknown function cannot be checked
    if node.function in checker.scope.facts:
        message = f"'{node.function}' is a name, not a function"
        return checker.say("expr-call", message, _at_name(node), f"write {node.function} without parentheses")
    from .syntax_errors import foreign_function

    known = did_you_mean(node.function, SIGNATURES) or f"known: {', '.join(SIGNATURES)}"
    foreign = foreign_function(node.function)
    help_text = f"{foreign}; known: {', '.join(SIGNATURES)}" if foreign else known
    return checker.say("expr-call", f"unknown function {quote(node.function)}", _at_name(node), help_text)


def _wrong_count(checker: Checker, node: Call, wanted: str, signature: str) -> Shape:
    message = f"'{node.function}' takes {wanted}; got {len(node.arguments)}"
    return checker.say("expr-call", message, _at_name(node), f"write {signature}")


# --- plain functions -----------------------------------------------------------------------------------------------


def _plain(checker: Checker, node: Call, function: Plain, narrow: _Narrow) -> Shape:
    shapes = [checker.number(argument, narrow, node.function) for argument in node.arguments]
    if len(shapes) < function.fewest or (function.most is not None and len(shapes) > function.most):
        return _wrong_count(checker, node, _count(function), _signature(checker, node, function))
    if any(shape.type is None for shape in shapes):
        return POISON
    if node.function == "clip" and shapes[1].limits[0] > shapes[2].limits[1]:
        at = Place(node.arguments[1].start, node.arguments[2].end)
        return checker.say("expr-call", "the lower limit of 'clip' is above the upper one", at, function.signature)
    limits = drop_overflow(function.limits(*(shape.limits for shape in shapes)))
    doubt = _domain_doubt(checker, node, function, shapes[0])
    return checker.computed(node, shapes, Shape(result_type(function.whole, shapes), limits, doubt), function.compute)


def _count(function: Plain) -> str:
    if function.most is None:
        return f"{function.fewest} or more arguments"
    return "1 argument" if function.most == 1 else f"{function.most} arguments"


def _signature(checker: Checker, node: Call, function: Plain) -> str:
    """`min(success)` is more likely to be a window without its size."""
    if node.function in WINDOWS and node.arguments and _metric(node.arguments[0], checker.scope):
        return f"{WINDOWS[node.function].signature} for the last n values of a metric, or {function.signature}"
    return function.signature


def _domain_doubt(checker: Checker, node: Call, function: Plain, argument: Shape) -> ExprProblem | None:
    if function.above == -math.inf or argument.limits[0] > function.above:
        return None
    least = "below 0" if function.above < 0 else "0 or less"
    shown_argument = checker.shown(node.arguments[0])
    return checker.doubt(node, f"{checker.shown(node)} is undefined when {shown_argument} is {least}")


def _default(checker: Checker, node: Call, narrow: _Narrow) -> Shape:
    shapes = [checker.shape(argument, narrow) for argument in node.arguments]
    if len(shapes) != 2:
        return _wrong_count(checker, node, "2 arguments", SIGNATURES["default"])
    value, instead = shapes
    joined = checker.joined(node, value, instead, instead.doubt)
    return value if joined.type is not None and value.constant is not None else joined


# --- schedules -----------------------------------------------------------------------------------------------------


def _schedule(checker: Checker, node: Call, function: Schedule, narrow: _Narrow) -> Shape:
    arguments, counter = schedule_parts(node)
    shapes = [checker.number(argument, narrow, node.function) for argument in arguments]
    counted = [checker.number(counter, narrow, node.function)] if counter else []
    if not function.fits(len(arguments)):
        return _wrong_count(checker, node, function.wants, function.signature)
    if checker.scope is CONSTANT:
        message = f"'{node.function}' changes during a run; this value must be constant"
        return checker.say("not-constant", message, _at_name(node))
    if any(shape.type is None for shape in (*shapes, *counted)):
        return POISON
    if counter and counted[0].constant is not None:
        message = f"the last argument of '{node.function}' is the counter here, but it never changes"
        help_text = f"write {function.signature}, where count is total_step, or step - 20 to start at step 20"
        return checker.say("expr-call", message, counter, help_text)
    return _scheduled(checker, node, arguments, shapes, first_doubt(*shapes, *counted))


def _scheduled(
    checker: Checker, node: Call, arguments: tuple[ExprNode, ...], shapes: list[Shape], doubt: ExprProblem | None
) -> Shape:
    function = SCHEDULES[node.function]
    points = function.points(len(arguments))
    for index in points:
        if shapes[index].constant is None:
            moving = checker.shown(arguments[index])
            message = f"the steps of '{node.function}' must be fixed numbers, but {moving} changes"
            return checker.say("expr-call", message, arguments[index], function.signature)
    if flaw := function.flaw([shapes[index].limits[0] for index in points]):
        at = Place(arguments[points[0]].start, arguments[points[-1]].end)
        return checker.say("expr-call", f"'{node.function}' {flaw}", at, function.signature)
    values = [shape for index, shape in enumerate(shapes) if index not in points]
    limits = values[0].limits
    for value in values[1:]:
        limits = hull(limits, value.limits)
    return Shape(result_type(function.whole, values), limits, doubt)


# --- windows -------------------------------------------------------------------------------------------------------


def _window(checker: Checker, node: Call, function: Window) -> Shape:
    if not any(fact.metric for fact in checker.scope.facts.values()):
        return _no_metrics(checker, node)
    sizes = node.arguments[1:]
    if len(node.arguments) != 2 and not (len(node.arguments) == 1 and function.default):
        return _wrong_count(checker, node, "2 arguments, a metric and a number of values", function.signature)
    name, metric = node.arguments[0], _metric(node.arguments[0], checker.scope)
    if metric is None or not isinstance(name, NameNode):
        return _not_a_metric(checker, node)
    if sizes and not _size_is_right(checker, node, function, sizes[0]):
        return POISON
    doubt = checker.unmeasured(node, name.name)
    if function.limits is None:
        return Shape(ExprType.BOOLEAN, doubt=doubt)
    return Shape(ExprType.NUMBER, function.limits((metric.low, metric.high)), doubt)


def _no_metrics(checker: Checker, node: Call) -> Shape:
    if checker.scope is CONSTANT:
        message = f"'{node.function}' looks back over the run; this value must be constant"
        return checker.say("not-constant", message, _at_name(node))
    message = f"'{node.function}' looks back over a metric, but there are none in {checker.scope.place}"
    fact = checker.scope.facts.get(node.function)
    help_text = f"{node.function} without parentheses is the {fact.doc}" if fact else None
    return checker.say("expr-call", message, _at_name(node), help_text)


def _not_a_metric(checker: Checker, node: Call) -> Shape:
    first = node.arguments[0]
    names = [name for name, fact in checker.scope.facts.items() if fact.metric]
    near = did_you_mean(first.name, names) if isinstance(first, NameNode) else None
    message = f"the first argument of '{node.function}' must be a metric, not {checker.shown(first)}"
    return checker.say("expr-call", message, first, near or f"metrics: {', '.join(names)}")


def _size_is_right(checker: Checker, node: Call, function: Window, size: ExprNode) -> bool:
    if not isinstance(size, Literal) or not size.whole:
        message = f"the second argument of '{node.function}' must be a literal whole number, not {checker.shown(size)}"
        checker.say("expr-call", message, size, f"write {function.signature}")
        return False
    number = size_of(node)
    if function.smallest <= number <= MAX_WINDOW:
        return True
    message = f"'{node.function}' looks back over {function.smallest} to {MAX_WINDOW} values, not {number}"
    either = f"write {node.function}({number}, {checker.short(node.arguments[0])}) to compare the two numbers"
    checker.say("expr-call", message, size, either if node.function in PLAIN else None)
    return False
