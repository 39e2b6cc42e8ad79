"""Random expressions: nothing but a value or a diagnostic comes out, and what was proven before a run holds in it."""

from __future__ import annotations

import math
import re
from functools import cache
from itertools import pairwise

import lark
from agym.dsl.diagnostics import Severity
from agym.dsl.expression.check import infer
from agym.dsl.expression.expr import (
    Expr,
    ExprType,
    MappingFacts,
    StageStart,
    bound_steps,
    check_expression,
    infer_range,
    tabulate,
)
from agym.dsl.expression.functions import SIGNATURES
from agym.dsl.expression.grammar import GRAMMAR
from agym.dsl.expression.nodes import ExprProblem
from agym.dsl.expression.parse import MAX_DEPTH, parse_expression
from agym.dsl.expression.scopes import SCOPES, Fact
from agym.dsl.source import Source, Text
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

QUICK = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))

WORDS = st.sampled_from(
    [
        *("1", "0", "2.5", "1e-6", "100", "'a'", '"done"', "true", "false", "step", "success", "turns", "stage"),
        *("score", "min", "mean", "linear", "steps", "default", "clip", "log", "rises_for", "nonsense"),
        *("+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "if", "else"),
        *("in", "(", ")", "(", ")", ",", "=", "&&", "!", "''", "1_0", "10k", "[", "≥", "\n", "."),
    ]
)
SPACED, GLUED = st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS, max_size=9).map("".join)
TEXTS = st.one_of(st.text(max_size=60), SPACED, GLUED)
PLACES = st.tuples(st.sampled_from(sorted(SCOPES)), st.sampled_from(ExprType))


def text_of(expression: str) -> Text:
    return Text.exact(Source("recipe.yaml", f">{expression}<").span(1, len(expression) + 1))


@QUICK
@given(TEXTS, PLACES)
def test_any_text_ends_in_diagnostics_inside_it_or_in_a_value(text: str, place: tuple[str, ExprType]) -> None:
    scope, want = place
    found = check_expression(text_of(text), scope, want)
    for diagnostic in found:
        assert 1 <= diagnostic.span.start <= diagnostic.span.end <= len(text) + 1
        assert diagnostic.message
    if all(diagnostic.severity is Severity.WARNING for diagnostic in found):
        Expr(text).evaluate(MappingFacts(scope))


# --- well-formed expressions, for the properties of valid ones -----------------------------------------------------

LITERALS = st.one_of(st.integers(0, 50).map(str), st.sampled_from(["0.5", "1e-3", "2.5", "100", "0.0"]))
LEAVES = (
    "{literal}",
    "{name}",
    "default({window}(success, {size}), {literal})",
    "default({window}(kl, {size}), {literal})",
    "default(min(turns, {size}), {literal})",
    "linear({literal}, {literal}, {size})",
    "cosine({literal}, {literal}, 7, {name})",
    "steps({literal}, {size}, {literal}, 9, 7)",
    "ramp({literal}, {literal}, 3, 9, {name} - 2)",
)
BRANCHES = (
    "({number} {operator} {number})",
    "-{number}",
    "{function}({number})",
    "min({number}, {number}, {number})",
    "max({number}, {number})",
    "default({number}, {number})",
    "clip({number}, {number}, {number})",
    "({number} if {condition} else {number})",
)
CONDITIONAL = (
    "{number} {comparison} {number}",
    "0 < step <= {number}",
    "rises_for(success, {size})",
    "stage == 'b'",
    "({condition} and {condition})",
    "({condition} or {condition})",
    "not ({condition})",
)
WORD = {
    "literal": LITERALS,
    "name": st.sampled_from(["step", "total_step", "stage_index"]),
    "size": st.integers(2, 5).map(str),
    "window": st.sampled_from(["mean", "std", "min", "max", "slope", "last"]),
    "operator": st.sampled_from(["+", "-", "*", "/", "//", "%", "**"]),
    "comparison": st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    "function": st.sampled_from(["abs", "floor", "ceil", "round", "sqrt", "exp", "log"]),
}


@st.composite
def numbers(draw: st.DrawFn, depth: int = 3) -> str:
    return filled(draw, draw(st.sampled_from(LEAVES + BRANCHES if depth else LEAVES)), depth)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> str:
    return filled(draw, draw(st.sampled_from(CONDITIONAL if depth else CONDITIONAL[:4])), depth)


def filled(draw: st.DrawFn, template: str, depth: int) -> str:
    """The template with every hole filled, by something smaller where that can have holes itself."""
    smaller = {"number": numbers(max(depth - 1, 0)), "condition": conditions(max(depth - 1, 0))}
    return re.sub(r"{(\w+)}", lambda hole: draw({**WORD, **smaller}[hole[1]]), template)


def _value(fact: Fact) -> st.SearchStrategy[float | str]:
    if fact.type is ExprType.TEXT:
        return st.sampled_from(["a", "b"])
    low, high = max(fact.low, -50), min(fact.high, 50)
    if fact.type is ExprType.INTEGER:
        return st.integers(int(low), int(high)).map(float)
    return st.floats(low, high, allow_subnormal=False)


@st.composite
def facts(draw: st.DrawFn, scope: str) -> MappingFacts:
    named = SCOPES[scope].facts
    values = {name: draw(_value(fact)) for name, fact in named.items() if not fact.metric}
    metrics = ("success", "kl", "turns")
    histories = {name: draw(st.lists(_value(named[name]), max_size=6)) for name in metrics}
    return MappingFacts(scope, values, histories)


def _is_right(text: str, scope: str, want: ExprType) -> bool:
    return all(d.severity is Severity.WARNING for d in check_expression(text_of(text), scope, want))


@cache
def parser_of_lark() -> lark.Lark:
    return lark.Lark(GRAMMAR.read_text(encoding="utf-8"), parser="lalr", lexer="basic")


@QUICK
@given(st.one_of(TEXTS, numbers(), conditions()))
def test_our_parser_accepts_what_lark_accepts(text: str) -> None:
    ours = parse_expression(text)
    assume(not (isinstance(ours, ExprProblem) and ours.code == "expr-bound"))
    try:
        parser_of_lark().parse(text)
    except lark.exceptions.UnexpectedInput:
        assert isinstance(ours, ExprProblem)
    else:
        assert not isinstance(ours, ExprProblem), ours.message


@QUICK
@given(numbers(), facts("schedule"))
def test_a_right_number_is_known_inside_its_limits_and_of_its_type(text: str, known: MappingFacts) -> None:
    assume(_is_right(text, "schedule", ExprType.NUMBER))
    value = Expr(text).number(known)
    if value is None:
        assert any(sign in text for sign in ("exp(", "**", "*")), "only what grows too large may have no value"
        return
    low, high = infer_range(Expr(text), "schedule")
    slack = 1e-9 * max(1.0, abs(value))
    assert low - slack <= value <= high + slack
    if infer(text, "schedule", None)[0].type is ExprType.INTEGER:
        assert value.is_integer()


@QUICK
@given(conditions(), facts("until"))
def test_a_warning_that_a_comparison_is_always_or_never_true_is_right(text: str, known: MappingFacts) -> None:
    assume(_is_right(text, "until", ExprType.BOOLEAN))
    for warning in check_expression(text_of(text), "until", ExprType.BOOLEAN):
        value = Expr(warning.span.text).evaluate(known)
        assert value is None or value is ("always" in warning.message)


@QUICK
@given(conditions(), facts("until"), st.integers(0, 50))
def test_a_condition_is_true_at_its_bound_whatever_the_metrics_are(text: str, known: MappingFacts, start: int) -> None:
    assume(_is_right(text, "until", ExprType.BOOLEAN))
    bound = bound_steps(Expr(text), StageStart(stage="b", stage_index=1, total_step=start))
    assume(bound is not None and bound < 2**40)
    assert bound is not None
    clock = {"stage": "b", "stage_index": 1.0, "step": float(bound), "total_step": float(start + bound)}
    assert Expr(text).holds(MappingFacts("until", {**known.values, **clock}, known.histories))


@QUICK
@given(numbers(), st.integers(0, 50))
def test_a_table_says_what_evaluation_says(text: str, start: int) -> None:
    assume(_is_right(text, "schedule", ExprType.NUMBER))
    rows = tabulate(Expr(text), 30, StageStart(stage="b", stage_index=1, total_step=start))
    assume(rows is not None)
    assert rows is not None
    assert all(a[0] < b[0] for a, b in pairwise(rows))
    for step in range(30):
        clock = {"stage": "b", "stage_index": 1.0, "step": float(step), "total_step": float(start + step)}
        expected = Expr(text).number(MappingFacts("schedule", clock))
        listed = [value for at, value in rows if at <= step][-1]
        assert listed == expected or (expected is None and isinstance(listed, float) and math.isnan(listed))


@QUICK
@given(st.integers(0, 3 * MAX_DEPTH), st.sampled_from(["(", "-", "not ", "abs(", "1 + ", "2 ** ", "1 if true else "]))
def test_nesting_ends_in_a_value_or_a_diagnostic(depth: int, opener: str) -> None:
    text = opener * depth + "1" + ")" * (depth if opener.endswith("(") else 0)
    check_expression(text_of(text), "schedule", ExprType.NUMBER)


@QUICK
@given(st.sampled_from(sorted(SIGNATURES)), st.data())
def test_a_misspelt_function_gets_a_suggestion(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 1))
    slip = name[:at] + name[at + 1 :]
    assume(len(name) > 3 and slip not in SIGNATURES and slip not in SCOPES["until"].facts)
    (first, *_) = [
        d for d in check_expression(text_of(f"{slip}(1)"), "until", ExprType.NUMBER) if d.code == "expr-call"
    ]
    assert "did you mean" in (first.help or "")
