"""Syntax errors of expressions, in words. Loaded only when there is one to explain."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..suggest import did_you_mean, quote
from .nodes import ExprProblem

if TYPE_CHECKING:
    from .parse import Token

__all__ = [
    "bad_character",
    "explain_foreign",
    "foreign_function",
    "suggest_foreign",
    "suggest_name",
    "suggest_schedule",
    "unexpected",
]

_FOREIGN: Mapping[str, Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("syntax_errors.json").read_text(encoding="utf-8")
)
"""`signs` and `words` that people write in place of the language's own: what is wrong, what to write. Longer signs
come first. `names` and `schedules` of other frameworks, by what they are called here."""

_GLUED = re.compile(r"[0-9.][\w.]*")
_VALUES = frozenset({"NUMBER", "TEXT", "NAME", "TRUE", "FALSE", "LPAR", "NOT"})


def _syntax(message: str, start: int, end: int, help_text: str | None = None) -> ExprProblem:
    return ExprProblem(code="expr-syntax", message=message, start=start, end=end, help=help_text)


def bad_character(text: str, at: int, before: Sequence[Token]) -> ExprProblem:
    """What is at `at`, where no word of the language begins."""
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
    if comma := _comma_help(text):  # of `0,01` the whole is wrong
        return _syntax(f"{quote(text.strip())} is not a number", 0, len(text), comma)
    return _syntax(f"{quote(word)} is not a number", at, at + len(word), _number_help(word))


def _number_help(word: str) -> str | None:
    plain = word.replace("_", "")
    if "_" in word and re.fullmatch(r"[0-9]+(\.[0-9]+)?", plain):
        return f"write {plain}, without '_'"
    if re.fullmatch(r"0+[0-9]+", word):
        return f"write {int(word)}, without leading zeros"
    if glued := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(and|or|if|else|in|not)", word):
        return f"write a space between {glued[1]} and '{glued[2]}'"
    if short := re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([kKmMbB])", word):
        return _in_full(float(short[1]), short[2])
    if unit := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)", word):
        return _without_unit(unit[1], unit[2])
    if product := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]\w*)(?<![0-9][eE])", word):
        return f"write {product[1]} * {product[2]} to multiply"
    return None


_SECONDS = {"ms": 1e-3, "min": 60, "mins": 60, "minutes": 60, "h": 3600, "hr": 3600, "hours": 3600, "d": 86400}
_GIGABYTES = {"mb": 1e-3, "mib": 1e-3, "tb": 1e3}
_PLAIN_UNITS = frozenset(
    {"s", "sec", "secs", "seconds", "gb", "gib", "g", "tokens", "tok", "steps", "turns", "x", "gpus"}
)


def _in_full(number: float, letter: str) -> str:
    thousands = 2 ** round(math.log2(number)) * 1024 if number >= 1 else 0
    if letter in "kK":
        exact = f", or {thousands} for a power of two" if thousands == number * 1024 and number > 1 else ""
        return f"write {number * 1e3:.12g}{exact}"
    if letter == "m":
        return f"write {number * 1e6:.12g}, or {number * 60:g} for minutes where seconds are counted"
    return f"write {number * (1e6 if letter == 'M' else 1e9):.12g}"


def _without_unit(number: str, unit: str) -> str | None:
    factor = _SECONDS.get(unit.lower()) or _GIGABYTES.get(unit.lower())
    if factor is not None:
        base = "seconds" if unit.lower() in _SECONDS else "GB"
        return f"write {float(number) * factor:g}, without a unit, where {base} are counted"
    if unit.lower() in _PLAIN_UNITS:
        multiplied = f", or {number} * {unit} to multiply" if unit.isidentifier() else ""
        return f"write {number}, without a unit{multiplied}"
    return f"write {number}, or {number} * {unit} to multiply" if not unit.lower().startswith("e") else None


# --- names of other frameworks -------------------------------------------------------------------------------------

_COMPOUND = re.compile(r"[A-Za-z_]\w*(?:[./@:][A-Za-z_0-9]\w*)+")
"""`metrics.success`, `eval/craft/success`, `pass@1`."""
_FILE = re.compile(
    r"\s*(?:\.{0,2}/|~/|[A-Za-z]:\\|https?://)\S*\s*|\s*[\w./-]+\.(?:py|json|jsonl|ya?ml|txt|sh)(?:[:.]\w+)?\s*"
)
_MODULE = re.compile(r"\s*[A-Za-z_]\w*(?:\.\w+)*[:.][A-Za-z_]\w*\s*")
_OWN_CODE = "what a recipe cannot compute belongs in an environment of your own (docs/plugins.md)"


def suggest_name(name: str, known: Sequence[str]) -> str | None:
    """What to write for a name that is not known here, by what other frameworks call things and by its letters."""
    return suggest_foreign(name, known) or did_you_mean(name, known)


def suggest_foreign(name: str, known: Sequence[str]) -> str | None:
    """The same for what other frameworks, or other expressions, call by this name."""
    word = re.sub(r"[\W_]+", "_", name).strip("_").lower()
    meant = [own for own, names in _FOREIGN["names"].items() if own in known and (word in names or word == own)]
    return f"did you mean {' or '.join(map(repr, meant[:2]))}?" if meant else None


def foreign_function(name: str) -> str | None:
    """What to write for a function of another language."""
    found: str | None = _FOREIGN["functions"].get(name.lower())
    return found


def suggest_schedule(word: str) -> str | None:
    """What to write for the name of a schedule: here it is an expression."""
    example = next((each for each, names in _FOREIGN["schedules"].items() if word in names), None)
    if example is None:
        return None
    return f"write a number, such as 1e-6, or an expression, such as {_example(example)}"


def _example(example: str) -> str:
    return example if "(" in example else "cosine(1e-6, 1e-7, 300) or linear(1e-6, 0, 300)"


def explain_foreign(text: str, known: Sequence[str], problems: Sequence[ExprProblem]) -> tuple[ExprProblem, ...]:
    """The problems, those of a path or of a compound name made one; several unknown names are one as well."""
    if not problems or problems[0].code not in ("expr-syntax", "expr-name"):
        return tuple(problems)
    if _is_schedule(text) and "step" in known:
        return tuple(replace(each, help=suggest_schedule(text.strip().lower())) for each in problems)
    if _FILE.fullmatch(text):
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        return (_syntax(f"expected an expression, got the path {quote(text.strip())}", start, end, _names_help(known)),)
    for found in _COMPOUND.finditer(text):
        inside = [each for each in problems if found.start() <= each.start <= found.end()]
        if inside and not all(part in known for part in re.split(r"[./@:]", found[0])):
            named = _compound(text, found, known)
            return (named, *(each for each in problems if each not in inside and each.code != named.code))
    return tuple(problems)


def _is_schedule(text: str) -> bool:
    return any(text.strip().lower() in names for names in _FOREIGN["schedules"].values())


def _compound(text: str, found: re.Match[str], known: Sequence[str]) -> ExprProblem:
    word = found[0]
    parts = re.split(r"[./@:]", word)
    tries = (word, *("_".join(parts[start:]) for start in range(1, len(parts))), f"{parts[0]}_{parts[-1]}", parts[0])
    near = next((advice for each in tries if (advice := _exact(each, known))), None)
    is_code = near is None and _MODULE.fullmatch(text) is not None
    advice = near or (_names_help(known) if is_code else f"known here: {', '.join(known)}")
    sign = next(each for each in word if not (each.isalnum() or each == "_"))
    return ExprProblem(
        code="expr-name",
        message=f"{quote(word)} is not a name: names have no '{sign}'",
        start=found.start(),
        end=found.end(),
        help=advice,
    )


def _exact(name: str, known: Sequence[str]) -> str | None:
    advice = f"did you mean '{name}'?" if name in known else suggest_name(name, known)
    return advice if advice is not None and advice.startswith("did") else None


def _names_help(known: Sequence[str]) -> str:
    return f"write it from the names known here: {', '.join(known)}; {_OWN_CODE}"


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
    """Why the token at `index` (the end, if there is none) cannot be there."""
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
    start = 0 if help_text and len(stop.tokens) == 2 else last.start  # of `90%` the whole is wrong
    return _syntax(f"expected a value after {quote(last.text)}", start, last.end, help_text)


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
    """A word from another language, here or just before."""
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
    message, comma = "',' can only separate function arguments or list items", _comma_help(stop.text)
    return _syntax(message, 0, len(stop.text.rstrip()), comma) if comma else stop.here(message)


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
    if stop.before.type == "NUMBER" and stop.token.type == "NAME" and len(stop.tokens) == 2:
        help_text = _without_unit(stop.before.text, stop.token.text)
        message = f"expected a number, got {quote(stop.text.strip())}"
        return _syntax(message, stop.before.start, stop.token.end, help_text)
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
