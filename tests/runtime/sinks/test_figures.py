"""Numbers on one line, and foreign text that can do no harm there."""

from __future__ import annotations

from math import inf, nan

import pytest
from agym.runtime.sinks.console.state import Curve
from agym.runtime.text_format import format_duration, format_number, format_share, strip_control
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (5.25, "5.25"),
        (-0.0123, "-0.0123"),
        (1.2e-4, "1.2e-04"),
        (123.4, "123"),
        (1234567.8, "1,234,568"),
        (nan, "-"),
        (inf, "inf"),
    ],
)
def test_a_number_has_three_digits_that_count(value: float, text: str) -> None:
    assert format_number(value) == text


def test_a_share_has_two_places_and_an_unknown_one_is_a_dash() -> None:
    assert (format_share(0.5), format_share(1.0), format_share(nan)) == ("0.50", "1.00", "-")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.4, "59s"), (60, "1m 00s"), (250, "4m 10s"), (3 * 3600 + 300, "3h 05m"), (50 * 3600, "2d 02h")],
)
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J\x1b]0;mine\x07", r"\x1b[2J\x1b]0;mine\x07"),
        ("two\nlines\r\tand", r"two\nlines\r\tand"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202edcba", r"abc\u202edcba"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("lone \udc80", r"lone \udc80"),
        ("[bold red]loud[/]", "[bold red]loud[/]"),
        ("größe 日本", "größe 日本"),
    ],
)
def test_what_cannot_be_printed_is_written_as_an_escape(hostile: str, shown: str) -> None:
    assert strip_control(hostile, 80) == shown


def test_a_long_line_is_cut_and_says_so() -> None:
    assert strip_control("a" * 10_000_000, 10) == "aaaaaaa..."
    assert strip_control("a" * 10, 10) == "a" * 10


@given(st.text(), st.integers(0, 40))
def test_clean_text_is_printable_and_fits(text: str, limit: int) -> None:
    made = strip_control(text, limit)
    assert made.isprintable()
    assert len(made) <= limit


# --- curve ---------------------------------------------------------------------------------------------------------


def test_a_curve_goes_from_the_lowest_to_the_highest_block() -> None:
    curve = Curve(columns=8)
    for k in range(8):
        curve.add(k / 7)
    assert str(curve) == "▁▂▃▄▅▆▇█"


def test_a_full_curve_merges_neighbours_and_goes_on() -> None:
    curve = Curve(columns=4)
    for value in (0, 0, 1, 1, 0.5):
        curve.add(value)
    assert str(curve) == "▁█"
    curve.add(0.5)
    assert str(curve) == "▁█▅"


@given(st.lists(st.floats(allow_nan=True, allow_infinity=False, width=16), max_size=300))
def test_a_curve_never_has_more_columns_than_it_was_given(values: list[float]) -> None:
    curve = Curve(columns=8)
    for value in values:
        curve.add(value)
    assert len(str(curve)) <= 8


def test_a_value_that_is_no_number_leaves_no_mark() -> None:
    curve = Curve()
    curve.add(nan)
    assert str(curve) == ""


def test_an_odd_number_of_columns_cannot_be_halved() -> None:
    with pytest.raises(ValueError, match="expected an even number of columns, got 3"):
        Curve(columns=3)
