"""Parser of expressions: text to a tree of nodes, or the one problem that says why there is none.

Driven by the tables of the grammar in `grammar.json`. Length, tokens and depth are bounded, so that any walk over a
tree may recurse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ..suggest import quote
from . import nodes
from .nodes import ExprNode, ExprProblem, Literal, NameNode, list_operands

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "MAX_TOKENS", "MAX_WHOLE", "Token", "parse_checked", "parse_expression"]

MAX_LENGTH = 2000
"""Characters."""
MAX_TOKENS = 600
MAX_DEPTH = 100
"""Nodes from the top to the deepest; a sum of n terms is n deep."""
MAX_WHOLE = 2**53
"""Whole numbers up to here are exact in a double."""

_END = "$END"


class _Tables(NamedTuple):
    """What `grammar.py` wrote."""

    tokens: Mapping[str, str]
    ignored: str
    keywords: Mapping[str, str]
    rules: list[tuple[str, int, str]]
    final: int
    states: list[Mapping[str, int]]


@cache
def _tables() -> _Tables:
    return _Tables(**json.loads(Path(__file__).with_name("grammar.json").read_text(encoding="utf-8")))


@cache
def _scanner() -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{name}>{regex})" for name, regex in _tables().tokens.items()))


class Token(NamedTuple):
    """A word of the language."""

    type: str
    text: str
    start: int
    end: int


class ParseFailure(Exception):
    """Leaves the parser with the mistake; never leaves this package."""

    def __init__(self, problem: ExprProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> ExprNode | ExprProblem:
    """The tree of an expression, or what is wrong with its form."""
    try:
        if len(text) > MAX_LENGTH:
            raise _bound(f"the expression is {len(text)} characters long; the limit is {MAX_LENGTH}", 0, len(text))
        tree = _tree(text, _tokens(text))
        _require_depth(tree)
    except ParseFailure as failure:
        return failure.problem
    return tree


def parse_checked(text: str) -> ExprNode:
    """The tree of a text that was checked before."""
    tree = parse_expression(text)
    if isinstance(tree, ExprProblem):
        raise ValueError(f"not an expression: {tree.message}: {text!r}")
    return tree


def _require_depth(tree: ExprNode) -> None:
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in list_operands(node)]
        if not level:
            return
    raise _bound(f"the expression nests deeper than {MAX_DEPTH} levels", level[0].start, level[0].end)


def _bound(message: str, start: int, end: int) -> ParseFailure:
    return ParseFailure(ExprProblem(code="expr-bound", message=message, start=start, end=end))


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    tables, scanner, at = _tables(), _scanner(), 0
    while at < len(text):
        match = scanner.match(text, at)
        if match is None:
            from .syntax_errors import bad_character

            raise ParseFailure(bad_character(text, at, tokens))
        kind = str(match.lastgroup)
        if kind != tables.ignored:
            word = match.group()
            tokens.append(Token(tables.keywords.get(word, kind), word, at, match.end()))
        at = match.end()
    if len(tokens) > MAX_TOKENS:
        raise _bound(f"the expression has over {MAX_TOKENS} words and signs", tokens[MAX_TOKENS].start, at)
    return tokens


def _tree(text: str, tokens: list[Token]) -> ExprNode:
    tables, states = _tables(), [0]
    values: list[Any] = []
    for index, token in enumerate([*tokens, Token(_END, "", len(text), len(text))]):
        while (action := tables.states[states[-1]].get(token.type)) is not None and action < 0:
            origin, length, build = tables.rules[~action]
            values[-length:] = [_BUILD[build](values[-length:])]
            del states[-length:]
            states.append(tables.states[states[-1]][origin])
            if token.type == _END and states[-1] == tables.final:
                return values[0]  # type: ignore[no-any-return]
        if action is None:
            from .syntax_errors import unexpected

            raise ParseFailure(unexpected(text, tokens, index, _accepted(states)))
        states.append(action)
        values.append(token)
    raise AssertionError("the end is either accepted or refused")


def _accepted(states: list[int]) -> frozenset[str]:
    tables = _tables()
    terminals = {*tables.tokens, *tables.keywords.values(), _END} - {tables.ignored}
    return frozenset(each for each in terminals if _accepts(states, each))


def _accepts(states: list[int], terminal: str) -> bool:
    """Whether the terminal is possible here: a state's row alone says so too often, because its reductions may fail."""
    tables, stack = _tables(), list(states)
    while (action := tables.states[stack[-1]].get(terminal)) is not None and action < 0:
        origin, length, _ = tables.rules[~action]
        del stack[-length:]
        stack.append(tables.states[stack[-1]][origin])
        if terminal == _END and stack[-1] == tables.final:
            return True
    return action is not None


# --- one function for each name after `->` in the grammar: what was matched, to a node -----------------------------


def _number(parts: list[Any]) -> Literal:
    token: Token = parts[0]
    value, whole = float(token.text), token.text.isdigit()
    if value == float("inf"):
        raise _bound(f"{quote(token.text)} is too large for a number", token.start, token.end)
    if whole and int(token.text) > MAX_WHOLE:
        message = f"{quote(token.text)} is too large: whole numbers are exact only up to 2**53"
        raise _bound(message, token.start, token.end)
    return Literal(token.start, token.end, value, whole)


def _text(parts: list[Any]) -> Literal:
    return Literal(parts[0].start, parts[0].end, parts[0].text[1:-1])


def _boolean(parts: list[Any]) -> Literal:
    return Literal(parts[0].start, parts[0].end, parts[0].type == "TRUE")


def _name(parts: list[Any]) -> NameNode:
    return NameNode(parts[0].start, parts[0].end, parts[0].text)


def _unary(parts: list[Any]) -> nodes.Unary:
    sign, operand = parts
    if isinstance(operand, Token):
        operand = _number([operand])
    return nodes.Unary(sign.start, operand.end, sign.text, operand)


def _binary(parts: list[Any]) -> nodes.Binary:
    left, sign, right = parts
    return nodes.Binary(left.start, right.end, sign.text, left, right)


def _compare(parts: list[Any]) -> nodes.Compare:
    left, sign, right = parts
    return nodes.Compare(left.start, right.end, (sign.text,), (left, right))


def _chain(parts: list[Any]) -> nodes.Compare:
    left, sign, right = parts
    return nodes.Compare(left.start, right.end, (*left.operators, sign.text), (*left.operands, right))


def _logic(parts: list[Any]) -> nodes.Logic:
    left, word, right = parts
    same = isinstance(left, nodes.Logic) and left.operator == word.text
    return nodes.Logic(left.start, right.end, word.text, (*(left.items if same else (left,)), right))


def _choice(parts: list[Any]) -> nodes.Conditional:
    then, _, condition, _, otherwise = parts
    return nodes.Conditional(then.start, otherwise.end, then, condition, otherwise)


def _member(parts: list[Any]) -> nodes.Member:
    item, *_, values, closing = parts
    return nodes.Member(item.start, closing.end, item, tuple(_constant(v) for v in values), parts[1].type == "NOT")


def _constant(value: Literal | nodes.Unary) -> Literal:
    if isinstance(value, Literal):
        return value
    operand = value.operand
    assert isinstance(operand, Literal)
    assert isinstance(operand.value, float)
    return Literal(value.start, value.end, -operand.value, operand.whole)


def _call(parts: list[Any]) -> nodes.Call:
    name, _, *arguments, closing = parts
    return nodes.Call(name.start, closing.end, name.text, name.start, tuple(arguments[0]) if arguments else ())


def _parentheses(parts: list[Any]) -> ExprNode:
    inner: ExprNode = parts[1]
    return inner._replace(start=parts[0].start, end=parts[2].end)


def _first(parts: list[Any]) -> list[Any]:
    return parts


def _further(parts: list[Any]) -> list[Any]:
    return [*parts[0], parts[2]]


def _same(parts: list[Any]) -> Any:
    return parts[0]


_FUNCTIONS: tuple[Callable[[list[Any]], Any], ...] = (
    *(_number, _text, _boolean, _name, _unary, _binary, _compare, _chain, _logic, _choice),
    *(_member, _call, _parentheses, _first, _further),
)
_BUILD = {"": _same, "not_member": _member, "empty_call": _call, **{each.__name__[1:]: each for each in _FUNCTIONS}}
