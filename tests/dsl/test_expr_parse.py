"""From text to a tree, and every way in which a text is not an expression."""

from __future__ import annotations

import sys
from subprocess import run

import pytest
from agym.dsl.diagnostics import Diagnostic
from agym.dsl.expression.evaluate import make_reader
from agym.dsl.expression.expr import ExprType, MappingFacts, check_expression
from agym.dsl.expression.grammar import GRAMMAR, TABLES, write_tables
from agym.dsl.expression.nodes import ExprProblem, NameNode
from agym.dsl.expression.parse import MAX_DEPTH, MAX_LENGTH, MAX_TOKENS, parse_expression
from agym.dsl.expression.scopes import SCOPES
from agym.dsl.source import Piece, Source, Text

NOTHING_KNOWN = MappingFacts("until")


def value_of(text: str) -> object:
    tree = parse_expression(text)
    assert not isinstance(tree, ExprProblem), tree
    return make_reader(tree, SCOPES["until"])(NOTHING_KNOWN)


def problem_of(text: str) -> tuple[str, str, str, str | None]:
    """Code, the text that is pointed at, message, help."""
    problem = parse_expression(text)
    assert isinstance(problem, ExprProblem), f"{text!r} was accepted"
    return problem.code, text[problem.start : problem.end], problem.message, problem.help


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("7 // 2 + 7 % 4", 6),
        ("-7 // 2", -4),
        ("1e-6 * 2.5e6", 2.5),
        (".5 + 1.", 1.5),
        ("1 if 2 > 1 else 3 if 4 > 3 else 5", 1),
        ("1 if 2 < 1 else 3 if 4 < 3 else 5", 5),
        ("true or false and false", True),
        ("not true or true", True),
        ("not (true or true)", False),
        ("not 1 > 2", True),
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("3 > 2 > 1 == 1", True),
        ("'a' in ('a', 'b')", True),
        ("'a' not in ('a', 'b')", False),
        ("-1 in (2, -1)", True),
        ("\"it's\" == 'its'", False),
        ("- - 3", 3),
        ("min(\n  3,\n  2\n)", 2),
    ],
)
def test_operators_bind_as_in_python(text: str, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize("word", ["android", "notation", "orbit", "ifs", "in_", "trueish", "_x1"])
def test_a_name_may_begin_with_a_keyword(word: str) -> None:
    assert parse_expression(word) == NameNode(0, len(word), word)


@pytest.mark.parametrize(
    ("text", "at", "says", "helps"),
    [
        ("step = 100", "=", "not an operator", "'=='"),
        ("step => 100", "=>", "not an operator", "'>='"),
        ("step =< 100", "=<", "not an operator", "'<='"),
        ("step <> 100", "<>", "not an operator", "'!='"),
        ("a && b", "&&", "not an operator", "'and'"),
        ("a || b", "||", "not an operator", "'or'"),
        ("a and !b", "!", "not an operator", "'not'"),
        ("a ^ 2", "^", "not an operator", "'**'"),
        ("a ≥ 2", "≥", "not an operator", "'>='"),
        ("a − 2", "−", "minus", "'-'"),
        ("a > 1; b > 2", ";", "single value", "'and'"),
        ("a ? b : c", "?", "unexpected", "if condition else"),
        ("a in ['x']", "[", "unexpected", "parentheses"),
        ("x.y", ".", "cannot contain dots", None),
        ("a\u00a0+ b", "\u00a0", "invisible", "plain space"),
        ("a \x07 b", "\x07", "U+0007", None),
        ("stage == “x”", "“", "typographic quotes", '"text"'),
        ("stage == 'x", "'", "never closed", "close it"),
        ("a AND b", "AND", "not a keyword", "'and'"),
        ("NOT a", "NOT", "not a keyword", "'not'"),
        ("a is b", "is", "not a keyword", "'=='"),
        ("step >= 100and a", "100and", "not a number", "space between 100 and 'and'"),
        ("1_000", "1_000", "not a number", "write 1000"),
        ("007", "007", "not a number", "write 7"),
        ("10k", "10k", "not a number", "write 10000"),
        ("1.5M", "1.5M", "not a number", "write 1500000"),
        ("3x", "3x", "not a number", "3 * x"),
        ("1.2.3", "1.2.3", "not a number", None),
        ("1e", "1e", "not a number", None),
        ("(a + b", "(", "never closed", "')'"),
        ("(a + (b)", "(", "never closed", "')'"),
        ("1 + min(success", "(", "never closed", "quote the whole expression"),
        ("a)", ")", "unmatched", None),
        ("min(a, b))", ")", "unmatched", None),
        ("a + ", "+", "expected a value after '+'", None),
        ("a and", "and", "expected a value after 'and'", None),
        ("80 %", "80 %", "expected a value", "0.8"),
        ("success >= 80%", "%", "expected a value", "0.8"),
        ("min(success,", ",", "expected a value after ','", None),
        (">= 3", ">=", "expected a value, not '>='", None),
        ("a + * b", "*", "expected a value after '+', not '*'", None),
        ("min(a,, b)", ",", "expected a value", None),
        ("()", ")", "expected a value", None),
        ("a b", "b", "expected an operator between 'a' and 'b'", None),
        ("2 (a)", "(", "expected an operator", "'*'"),
        ("a, b", ",", "function arguments", None),
        ("(a, b)", ",", "function arguments", None),
        ("a if b", "if", "'else'", "if condition else"),
        ("(a if b)", ")", "expected 'else'", "if condition else"),
        ("a == not b", "not", "parentheses", "(not ...)"),
        ("a in b", "b", "expected '('", "in ('a', 'b')"),
        ("a in (b)", "b", "literal value", None),
        ("a not b", "b", "expected 'in' after 'not'", "'and not'"),
        ("a in", "in", "expected a value", None),
        ("", "", "expected an expression", None),
        ("  \n", "  \n", "expected an expression", None),
    ],
)
def test_a_text_of_wrong_form_is_explained_where_it_goes_wrong(
    text: str, at: str, says: str, helps: str | None
) -> None:
    code, pointed, message, help_text = problem_of(text)
    assert (code, pointed) == ("expr-syntax", at)
    assert says in message
    assert helps is None or (help_text is not None and helps in help_text)


def test_the_innermost_open_parenthesis_is_the_one_pointed_at() -> None:
    problem = parse_expression("(1 + (2 + (3 + 4)")
    assert isinstance(problem, ExprProblem)
    assert problem.start == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1" + "0" * MAX_LENGTH, f"the limit is {MAX_LENGTH}"),
        ("(" * 10_000 + "1" + ")" * 10_000, f"the limit is {MAX_LENGTH}"),
        ("(" * 900 + "1" + ")" * 900, f"{MAX_TOKENS} words"),
        ("1" + " + 1" * (MAX_DEPTH + 1), f"deeper than {MAX_DEPTH}"),
        ("-" * (MAX_DEPTH + 1) + "1", f"deeper than {MAX_DEPTH}"),
        ("1e400", "too large"),
        ("9007199254740993", "2**53"),
    ],
)
def test_length_depth_and_numbers_are_bounded(text: str, says: str) -> None:
    code, _, message, _ = problem_of(text)
    assert code == "expr-bound"
    assert says in message


def test_expressions_up_to_the_bounds_are_read() -> None:
    assert value_of("(" * 299 + "1" + ")" * 299) == 1
    assert value_of("1" + " + 1" * (MAX_DEPTH - 2)) == MAX_DEPTH - 1
    assert value_of(" and ".join(["true"] * 200)) is True


def test_the_tables_are_those_of_the_grammar() -> None:
    written = TABLES.read_text(encoding="utf-8")
    assert write_tables(GRAMMAR.read_text(encoding="utf-8")) == written, "run python -m agym.dsl.expression.grammar"


def test_neither_lark_nor_the_explanations_are_loaded_for_a_right_expression() -> None:
    code = (
        "import sys; from agym.dsl.expression.expr import *; from agym.dsl.source import *\n"
        "text = Text.exact(Source('r', 'step >= 100').span(0, 11))\n"
        "assert not check_expression(text, 'until', ExprType.BOOLEAN)\n"
        "print([m for m in sys.modules if m == 'lark' or m.endswith('expr_mistakes') or m == 'difflib'])"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def found(text: Text) -> Diagnostic:
    (diagnostic,) = check_expression(text, "until", ExprType.BOOLEAN)
    return diagnostic


def test_the_column_is_that_of_the_file_for_a_quoted_value() -> None:
    source = Source("recipe.yaml", "schedule:\n  - until: 'stpe >= 100'\n")
    start = source.text.index("stpe")
    diagnostic = found(Text.exact(source.span(start, start + len("stpe >= 100"))))
    assert str(diagnostic.span) == "recipe.yaml:2:13"
    assert diagnostic.span.text == "stpe"


def test_the_column_is_right_behind_an_escape_and_on_the_second_line_of_a_block() -> None:
    source = Source("recipe.yaml", "until: |\n  step >= 100\n  or sucess > 1\n")
    first, second = source.text.index("step"), source.text.index("or suc")
    pieces = (
        Piece(len("step >= 100\n"), source.span(first, first + 12), True),
        Piece(len("or sucess > 1\n"), source.span(second, second + 14), True),
    )
    diagnostic = found(Text("step >= 100\nor sucess > 1\n", pieces))
    assert str(diagnostic.span) == "recipe.yaml:3:6"
    assert diagnostic.span.text == "sucess"
