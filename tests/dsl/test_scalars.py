"""What a plain value is: the core schema, and the numbers that are refused."""

from __future__ import annotations

import pytest
from agym.dsl.text.scalars import Refused, ScalarValue, resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("0", 0),
        ("-7", -7),
        ("+12", 12),
        ("0o10", 8),
        ("0xfF", 255),
        ("1e-6", 1e-6),
        ("1E3", 1000.0),
        ("3.", 3.0),
        (".5", 0.5),
        ("-2.5e+1", -25.0),
        ("0.0", 0.0),
        ("0e5", 0.0),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_core_schema(text: str, value: ScalarValue) -> None:
    result = resolve(text)
    assert result == value
    assert type(result) is type(value)


TEXT = "yes no on off y NaN inf nULL tRUE 1_000 1:30 2024-01-31 0b11 0o9 0xg 1e e5 . - + --1 1.2.3 1e-6x $ ٣ v1 = <<"


@pytest.mark.parametrize("text", TEXT.split())
def test_what_other_readers_take_for_something_else_is_text(text: str) -> None:
    assert resolve(text) == text


@pytest.mark.parametrize(("text", "advice"), [("010", "write 10 "), ("00", "write 0 "), ("-08", "write 8 ")])
def test_a_leading_zero_is_ambiguous(text: str, advice: str) -> None:
    refused = resolve(text)
    assert isinstance(refused, Refused)
    assert refused.code == "ambiguous-number"
    assert refused.help.startswith(advice)


@pytest.mark.parametrize(
    "text",
    [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "1e400", "-1e999", "1e-400", "9" * 30, "1" * 5000, "0x" + "f" * 20],
)
def test_numbers_that_nothing_can_hold_are_refused(text: str) -> None:
    refused = resolve(text)
    assert isinstance(refused, Refused)
    assert refused.code == "bad-number"
    assert len(refused.message) < 80
