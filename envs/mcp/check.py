"""When a task is done: an expression over what an episode came to.

    number(answer) > 3 and called('transfer') == 1
    result('balance', account='alice') == '70'

`answer` is the agent's; `called(tool)` how often it called a tool with success; `result(tool, ...)` calls a tool now,
whether the agent has it or not, and is its text; `number(text)` and `lower(text)` do what they say. Besides these there
are texts, numbers, comparisons, `in`, `and`, `or`, `not`, and nothing else. Numbers are compared exactly.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, localcontext
from typing import Any, Protocol, TypeAlias

__all__ = ["BadCheck", "EpisodeFacts", "TaskCheck", "compile_check", "find_tools", "read_number"]


class BadCheck(ValueError):
    """A check that is not an allowed expression."""


class EpisodeFacts(Protocol):
    """Outcome of an episode, as a check sees it."""

    answer: str

    def called(self, tool: str) -> int: ...

    def result(self, tool: str, /, **arguments: Any) -> str: ...


TaskCheck: TypeAlias = Callable[[EpisodeFacts], Any]

_COMPARE: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda part, whole: part in whole,
    ast.NotIn: lambda part, whole: part not in whole,
}
_FUNCTIONS: Mapping[str, Callable[[EpisodeFacts], Callable[..., Any]]] = {
    "called": lambda facts: facts.called,
    "result": lambda facts: facts.result,
    "number": lambda facts: read_number,
    "lower": lambda facts: str.lower,
}


_GROUPED = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
"""No digit is lost to a sign, and what is not a number is neither less nor more than any."""


def read_number(text: str) -> Decimal:
    """Parse a number, with thousands grouped or not; NaN, equal to nothing, where the text is none."""
    plain = text.strip()
    said = _EXACT.create_decimal(plain.replace(",", "") if _GROUPED.fullmatch(plain) else plain)
    return said if said.is_finite() else Decimal("nan")


def compile_check(text: str) -> TaskCheck:
    check = _compile(_parse(text))

    def exactly(facts: EpisodeFacts) -> Any:
        with localcontext(_EXACT):
            return check(facts)

    return exactly


def find_tools(text: str) -> Iterator[str]:
    """Find the tools that a check uses."""
    for node in ast.walk(_parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="called" | "result"), args=[ast.Constant(value=str() as tool), *_]):
                yield tool


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise BadCheck(f"not an expression: {error.msg}") from error


def _compile(node: ast.expr) -> TaskCheck:
    match node:
        case ast.Constant(value=float() as value):
            exact = Decimal(repr(value))
            return lambda facts: exact
        case ast.Constant(value=str() | int() as value):
            return lambda facts: value
        case ast.Name(id="answer"):
            return lambda facts: facts.answer
        case ast.BoolOp(op=op, values=values):
            join, parts = (all if isinstance(op, ast.And) else any), [_compile(value) for value in values]
            return lambda facts: join(part(facts) for part in parts)
        case ast.UnaryOp(op=ast.Not() | ast.USub() as sign, operand=operand):
            change, inner = (operator.not_ if isinstance(sign, ast.Not) else operator.neg), _compile(operand)
            return lambda facts: change(inner(facts))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            compare, one, other = _COMPARE[type(op)], _compile(left), _compile(right)
            return lambda facts: compare(one(facts), other(facts))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _FUNCTIONS:
            return _call(
                name, [_compile(arg) for arg in args], {word.arg or "": _compile(word.value) for word in keywords}
            )
        case _:
            raise BadCheck(f"'{ast.unparse(node)[:60]}' is not allowed in a check")


def _call(name: str, args: list[TaskCheck], keywords: Mapping[str, TaskCheck]) -> TaskCheck:
    return lambda facts: _FUNCTIONS[name](facts)(
        *(arg(facts) for arg in args), **{word: value(facts) for word, value in keywords.items()}
    )
