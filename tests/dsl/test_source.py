"""Sources, spans and texts: lines, columns and the way from a character back to its place."""

from __future__ import annotations

import pytest
from agym.dsl.source import Piece, Source, Text


def source(text: str = "abc\ndef\r\n😀é x\n") -> Source:
    return Source("recipe.yaml", text)


@pytest.mark.parametrize(
    ("offset", "position"),
    [(0, (1, 1)), (3, (1, 4)), (4, (2, 1)), (7, (2, 4)), (9, (3, 1)), (10, (3, 2)), (12, (3, 4)), (14, (4, 1))],
)
def test_positions_count_characters_from_one(offset: int, position: tuple[int, int]) -> None:
    assert source().position(offset) == position


def test_a_line_comes_without_its_break() -> None:
    assert [source().line_text(line) for line in (1, 2, 3, 4)] == ["abc", "def", "😀é x", ""]


def test_a_span_prints_as_an_editor_reads_it() -> None:
    span = source().span(4, 7)
    assert str(span) == "recipe.yaml:2:1"
    assert (span.text, span.line, span.column, span.end_line, span.end_column) == ("def", 2, 1, 2, 4)


def test_a_span_never_ends_before_it_starts() -> None:
    assert source().span(5, 2).end == 5


def test_a_source_is_known_by_its_key_and_else_by_its_name() -> None:
    assert Source("r.yaml", "").identity == "r.yaml"
    assert Source("r.yaml", "", None, "/home/r.yaml").identity == "/home/r.yaml"


def folded() -> Text:
    """`step >=\\n  100` as a folded value would hold it."""
    origin = source("until: step >=\n  100\n")
    return Text(
        "step >= 100",
        (
            Piece(7, origin.span(7, 14), True),
            Piece(1, origin.span(14, 17), False),
            Piece(3, origin.span(17, 20), True),
        ),
    )


def test_a_span_within_one_piece_is_exact() -> None:
    assert folded().span(5, 7).text == ">="
    assert folded().span(8, 11).text == "100"


def test_a_span_over_lines_of_one_source_reaches_from_first_to_last() -> None:
    assert folded().span(5, 11).text == ">=\n  100"


def test_a_span_into_another_source_stops_at_the_end_of_the_first_piece() -> None:
    one, other = source("aaa"), source("bbb")
    text = Text.joined((Text.exact(one.span(0, 3)), Text.exact(other.span(0, 3))), one.span(0, 0))
    assert text.value == "aaabbb"
    assert text.span(1, 5) == one.span(1, 3)


def test_a_piece_made_of_something_else_points_at_all_of_it() -> None:
    reference = source("turns: ${vars.n} + 1").span(7, 16)
    text = Text.made("1000", reference)
    assert text.span(1, 2) == reference


@pytest.mark.parametrize(("offset", "place"), [(0, 7), (5, 12), (7, 14), (8, 17), (11, 20), (12, 20)])
def test_an_empty_span_stands_before_its_character(offset: int, place: int) -> None:
    span = folded().span(offset, offset)
    assert (span.start, span.end) == (place, place)


def test_an_empty_text_still_has_a_place() -> None:
    place = source("a: ''").span(3, 5)
    text = Text.made("", place)
    assert text.span(0, 0) == place
    assert text.part(0, 0).span(0, 0) == place


@pytest.mark.parametrize(("start", "end"), [(0, 4), (5, 9), (7, 8), (8, 11), (0, 11)])
def test_a_part_keeps_the_places_of_its_characters(start: int, end: int) -> None:
    part = folded().part(start, end)
    assert part.value == folded().value[start:end]
    places = [part.span(i, i + 1).start for i in range(end - start)]
    assert places == [folded().span(i, i + 1).start for i in range(start, end)]


def test_joined_parts_are_the_whole_again() -> None:
    text = folded()
    again = Text.joined((text.part(0, 5), text.part(5, 8), text.part(8, 11)), text.span(0, 0))
    assert again.value == text.value
    starts = [[each.span(i, i + 1).start for i in range(11)] for each in (again, text)]
    assert starts[0] == starts[1]
