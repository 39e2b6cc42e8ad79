"""The codec: every value comes back as it was, equal values give equal bytes, and nothing hostile gets past."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from agym.dsl.expression.expr import Expr
from agym.dsl.model.fields import Bounds, DynInt, DynPositive, Json, Pattern, Scope, Secret
from agym.dsl.model.recipe import Recipe
from agym.dsl.publish.plan_json import CodecError, canonical, dumps, from_json, loads, to_json
from hypothesis import given
from hypothesis import strategies as st


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
    until: Annotated[Expr, Scope("until")] | None = None
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


def test_every_value_comes_back_as_it_was() -> None:
    assert loads(Outer, dumps(FULL)) == FULL
    assert loads(Outer, dumps(Outer())) == Outer()


def test_a_whole_recipe_comes_back_byte_by_byte(recipe: Recipe) -> None:
    text = dumps(recipe)
    again = loads(Recipe, text)
    assert again == recipe
    assert dumps(again) == text


def test_a_whole_number_in_a_float_gives_the_bytes_of_the_float() -> None:
    assert dumps(Outer(rate=1)) == dumps(Outer(rate=1.0))


def test_a_whole_number_in_an_option_stays_one() -> None:
    assert to_json(FULL)["options"]["number"] == 3
    assert '"number": 3\n' in dumps(FULL)


def test_order_shows_in_the_file_and_not_in_the_hash() -> None:
    swapped = replace(FULL, table={"a": Inner(size=9), "b": Inner()})
    assert dumps(FULL) != dumps(swapped)
    assert canonical(FULL) == canonical(swapped)
    assert canonical(FULL) != canonical(replace(FULL, flag=False))


def test_a_file_ends_with_a_line_break_and_keeps_letters() -> None:
    assert dumps(Outer(options={"ü": "ß"})).endswith('"ü": "ß"\n  }\n}\n')


@pytest.mark.parametrize("secret", ["hunter2", "${env:TOKEN:-hunter2}", "x${env:TOKEN}", "${env:}"])
def test_a_secret_is_never_written(secret: str) -> None:
    text = dumps(Outer(token=secret)) + canonical(Outer(token=secret))
    assert "hunter2" not in text
    assert to_json(Outer(token=secret))["token"] is None


@pytest.mark.parametrize("reference", ["${env:TOKEN}", "${env:TOKEN:-}", "${env:TOKEN:?set it first}"])
def test_where_a_secret_is_read_from_is_written(reference: str) -> None:
    made = Outer(token=reference)
    assert to_json(made)["token"] == reference
    assert loads(Outer, dumps(made)) == made


def test_a_number_that_is_not_finite_is_not_written() -> None:
    with pytest.raises(CodecError, match="rate: is not a finite number"):
        dumps(Outer(rate=float("inf")))


HOSTILE: dict[str, tuple[str, Any, str]] = {
    "unknown key": ("extra", 1, "extra: is not a known key"),
    "a literal": ("version", 2, "version: expected 1"),
    "true for a literal": ("version", True, "version: expected 1"),
    "a pattern": ("name", "ABC", "name: expected small letters"),
    "a line break after a pattern": ("name", "abc\n", "name: expected small letters"),
    "null for text": ("name", None, "name: expected text, not null"),
    "an enum": ("colour", "green", "colour: expected one of red, blue"),
    "a list for an enum": ("colour", ["red"], "colour: expected one of red, blue"),
    "a number for a flag": ("flag", 1, "flag: expected true or false, not a whole number"),
    "too few items": ("pair", [1.0], "pair: expected 2 items, not 1"),
    "an object for a list": ("row", {}, "row: expected a list, not an object"),
    "text for an object": ("row", ["x"], r"row\[0\]: expected an object, not text"),
    "a missing key": ("row", [{"size": 1}], r"row\[0\].share: is missing"),
    "below a bound": ("row", [{"size": 0, "share": 0.5}], r"row\[0\].size: expected at least 1"),
    "above a bound": ("row", [{"size": 10, "share": 0.5}], r"row\[0\].size: expected at most 9"),
    "on an excluded bound": ("row", [{"size": 1, "share": 0}], r"row\[0\].share: expected more than 0"),
    "on the other excluded bound": ("row", [{"size": 1, "share": 1}], r"row\[0\].share: expected less than 1"),
    "true for a number": ("row", [{"size": True, "share": 0.5}], r"row\[0\].size: expected a whole number, not true"),
    "a float for a whole number": ("turns", 3.0, "turns: expected a whole number or an expression, not a number"),
    "a bound of an alternative": ("turns", 0, "turns: expected at least 1"),
    "an expression that is none": ("until", "step >=", "until: .*'step >='"),
    "an unknown name in an expression": ("until", "stpe >= 1", "until: .*stpe"),
    "an expression of another type": ("until", "step + 1", "until: .*"),
    "a number where a condition is wanted": ("until", 1, "until: expected an expression, not a whole number"),
    "a huge number": ("rate", 10**400, "rate: is too large"),
    "a mapping's item": ("table", {"x": 1}, "table.x: expected an object, not a whole number"),
    "a plain secret": ("token", "hunter2", "token: expected where the secret is read from"),
    "half a character": ("options", {"a": "\ud800"}, "options.a: holds half a character"),
    "half a character as a key": ("options", {"\ud800": 1}, "options.*: holds half a character"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_wrong_data_is_refused_by_its_path(name: str) -> None:
    key, value, message = HOSTILE[name]
    with pytest.raises(CodecError, match=message):
        from_json(Outer, to_json(FULL) | {key: value})


TEXTS = {
    "nothing": "",
    "half": '{"version": 1',
    "a constant": '{"rate": NaN}',
    "a key twice": '{"version": 1, "version": 1}',
    "a long number": "9" * 5000,
    "depth": "[" * 100_000,
    "depth of objects": '{"a":' * 100_000,
    "another kind": "[]",
    "null": "null",
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_is_not_such_json_is_refused(name: str) -> None:
    with pytest.raises(CodecError):
        loads(Outer, TEXTS[name])


def test_deep_options_are_refused_and_not_a_crash() -> None:
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    with pytest.raises(CodecError, match="nested too deeply"):
        from_json(Outer, to_json(Outer()) | {"options": {"a": deep}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_any_data_gives_a_value_or_a_codec_error(data: Any) -> None:
    with pytest.raises(CodecError):
        from_json(Outer, data)


@given(st.sampled_from(list(to_json(FULL))), JSON)
def test_any_data_at_a_key_is_refused_or_comes_back(key: str, data: Any) -> None:
    try:
        made = from_json(Outer, to_json(FULL) | {key: data})
    except CodecError:
        return
    assert loads(Outer, dumps(made)) == made


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), JSON, max_size=4))
def test_free_options_keep_numbers_lists_and_text(options: dict[str, Any]) -> None:
    made = from_json(Outer, to_json(Outer()) | {"options": json.loads(json.dumps(options))})
    assert to_json(made)["options"] == options
