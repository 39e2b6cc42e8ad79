"""Expressions of the language about recorded episodes, as conditions of SQL: `success == false and turns > 5`.

What is not known is NULL, which SQL's logic treats as the language does. A text stands for its number in `names`; one
that no episode has is -1.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from math import isnan
from typing import Any

from ..dsl.diagnostics import Diagnostic
from ..dsl.expression import nodes
from ..dsl.expression.expr import check_expression
from ..dsl.expression.functions import OPERATORS, PLAIN
from ..dsl.expression.nodes import ExprNode
from ..dsl.expression.parse import parse_checked
from ..dsl.expression.scopes import ExprType
from ..dsl.source import Source, Span, Text

__all__ = ["WhereError", "add_functions", "where_to_sql"]

_SCOPE = "recorded"
_COLUMNS: Mapping[str, str] = {
    "total_step": "step",
    "index": "place",
    "done": "(ending = (SELECT number FROM names WHERE name = 'done'))",
    "truncated": "(ending IN (SELECT number FROM names WHERE name IN ('horizon', 'budget')))",
}
"""Facts that are not a column of the same name."""
_TEXT = "coalesce((SELECT number FROM names WHERE name = ?), -1)"


class WhereError(ValueError):
    """An expression that does not define which episodes are meant; its message names the place."""

    def __init__(self, problem: str, start: int) -> None:
        super().__init__(f"--where, character {start + 1}: {problem}")
        self.problem = problem
        self.start = start


def where_to_sql(text: str) -> tuple[str, list[Any]]:
    """Turn an expression into a condition and its parameters; WhereError where it is wrong."""
    whole = Span(Source("--where", text), 0, len(text))
    found = check_expression(Text.exact(whole), _SCOPE, ExprType.BOOLEAN)
    if errors := [each for each in found if each.severity.value == "error"]:
        raise WhereError(_explain(errors[0]), errors[0].span.start)
    return _to_sql(parse_checked(text))


def add_functions(database: sqlite3.Connection) -> None:
    """Give a database the functions and operators of the language that SQL has no equal of."""
    for operator, name in _OPERATOR_NAMES.items():
        database.create_function(name, 2, _with_null(OPERATORS[operator]), deterministic=True)
    for name, function in PLAIN.items():
        database.create_function(f"agym_{name}", -1, _with_null(function.compute), deterministic=True)


_OPERATOR_NAMES = {"//": "agym_floor_divide", "%": "agym_remainder", "**": "agym_power"}


def _with_null(compute: Callable[..., float]) -> Callable[..., float | None]:
    def function(*values: float | None) -> float | None:
        if any(value is None for value in values):
            return None
        result = compute(*(float(value) for value in values if value is not None))
        return None if isnan(result) else result

    return function


def _explain(error: Diagnostic) -> str:
    help_ = f"; {error.help}" if error.help else ""
    return f"{error.message}{help_}"


# --- nodes ---------------------------------------------------------------------------------------------------------

Sql = tuple[str, list[Any]]


def _to_sql(node: ExprNode) -> Sql:
    return _WRITERS[type(node)](node)


def _join(template: str, *parts: ExprNode) -> Sql:
    """Fill a template with the SQL of nodes, and gather their parameters in order."""
    written = [_to_sql(part) for part in parts]
    return template.format(*(sql for sql, _ in written)), [value for _, values in written for value in values]


def _literal(node: nodes.Literal) -> Sql:
    if isinstance(node.value, str):
        return _TEXT, [node.value]
    return "?", [node.value]


def _name(node: nodes.NameNode) -> Sql:
    return _COLUMNS.get(node.name, node.name), []


def _unary(node: nodes.Unary) -> Sql:
    return _join("(NOT {})" if node.operator == "not" else f"({node.operator} {{}})", node.operand)


def _binary(node: nodes.Binary) -> Sql:
    name = _OPERATOR_NAMES.get(node.operator)
    if node.operator == "/":  # in SQL integer division differs
        return _join("({} * 1.0 / {})", node.left, node.right)
    return _join(f"{name}({{}}, {{}})" if name else f"({{}} {node.operator} {{}})", node.left, node.right)


def _compare(node: nodes.Compare) -> Sql:
    pairs = zip(node.operators, node.operands, node.operands[1:], strict=False)
    parts = [_join(f"({{}} {operator} {{}})", left, right) for operator, left, right in pairs]
    return _all("AND", parts)


def _member(node: nodes.Member) -> Sql:
    slots = ", ".join("{}" for _ in node.values)
    words = "NOT IN" if node.negated else "IN"
    sql, values = _join(slots, *node.values)
    item, before = _to_sql(node.item)
    return f"({item} {words} ({sql}))", before + values


def _logic(node: nodes.Logic) -> Sql:
    return _all(node.operator.upper(), [_to_sql(item) for item in node.items])


def _all(operator: str, parts: list[Sql]) -> Sql:
    return f"({f' {operator} '.join(sql for sql, _ in parts)})", [value for _, values in parts for value in values]


def _conditional(node: nodes.Conditional) -> Sql:
    then, condition, otherwise = _to_sql(node.then), _to_sql(node.condition), _to_sql(node.otherwise)
    sql = f"(CASE WHEN {condition[0]} THEN {then[0]} WHEN NOT {condition[0]} THEN {otherwise[0]} END)"
    return sql, [*condition[1], *then[1], *condition[1], *otherwise[1]]


def _call(node: nodes.Call) -> Sql:
    if node.function == "default":
        return _join("coalesce({}, {})", *node.arguments)
    if node.function not in PLAIN:
        raise WhereError(f"'{node.function}' is a function of the schedule", node.start)
    slots = ", ".join("{}" for _ in node.arguments)
    return _join(f"agym_{node.function}({slots})", *node.arguments)


_WRITERS: Mapping[type, Callable[[Any], Sql]] = {
    nodes.Literal: _literal,
    nodes.NameNode: _name,
    nodes.Unary: _unary,
    nodes.Binary: _binary,
    nodes.Compare: _compare,
    nodes.Member: _member,
    nodes.Logic: _logic,
    nodes.Conditional: _conditional,
    nodes.Call: _call,
}
