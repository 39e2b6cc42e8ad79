"""`matrix`: combinations in written order, and the axes that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agym.dsl.compose.matrix import MAX_RUNS

Composing = Callable[..., Any]


def test_a_matrix_makes_every_combination_with_the_first_axis_slowest(composed: Composing) -> None:
    result = composed("matrix: {seed: [0, 1], algorithm.lr: [1e-6, 3e-6]}\nalgorithm: {use: grpo}\n")
    assert result.composed.diagnostics == ()
    assert [(data["seed"], data["algorithm"]["lr"]) for data in result.all_data] == [
        (0, 1e-6),
        (0, 3e-6),
        (1, 1e-6),
        (1, 3e-6),
    ]
    assert result.choices[1] == {"seed": "0", "algorithm.lr": "3e-6"}
    assert all("matrix" not in data for data in result.all_data)


@pytest.mark.parametrize("written", ["null", "{}"])
def test_an_empty_matrix_is_one_run(composed: Composing, written: str) -> None:
    result = composed(f"matrix: {written}\nx: 1\n")
    assert (result.data, result.choices) == ({"x": 1}, [{}])


def test_a_value_of_an_axis_stands_in_the_matrix(composed: Composing) -> None:
    assert composed("x: 0\nmatrix: {x: [1, 2]}\n").place("x") == "r.yaml:2:14"


def test_an_axis_may_hold_maps_and_lists(composed: Composing) -> None:
    result = composed("matrix:\n  schedule:\n    - [{turns: 1}]\n    - [{turns: 2},\n       {turns: 3}]\n")
    assert [len(data["schedule"]) for data in result.all_data] == [1, 2]
    assert result.choices[1] == {"schedule": "[{turns: 2}, {turns: 3}]"}


def test_an_axis_may_be_a_variable(composed: Composing) -> None:
    result = composed("vars: {n: 0}\nmatrix: {vars.n: [1, 2]}\nx: ${vars.n}\n")
    assert [data["x"] for data in result.all_data] == [1, 2]


def test_an_axis_may_lead_into_a_list_and_through_a_bare_scalar(composed: Composing) -> None:
    result = composed("matrix: {'s[0].t': [1, 2], algorithm.lr: [3]}\ns: [{t: 0}]\nalgorithm: ppo\n")
    assert result.composed.diagnostics == ()
    assert result.all_data[1] == {"s": [{"t": 2}], "algorithm": {"use": "ppo", "lr": 3}}


def test_references_in_a_matrix_are_replaced_also_in_choices(composed: Composing) -> None:
    result = composed("vars: {a: 5}\nmatrix: {x: ['${vars.a}', '${env:K}']}\n", environ={"K": "hunter2"})
    assert [data["x"] for data in result.all_data] == [5, "hunter2"]
    assert result.choices == [{"x": "5"}, {"x": "${env:K}"}]


def test_a_matrix_merges_through_extends_as_a_map(composed: Composing) -> None:
    result = composed("extends: b\nmatrix: {y: [2]}\n", b="matrix: {x: [0, 1], y: [1]}\n")
    assert result.all_data == [{"x": 0, "y": 2}, {"x": 1, "y": 2}]


def test_a_setting_may_turn_the_matrix_off_or_change_an_axis(composed: Composing) -> None:
    recipe = "matrix: {algorithm.lr: [1, 2]}\nx: 1\n"
    assert composed(recipe, ["matrix=null"]).data == {"x": 1}
    assert composed(recipe, ["matrix.algorithm.lr=[3]"]).all_data == [{"x": 1, "algorithm": {"lr": 3}}]


def test_trees_share_what_no_axis_touches(composed: Composing) -> None:
    first, second = composed("matrix: {x: [1, 2]}\ndeep: {y: ['${vars.a}']}\nvars: {a: 1}\n").composed.variants
    assert first.tree.entries[0].value is second.tree.entries[0].value


@pytest.mark.parametrize(
    ("matrix", "code", "underlined", "advice"),
    [
        ("3", "bad-matrix", "3", "matrix: {seed: [0, 1]}"),
        ("[1]", "bad-matrix", "[1]", "matrix: {seed: [0, 1]}"),
        ("{x: 3}", "bad-matrix", "3", "x: [..., ...]"),
        ("{x: []}", "bad-matrix", "[]", None),
        ("{x: '${vars.l}'}", "bad-matrix", "'${vars.l}'", None),
        ("{algorithm: {lr: [1]}}", "bad-matrix", "{lr: [1]}", "algorithm.lr: [...]"),
        ("{x: [1, 2, 1]}", "bad-matrix", "1", "remove one"),
        ("{x: [{a: 1}, {a: 1}]}", "bad-matrix", "{a: 1}", "remove one"),
        ("{a..b: [1]}", "bad-matrix", ".", "names"),
        ("{extends: [b]}", "bad-matrix", "extends", None),
        ("{matrix.x: [1]}", "bad-matrix", "matrix.x", None),
        ("{'s[3].t': [1, 2]}", "bad-matrix", "3", "the last one is [0]"),
        ("{n.x: [1, 2]}", "bad-matrix", "x", "set n to"),
        ("{algorithm.lr: [1], algorithm: [ppo]}", "bad-matrix", "algorithm", "one list"),
        ("{s.0.t: [1], 's[0].t': [2]}", "bad-matrix", "'s[0].t'", "one list"),
    ],
)
def test_an_axis_that_cannot_be_is_one_error(
    composed: Composing, matrix: str, code: str, underlined: str, advice: str | None
) -> None:
    result = composed(f"matrix: {matrix}\ns: [{{t: 1}}]\nn: 1\n")
    assert [(e[0], e[2]) for e in result.errors] == [(code, underlined)]
    assert (advice or "") in (result.only.help or "")
    assert len(result.composed.variants) == 1


def test_one_and_one_point_nought_are_two_values(composed: Composing) -> None:
    assert len(composed("matrix: {x: [1, 1.0, '1', true]}\n").composed.variants) == 4


def test_a_million_runs_are_refused_without_being_made(composed: Composing) -> None:
    ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    result = composed("matrix: {" + ", ".join(f"a{i}: {ten}" for i in range(6)) + "}\nx: ${vars.gone}\n")
    assert [(e[0], e[2]) for e in result.errors] == [("matrix-too-large", "matrix"), ("unknown-var", "gone")]
    assert "1000000 runs" in result.composed.diagnostics[0].message


def test_the_largest_matrix_is_made(composed: Composing) -> None:
    result = composed(f"matrix: {{x: {list(range(MAX_RUNS))}}}\n")
    assert [data["x"] for data in result.all_data] == list(range(MAX_RUNS))


def test_a_setting_that_the_matrix_undoes_is_an_error(composed: Composing) -> None:
    result = composed("matrix: {algorithm: [ppo, grpo]}\n", ["algorithm.lr=1", "algorithms=2"])
    assert result.errors == [("no-effect", "--set #1:1:1", "algorithm.lr")]


def test_an_error_of_every_run_is_reported_once(composed: Composing) -> None:
    assert [e[0] for e in composed("matrix: {vars.n: [1, 2, 3]}\nx: ${vars.gone}\n").errors] == ["unknown-var"]


def test_the_number_of_axes_is_bounded(composed: Composing) -> None:
    axes = ", ".join(f"a{i}: [1]" for i in range(100))
    assert composed(f"matrix: {{{axes}}}\n").errors == [("matrix-too-large", "r.yaml:1:1", "matrix")]
