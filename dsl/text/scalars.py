"""Values of plain scalars: the core schema of YAML 1.2, minus what recipes do not need.

`yes`, `on`, `1_000`, `1:30` and dates are text, as in YAML 1.2; `010`, infinities and numbers too large for a machine
word are refused, because readers disagree on them.
"""

from __future__ import annotations

import math
import re

from ..frozen import frozen

__all__ = ["Refused", "ScalarValue", "resolve"]

ScalarValue = str | int | float | bool | None

WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
DECIMAL = re.compile(r"[-+]?[0-9]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
BASES = {"0o": (8, re.compile("0o[0-7]+")), "0x": (16, re.compile("0x[0-9a-fA-F]+"))}
SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

MAX_INT = 2**64
MAX_DIGITS = 400
"""Python refuses to read longer ones, and no number of a recipe comes near."""


@frozen(kw_only=False)
class Refused:
    """A value that looks like a number but must not be read as one."""

    code: str
    message: str
    help: str


def resolve(text: str) -> ScalarValue | Refused:
    """Resolve the value of unquoted text."""
    if text in WORDS:
        return WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if DECIMAL.fullmatch(text):
        return _decimal(text)
    if FLOAT.fullmatch(text):
        return _float(text)
    if SPECIAL.fullmatch(text):
        return Refused("bad-number", f"'{text}' is not allowed in a recipe", "write a finite number")
    base, pattern = BASES.get(text[:2], (0, None))
    return _bounded(text, base) if pattern and pattern.fullmatch(text) else text


def _decimal(text: str) -> int | Refused:
    digits = text.lstrip("+-")
    if digits[0] == "0" and len(digits) > 1:
        short = (digits.lstrip("0") or "0")[:20]
        return Refused(
            "ambiguous-number",
            f"'{text[:20]}' starts with 0: octal to some readers, decimal to others",
            f"write {short} for the number, or '{text[:20]}' in quotes for text",
        )
    return _bounded(text, 10)


def _bounded(text: str, base: int) -> int | Refused:
    value = int(text, base) if len(text) <= MAX_DIGITS else MAX_INT
    return value if abs(value) < MAX_INT else _too_large(text)


def _float(text: str) -> float | Refused:
    value = float(text)
    if math.isinf(value):
        return _too_large(text)
    if value == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        return Refused("bad-number", f"'{text[:20]}' is too small for a double", "write 0, or a larger number")
    return value


def _too_large(text: str) -> Refused:
    shown = text if len(text) <= 20 else text[:17] + "..."
    return Refused("bad-number", f"'{shown}' is too large", "write a smaller number, or quote it for text")
