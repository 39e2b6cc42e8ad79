"""The published schema: complete, fresh, and in agreement with the dataclasses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.model.algorithm import Preset
from agym.dsl.model.recipe import Judge, Recipe, Stage
from agym.dsl.model.reflect import record, records
from agym.dsl.publish.__main__ import main
from agym.dsl.publish.json_schemas import make_recipe_schema, write_recipe_schema
from agym.schemas import recipe_v1
from jsonschema import Draft7Validator

SCHEMA = recipe_v1()
DEFINITIONS = SCHEMA["definitions"]


def keys() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every key with its schema, once per class that has it."""
    for name, definition in {"Recipe": SCHEMA, **DEFINITIONS}.items():
        for key, inner in definition.get("properties", {}).items():
            yield f"{name}.{key}", inner


def required() -> set[str]:
    return {
        f"{each.cls.__name__}.{key.name}"
        for each in records(record(Recipe))
        for key in each.fields.values()
        if key.required
    }


def valid(data: Any, schema: Mapping[str, Any] = SCHEMA) -> bool:
    return bool(Draft7Validator({**schema, "definitions": DEFINITIONS}).is_valid(data))


MINIMAL = {
    "agym": 1,
    "name": "craft",
    "model": "Qwen/Qwen3-0.6B",
    "environments": {"craft": "textcraft"},
    "schedule": [{"stage": "only", "turns": 8}],
}


def test_it_is_a_valid_draft_7_schema() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_the_generated_files_are_what_the_code_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    assert capsys.readouterr().out.count("fresh") == 3


def test_a_stale_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {tmp_path / "recipe.v1.json": write_recipe_schema}
    assert [main(words, files) for words in (["--check"], [], ["--check"])] == [1, 0, 0]
    assert "make docs" in capsys.readouterr().out


def test_it_has_the_keys_of_the_dataclasses_and_no_others() -> None:
    for each in records(record(Recipe)):
        known = SCHEMA if each.cls is Recipe else DEFINITIONS[each.cls.__name__]
        extra = {"extends", "vars", "matrix"} if each.cls is Recipe else set(each.renamed)
        assert set(known["properties"]) == {key.name for key in fields(each.cls)} | extra
        assert known["additionalProperties"] is False


def test_every_key_explains_itself() -> None:
    for name, key in keys():
        assert key["title"], name
        assert len(key["description"]) > 5, name
        assert key["examples"], name
        assert "default" in key or name in required(), name


def test_every_default_and_example_is_valid_under_its_own_key() -> None:
    for name, key in keys():
        for value in [*key["examples"], *([key["default"]] if "default" in key else [])]:
            assert valid(value, key), (name, value)


def test_alternatives_take_different_kinds_of_values() -> None:
    for name, key in keys():
        kinds = [kind for branch in key.get("anyOf", []) for kind in kinds_of(branch)]
        assert len(kinds) == len(set(kinds)), name


def kinds_of(branch: Mapping[str, Any]) -> list[str]:
    if "$ref" in branch:
        return [] if branch["$ref"].endswith("/reference") else ["object"]
    types = branch["type"]
    return [types] if isinstance(types, str) else list(types)


def test_every_algorithm_has_its_summary_next_to_its_name() -> None:
    use = DEFINITIONS["Algorithm"]["properties"]["use"]
    assert len(use["markdownEnumDescriptions"]) == len(Preset)


def test_a_minimal_recipe_is_valid() -> None:
    assert valid(MINIMAL)


@pytest.mark.parametrize("key", ["name", "model", "environments", "schedule"])
def test_a_file_alone_needs_the_main_keys(key: str) -> None:
    assert not valid({name: value for name, value in MINIMAL.items() if name != key})


def test_a_file_that_extends_needs_only_its_version() -> None:
    assert valid({"agym": 1, "extends": "base/grpo-7b"})
    assert valid({"agym": 1, "extends": ["base/grpo-7b", "./mine.yaml"]})
    assert not valid({"extends": "base/grpo-7b"})


def test_a_file_that_extends_may_give_part_of_what_is_required_together() -> None:
    part = {"reward": {"judge": {"samples": 3}}}
    assert valid({"agym": 1, "extends": "base", **part})
    assert not valid(MINIMAL | part)
    whole = {"reward": {"source": "judge", "judge": {"url": "http://127.0.0.1", "model": "m"}}}
    assert valid(MINIMAL | whole)
    assert {name for name, key in record(Judge).fields.items() if key.required} == {"url", "model"}


def test_a_stage_needs_a_name_and_may_override_in_part() -> None:
    stage = {
        "stage": "a",
        "algorithm": {"kl": {"coef": 0}},
        "environments": {"craft": None},
        "reward": {"judge": {"samples": 2}},
    }
    assert valid(MINIMAL | {"schedule": [stage]})
    assert not valid(MINIMAL | {"schedule": [{"turns": 3}]})
    assert [name for name, key in record(Stage).fields.items() if key.required] == ["stage"]


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "dapo"},
        {"algorithm": {"lr": "cosine(1e-6, 1e-7, 300)", "filter": "std > 0.1", "entropy": 0.01}},
        {"logging": "tensorboard"},
        {"logging": ["tensorboard", {"use": "wandb", "project": "x"}]},
        {"eval": None},
        {"eval": {"turns": 5}},
        {"eval": {"turns": [5, 10]}},
        {"checkpoint": 10},
        {"hardware": {"gpus_per_node": "2 * 4"}},
        {"vars": {"deep": {"er": [1]}}, "matrix": {"seed": [1, 2]}},
    ],
)
def test_short_forms_are_valid(change: dict[str, Any]) -> None:
    assert valid(MINIMAL | change)


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "gppo"},
        {"algorithm": {"lrr": 1}},
        {"seed": -1},
        {"seed": True},
        {"tags": [3]},
        {"model": None},
        {"environments": {"Bad Name": "textcraft"}},
        {"matrix": {"seed": []}},
        {"extends": 3, "name": None},
    ],
)
def test_wrong_values_are_not(change: dict[str, Any]) -> None:
    assert not valid(MINIMAL | change)


def test_an_editor_accepts_references_wherever_they_may_stand() -> None:
    references = {"seed": "${vars.seed}", "model": {"dtype": "${vars.dtype}"}, "checkpoint": {"export": "${vars.x}"}}
    assert valid(
        MINIMAL | references | {"logging": "${vars.sinks}", "agent": "${vars.agent}", "tags": ["a", "${vars.b}"]}
    )
    assert not valid(MINIMAL | {"agym": "${vars.version}"})


def test_only_secrets_must_come_from_the_environment() -> None:
    assert valid(MINIMAL | {"environments": {"a": {"url": "http://h", "token": "${env:T}"}}})
    assert not valid(MINIMAL | {"environments": {"a": {"url": "http://h", "token": "abc"}}})


def test_making_it_twice_gives_the_same_bytes() -> None:
    assert make_recipe_schema() == make_recipe_schema()
    assert write_recipe_schema() == write_recipe_schema()
