"""`--set KEY=VALUE`: where it may lead and what is said when it leads nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Composing = Callable[..., Any]

RECIPE = "algorithm: grpo\nschedule: [{turns: 1}, {turns: 2}]\neval: {every: 5}\nlr: 1\n"


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("lr=3e-6", ("lr",), 3e-6),
        ("new.deep.er=x", ("new", "deep", "er"), "x"),
        ("schedule[0].turns=5", ("schedule", 0, "turns"), 5),
        ("schedule.1.turns=6", ("schedule", 1, "turns"), 6),
        ("schedule[1]=null", ("schedule", 1), None),
        ("eval=null", ("eval",), None),
        ("eval.every='5'", ("eval", "every"), "5"),
        ("eval={every: 7, tasks: [a, b]}", ("eval", "tasks", 1), "b"),
        ("algorithm.lr=1", ("algorithm", "lr"), 1),
        ("algorithm.lr=1", ("algorithm", "use"), "grpo"),
        ('environments."my.env".weight=2', ("environments", "my.env", "weight"), 2),
        ("name=a=b", ("name",), "a=b"),
        ("name= x", ("name",), "x"),
        ("on=on", ("on",), "on"),
    ],
)
def test_a_value_is_yaml_and_goes_where_its_path_leads(
    composed: Composing, setting: str, path: tuple[str | int, ...], value: object
) -> None:
    result = composed(RECIPE, [setting])
    node = result.data
    for step in path:
        node = node[step]
    assert node == value


def test_settings_may_change_variables(composed: Composing) -> None:
    assert composed("vars: {n: 1}\nx: ${vars.n}\n", ["vars.n=2", "y='${vars.n}'"]).data == {"x": 2, "y": 2}


def test_the_last_setting_wins(composed: Composing) -> None:
    assert composed("x: 1\n", ["x=2", "x=3"]).data == {"x": 3}


def test_settings_come_after_extends(composed: Composing) -> None:
    assert composed("extends: b\n", ["m.x=3"], b="m: {x: 1, y: 2}\n").data == {"m": {"x": 3, "y": 2}}


def test_null_is_opened_by_a_path(composed: Composing) -> None:
    assert composed("eval: null\n", ["eval.every=5"]).data == {"eval": {"every": 5}}


def test_a_value_stands_in_the_setting_that_gave_it(composed: Composing) -> None:
    result = composed(RECIPE, ["lr=1", "eval.tasks=[a, b]"])
    assert [result.place("lr"), result.place("eval", "tasks", 1)] == ["--set #1:1:4", "--set #2:1:16"]
    assert result.place("eval", "every") == "r.yaml:3:15"


@pytest.mark.parametrize(
    ("setting", "code", "place", "underlined", "advice"),
    [
        ("lr", "bad-setting", "1:1", "lr", "KEY=VALUE"),
        ("", "bad-setting", "1:1", "", "KEY=VALUE"),
        ("=3", "bad-setting", "1:1", "", "names"),
        ("a..b=3", "bad-setting", "1:2", ".", "names"),
        ("a.=3", "bad-setting", "1:2", ".", "names"),
        (".a=3", "bad-setting", "1:1", ".", "names"),
        ("[0]=3", "bad-setting", "1:1", "[", "names"),
        ("a[x]=3", "bad-setting", "1:2", "[", "names"),
        ("a[-1]=3", "bad-setting", "1:2", "[", "names"),
        ("a b=3", "bad-setting", "1:2", " ", "names"),
        ("lr=", "bad-setting", "1:4", "", "null"),
        ("lr.x=3", "bad-setting", "1:4", "x", "set lr to"),
        ("schedule[2].turns=3", "bad-setting", "1:10", "2", "the last one is [1]"),
        ("schedule.x=3", "bad-setting", "1:10", "x", "[0] to [1]"),
        ("eval[0]=3", "bad-setting", "1:6", "0", "key"),
        ("gone[0]=3", "bad-setting", "1:6", "0", "key"),
        ("extends=b", "bad-setting", "1:1", "extends", "in a file"),
        ("lr={a: 1", "unclosed-bracket", "1:4", "{", None),
        ("lr='x", "unclosed-quote", "1:4", "'x", None),
        ("lr=010", "ambiguous-number", "1:4", "010", None),
        ("lr=a: b: c", "colon-in-value", "1:8", ":", None),
        ("lr=#x", "empty-file", "1:4", "", None),
        ("lr=\udcff", "control-character", "1:4", "\0", None),
        ("l\udcff=3", "control-character", "1:2", "\0", None),
        ("vars.token=abc", "literal-secret", "1:12", "abc", "${env:TOKEN}"),
    ],
)
def test_a_setting_that_leads_nowhere_is_one_error_at_its_step(
    composed: Composing, setting: str, code: str, place: str, underlined: str, advice: str | None
) -> None:
    result = composed(RECIPE, [setting])
    assert result.errors == [(code, f"--set #1:{place}", underlined)]
    assert (advice or "") in (result.only.help or "")


def test_a_wrong_setting_leaves_the_others(composed: Composing) -> None:
    result = composed("x: 1\n", ["y", "x=2", "x.z=1"])
    assert result.all_data == [{"x": 2}]
    assert [place for _, place, _ in result.errors] == ["--set #1:1:1", "--set #3:1:3"]


def test_a_path_has_a_bounded_number_of_steps(composed: Composing) -> None:
    assert composed("x: 1\n", [".".join("a" * 1000) + "=1"]).only.code == "bad-setting"
