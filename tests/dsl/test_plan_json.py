"""Plans as JSON: equal values give equal bytes, and no secret is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Literal

import pytest
from agym.dsl.expression.expr import Expr
from agym.dsl.model.fields import Bounds, DynInt, DynPositive, InScope, Json, Pattern, Secret
from agym.dsl.publish.plan_json import dump_canonical, dump_json, to_json


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    size: Annotated[int, Bounds(at_least=1, at_most=9)] = 1
    share: Annotated[float, Bounds(above=0, below=1)] = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    version: Literal[1] = 1
    name: Annotated[str, Pattern(r"[a-z]+", "small letters")] = "a"
    colour: Colour = Colour.RED
    flag: bool = False
    pair: tuple[float, float] = (0.0, 1.0)
    row: tuple[Inner, ...] = ()
    table: Mapping[str, Inner] | None = None
    turns: DynInt | None = None
    rate: DynPositive = 1e-6
    until: Annotated[Expr, InScope("until")] | None = None
    token: Annotated[str, Secret()] | None = None
    options: Annotated[Mapping[str, Json], "free"] | None = None


FULL = Outer(
    name="abc",
    colour=Colour.BLUE,
    flag=True,
    pair=(1.5, 2.0),
    row=(Inner(size=2), Inner(share=0.25)),
    table={"b": Inner(), "a": Inner(size=9)},
    turns=Expr("min(step + 1, 30)"),
    rate=3e-6,
    until=Expr("step >= 10"),
    token="${env:TOKEN}",
    options={"list": (1, 2.5, None, "x", {"deep": (True,)}), "number": 3},
)


def test_every_value_is_written_as_a_person_would_write_it() -> None:
    assert to_json(FULL) == {
        "version": 1,
        "name": "abc",
        "colour": "blue",
        "flag": True,
        "pair": [1.5, 2.0],
        "row": [{"size": 2, "share": 0.5}, {"size": 1, "share": 0.25}],
        "table": {"b": {"size": 1, "share": 0.5}, "a": {"size": 9, "share": 0.5}},
        "turns": "min(step + 1, 30)",
        "rate": 3e-6,
        "until": "step >= 10",
        "token": "${env:TOKEN}",
        "options": {"list": [1, 2.5, None, "x", {"deep": [True]}], "number": 3},
    }
    assert json.loads(dump_json(FULL)) == to_json(FULL)


def test_a_whole_number_in_a_float_gives_the_bytes_of_the_float() -> None:
    assert dump_json(Outer(rate=1)) == dump_json(Outer(rate=1.0))


def test_a_whole_number_in_an_option_stays_one() -> None:
    assert to_json(FULL)["options"]["number"] == 3
    assert '"number": 3\n' in dump_json(FULL)


def test_order_shows_in_the_file_and_not_in_the_hash() -> None:
    swapped = replace(FULL, table={"a": Inner(size=9), "b": Inner()})
    assert dump_json(FULL) != dump_json(swapped)
    assert dump_canonical(FULL) == dump_canonical(swapped)
    assert dump_canonical(FULL) != dump_canonical(replace(FULL, flag=False))


def test_a_file_ends_with_a_line_break_and_keeps_letters() -> None:
    assert dump_json(Outer(options={"ü": "ß"})).endswith('"ü": "ß"\n  }\n}\n')


@pytest.mark.parametrize("secret", ["hunter2", "${env:TOKEN:-hunter2}", "x${env:TOKEN}", "${env:}"])
def test_a_secret_is_never_written(secret: str) -> None:
    text = dump_json(Outer(token=secret)) + dump_canonical(Outer(token=secret))
    assert "hunter2" not in text
    assert to_json(Outer(token=secret))["token"] is None


@pytest.mark.parametrize("reference", ["${env:TOKEN}", "${env:TOKEN:-}", "${env:TOKEN:?set it first}"])
def test_where_a_secret_is_read_from_is_written(reference: str) -> None:
    made = Outer(token=reference)
    assert to_json(made)["token"] == reference


def test_a_number_that_is_not_finite_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json(Outer(rate=float("inf")))
