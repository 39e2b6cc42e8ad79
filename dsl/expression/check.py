"""Type inference for expressions: the shape of a value in a scope, and everything that is wrong with it.

A number that may be unknown is a mistake, because something must be done with it; a condition that is unknown counts as
false and needs no proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ..suggest import did_you_mean, find_nearest, quote
from . import nodes
from .calls import check_call, is_window, size_of
from .functions import COMPARISONS, OPERATORS, SIGNATURES, Interval
from .inferred import (
    NUMBERS,
    POISON,
    Shape,
    binary_type,
    drop_overflow,
    first_doubt,
    fits,
    kind_words,
    power_is_safe,
    range_words,
    type_words,
)
from .intervals import LIMITS, NEGATED, compare_intervals, hull, narrow_interval
from .nodes import ExprNode, ExprProblem, Literal, NameNode, Place, Value, walk_nodes
from .parse import parse_expression
from .scopes import CONSTANT, SCOPES, ExprType, Scope

__all__ = ["MAX_COST", "Checker", "Narrow", "infer", "scope_of"]

MAX_COST = 50_000
"""Values of metrics that one expression may read."""

Narrow = Mapping[str, Interval]
"""Limits of names where a condition holds; names that are not here have those of their scope."""

_DIVISIONS = ("/", "//", "%")

_NO_VALUE = frozenset({"auto", "default", "none", "all", "max", "inf", "infinity", "unlimited", "never", "off", "no"})
"""Words that stand for a number or a condition elsewhere."""


def scope_of(name: str) -> Scope:
    return CONSTANT if name == "constant" else SCOPES[name]


@lru_cache(maxsize=4096)
def infer(text: str, scope: str, want: ExprType | None) -> tuple[Shape, tuple[ExprProblem, ...]]:
    """The shape of a text in a scope, and everything that is wrong with it."""
    tree = parse_expression(text)
    if isinstance(tree, ExprProblem):
        return POISON, _in_better_words(text, scope_of(scope), [tree])
    checker = Checker(text, scope_of(scope), want or ExprType.NUMBER)
    if isinstance(tree, NameNode) and tree.name.lower() in _NO_VALUE and tree.name not in checker.scope.facts:
        return checker.no_value(tree, want), tuple(checker.problems)
    shape = checker.shape(tree, {})
    if want is not None:
        checker.require(tree, shape, want)
    if not checker.problems:
        checker.require_cost(tree)
    return shape, _in_better_words(text, checker.scope, list(dict.fromkeys(checker.problems)))


def _in_better_words(text: str, scope: Scope, problems: list[ExprProblem]) -> tuple[ExprProblem, ...]:
    if not problems or not scope.facts or scope is SCOPES["recorded"]:
        return tuple(problems)
    from .syntax_errors import explain_foreign

    return explain_foreign(text, list(scope.facts), problems)


class Checker:
    """Walks a tree once; what is wrong is noted and has the shape of poison."""

    def __init__(self, text: str, scope: Scope, want: ExprType = ExprType.NUMBER) -> None:
        self.text = text
        self.want = want
        self.scope = scope
        self.problems: list[ExprProblem] = []
        self._limits: dict[int, Interval] = {}

    def shape(self, node: ExprNode, narrow: Narrow) -> Shape:
        shape = _SHAPES[type(node)](self, node, narrow)
        self._limits[id(node)] = shape.limits
        return shape

    # --- what is reported ---

    def say(self, code: str, message: str, at: ExprNode | Place, help_text: str | None = None) -> Shape:
        self.problems.append(ExprProblem(code=code, message=message, start=at.start, end=at.end, help=help_text))
        return POISON

    def shown(self, node: ExprNode) -> str:
        text = self.text[node.start : node.end]
        in_quotes = isinstance(node, Literal) and isinstance(node.value, str) and len(text) <= 40
        return text if in_quotes else quote(text)

    def short(self, node: ExprNode, limit: int = 30) -> str | None:
        """The text of a node for use in a suggestion; None where it is too long to be of help."""
        text = " ".join(self.text[node.start : node.end].split())
        return text if len(text) <= limit else None

    def doubt(self, node: ExprNode, message: str, help_text: str | None = None) -> ExprProblem:
        """Reported only if it is a number that matters, and nothing around it says what to do then."""
        default = f"write default({self.short(node) or '...'}, x), where x is the value to use instead"
        return ExprProblem(
            code="expr-value", message=message, start=node.start, end=node.end, help=(help_text or "") + default
        )

    # --- the whole ---

    def require(self, node: ExprNode, shape: Shape, want: ExprType) -> None:
        if shape.type is None:
            return
        if not fits(shape, want):
            self._wrong_type(node, shape, want)
        elif shape.doubt and want is not ExprType.BOOLEAN:
            self.problems.append(shape.doubt)

    def _wrong_type(self, node: ExprNode, shape: Shape, want: ExprType) -> None:
        message = f"expected {type_words(want)}, but {self.shown(node)} is {type_words(shape.type)}"
        if want is ExprType.INTEGER and shape.type is ExprType.NUMBER:
            message = f"expected a whole number, but {self.shown(node)} may be fractional"
        self.say("expr-type", message, node, self._type_help(node, shape, want))

    def _type_help(self, node: ExprNode, shape: Shape, want: ExprType) -> str | None:
        text = self.short(node) or "..."
        if want in NUMBERS and shape.type is ExprType.BOOLEAN:
            return f"write 1 if {text} else 0"
        if want is ExprType.BOOLEAN and shape.is_number:
            if shape.constant is None:
                return f"compare it with a number: {text} > 0"
            return f"write step >= {text}" if self.scope.bare_metrics else "write a condition, or 'true' for always"
        if want is ExprType.INTEGER and isinstance(node, nodes.Binary) and node.operator == "/":
            return f"write '//' for whole-number division, or round({text})"
        return f"write round({text})" if want is ExprType.INTEGER and shape.is_number else None

    def require_cost(self, tree: ExprNode) -> None:
        cost = sum(size_of(n) for n in walk_nodes(tree) if isinstance(n, nodes.Call) and is_window(n, self.scope))
        if cost > MAX_COST:
            self.say("expr-bound", f"the windows look back over {cost} values; the limit is {MAX_COST}", tree)

    # --- leaves ---

    def literal(self, node: Literal, _: Narrow) -> Shape:
        if isinstance(node.value, bool):
            return Shape(ExprType.BOOLEAN, constant=node.value)
        if isinstance(node.value, str):
            return Shape(ExprType.TEXT, constant=node.value)
        type_ = ExprType.INTEGER if node.whole else ExprType.NUMBER
        return Shape(type_, (node.value, node.value), constant=node.value)

    def name(self, node: NameNode, narrow: Narrow) -> Shape:
        fact = self.scope.facts.get(node.name)
        if fact is None:
            return self._unknown_name(node)
        if fact.metric and not self.scope.bare_metrics:
            message = f"'{node.name}' is a series; choose a value"
            return self.say("expr-name", message, node, f"write last({node.name}) or mean({node.name}, 10)")
        doubt = None if fact.sure else self.unmeasured(node, node.name)
        return Shape(fact.type, narrow.get(node.name, (fact.low, fact.high)), doubt)

    def unmeasured(self, node: ExprNode, name: str) -> ExprProblem:
        when = "at first" if self.scope.facts[name].metric else "at times"
        return self.doubt(node, f"{self.shown(node)} has no value {when}, but one is always needed here")

    def _unknown_name(self, node: NameNode) -> Shape:
        name = node.name
        elsewhere = [key for key, scope in SCOPES.items() if scope.in_recipes and name in scope.facts]
        if elsewhere and self.scope is CONSTANT:
            return self.say("not-constant", f"'{name}' changes during a run; this value must be constant", node)
        if name in SIGNATURES:
            message = f"'{name}' is a function and needs arguments"
            near = find_nearest(name, self.scope.facts)
            help_text = f"write {SIGNATURES[name]}" + (f", or '{near}'" if near else "")
            return self.say("expr-name", message, node, help_text)
        if elsewhere:
            return self._elsewhere(node, elsewhere)
        if name.lower() in ("true", "false"):
            return self.say("expr-name", f"unknown name '{name}'", node, f"write '{name.lower()}'")
        if self.scope is CONSTANT:
            help_text = "write 0" if name == "greedy" else "write a number, or remove the key for its default"
            return self.say("expr-name", f"expected {type_words(self.want)}, not {quote(name)}", node, help_text)
        from .syntax_errors import suggest_name

        known = list(self.scope.facts)
        help_text = suggest_name(name, known) or f"known here: {', '.join(known)}"
        return self.say("expr-name", f"unknown name {quote(name)}", node, help_text)

    def no_value(self, node: NameNode, want: ExprType | None) -> Shape:
        if want is ExprType.BOOLEAN:
            return self.say("expr-name", f"'{node.name}' is not a condition", node, "write one, such as step >= 100")
        message = f"expected {type_words(want or ExprType.NUMBER)}, not '{node.name}'"
        return self.say("expr-name", message, node, "write one, or remove the key for its default")

    def _elsewhere(self, node: NameNode, scopes: list[str]) -> Shape:
        metric = all(SCOPES[key].facts[node.name].metric for key in scopes)
        known = "is known only after a step, not" if metric else "is not available"
        message = f"'{node.name}' {known} in {self.scope.place}"
        bare = [key for key in scopes if SCOPES[key].bare_metrics or not SCOPES[key].facts[node.name].metric]
        from .syntax_errors import suggest_foreign

        near = suggest_foreign(node.name, list(self.scope.facts))
        use = f"use it in {' or '.join(SCOPES[key].keys[0] for key in bare)}"
        return self.say("expr-name", message, node, f"{near} '{node.name}' can be used in {use[10:]}" if near else use)

    # --- numbers ---

    def number(self, node: ExprNode, narrow: Narrow, wanted_by: str) -> Shape:
        shape = self.shape(node, narrow)
        if shape.type is None or shape.is_number:
            return shape
        text = self.short(node)
        help_text = f"write (1 if {text} else 0)" if text and shape.type is ExprType.BOOLEAN else None
        message = f"'{wanted_by}' takes numbers, but {self.shown(node)} is {type_words(shape.type)}"
        return self.say("expr-type", message, node, help_text)

    def computed(self, node: ExprNode, parts: list[Shape], shape: Shape, compute: Callable[..., float]) -> Shape:
        """The shape of a result: doubts of the parts come first, and what is constant is computed."""
        values = [part.constant for part in parts]
        if any(value is None for value in values):
            return replace(shape, doubt=first_doubt(*parts) or shape.doubt)
        value = compute(*values)
        if value == value:
            return replace(shape, doubt=None, limits=(value, value), constant=value)
        if shape.doubt:
            return self.say("expr-value", f"{self.shown(node)} is undefined", node)
        return self.say("expr-bound", f"{self.shown(node)} is too large for a number", node)

    def unary(self, node: nodes.Unary, narrow: Narrow) -> Shape:
        if node.operator == "not":
            inner = self._condition(node.operand, narrow, "not")
            return replace(inner, constant=not inner.constant if isinstance(inner.constant, bool) else None)
        inner = self.number(node.operand, narrow, node.operator)
        if node.operator == "+" or inner.type is None:
            return inner
        low, high = inner.limits
        return self.computed(node, [inner], Shape(inner.type, (-high, -low)), lambda x: -x)

    def binary(self, node: nodes.Binary, narrow: Narrow) -> Shape:
        left = self.number(node.left, narrow, node.operator)
        right = self.number(node.right, narrow, node.operator)
        if left.type is None or right.type is None:
            return POISON
        if node.operator in _DIVISIONS and right.limits == (0, 0):
            return self.say("expr-value", f"{self.shown(node)} divides by zero", node)
        limits = drop_overflow(LIMITS[node.operator](left.limits, right.limits))
        shape = Shape(binary_type(node.operator, left, right), limits, self._operator_doubt(node, left, right))
        return self.computed(node, [left, right], shape, OPERATORS[node.operator])

    def _operator_doubt(self, node: nodes.Binary, left: Shape, right: Shape) -> ExprProblem | None:
        low, high = right.limits
        if node.operator in _DIVISIONS and low <= 0 <= high:
            divisor = self.short(node.right)
            counts = divisor and right.type is ExprType.INTEGER and low == 0
            message = f"{self.shown(node)} is undefined when {self.shown(node.right)} is 0"
            return self.doubt(node, message, f"divide by max({divisor}, 1), or " if counts else None)
        if node.operator == "**" and not power_is_safe(left, right):
            return self.doubt(node, f"{self.shown(node)} is undefined for some values of {self.shown(node.left)}")
        return None

    # --- conditions ---

    def _condition(self, node: ExprNode, narrow: Narrow, wanted_by: str) -> Shape:
        shape = self.shape(node, narrow)
        if shape.type in (None, ExprType.BOOLEAN):
            return shape
        text = self.short(node)
        help_text = f"compare it with a number: {text} > 0" if text and shape.is_number else None
        message = f"'{wanted_by}' needs a condition, but {self.shown(node)} is {type_words(shape.type)}"
        return self.say("expr-type", message, node, help_text)

    def compare(self, node: nodes.Compare, narrow: Narrow) -> Shape:
        shapes = [self.shape(operand, narrow) for operand in node.operands]
        pairs = zip(pairwise(node.operands), node.operators, pairwise(shapes), strict=True)
        right = [self._pair(a, operator, b, *both, narrow) for (a, b), operator, both in pairs]
        constant = _compared_constants(node, shapes) if all(right) else None
        if constant is None and all(right):
            constant = self._decide(node, shapes, narrow)
            if constant is not None and len(node.operators) > 1:
                self._warn_of_constant(node, constant)
        return Shape(ExprType.BOOLEAN, doubt=first_doubt(*shapes), constant=constant)

    def _decide(self, node: nodes.Compare, shapes: list[Shape], narrow: Narrow) -> bool | None:
        """The result of a comparison, by what the comparisons before it say about its names."""
        found: list[bool | None] = []
        for (left, right), operator, (a, b) in zip(
            pairwise(node.operands), node.operators, pairwise(shapes), strict=True
        ):
            names = [side.name if isinstance(side, NameNode) else "" for side in (left, right)]
            limits = [narrow.get(name, shape.limits) for name, shape in zip(names, (a, b), strict=True)]
            known = a.is_number and b.is_number and any(name in narrow for name in names)
            found.append(compare_intervals(operator, limits[0], limits[1]) if known else None)
            narrow = self._narrowed_by(left, operator, right, narrow) if a.is_number and b.is_number else narrow
        return False if False in found else True if all(found) else None

    def _pair(self, left: ExprNode, operator: str, right: ExprNode, a: Shape, b: Shape, narrow: Narrow) -> bool:
        """Whether two neighbours in a comparison can be compared."""
        self._suggest_quotes(left, b)
        self._suggest_quotes(right, a)
        at = Place(left.start, right.end)
        if a.type is None or b.type is None or not self._comparable(left, operator, right, a, b, at):
            return False
        self._require_possible(left, right)
        self._require_possible(right, left)
        if not any(
            isinstance(node, NameNode) and node.name in narrow for side in (left, right) for node in walk_nodes(side)
        ):
            self._warn_if_certain(left, operator, right, a, b)
        return True

    def _suggest_quotes(self, node: ExprNode, other: Shape) -> None:
        """An unknown name compared with a text is most likely a text without its quotes."""
        if other.type is ExprType.TEXT and isinstance(node, NameNode) and node.name not in self.scope.facts:
            place, help_text = (node.start, node.end), f"write '{node.name}' in quotes if it is a text"
            self.problems = [replace(p, help=help_text) if (p.start, p.end) == place else p for p in self.problems]

    def _comparable(
        self, left: ExprNode, operator: str, right: ExprNode, a: Shape, b: Shape, at: ExprNode | Place
    ) -> bool:
        if not a.is_like(b):
            both = f"{kind_words(a.type)} ({self.shown(left)}) with {kind_words(b.type)} ({self.shown(right)})"
            self.say("expr-type", f"cannot compare {both}", at)
            return False
        if not a.is_number and operator not in ("==", "!="):
            message = f"'{operator}' takes numbers, but {self.shown(left)} is {type_words(a.type)}"
            self.say("expr-type", message, at, "compare with '==' or '!='")
            return False
        return True

    def _require_possible(self, name: ExprNode, value: ExprNode) -> None:
        """A text that a name can never equal is a slip."""
        fact = self.scope.facts.get(name.name) if isinstance(name, NameNode) else None
        text = value.value if isinstance(value, Literal) else None
        if fact and fact.values and isinstance(text, str) and text not in fact.values:
            message = f"{self.shown(name)} is never {quote(text)}"
            self.say("expr-name", message, value, did_you_mean(text, fact.values))

    def _warn_if_certain(self, left: ExprNode, operator: str, right: ExprNode, a: Shape, b: Shape) -> None:
        if not a.is_number or (a.constant is not None and b.constant is not None):
            return
        certain = compare_intervals(operator, a.limits, b.limits)
        if certain is None:
            return
        moving, limits = (left, a.limits) if a.constant is None else (right, b.limits)
        self.problems.append(
            ExprProblem(
                code="expr-always",
                message=f"{quote(self.text[left.start : right.end])} is {'always' if certain else 'never'} true",
                start=left.start,
                end=right.end,
                help=f"{self.shown(moving)} is {range_words(limits)}",
                warning=True,
            )
        )

    def _warn_of_constant(self, node: ExprNode, constant: bool) -> None:
        """For an `until` its own rule says so; for what has no names no report is needed."""
        named = any(isinstance(each, NameNode) for each in walk_nodes(node))
        if self.problems or self.scope is SCOPES["until"] or not named:
            return
        message = f"{self.shown(node)} is {'always' if constant else 'never'} true"
        self.problems.append(
            ExprProblem(code="expr-always", message=message, start=node.start, end=node.end, warning=True)
        )

    def member(self, node: nodes.Member, narrow: Narrow) -> Shape:
        item = self.shape(node.item, narrow)
        for value in node.values:
            shape = self.shape(value, narrow)
            if item.type is not None and self._comparable(node.item, "==", value, item, shape, value):
                self._require_possible(node.item, value)
        return Shape(ExprType.BOOLEAN, doubt=item.doubt)

    def logic(self, node: nodes.Logic, narrow: Narrow) -> Shape:
        shapes = []
        for item in node.items:
            shapes.append(self._condition(item, narrow, node.operator))
            # the next item matters only if this one has not decided
            narrow = self._narrowed(item, node.operator == "and", narrow)
        deciding = node.operator == "or"
        constants = [shape.constant for shape in shapes]
        constant = deciding if deciding in constants else None if None in constants else not deciding
        if constant is not None:
            self._warn_of_constant(node, constant)
        return Shape(ExprType.BOOLEAN, doubt=first_doubt(*shapes), constant=constant)

    def choice(self, node: nodes.Conditional, narrow: Narrow) -> Shape:
        condition = self._condition(node.condition, narrow, "if")
        then = self.shape(node.then, self._narrowed(node.condition, True, narrow))
        otherwise = self.shape(node.otherwise, self._narrowed(node.condition, False, narrow))
        if condition.type is None:
            return POISON
        joined = self.joined(node, then, otherwise, first_doubt(condition, then, otherwise))
        if joined.type is None or condition.constant is None:
            return joined
        return then if condition.constant else otherwise

    def joined(self, node: ExprNode, a: Shape, b: Shape, doubt: ExprProblem | None) -> Shape:
        """The shape of what is one or the other."""
        if a.type is None or b.type is None:
            return POISON
        if not a.is_like(b):
            message = (
                f"both values must have the same type: one is {type_words(a.type)}, the other {type_words(b.type)}"
            )
            return self.say("expr-type", message, node)
        return Shape(a.type if a.type is b.type else ExprType.NUMBER, hull(a.limits, b.limits), doubt)

    def _narrowed(self, node: ExprNode, truth: bool, narrow: Narrow) -> Narrow:
        """Limits of names where a condition is known to be true, or known to be false."""
        if isinstance(node, nodes.Unary) and node.operator == "not":
            return self._narrowed(node.operand, not truth, narrow)
        if isinstance(node, nodes.Logic) and (node.operator == "and") == truth:
            for item in node.items:
                narrow = self._narrowed(item, truth, narrow)
        if isinstance(node, nodes.Compare) and (truth or len(node.operators) == 1):
            for (left, right), operator in zip(pairwise(node.operands), node.operators, strict=True):
                narrow = self._narrowed_by(left, operator if truth else NEGATED[operator], right, narrow)
        return narrow

    def _narrowed_by(self, left: ExprNode, operator: str, right: ExprNode, narrow: Narrow) -> Narrow:
        for name, sign, other in ((left, operator, right), (right, _MIRRORED[operator], left)):
            fact = self.scope.facts.get(name.name) if isinstance(name, NameNode) else None
            if fact is not None and isinstance(name, NameNode) and fact.type in NUMBERS:
                before = narrow.get(name.name, (fact.low, fact.high))
                whole = fact.type is ExprType.INTEGER
                narrow = {**narrow, name.name: narrow_interval(sign, before, self._limits[id(other)], whole)}
        return narrow


_SHAPES: Mapping[type, Callable[[Checker, Any, Narrow], Shape]] = {
    Literal: Checker.literal,
    NameNode: Checker.name,
    nodes.Unary: Checker.unary,
    nodes.Binary: Checker.binary,
    nodes.Compare: Checker.compare,
    nodes.Member: Checker.member,
    nodes.Logic: Checker.logic,
    nodes.Conditional: Checker.choice,
    nodes.Call: check_call,
}

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def _compared_constants(node: nodes.Compare, shapes: list[Shape]) -> bool | None:
    values: list[Value] = [shape.constant for shape in shapes if shape.constant is not None]
    if len(values) < len(shapes):
        return None
    return all(COMPARISONS[operator](a, b) for operator, (a, b) in zip(node.operators, pairwise(values), strict=True))
