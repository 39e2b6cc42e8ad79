"""Syntax tree of expressions: frozen nodes, each with its place in the text, parentheses around it included.

An ExprProblem is a mistake by its place in the text; `expr.py` turns it into a Diagnostic by its place in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..frozen import frozen

Value = float | bool | str
"""What an expression gives; a number is always a float, and NaN stands for what is not known."""


class Place(NamedTuple):
    """A part of the text that is not one node's."""

    start: int
    end: int


class Literal(NamedTuple):
    """A value written out."""

    start: int
    end: int
    value: Value
    whole: bool = False
    """A number written without point and exponent."""


class NameNode(NamedTuple):
    """A fact, by name."""

    start: int
    end: int
    name: str


class Unary(NamedTuple):
    """`-x`, `+x`, `not x`."""

    start: int
    end: int
    operator: str
    operand: ExprNode


class Binary(NamedTuple):
    """`a + b` and the like."""

    start: int
    end: int
    operator: str
    left: ExprNode
    right: ExprNode


class Compare(NamedTuple):
    """`a < b`, or a chain `a < b <= c`: `operators[i]` stands between `operands[i]` and `operands[i + 1]`."""

    start: int
    end: int
    operators: tuple[str, ...]
    operands: tuple[ExprNode, ...]


class Member(NamedTuple):
    """`x in ('a', 'b')`."""

    start: int
    end: int
    item: ExprNode
    values: tuple[Literal, ...]
    negated: bool


class Logic(NamedTuple):
    """`a and b and c`, or the same with `or`."""

    start: int
    end: int
    operator: str
    items: tuple[ExprNode, ...]


class Conditional(NamedTuple):
    """`then if condition else otherwise`."""

    start: int
    end: int
    then: ExprNode
    condition: ExprNode
    otherwise: ExprNode


class Call(NamedTuple):
    """`function(arguments)`."""

    start: int
    end: int
    function: str
    name_start: int
    arguments: tuple[ExprNode, ...]


ExprNode = Literal | NameNode | Unary | Binary | Compare | Member | Logic | Conditional | Call


@frozen
class ExprProblem:
    """One mistake in an expression."""

    code: str
    message: str
    start: int
    end: int
    help: str | None = None
    warning: bool = False


def list_operands(node: ExprNode) -> tuple[ExprNode, ...]:
    """The nodes right below a node, in its order."""
    parts = (part if type(part) is tuple else (part,) for part in node[2:])
    return tuple(each for part in parts for each in part if isinstance(each, ExprNode))


def walk_nodes(node: ExprNode) -> Iterator[ExprNode]:
    """The node and everything below it, parents first."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(list_operands(current)))
