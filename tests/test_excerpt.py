"""The line with a caret under it, as a terminal shows it."""

import pytest
from agym.dsl.source import Source
from agym.reporters.diagnostics.excerpt import Excerpt, columns, excerpt, printable


def marked(text: str, word: str, width: int = 80) -> Excerpt:
    start = text.index(word)
    shown = excerpt(Source("r.yaml", text).span(start, start + len(word)), width)
    assert shown is not None
    return shown


def under(shown: Excerpt) -> str:
    """What the carets are under, for text without wide characters."""
    start = len(shown.marks) - len(shown.marks.lstrip())
    return shown.text[start : len(shown.marks)]


def test_caret_stands_under_the_span() -> None:
    shown = marked("agym: 1\nname: x y\n", "x y")
    assert shown == Excerpt(2, "name: x y", "      ^^^")


def test_empty_span_has_one_caret() -> None:
    source = Source("r.yaml", "name:\n")
    assert excerpt(source.span(5, 5), 80) == Excerpt(1, "name:", "     ^")


def test_span_over_lines_is_marked_to_the_end_of_its_first() -> None:
    source = Source("r.yaml", "a: |\n  one\n  two\n")
    assert excerpt(source.span(3, 16), 80) == Excerpt(1, "a: |", "   ^")


def test_span_at_the_end_of_the_file_is_shown_on_its_last_line() -> None:
    source = Source("r.yaml", "a: 1")
    assert excerpt(source.span(4, 4), 80) == Excerpt(1, "a: 1", "    ^")


def test_a_file_without_text_has_no_excerpt() -> None:
    assert excerpt(Source("missing.yaml", "").span(0, 0), 80) is None


def test_wide_characters_before_the_span_move_the_caret_by_two() -> None:
    shown = marked("名前: wrong", "wrong")
    assert columns(shown.marks.rstrip("^")) == columns("名前: ")


def test_wide_characters_in_the_span_take_two_carets() -> None:
    assert marked("a: 名前", "名前").marks == "   ^^^^"


def test_combining_marks_take_no_column() -> None:
    assert marked("é: x", "x").marks == "   ^"


def test_tabs_become_blanks_and_the_caret_follows() -> None:
    shown = marked("a:\twrong", "wrong")
    assert shown.text == "a:    wrong"
    assert under(shown) == "wrong"


def test_control_characters_are_shown_and_not_sent() -> None:
    shown = marked("a: \x1b[31mred", "red")
    assert "\x1b" not in shown.text
    assert under(shown) == "red"


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\u202e", "\x9b", "\r"])
def test_nothing_that_a_terminal_acts_upon_is_printable(character: str) -> None:
    assert character not in printable(f"a{character}b")


@pytest.mark.parametrize("position", [0, 30, 500, 990])
def test_long_lines_are_cut_to_a_window_around_the_span(position: int) -> None:
    text = "x" * position + "WRONG" + "x" * (1000 - position)
    shown = marked(text, "WRONG", width=60)
    assert columns(shown.text) <= 60
    assert under(shown) == "WRONG"


def test_a_span_longer_than_the_window_is_marked_as_far_as_it_is_seen() -> None:
    shown = marked("a: " + "W" * 500, "W" * 500, width=60)
    assert columns(shown.text) <= 60
    assert len(shown.marks) <= len(shown.text)


def test_a_line_that_just_fits_is_not_cut() -> None:
    assert marked("x" * 55 + "WRONG", "WRONG", width=60).text == "x" * 55 + "WRONG"


def test_a_megabyte_on_one_line_is_shown_at_once() -> None:
    assert columns(marked("x" * 1_000_000 + "WRONG", "WRONG", width=60).text) <= 60
