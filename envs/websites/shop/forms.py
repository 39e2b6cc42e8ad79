"""Forms: their fields, how what was sent is read, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

__all__ = [
    "FilledForm",
    "FormField",
    "format_money",
    "read_form",
    "show_values",
    "take_amount",
    "take_count",
    "take_day",
    "take_email",
    "take_words",
]

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[a-z]{2,}")
_MONEY = re.compile(r"\$?(\d{1,6}|\d{1,3},\d{3})(?:\.(\d{1,2}))?", re.ASCII)

_LONGEST = (120, 2000)
"""Of a line, of an area."""


# --- reading: each raises ValueError with the rest of a sentence ---


def take_words(text: str) -> str:
    return text


def take_email(text: str) -> str:
    if not _EMAIL.fullmatch(text.lower()):
        raise ValueError("must be an e-mail address")
    return text.lower()


def take_amount(text: str) -> int:
    """Read an amount in cents."""
    found = _MONEY.fullmatch(text)
    if found is None:
        raise ValueError("must be an amount such as 12.50")
    return int(found[1].replace(",", "")) * 100 + int((found[2] or "0").ljust(2, "0"))


def format_money(cents: int) -> str:
    return f"{'-' * (cents < 0)}${abs(cents) // 100:,}.{abs(cents) % 100:02}"


def take_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 7):
        raise ValueError("must be a whole number")
    return int(text)


def take_day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("must be a day such as 2026-03-02") from None


# --- forms ---


@dataclass(frozen=True, slots=True)
class FormField:
    name: str
    """Of the parameter, and of the column where it goes."""
    label: str
    kind: str = "text"
    """`text`, `email`, `password`, `number`, `date`, `area`, `select`, `radio`, `check`."""
    take: Callable[[str], object] = take_words
    options: tuple[tuple[str, str], ...] = ()
    """What is sent, and what is shown."""
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledForm:
    values: Mapping[str, object]
    shown: Mapping[str, object]
    faults: tuple[str, ...] = ()


def read_form(fields: Sequence[FormField], form: Mapping[str, str]) -> FilledForm:
    values: dict[str, object] = {}
    faults = []
    for field in fields:
        try:
            values[field.name] = _read_field(field, form.get(field.name, "").strip()[: _LONGEST[field.kind == "area"]])
        except ValueError as error:
            faults.append(f"{field.label} {error}.")
    return FilledForm(values=values, shown=form, faults=tuple(faults))


def _read_field(field: FormField, text: str) -> object:
    if field.kind == "check":
        return int(bool(text))
    if not text:
        if field.required:
            raise ValueError("is missing")
        return ""
    if field.options and text not in dict(field.options):
        raise ValueError("must be one of those shown")
    return field.take(text)


def show_values(fields: Sequence[FormField], values: Mapping[str, object]) -> Mapping[str, object]:
    """Write values of the database as somebody would type them."""
    return {field.name: _write_field(field, values[field.name]) for field in fields}


def _write_field(field: FormField, value: object) -> object:
    return (
        format_money(value).replace("$", "").replace(",", "")
        if field.take is take_amount and isinstance(value, int)
        else value
    )
