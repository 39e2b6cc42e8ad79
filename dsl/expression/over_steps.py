"""Values of expressions over the steps of a stage, as far as they depend on steps alone.

The step by which a condition must be true, the steps at which a number changes. Both searches are bounded in time, and
give None rather than guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from ..frozen import frozen
from .calls import schedule_parts
from .evaluate import MappingFacts, Read, make_decision, make_negation, make_reader
from .functions import NAN, SCHEDULES
from .nodes import Binary, Call, Compare, ExprNode, Literal, Logic, NameNode, Unary, Value, walk_nodes
from .parse import MAX_WHOLE
from .scopes import SCOPES

__all__ = ["MAX_SCAN", "MAX_TABLE", "StageStart", "collect_used_names", "find_first_true", "tabulate_changes"]

MAX_SCAN = 10_000
"""Steps that are tried one by one where a condition cannot be solved."""
MAX_TABLE = 100_000
"""Steps of the longest table."""
_MAX_WORK = 1_000_000
"""Nodes that are evaluated for one answer; a large expression is followed over fewer steps."""

_COUNTERS = frozenset({"step", "total_step"})


@frozen
class StageStart:
    """Where in the run a stage starts."""

    stage: str = ""
    stage_index: int | None = None
    total_step: int | None = 0
    """Steps of the stages before; None if that is not known exactly."""


class _Line(NamedTuple):
    """slope * step + base."""

    slope: float
    base: float


def _facts_at(start: StageStart, step: float) -> MappingFacts:
    """Facts at a moment of which only the step is known."""
    total = None if start.total_step is None else start.total_step + step
    values = {"step": step, "total_step": total, "stage": start.stage or None, "stage_index": start.stage_index}
    return MappingFacts("until", values)


def collect_used_names(tree: ExprNode) -> frozenset[str]:
    """All names, with the `step` that a schedule counts by itself."""
    found = set()
    for node in walk_nodes(tree):
        if isinstance(node, NameNode):
            found.add(node.name)
        elif isinstance(node, Call) and node.function in SCHEDULES and schedule_parts(node)[1] is None:
            found.add("step")
    return frozenset(found)


def tabulate_changes(tree: ExprNode, steps: int, start: StageStart) -> tuple[tuple[int, Value], ...] | None:
    """(step, value) wherever the value differs from the step before; None if more than steps decide it."""
    names = collect_used_names(tree)
    if steps > _reach(tree, MAX_TABLE) or not _is_timed(tree, start):
        return None
    read = make_reader(tree, SCOPES["schedule"])
    found: list[tuple[int, Value]] = []
    for step in range(steps if names & _COUNTERS else min(steps, 1)):
        value = read(_facts_at(start, float(step)))
        if not found or (value != found[-1][1] and (value == value or found[-1][1] == found[-1][1])):
            found.append((step, value))
    return tuple(found)


def find_first_true(tree: ExprNode, start: StageStart) -> int | None:
    """The first step, from 1, at which a condition is true for any values of the metrics; None if there may be none."""
    if start.total_step is None:
        tree = _counted_here(tree)
    read = _certain(tree, start)
    for step in _candidates(tree, start):
        if read(_facts_at(start, float(step))) is True:
            return step
    return None


def _counted_here(node: ExprNode) -> ExprNode:
    """`total_step >= 300` as `step >= 300`, which is true no sooner: for a stage of which the start is not known."""
    match node:
        case Logic():
            return node._replace(items=tuple(_counted_here(item) for item in node.items))
        case Compare(operands=(NameNode(name="total_step") as name, limit), operators=((">" | ">="),)):
            return node._replace(operands=(name._replace(name="step"), limit))
        case Compare(operands=(limit, NameNode(name="total_step") as name), operators=(("<" | "<="),)):
            return node._replace(operands=(limit, name._replace(name="step")))
        case _:
            return node


def _reach(tree: ExprNode, most: int) -> int:
    return min(most, _MAX_WORK // sum(1 for _ in walk_nodes(tree)))


def _is_timed(node: ExprNode, start: StageStart) -> bool:
    return all(_facts_at(start, 0.0).value(name) is not None for name in collect_used_names(node))


def _certain(node: ExprNode, start: StageStart) -> Read:
    """The condition with "unknown" for each part that more than steps decide, `default(...)` of a metric included."""
    if _is_timed(node, start):
        return make_reader(node, SCOPES["until"])
    if isinstance(node, Logic):
        return make_decision(node.operator == "or", [_certain(item, start) for item in node.items])
    if isinstance(node, Unary):
        return make_negation(_certain(node.operand, start))
    return lambda _: NAN


def _candidates(tree: ExprNode, start: StageStart) -> Iterable[int]:
    """Steps that are worth a try, in order: where a comparison turns, or one after the other if that is not solved."""
    turns = _turns(tree, start)
    if turns is None:
        return range(1, _reach(tree, MAX_SCAN) + 1)
    return sorted({1} | {t for t in turns if 1 <= t <= MAX_WHOLE})


def _turns(node: ExprNode, start: StageStart) -> set[int] | None:
    """The steps before and after each one at which a condition may turn; None where that cannot be solved."""
    match node:
        case Logic():
            return _union(_turns(item, start) for item in node.items)
        case Unary(operator="not"):
            return _turns(node.operand, start)
        case _ if not _is_timed(node, start) or not collect_used_names(node) & _COUNTERS:
            return set()
        case Compare():
            return _union(_crossing(_line(a, start), _line(b, start)) for a, b in pairwise(node.operands))
        case _:
            return None


def _union(parts: Iterable[set[int] | None]) -> set[int] | None:
    result: set[int] = set()
    for part in parts:
        if part is None:
            return None
        result |= part
    return result


def _crossing(a: _Line | None, b: _Line | None) -> set[int] | None:
    """Whole steps around the one at which two lines cross; one more on each side, to allow for rounding."""
    if a is None or b is None:
        return None
    if a.slope == b.slope:
        return set()
    step = (b.base - a.base) / (a.slope - b.slope)
    return set(range(math.floor(step) - 1, math.floor(step) + 3)) if math.isfinite(step) else None


def _line(node: ExprNode, start: StageStart) -> _Line | None:
    """A number as slope * step + base, if it is one."""
    match node:
        case Literal(value=float(value)):
            return _Line(0.0, value)
        case NameNode(name=name):
            base = _facts_at(start, 0.0).value(name)
            return None if base is None or isinstance(base, str) else _Line(float(name in _COUNTERS), base)
        case Unary(operator=("-" | "+") as sign):
            return _combined("*", _Line(0.0, -1.0 if sign == "-" else 1.0), _line(node.operand, start))
        case Binary():
            return _combined(node.operator, _line(node.left, start), _line(node.right, start))
        case _:
            return None


def _combined(operator: str, a: _Line | None, b: _Line | None) -> _Line | None:
    if a is None or b is None:
        return None
    match operator:
        case "+":
            return _Line(a.slope + b.slope, a.base + b.base)
        case "-":
            return _Line(a.slope - b.slope, a.base - b.base)
        case "*" if not a.slope or not b.slope:
            return _Line(a.slope * b.base + b.slope * a.base, a.base * b.base)
        case "/" if not b.slope and b.base:
            return _Line(a.slope / b.base, a.base / b.base)
        case _:
            return None
