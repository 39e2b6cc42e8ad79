"""Evaluation: a tree becomes a function of facts, made once and called at every step or episode.

NaN stands for a number that is not known. Logic has three values: an unknown part makes the whole unknown only if no
other part decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Any, Protocol

from ..frozen import frozen
from . import nodes
from .calls import is_window, schedule_parts, size_of
from .functions import COMPARISONS, NAN, OPERATORS, PLAIN, SCHEDULES, WINDOWS
from .nodes import ExprNode, Literal, NameNode, Value
from .parse import parse_checked
from .scopes import SCOPES, Scope

__all__ = ["Facts", "MappingFacts", "Read", "compile_expression", "make_decision", "make_negation", "make_reader"]


class Facts(Protocol):
    """What a run knows at one moment, under the names of one scope."""

    @property
    def scope(self) -> str:
        """Which names there are: a key of `SCOPES`."""

    def value(self, name: str) -> float | bool | str | None:
        """The fact of that name; None if it is not known."""

    def window(self, name: str, size: int) -> Sequence[float]:
        """The last values of a metric in this stage, oldest first; fewer if there are fewer."""


@frozen(kw_only=False)
class MappingFacts:
    """Facts from dictionaries; a metric's value is the last of its history."""

    scope: str
    values: Mapping[str, float | bool | str | None] = field(default_factory=dict)
    histories: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def value(self, name: str) -> float | bool | str | None:
        if name in self.histories:
            return next(iter(self.histories[name][-1:]), None)
        return self.values.get(name)

    def window(self, name: str, size: int) -> Sequence[float]:
        return self.histories.get(name, ())[-size:]


Read = Callable[[Facts], Value]


@lru_cache(maxsize=4096)
def compile_expression(text: str, scope: str) -> Read:
    """The function of a text that was checked before."""
    return make_reader(parse_checked(text), SCOPES[scope])


def make_reader(node: ExprNode, scope: Scope) -> Read:
    return _READERS[type(node)](node, scope)


def _literal(node: Literal, _: Scope) -> Read:
    value = node.value
    return lambda _: value


def _name(node: NameNode, _: Scope) -> Read:
    name = node.name

    def read(facts: Facts) -> Value:
        value = facts.value(name)
        if value is None:
            return NAN
        if isinstance(value, bool | str):
            return value
        return float(value) if -inf < value < inf else NAN

    return read


def _unary(node: nodes.Unary, scope: Scope) -> Read:
    operand: Callable[[Facts], Any] = make_reader(node.operand, scope)
    if node.operator == "not":
        return make_negation(operand)
    return operand if node.operator == "+" else lambda facts: -operand(facts)


def make_negation(operand: Read) -> Read:
    """What is unknown stays so."""

    def negate(facts: Facts) -> Value:
        value = operand(facts)
        return not value if value == value else value

    return negate


def _binary(node: nodes.Binary, scope: Scope) -> Read:
    compute: Callable[[Any, Any], float] = OPERATORS[node.operator]
    left, right = make_reader(node.left, scope), make_reader(node.right, scope)
    return lambda facts: compute(left(facts), right(facts))


def _compare(node: nodes.Compare, scope: Scope) -> Read:
    pairs = zip(node.operators, pairwise(node.operands), strict=True)
    parts = [_compare_two(operator, make_reader(a, scope), make_reader(b, scope)) for operator, (a, b) in pairs]
    return parts[0] if len(parts) == 1 else make_decision(False, parts)


def _compare_two(operator: str, left: Read, right: Read) -> Read:
    holds = COMPARISONS[operator]

    def compare(facts: Facts) -> Value:
        a, b = left(facts), right(facts)
        return holds(a, b) if a == a and b == b else NAN

    return compare


def _member(node: nodes.Member, scope: Scope) -> Read:
    item, negated = make_reader(node.item, scope), node.negated
    values = frozenset(literal.value for literal in node.values)

    def member(facts: Facts) -> Value:
        value = item(facts)
        return (value in values) is not negated if value == value else NAN

    return member


def _logic(node: nodes.Logic, scope: Scope) -> Read:
    return make_decision(node.operator == "or", [make_reader(item, scope) for item in node.items])


def make_decision(deciding: bool, parts: Sequence[Read]) -> Read:
    """True decides `or`, false decides `and`; otherwise what is unknown stays so."""

    def decide(facts: Facts) -> Value:
        result: Value = not deciding
        for part in parts:
            value = part(facts)
            if value is deciding:
                return deciding
            if value != value:
                result = NAN
        return result

    return decide


def _choice(node: nodes.Conditional, scope: Scope) -> Read:
    condition = make_reader(node.condition, scope)
    then, otherwise = make_reader(node.then, scope), make_reader(node.otherwise, scope)

    def choose(facts: Facts) -> Value:
        truth = condition(facts)
        if truth is True:
            return then(facts)
        return otherwise(facts) if truth is False else NAN

    return choose


def _call(node: nodes.Call, scope: Scope) -> Read:
    if is_window(node, scope):
        return _window(node)
    if node.function == "default":
        return _default(node, scope)
    return _schedule(node, scope) if node.function in SCHEDULES else _plain(node, scope)


def _plain(node: nodes.Call, scope: Scope) -> Read:
    compute = PLAIN[node.function].compute
    arguments: list[Callable[[Facts], Any]] = [make_reader(argument, scope) for argument in node.arguments]
    return lambda facts: compute(*[argument(facts) for argument in arguments])


def _default(node: nodes.Call, scope: Scope) -> Read:
    first, second = (make_reader(argument, scope) for argument in node.arguments)

    def choose(facts: Facts) -> Value:
        value = first(facts)
        return value if value == value else second(facts)

    return choose


def _schedule(node: nodes.Call, scope: Scope) -> Read:
    compute = SCHEDULES[node.function].compute
    parts, counter = schedule_parts(node)
    arguments: list[Callable[[Facts], Any]] = [make_reader(part, scope) for part in parts]
    count: Callable[[Facts], Any] = make_reader(counter or NameNode(node.start, node.end, "step"), scope)

    def scheduled(facts: Facts) -> Value:
        values, at = [argument(facts) for argument in arguments], count(facts)
        if at != at or any(value != value for value in values):
            return NAN
        value = compute(values, at)
        return value if -inf < value < inf else NAN

    return scheduled


def _window(node: nodes.Call) -> Read:
    function, size = WINDOWS[node.function], size_of(node)
    metric, wanted = node.arguments[0], size + function.more
    assert isinstance(metric, NameNode)
    name, compute = metric.name, function.compute

    def look_back(facts: Facts) -> Value:
        values = facts.window(name, wanted)
        if len(values) < wanted or not all(-inf < value < inf for value in values):
            return NAN
        return compute(values)

    return look_back


_READERS: Mapping[type, Callable[[Any, Scope], Read]] = {
    Literal: _literal,
    NameNode: _name,
    nodes.Unary: _unary,
    nodes.Binary: _binary,
    nodes.Compare: _compare,
    nodes.Member: _member,
    nodes.Logic: _logic,
    nodes.Conditional: _choice,
    nodes.Call: _call,
}
