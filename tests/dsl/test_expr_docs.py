"""docs/expressions.md says what the language does: every name, every function, every bound, and its own examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from agym.dsl.expression.check import MAX_COST
from agym.dsl.expression.expr import Expr, ExprType, MappingFacts, check_expression
from agym.dsl.expression.functions import DEFAULT, MAX_WINDOW, PLAIN, SCHEDULES, WINDOWS
from agym.dsl.expression.parse import MAX_DEPTH, MAX_LENGTH, MAX_TOKENS
from agym.dsl.expression.scopes import SCOPES
from agym.dsl.source import Source, Text

GUIDE = (Path(__file__).parents[2] / "docs" / "expressions.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (In .*)\n([^#]*)", GUIDE, re.MULTILINE))


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize(("scope", "section"), list(zip(SCOPES, SECTIONS, strict=True)))
def test_the_table_of_a_scope_has_exactly_its_names(scope: str, section: str) -> None:
    facts = SCOPES[scope].facts
    assert rows(SECTIONS[section]) == [f"| `{name}` | {fact.type} | {fact.doc} |" for name, fact in facts.items()]
    assert all(f"`{key}`" in section for key in SCOPES[scope].keys)


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Functions of numbers", [*((f.signature, f.doc) for f in PLAIN.values()), (DEFAULT, None)]),
        ("Schedules", [(f.signature, f.doc) for f in SCHEDULES.values()]),
        ("Windows", [(f.signature, f.doc) for f in WINDOWS.values()]),
    ],
)
def test_the_tables_of_functions_are_complete(heading: str, expected: list[tuple[str, str | None]]) -> None:
    section = GUIDE.split(f"## {heading}\n")[1].split("\n## ")[0]
    assert len(rows(section)) == len(expected)
    for row, (signature, doc) in zip(rows(section), expected, strict=True):
        assert row.startswith(f"| `{signature}` | {doc or ''}")


def test_the_bounds_are_those_of_the_code() -> None:
    bounds = GUIDE.split("## Bounds\n")[1]
    numbers = [int(number) for number in re.findall(r"[0-9]+", bounds)]
    assert numbers == [MAX_LENGTH, MAX_TOKENS, MAX_DEPTH, MAX_COST]
    assert f"up to {MAX_WINDOW}" in GUIDE


@pytest.mark.parametrize(
    ("expression", "scope", "want"),
    [
        ("step >= 100 or mean(success, 10) >= 0.8", "until", ExprType.BOOLEAN),
        ("min(20 + 5 * (step // 20), 30)", "schedule", ExprType.INTEGER),
        ("cosine(1e-6, 1e-7, 300)", "schedule", ExprType.NUMBER),
        ("std > 0", "group", ExprType.BOOLEAN),
        ("invalid_turns < 3", "episode", ExprType.BOOLEAN),
        ("score - 0.05 * invalid_turns", "episode", ExprType.NUMBER),
        ("round(linear(10, 30, 100))", "schedule", ExprType.INTEGER),
        ("default(mean(success, 10), 0)", "schedule", ExprType.NUMBER),
        ("score / max(turns, 1)", "episode", ExprType.NUMBER),
        ("score / turns if turns > 0 else 0", "episode", ExprType.NUMBER),
    ],
)
def test_its_examples_are_right(expression: str, scope: str, want: ExprType) -> None:
    assert expression in GUIDE
    assert check_expression(Text.exact(Source("guide", expression).span(0, len(expression))), scope, want) == ()


def test_what_it_says_of_precedence_is_so() -> None:
    assert "`-2 ** 2` is -4" in GUIDE
    assert Expr("-2 ** 2").evaluate(MappingFacts("until")) == -4
