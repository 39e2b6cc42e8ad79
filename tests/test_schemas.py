"""Schemas: valid draft 7, explained at every key, found by name."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agym.schemas import load, recipe_v1
from jsonschema import Draft7Validator

FOLDER = Path(__file__).resolve().parents[1] / "schemas"
FILES = sorted(FOLDER.glob("*.json"))


def properties(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key that a schema names, by where it is named."""
    if isinstance(schema, dict):
        named = schema.get("properties")
        if isinstance(named, dict):
            yield from ((f"{path}.{name}", inner) for name, inner in named.items())
        for word, inner in schema.items():
            yield from properties(inner, f"{path}/{word}")
    elif isinstance(schema, list):
        for i, inner in enumerate(schema):
            yield from properties(inner, f"{path}/{i}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_schema_is_valid_draft_7_and_named_by_its_file(file: Path) -> None:
    schema = json.loads(file.read_text(encoding="utf-8"))
    Draft7Validator.check_schema(schema)
    name, version, _ = file.name.split(".")
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert schema["$id"] == f"urn:agym:schema:{name}:{version}"


def test_every_key_of_a_recipe_has_a_description_and_an_example() -> None:
    unexplained = [
        path
        for path, inner in properties(load("recipe.v1"))
        if not path.startswith("/then") and not (inner.get("description") and "examples" in inner)
    ]
    assert unexplained == []


def test_examples_and_defaults_of_a_recipe_are_what_they_should_be() -> None:
    schema = load("recipe.v1")
    for path, inner in properties(schema):
        if path.startswith("/then"):
            continue
        checker = Draft7Validator({**inner, "definitions": schema["definitions"]})
        for example in (*inner.get("examples", ()), *([inner["default"]] if "default" in inner else [])):
            assert checker.is_valid(example), f"{path}: {example!r}"


def test_the_schema_of_recipes_is_read_once_and_a_copy_is_ones_own() -> None:
    assert recipe_v1() is recipe_v1()
    assert load("recipe.v1") is not load("recipe.v1")
