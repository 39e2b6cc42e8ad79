"""What the dataclasses say, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any

import pytest
from agym.dsl.expression.expr import ExprType
from agym.dsl.model.algorithm import Algorithm, Preset
from agym.dsl.model.fields import DynInt, Example, Nested
from agym.dsl.model.recipe import Environment, Recipe, Sink, Stage
from agym.dsl.model.reflect import (
    Choice,
    Constant,
    Flag,
    Formula,
    Free,
    Number,
    Record,
    Row,
    Series,
    Table,
    Type,
    Word,
    record,
    records,
    type_at,
)

RECIPE = record(Recipe)


def kind(*path: str | int) -> Type | None:
    return type_at(RECIPE, path)


def test_every_class_is_found_once() -> None:
    classes = [each.cls for each in records(RECIPE)]
    assert classes[0] is Recipe
    assert len(classes) == len(set(classes))
    assert {Algorithm, Environment, Sink, Stage} <= set(classes)
    assert all(is_dataclass(each) for each in classes)


@pytest.mark.parametrize(
    ("path", "type_"),
    [
        (("agym",), Constant),
        (("name",), Word),
        (("tags",), Series),
        (("environments",), Table),
        (("environments", "any", "options"), Free),
        (("environments", "any", "tasks", "train", "range"), Row),
        (("environments", "any", "tasks", "train", "range", 1), Number),
        (("schedule", 3), Record),
        (("schedule", 3, "until"), Formula),
        (("checkpoint", "export"), Flag),
        (("hardware", "layout"), Choice),
        (("eval",), Record),
    ],
)
def test_a_path_has_the_type_of_its_key(path: tuple[str | int, ...], type_: type) -> None:
    assert isinstance(kind(*path), type_)


@pytest.mark.parametrize(
    "path", [("nothing",), ("name", "x"), ("schedule", "x"), ("algorithm", 1), ("reward", "clip", 2)]
)
def test_a_path_that_leads_nowhere_has_none(path: tuple[str | int, ...]) -> None:
    assert kind(*path) is None


def test_numbers_know_their_limits_and_whether_they_may_change() -> None:
    lr, seed, turns = kind("algorithm", "lr"), kind("seed"), kind("environments", "a", "turns")
    assert isinstance(lr, Number)
    assert (lr.whole, lr.bounds.above, lr.scope, lr.want) == (False, 0, "schedule", ExprType.NUMBER)
    assert isinstance(seed, Number)
    assert (seed.whole, seed.bounds.at_most, seed.scope, seed.want) == (True, 2**32 - 1, None, ExprType.INTEGER)
    assert isinstance(turns, Number)
    assert (turns.scope, turns.bounds.at_least) == ("schedule", 1)


def test_expressions_know_what_they_give() -> None:
    wants = {path: kind(*path) for path in [("reward", "episode"), ("algorithm", "filter", "groups")]}
    assert [each.want for each in wants.values() if isinstance(each, Formula)] == [ExprType.NUMBER, ExprType.BOOLEAN]


def test_short_forms_secrets_and_bare_items_are_known() -> None:
    assert record(Algorithm).shorthand == "use"
    assert RECIPE.shorthand is None
    token = record(Environment).fields["token"]
    assert isinstance(token.type, Word)
    assert token.type.secret
    assert token.nullable
    stages, sinks = RECIPE.fields["schedule"].type, RECIPE.fields["logging"].type
    assert isinstance(stages, Series)
    assert isinstance(sinks, Series)
    assert (stages.bare, sinks.bare) == (False, True)


def test_defaults_and_requirements_are_those_of_the_class() -> None:
    assert record(Algorithm).fields["use"].default is Preset.GRPO
    assert [name for name, field in RECIPE.fields.items() if field.required] == [
        "agym",
        "name",
        "model",
        "environments",
        "schedule",
    ]
    assert repr(RECIPE.fields["agym"].default) == "ABSENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mine:
    """A section
    of a plugin."""

    turns: DynInt | None = None
    words: Annotated[tuple[str, ...], Nested(), Example(["a"])] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Raw:
    raw: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Anything:
    rest: Mapping[str, Any]


def test_marks_are_found_inside_an_optional() -> None:
    mine = record(_Mine)
    turns, words = mine.fields["turns"], mine.fields["words"]
    assert isinstance(turns.type, Number)
    assert (turns.nullable, turns.type.scope, turns.type.bounds.at_least) == (True, "schedule", 1)
    assert isinstance(words.type, Series)
    assert (words.nullable, words.type.bare, words.example) == (True, True, ["a"])
    assert mine.doc == "A section of a plugin."


@pytest.mark.parametrize("cls", [_Raw, _Anything])
def test_a_type_that_no_recipe_can_hold_is_refused(cls: type) -> None:
    with pytest.raises(TypeError, match="a recipe cannot hold"):
        record(cls)
