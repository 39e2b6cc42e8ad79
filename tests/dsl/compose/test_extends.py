"""`extends`: what is merged and how, and every way in which a base cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agym.dsl.compose.extends import MAX_CHAIN, add_route

Composing = Callable[..., Any]


def test_a_recipe_alone_is_its_own_tree(composed: Composing) -> None:
    assert composed("agym: 1\nmodel: {path: x}\n").data == {"agym": 1, "model": {"path": "x"}}


def test_maps_merge_deep_while_lists_and_scalars_replace(composed: Composing) -> None:
    result = composed(
        "extends: b\nm: {x: {one: 3}, new: 1}\nl: [3]\ns: b\n",
        b="m: {x: {one: 1, two: 2}, y: 1}\nl: [1, 2]\ns: a\nk: 0\n",
    )
    assert result.data == {"m": {"x": {"one": 3, "two": 2}, "y": 1, "new": 1}, "l": [3], "s": "b", "k": 0}


def test_null_turns_off_what_a_base_turned_on(composed: Composing) -> None:
    assert composed("extends: b\neval: null\n", b="eval: {every: 5}\n").data == {"eval": None}


def test_a_map_turns_on_what_a_base_turned_off(composed: Composing) -> None:
    assert composed("extends: b\neval: {every: 5}\n", b="eval: null\n").data == {"eval": {"every": 5}}


def test_a_list_of_bases_merges_left_to_right(composed: Composing) -> None:
    result = composed("extends: [b, c]\nz: 3\n", b="x: 1\ny: 1\nz: 1\n", c="y: 2\nz: 2\n")
    assert result.data == {"x": 1, "y": 2, "z": 3}


def test_a_chain_merges_from_its_far_end(composed: Composing) -> None:
    result = composed("extends: b\nx: 1\n", b="extends: c\nx: 2\ny: 2\n", c="x: 3\ny: 3\nz: 3\n")
    assert result.data == {"x": 1, "y": 2, "z": 3}


def test_two_bases_may_share_a_third(composed: Composing) -> None:
    result = composed("extends: [b, c]\n", b="extends: d\nb: 1\n", c="extends: d\nc: 1\n", d="d: 1\n")
    assert result.data == {"d": 1, "b": 1, "c": 1}


def test_a_shipped_recipe_is_a_base_by_its_name(composed: Composing) -> None:
    result = composed("extends: base/grpo-7b\nalgorithm: {lr: 3e-6}\n")
    assert result.data == {"algorithm": {"use": "grpo", "lr": 3e-6}, "hardware": {"nodes": 1}}


def test_a_bare_scalar_of_a_base_is_opened_for_a_map(composed: Composing) -> None:
    assert composed("extends: b\nalgorithm: {lr: 1}\n", b="algorithm: ppo\n").data == {
        "algorithm": {"use": "ppo", "lr": 1}
    }


def test_a_scalar_without_a_meaning_as_a_map_is_replaced(composed: Composing) -> None:
    assert composed("extends: b\nx: {y: 1}\n", b="x: 3\n").data == {"x": {"y": 1}}


@pytest.mark.parametrize("nothing", ["null", "[]", "~"])
def test_nothing_can_be_extended(composed: Composing, nothing: str) -> None:
    assert composed(f"extends: {nothing}\nx: 1\n").data == {"x": 1}


def test_every_value_keeps_the_place_where_it_was_written(composed: Composing) -> None:
    result = composed("extends: b\nm: {x: 1}\n", b="m: {y: 2}\nk: 3\n")
    assert [result.place("m", "x"), result.place("m", "y"), result.place("k")] == [
        "r.yaml:2:8",
        "b.yaml:1:8",
        "b.yaml:2:4",
    ]


def test_an_error_in_a_base_names_its_file_and_the_way_there(composed: Composing) -> None:
    result = composed("extends: b\n", b="x: 1\nextends: c\n", c="y: 010\n")
    diagnostic = add_route(result.only, result.composed.ways)
    assert (diagnostic.code, str(diagnostic.span)) == ("ambiguous-number", "c.yaml:1:4")
    first = diagnostic.span.source.included_from
    assert first is not None
    assert str(first) == "b.yaml:2:10"
    assert str(first.source.included_from) == "r.yaml:1:10"


def test_cycle_between_extends_is_reported_with_both_spans(composed: Composing) -> None:
    result = composed("x: 1\nextends: b\n", b="extends: [c]\n", c="extends: r.yaml\n")
    assert result.errors == [("extends-cycle", "c.yaml:1:10", "r.yaml")]
    (note,) = result.only.notes
    assert str(note.span) == "r.yaml:2:10"
    assert "r.yaml -> b.yaml -> c.yaml -> r.yaml" in result.only.message


def test_a_cycle_behind_the_first_recipe_begins_where_it_begins(composed: Composing) -> None:
    diagnostic = composed("extends: b\n", b="extends: c\n", c="extends: b\n").only
    assert (str(diagnostic.span), str(diagnostic.notes[0].span)) == ("c.yaml:1:10", "b.yaml:1:10")


def test_a_recipe_cannot_extend_itself(composed: Composing) -> None:
    assert composed("extends: ./r\n").errors == [("extends-cycle", "r.yaml:1:10", "./r")]


def test_a_long_chain_ends(composed: Composing) -> None:
    files = {f"b{i}": f"extends: b{i + 1}\n" for i in range(40)}
    result = composed("extends: b0\n", **files)
    assert result.errors == [("extends-too-long", f"b{MAX_CHAIN - 1}.yaml:1:10", f"b{MAX_CHAIN}")]


def test_the_longest_chain_is_read(composed: Composing) -> None:
    files = {f"b{i}": f"extends: b{i + 1}\n" for i in range(MAX_CHAIN - 1)}
    assert composed("extends: b0\n", **files, **{f"b{MAX_CHAIN - 1}": "x: 1\n"}).data == {"x": 1}


def test_a_flood_of_bases_is_stopped_once(composed: Composing) -> None:
    result = composed(f"extends: [{', '.join(['b'] * 5000)}]\n", b="x: 1\n")
    assert [code for code, _, _ in result.errors] == ["too-large"]


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("nothing", "file-not-found"),
        ("https://example.org/base.yaml", "file-refused"),
        ("/etc/passwd", "file-refused"),
        ("../outside.yaml", "file-refused"),
        ("sub", "file-refused"),
        ("''", "file-refused"),
        ("3", "wrong-type"),
        ("{a: 1}", "wrong-type"),
        ("[[b]]", "wrong-type"),
        ("'${vars.base}'", "bad-reference"),
    ],
)
def test_what_cannot_be_extended_is_said_at_the_reference(composed: Composing, reference: str, code: str) -> None:
    result = composed(f"extends: {reference}\n", **{"sub/x": "a: 1\n"})
    (found,) = result.errors
    assert found[0] == code
    assert found[2] == reference.removeprefix("[").removesuffix("]") or reference == "[[b]]"
    assert result.composed.partial


def test_one_missing_base_does_not_hide_the_errors_of_the_others(composed: Composing) -> None:
    result = composed("extends: [gone, b, c]\nx: ${vars.no}\n", b="y: 010\n", c="- 1\n")
    assert [code for code, _, _ in result.errors] == ["file-not-found", "unknown-var", "ambiguous-number", "wrong-type"]
    assert result.all_data == [{"y": "010", "x": "${vars.no}"}]


def test_a_base_that_was_read_leaves_nothing_out(composed: Composing) -> None:
    assert not composed("extends: b\n", b="x: 1\n").composed.partial


@pytest.mark.parametrize(
    ("recipe", "code"),
    [("", "empty-file"), ("- 1\n", "wrong-type"), ("hello\n", "wrong-type"), ("a: [\n", "unclosed-bracket")],
)
def test_a_text_that_is_no_recipe_gives_no_run(composed: Composing, recipe: str, code: str) -> None:
    result = composed(recipe)
    assert (result.only.code, result.composed.variants) == (code, ())


def test_a_base_that_is_too_large_is_refused_with_its_own_name(composed: Composing) -> None:
    assert composed("extends: b\n", b="#" * 2_000_000).errors == [("too-large", "b.yaml:1:1", "")]


def test_a_base_that_is_not_text_is_refused_with_its_own_name(composed: Composing) -> None:
    assert composed("extends: b\n", b="a: \0").errors == [("control-character", "b.yaml:1:4", "\0")]
