"""What an expression may be where: types, names, calls, and numbers that may be unknown."""

from __future__ import annotations

import pytest
from agym.dsl.codes import CODES
from agym.dsl.diagnostics import Diagnostic, Severity
from agym.dsl.expression.check import infer
from agym.dsl.expression.expr import (
    Expr,
    ExprType,
    check_expression,
    collect_names,
    evaluate_constant,
    infer_range,
)
from agym.dsl.expression.functions import SIGNATURES
from agym.dsl.expression.scopes import SCOPES
from agym.dsl.source import Source, Text

NUMBER, INTEGER, BOOLEAN, TEXT = ExprType.NUMBER, ExprType.INTEGER, ExprType.BOOLEAN, ExprType.TEXT


def text_of(expression: str) -> Text:
    return Text.exact(Source("recipe.yaml", expression).span(0, len(expression)))


def checked(expression: str, scope: str, want: ExprType) -> tuple[Diagnostic, ...]:
    return check_expression(text_of(expression), scope, want)


@pytest.mark.parametrize(
    ("scope", "want", "expression"),
    [
        ("schedule", INTEGER, "min(10 + 10 * (total_step // 100), 30)"),
        ("schedule", INTEGER, "20 / 2"),
        ("schedule", INTEGER, "10.0"),
        ("schedule", INTEGER, "7.5 // 2"),
        ("schedule", INTEGER, "round(linear(10, 30, 100))"),
        ("schedule", INTEGER, "steps(10, 100, 20, 200, 30)"),
        ("schedule", INTEGER, "steps(10, 100, 20, 200, 30, total_step)"),
        ("schedule", INTEGER, "10 if stage == 'a' else 20"),
        ("schedule", INTEGER, "2 ** step"),
        ("schedule", NUMBER, "cosine(1e-6, 1e-7, 300)"),
        ("schedule", NUMBER, "linear(1e-6, 0, 280, step - 20)"),
        ("schedule", NUMBER, "ramp(0, 1e-3, 10, 50, total_step)"),
        ("schedule", NUMBER, "default(mean(success, 10), 0)"),
        ("schedule", NUMBER, "100 / step if step > 0 else 0"),
        ("schedule", NUMBER, "100 / step if not step <= 0 else 0"),
        ("schedule", NUMBER, "1 if step == 0 else 1 / step"),
        ("schedule", NUMBER, "sqrt(step) + log(step + 1) + (step + 1) ** -0.5"),
        ("until", BOOLEAN, "step >= 100 or mean(success, 10) >= 0.8"),
        ("until", BOOLEAN, "rises_for(success, 5) and not falls_for(reward, 3)"),
        ("until", BOOLEAN, "0.2 < success < 0.8"),
        ("until", BOOLEAN, "min(success, 10) > max(0.1, 0.2)"),
        ("until", BOOLEAN, "last(eval_success, 2) <= last(eval_success)"),
        ("until", BOOLEAN, "episodes >= 10000 and sampled_tokens > 1e6"),
        ("episode", NUMBER, "score - 0.05 * invalid_turns"),
        ("episode", NUMBER, "score / turns if turns != 0 else 0"),
        ("episode", NUMBER, "(1 if success else 0) + default(difficulty, 1)"),
        ("episode", NUMBER, "1 if turns > 0 and score / turns > 0.1 else 0"),
        ("episode", NUMBER, "0 if turns == 0 or score / turns > 0.1 else 1"),
        ("episode", NUMBER, "1 - turns / horizon"),
        ("episode", BOOLEAN, "success == true and ending in ('done', 'horizon')"),
        ("turn", NUMBER, "0.1 * turn_reward - (0.2 if turn_invalid else 0)"),
        ("group", BOOLEAN, "std > 0"),
        ("group", BOOLEAN, "max(mean, 0.2) > 0.2 and max - min > 0 and solved < 1"),
    ],
)
def test_a_right_expression_has_nothing_said_against_it(scope: str, want: ExprType, expression: str) -> None:
    assert checked(expression, scope, want) == ()


WRONG = [
    ("expr-type", "schedule", INTEGER, "«10 / 3»", "'//'"),
    ("expr-type", "schedule", INTEGER, "«linear(10, 30, 100)»", "round(linear(10, 30, 100))"),
    ("expr-type", "schedule", INTEGER, "«steps(10, 100, 20.5)»", "round("),
    ("expr-type", "schedule", INTEGER, "«step >= 3»", "1 if step >= 3 else 0"),
    ("expr-type", "schedule", NUMBER, "«'fast'»", None),
    ("expr-type", "schedule", NUMBER, "1 if «step» else 2", "step > 0"),
    ("expr-type", "schedule", NUMBER, "«1 if step > 3 else 'x'»", None),
    ("expr-type", "schedule", NUMBER, "1 + «true»", "1 if true else 0"),
    ("expr-type", "schedule", NUMBER, "-«stage»", None),
    ("expr-type", "schedule", NUMBER, "abs(«stage»)", None),
    ("expr-type", "until", BOOLEAN, "«100»", "step >= 100"),
    ("expr-type", "until", BOOLEAN, "«success»", "success > 0"),
    ("expr-type", "until", BOOLEAN, "kl > 1 or «entropy»", "entropy > 0"),
    ("expr-type", "until", BOOLEAN, "not «step»", None),
    ("expr-type", "until", BOOLEAN, "«success == true»", None),
    ("expr-type", "until", BOOLEAN, "«true < false»", "'=='"),
    ("expr-type", "until", BOOLEAN, "stage in ('a', «1»)", None),
    ("expr-type", "group", BOOLEAN, "«1»", "'true' for always"),
    ("expr-type", "episode", NUMBER, "«success»", "1 if success else 0"),
    ("expr-type", "episode", NUMBER, "score + «success»", "(1 if success else 0)"),
    ("expr-name", "schedule", NUMBER, "«stpe» / 2", "'step'"),
    ("expr-name", "schedule", NUMBER, "«success»", "last(success)"),
    ("expr-name", "schedule", NUMBER, "«score»", "reward.episode"),
    ("expr-name", "schedule", NUMBER, "«min»", "min(a, b"),
    ("expr-name", "until", BOOLEAN, "«True»", "'true'"),
    ("expr-name", "until", BOOLEAN, "stage == «explore»", "quotes"),
    ("expr-name", "until", BOOLEAN, "«std» > 0", "std(metric, n)"),
    ("expr-name", "episode", NUMBER, "«kl»", "use it in until"),
    ("expr-name", "episode", BOOLEAN, "ending == «'doen'»", "'done'"),
    ("expr-name", "episode", BOOLEAN, "ending in ('done', «'horzion'»)", "'horizon'"),
    ("expr-call", "schedule", NUMBER, "«sqr»(step)", "'sqrt'"),
    ("expr-call", "schedule", NUMBER, "«blend»(step)", "known:"),
    ("expr-call", "schedule", NUMBER, "«step»(3)", "without parentheses"),
    ("expr-call", "schedule", NUMBER, "«clip»(1, 2)", "clip(x, low, high)"),
    ("expr-call", "schedule", NUMBER, "«abs»()", "abs(x)"),
    ("expr-call", "schedule", NUMBER, "«max»(1)", "max(a, b"),
    ("expr-call", "schedule", NUMBER, "clip(step, «2, 1»)", None),
    ("expr-call", "schedule", NUMBER, "«default»(step)", "default(x, instead)"),
    ("expr-call", "schedule", NUMBER, "«linear»(1, 2)", "linear(first"),
    ("expr-call", "schedule", NUMBER, "linear(1, 2, «0»)", None),
    ("expr-call", "schedule", NUMBER, "linear(1, 2, «step»)", None),
    ("expr-call", "schedule", NUMBER, "linear(1, 2, 100, «20»)", "step - 20"),
    ("expr-call", "schedule", NUMBER, "ramp(1, 2, «50, 50»)", None),
    ("expr-call", "schedule", NUMBER, "steps(1, «100, 2, 90», 3)", None),
    ("expr-call", "schedule", NUMBER, "steps(1, 100, 2, «200»)", "count"),
    ("expr-call", "until", BOOLEAN, "mean(«step», 10) > 0", "known: entropy"),
    ("expr-call", "until", BOOLEAN, "mean(«sucess», 10) > 0", "'success'"),
    ("expr-call", "until", BOOLEAN, "mean(«success + 1», 10) > 0", "metrics:"),
    ("expr-call", "until", BOOLEAN, "«mean»(success) > 0", "mean(metric, n)"),
    ("expr-call", "until", BOOLEAN, "«min»(success) > 0", "min(metric, n)"),
    ("expr-call", "until", BOOLEAN, "mean(success, «0») > 0", None),
    ("expr-call", "until", BOOLEAN, "mean(success, «10001») > 0", None),
    ("expr-call", "until", BOOLEAN, "mean(success, «1.5») > 0", None),
    ("expr-call", "until", BOOLEAN, "mean(success, «-3») > 0", None),
    ("expr-call", "until", BOOLEAN, "mean(success, «step») > 0", None),
    ("expr-call", "until", BOOLEAN, "max(reward, «0») > 0", "max(0, reward)"),
    ("expr-call", "until", BOOLEAN, "max(reward, «1») > 0", "max(1, reward)"),
    ("expr-call", "until", BOOLEAN, "slope(success, «1») > 0", None),
    ("expr-call", "group", BOOLEAN, "«mean»(success, 3) > 0", "mean without parentheses"),
    ("expr-bound", "schedule", NUMBER, "«9 ** 9 ** 9»", None),
    ("expr-bound", "schedule", NUMBER, "«exp(1000)»", None),
    ("expr-bound", "until", BOOLEAN, "«" + " + ".join(["mean(success, 9000)"] * 6) + " > 1»", None),
    ("expr-value", "schedule", NUMBER, "1 + «1 / 0»", None),
    ("expr-value", "schedule", NUMBER, "«step % (2 - 2)»", None),
    ("expr-value", "schedule", NUMBER, "«log(-1)»", None),
    ("expr-value", "schedule", NUMBER, "«(-8) ** (1 / 3)»", None),
    ("expr-value", "schedule", NUMBER, "«100 / step»", "max(step, 1)"),
    ("expr-value", "schedule", NUMBER, "«log(step)»", "default(log(step)"),
    ("expr-value", "schedule", NUMBER, "«sqrt(step - 1)»", "default("),
    ("expr-value", "schedule", NUMBER, "«step ** -1»", "default("),
    ("expr-value", "schedule", NUMBER, "2 * «mean(success, 10)»", "default(mean(success, 10)"),
    ("expr-value", "schedule", NUMBER, "1 if «last(success)» > 0.5 else 2", "default("),
    ("expr-value", "schedule", NUMBER, "default(mean(success, 10), «last(success)»)", "default("),
    ("expr-value", "episode", NUMBER, "score * «difficulty»", "default(difficulty"),
    ("expr-value", "episode", NUMBER, "«score / turns» if turns >= 0 else 0", "default("),
    ("expr-value", "episode", NUMBER, "1 if «score / turns» > 1 and turns > 0 else 0", "default("),
]


@pytest.mark.parametrize(("code", "scope", "want", "marked", "helps"), WRONG)
def test_a_mistake_is_reported_alone_with_its_place(
    code: str, scope: str, want: ExprType, marked: str, helps: str | None
) -> None:
    before, at, after = _unmarked(marked)
    found = [d for d in checked(before + at + after, scope, want) if d.severity is Severity.ERROR]
    assert [d.code for d in found] == [code]
    assert (found[0].span.start, found[0].span.text) == (len(before), at)
    assert helps is None or helps in (found[0].help or "")


def _unmarked(marked: str) -> tuple[str, str, str]:
    """What is before, between and after the marks."""
    before, rest = marked.split("«")
    at, after = rest.split("»")
    return before, at, after


def test_every_code_is_listed_and_each_is_shown_here() -> None:
    shown = {code for code, *_ in WRONG} | {"expr-syntax", "expr-always"}
    assert shown == {code for code in CODES if code.startswith("expr-")}


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_text() -> None:
    found = checked("foo(stpe) + 1 / 0 > scor", "until", BOOLEAN)
    # what is in a function that does not exist may be of its language
    assert [d.span.text for d in found] == ["foo", "1 / 0", "scor"]


def test_a_mistake_is_not_reported_again_by_what_is_around_it() -> None:
    assert len(checked("round(stpe * 2 + 1) // 3 if not stpe > 1 else 0", "schedule", INTEGER)) == 2


@pytest.mark.parametrize(
    ("scope", "expression", "says"),
    [
        ("until", "mean(success, 10) >= 80", "never true"),
        ("until", "step >= 100 or success > 1", "never true"),
        ("until", "step >= 0", "always true"),
        ("group", "std < 0", "never true"),
        ("episode", "2 * turns + 1 > 0", "always true"),
        ("until", "1 < success", "never true"),
    ],
)
def test_a_comparison_that_cannot_turn_out_otherwise_is_a_warning(scope: str, expression: str, says: str) -> None:
    (warning,) = checked(expression, scope, BOOLEAN)
    assert (warning.code, warning.severity) == ("expr-always", Severity.WARNING)
    assert says in warning.message


@pytest.mark.parametrize("expression", ["true", "1 < 2", "step >= 1", "turns > 0 and turns > 1 or success >= 1"])
def test_what_is_written_out_or_narrowed_by_another_condition_is_no_warning(expression: str) -> None:
    assert checked(expression, "until", BOOLEAN) == ()


# --- constants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "want", "value"),
    [
        ("2 * 4", INTEGER, 8),
        ("30 / 2", INTEGER, 15),
        ("1e-3 / 2", NUMBER, 5e-4),
        ("1 if 2 > 1 else 3", INTEGER, 1),
        ("clip(7, 1, 5)", INTEGER, 5),
        ("not 1 > 2 and 'a' == 'a'", BOOLEAN, True),
        ("default(4, 5)", INTEGER, 4),
        ("'text'", TEXT, "text"),
    ],
)
def test_an_expression_without_names_is_computed(expression: str, want: ExprType, value: object) -> None:
    result, diagnostics = evaluate_constant(text_of(expression), want)
    assert (result, type(result), diagnostics) == (value, type(value), ())


@pytest.mark.parametrize("expression", ["«step» + 1", "«linear»(1, 2, 3)", "«mean»(success, 3)", "«score»"])
def test_what_changes_during_a_run_is_not_constant(expression: str) -> None:
    before, at, after = _unmarked(expression)
    value, (diagnostic, *_) = evaluate_constant(text_of(before + at + after), INTEGER)
    assert (value, diagnostic.code, diagnostic.span.text) == (None, "not-constant", at)


def test_a_constant_of_the_wrong_type_has_no_value() -> None:
    value, (diagnostic,) = evaluate_constant(text_of("7 / 2"), INTEGER)
    assert (value, diagnostic.code) == (None, "expr-type")


# --- what others ask of an expression ------------------------------------------------------------------------------


def test_names_hold_the_step_that_a_schedule_counts() -> None:
    assert collect_names(Expr("linear(1, 2, 3) + last(success)")) == {"step", "success"}
    assert collect_names(Expr("linear(1, 2, 3, total_step)")) == {"total_step"}


@pytest.mark.parametrize(
    ("expression", "limits"),
    [
        ("clip(step, 10, 30)", (10, 30)),
        ("min(10 + 10 * (total_step // 100), 30)", (10, 30)),
        ("cosine(1e-6, 1e-7, 300)", (1e-7, 1e-6)),
        ("10 - step", (-float("inf"), 10)),
        ("default(mean(success, 10), 0) * 20 + 10", (10, 30)),
        ("3 if step > 5 else -1", (-1, 3)),
        ("abs(5 - clip(step, 0, 20))", (0, 15)),
        ("(step + 1) ** -1", (0, 1)),
        ("step % 7", (0, 7)),
    ],
)
def test_limits_of_a_number_are_known_before_a_run(expression: str, limits: tuple[float, float]) -> None:
    assert infer_range(Expr(expression), "schedule") == limits


def test_the_type_of_an_expression_is_told() -> None:
    assert infer("step // 2", "schedule", None)[0].type is INTEGER
    assert infer("nonsense", "schedule", None)[0].type is None


def test_no_name_is_a_keyword_and_every_fact_is_documented() -> None:
    for scope in SCOPES.values():
        for name, fact in scope.facts.items():
            assert name.isidentifier()
            assert name not in {"and", "or", "not", "if", "else", "in", "true", "false"}
            assert fact.doc
            assert not fact.doc.endswith(".")


def test_only_names_of_groups_are_names_of_functions_too() -> None:
    clashing = {name for scope in SCOPES.values() for name in scope.facts if name in SIGNATURES}
    assert clashing == {"mean", "std", "min", "max"}
    assert clashing <= SCOPES["group"].facts.keys()


@pytest.mark.parametrize("expression", ["a", "1 +", ""])
def test_asking_an_unchecked_expression_is_an_error_of_the_program(expression: str) -> None:
    if expression == "a":
        assert checked(expression, "until", BOOLEAN)
    else:
        with pytest.raises(ValueError, match="not an expression"):
            collect_names(Expr(expression))


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("step >= 100 and step < 50", False),
        ("step < 50 and step >= 100", False),
        ("success > 0.5 and not success > 0.4", False),
        ("100 <= step < 50", False),
        ("step < 100 or step >= 50", True),
        ("step >= 100 and step >= 50", None),
        ("step >= 100 or step >= 200", None),
        ("step >= 100 or success > 0.5 and success < 0.4", None),
        ("step >= 100 and success < 50", None),
    ],
)
def test_conditions_that_shut_each_other_out_or_leave_nothing_over_are_constant(text: str, truth: bool | None) -> None:
    shape, problems = infer(text, "until", ExprType.BOOLEAN)
    assert shape.constant is truth
    if truth is not None:
        assert problems == ()
        found = infer(text.replace("step", "turns").replace("success", "score"), "episode", ExprType.BOOLEAN)[1]
        assert [each.code for each in found if each.warning] == ["expr-always"]
