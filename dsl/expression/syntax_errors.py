"""Syntax errors of expressions, in words. Loaded only when there is one to explain."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..suggest import quote
from .nodes import ExprProblem

if TYPE_CHECKING:
    from .parse import Token

__all__ = ["bad_character", "unexpected"]

_FOREIGN: Mapping[str, Mapping[str, tuple[str, str | None]]] = json.loads(
    Path(__file__).with_name("syntax_errors.json").read_text(encoding="utf-8")
)
"""`signs` and `words` that people write in place of the language's own: what is wrong, what to write. Longer signs
come first."""

_GLUED = re.compile(r"[0-9.][\w.]*")
_VALUES = frozenset({"NUMBER", "TEXT", "NAME", "TRUE", "FALSE", "LPAR", "NOT"})


def _syntax(message: str, start: int, end: int, help_text: str | None = None) -> ExprProblem:
    return ExprProblem(code="expr-syntax", message=message, start=start, end=end, help=help_text)


def bad_character(text: str, at: int, before: Sequence[Token]) -> ExprProblem:
    """What stands at `at`, where no word of the language begins."""
    if text[at] in "'\"":
        return _syntax(f"the quote {text[at]} is never closed", at, at + 1, f"close it with {text[at]}")
    if text[at].isdigit() or re.match(r"\.[0-9]", text[at : at + 2]):
        return _bad_number(text, at)
    sign = next((s for s in _FOREIGN["signs"] if text.startswith(s, at)), None)
    if sign is None:
        return _syntax(f"unexpected {_shown(text[at])} in an expression", at, at + 1)
    message, help_text = _FOREIGN["signs"][sign]
    return _syntax(message, at, at + len(sign), help_text)


def _shown(character: str) -> str:
    return f"'{character}'" if character.isprintable() else f"character U+{ord(character):04X}"


def _bad_number(text: str, at: int) -> ExprProblem:
    match = _GLUED.match(text, at)
    word = match.group() if match else text[at]
    return _syntax(f"{quote(word)} is not a number", at, at + len(word), _comma_help(text) or _number_help(word))


def _number_help(word: str) -> str | None:
    plain = word.replace("_", "")
    if "_" in word and re.fullmatch(r"[0-9]+(\.[0-9]+)?", plain):
        return f"write {plain}, without '_'"
    if re.fullmatch(r"0+[0-9]+", word):
        return f"write {int(word)}, without leading zeros"
    if glued := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(and|or|if|else|in|not)", word):
        return f"write a space between {glued[1]} and '{glued[2]}'"
    if short := re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([kKmM])", word):
        return f"write {float(short[1]) * (1e3 if short[2] in 'kK' else 1e6):.12g}"
    if unit := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|sec|min|h|d|gb|mb|GB|MB)", word):
        return f"write {unit[1]}, without a unit"
    if product := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]\w*)(?<![0-9][eE])", word):
        return f"write {product[1]} * {product[2]} to multiply"
    return None


@dataclass(frozen=True)
class _Stop:
    """Where the parser stopped: at `token`, able to go on with any of `accepted`."""

    text: str
    tokens: Sequence[Token]
    index: int
    accepted: frozenset[str]

    @property
    def at_end(self) -> bool:
        return self.index == len(self.tokens)

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def before(self) -> Token | None:
        return self.tokens[self.index - 1] if self.index else None

    @property
    def wants_value(self) -> bool:
        return "NUMBER" in self.accepted

    @cached_property
    def open(self) -> list[int]:
        """Indices of the parentheses that are open here."""
        stack: list[int] = []
        for index, token in enumerate(self.tokens[: self.index]):
            if token.type == "LPAR":
                stack.append(index)
            elif token.type == "RPAR":
                stack.pop()
        return stack

    def opens(self, *types: str) -> bool:
        """Whether the innermost open parenthesis follows a token of one of these types."""
        return bool(self.open) and self.open[-1] > 0 and self.tokens[self.open[-1] - 1].type in types

    def here(self, message: str, help_text: str | None = None) -> ExprProblem:
        return _syntax(message, self.token.start, self.token.end, help_text)


def unexpected(text: str, tokens: Sequence[Token], index: int, accepted: frozenset[str]) -> ExprProblem:
    """Why the token at `index` (the end, if there is none) cannot stand there."""
    stop = _Stop(text, tokens, index, accepted)
    explanations = _AT_END if stop.at_end else _IN_PLACE
    return next(problem for explain in explanations if (problem := explain(stop)) is not None)


def _nothing(stop: _Stop) -> ExprProblem | None:
    return None if stop.tokens else _syntax("expected an expression, got nothing", 0, len(stop.text))


def _dangling(stop: _Stop) -> ExprProblem | None:
    last = stop.before
    if last is None or not (stop.wants_value or last.type in {"IN", "NOT"}):
        return None
    share = re.search(r"([0-9.]+)\s*%\s*$", stop.text)
    help_text = f"write {float(share[1]) / 100:g} for {share[1]} %" if share and _is_number(share[1]) else None
    return _syntax(f"expected a value after {quote(last.text)}", last.start, last.end, help_text)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) is not None


def _never_closed(stop: _Stop) -> ExprProblem | None:
    if not stop.open:
        return None
    opener = stop.tokens[stop.open[-1]]
    help_text = "close it with ')'"
    if stop.opens("NAME", "IN"):
        help_text += "; inside {...} or [...] quote the whole expression, because a comma ends it there"
    return _syntax("'(' is never closed", opener.start, opener.end, help_text)


def _no_else(stop: _Stop) -> ExprProblem | None:
    choice = next(t for t in reversed(stop.tokens) if t.type == "IF")
    return _syntax("'if' needs an 'else'", choice.start, choice.end, "write 'a if condition else b'")


def _closes_nothing(stop: _Stop) -> ExprProblem | None:
    return stop.here("unmatched ')'") if stop.token.type == "RPAR" and not stop.open else None


def _word(stop: _Stop) -> ExprProblem | None:
    """A word of another language, here or just before."""
    for token in (stop.token, stop.before):
        if token is not None and token.type == "NAME" and token.text in _FOREIGN["words"]:
            message, help_text = _FOREIGN["words"][token.text]
            return _syntax(message, token.start, token.end, help_text)
    return None


def _not_equal(stop: _Stop) -> ExprProblem | None:
    before, token = stop.before, stop.token
    if before is None or (before.text, token.text) != ("<", ">"):
        return None
    return _syntax("'<>' is not an operator", before.start, token.end, "write '!='")


def _list(stop: _Stop) -> ExprProblem | None:
    if stop.accepted == {"LPAR"} and stop.before and stop.before.type == "IN":
        return stop.here(f"expected '(' after 'in', not {quote(stop.token.text)}", "write in ('a', 'b')")
    if stop.wants_value and stop.opens("IN"):
        return stop.here(f"expected a literal value in the list after 'in', not {quote(stop.token.text)}")
    return None


def _not_here(stop: _Stop) -> ExprProblem | None:
    if not stop.wants_value or stop.token.type != "NOT":
        return None
    return stop.here("'not' needs parentheses here", "write (not ...)")


def _no_value(stop: _Stop) -> ExprProblem | None:
    if not stop.wants_value:
        return None
    after = f" after {quote(stop.before.text)}" if stop.before else ""
    return stop.here(f"expected a value{after}, not {quote(stop.token.text)}")


def _comma(stop: _Stop) -> ExprProblem | None:
    if stop.token.type != "COMMA":
        return None
    if stop.opens("NAME", "IN"):
        return None
    return stop.here("',' can only separate function arguments or list items", _comma_help(stop.text))


def _comma_help(text: str) -> str | None:
    """For a comma at the end, between thousands, or in place of a decimal point."""
    text = text.strip()[:40]
    if re.fullmatch(r"[0-9.eE+-]+ *,|[1-9][0-9]{0,2}(,[0-9]{3})+", text):
        return f"write {text.replace(',', '').strip()}, without the comma"
    return (
        f"write {text.replace(',', '.')}, with a point" if re.fullmatch(r"[0-9]+,[0-9]+(e[+-]?[0-9]+)?", text) else None
    )


def _no_operator(stop: _Stop) -> ExprProblem | None:
    if stop.token.type not in _VALUES or stop.before is None:
        return None
    help_text = "write '*' to multiply" if stop.token.type == "LPAR" else None
    message = f"expected an operator between {quote(stop.before.text)} and {quote(stop.token.text)}"
    return stop.here(message, help_text)


def _not_in(stop: _Stop) -> ExprProblem | None:
    if stop.accepted != {"IN"}:
        return None
    return stop.here(f"expected 'in' after 'not', not {quote(stop.token.text)}", "write 'and not' between conditions")


def _anything(stop: _Stop) -> ExprProblem | None:
    if "ELSE" in stop.accepted:
        return stop.here(f"expected 'else', not {quote(stop.token.text)}", "write 'a if condition else b'")
    return stop.here(f"unexpected {quote(stop.token.text)}")


_Explain = Callable[[_Stop], ExprProblem | None]
_AT_END: tuple[_Explain, ...] = (_nothing, _dangling, _never_closed, _no_else)
_IN_PLACE: tuple[_Explain, ...] = (
    *(_closes_nothing, _not_equal, _word, _list, _not_in, _not_here, _no_value, _comma, _no_operator),
    _anything,
)
