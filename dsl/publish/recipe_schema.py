"""The JSON Schema of recipes, made from the dataclasses.

`python -m agym.dsl.publish.recipe_schema` writes schemas/recipe.v1.json.

Enters: the classes of `recipe.py` and the strings under their fields. Leaves: a draft-07 schema with a title, a
description, a default and examples at every key.

Two rules make errors exact and editors quiet. The alternatives of an `anyOf` take different kinds of values (text,
number, map, ...), so that the one a person meant is known by what they wrote; and where text is not welcome anyway,
text with `${...}` is, because an editor sees a recipe before such references are replaced.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..check.presets import presets
from ..model.algorithm import Preset
from ..model.fields import NOT_BLANK
from ..model.recipe import Recipe, Stage
from ..model.reflect import (
    ABSENT,
    Choice,
    Constant,
    Field,
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
)
from .resolved import brief, plain

__all__ = ["SCHEMA_FILE", "recipe_schema", "text"]

Schema = dict[str, Any]

SCHEMA_FILE = Path(__file__).parents[2] / "schemas" / "recipe.v1.json"
REFERENCE = {"$ref": "#/definitions/reference"}
ENVIRONMENT_VARIABLE = r"\$\{env:[A-Za-z_][A-Za-z0-9_]*(:[?-][^{}]*)?\}"


def recipe_schema() -> Schema:
    """The published schema: what may stand in one file, before and after it is composed with others."""
    recipe = record(Recipe)
    properties = {**COMPOSITION, **_properties(recipe)}
    order = ["agym", "name", "description", *properties]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "urn:agym:schema:recipe:v1",
        "title": "agym recipe, version 1",
        "description": "One training run: the model, its environments, the algorithm and the schedule.",
        "type": "object",
        "required": ["agym"],
        "additionalProperties": False,
        "properties": {name: properties[name] for name in dict.fromkeys(order)},
        "if": {"not": {"required": ["extends"]}},
        "then": _demands(recipe),
        "definitions": {"reference": REFERENCE_TEXT}
        | {each.cls.__name__: _definition(each, recipe) for each in records(recipe) if each is not recipe},
    }


def text() -> str:
    """The file, byte for byte."""
    return json.dumps(recipe_schema(), indent=1, ensure_ascii=False) + "\n"


# --- keys that are gone once a recipe is composed ------------------------------------------------------------------

REFERENCE_TEXT: Schema = {
    "title": "reference",
    "description": "Text that contains `${vars.NAME}` or `${env:NAME}`.",
    "type": "string",
    "pattern": r"\$\{.+\}",
    "examples": ["${vars.size}"],
}

COMPOSITION: Mapping[str, Schema] = {
    "extends": {
        "title": "extends",
        "description": "Recipes that this one extends: files next to it, or shipped recipes by name; a list merges "
        "left to right.",
        "default": [],
        "examples": ["base/grpo-7b", ["base/grpo-7b", "./cluster.yaml"]],
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "items": {"type": "string", "minLength": 1}},
        ],
    },
    "vars": {
        "title": "vars",
        "description": "Values of your own, used as `${vars.NAME}`.",
        "default": {},
        "examples": [{"last": 30}],
        "type": "object",
        "additionalProperties": True,
    },
    "matrix": {
        "title": "matrix",
        "description": "One run per combination: lists of values by the dotted key that they replace.",
        "default": {},
        "examples": [{"seed": [0, 1, 2], "algorithm.lr": [1e-6, 3e-6]}],
        "type": "object",
        "additionalProperties": {"anyOf": [{"type": "array", "items": {}, "minItems": 1}, REFERENCE]},
    },
}


# --- records -------------------------------------------------------------------------------------------------------


def _definition(each: Record, recipe: Record) -> Schema:
    made: Schema = {
        "title": _words(each.cls.__name__),
        "description": each.doc,
        "type": "object",
        "additionalProperties": False,
    }
    required = [field.name for field in each.fields.values() if field.required]
    if required and each in _listed(recipe):  # a list is never merged, so what its items need must stand in them
        made["required"] = required
    return made | {"properties": _properties(each)}


def _listed(recipe: Record) -> list[Type]:
    every = [field.type for each in records(recipe) for field in each.fields.values()]
    return [type_.item for type_ in every if isinstance(type_, Series)]


def _demands(each: Record) -> Schema:
    """The keys that must be there once nothing more can be laid over or under; those in lists excepted."""
    required = [field.name for field in each.fields.values() if field.required]
    parts = {field.name: _demands_of(field.type) for field in each.fields.values()}
    inner = {name: part for name, part in parts.items() if part}
    return ({"required": required} if required else {}) | ({"properties": inner} if inner else {})


def _demands_of(type_: Type) -> Schema:
    if isinstance(type_, Record):
        return _demands(type_)
    inner = _demands_of(type_.item) if isinstance(type_, Table) else {}
    return {"additionalProperties": inner} if inner else {}


def _properties(each: Record) -> dict[str, Schema]:
    docs = _docs(each.cls)
    properties = {name: _property(field, docs[name], each.cls) for name, field in each.fields.items()}
    return properties | {old: _old_name(properties[new], old, new) for old, new in each.renamed.items()}


def _old_name(property_: Schema, old: str, new: str) -> Schema:
    doc = f"Renamed to `{new}`."
    return property_ | {"title": old, "description": doc, "deprecated": True, "deprecationMessage": doc}


def _property(field: Field, doc: str, owner: type) -> Schema:
    made: Schema = {"title": field.name, "description": doc}
    if field.default is not ABSENT:
        made["default"] = {} if owner is Stage and isinstance(field.type, Record) else brief(field.default, field)
    if isinstance(field.type, Choice) and field.type.enum is Preset:
        made["markdownEnumDescriptions"] = [presets()[Preset(name)].summary for name in field.type.values]
    return made | {"examples": [_example(field)]} | _union(_branches(field.type) + [{"type": "null"}] * field.nullable)


def _words(name: str) -> str:
    spaced = "".join(f" {char}" if char.isupper() else char for char in name)
    return name if name.isupper() else spaced.strip().lower()


# --- types ---------------------------------------------------------------------------------------------------------


def _union(branches: list[Schema]) -> Schema:
    if not any(map(_takes_any_text, branches)) and not any("const" in branch for branch in branches):
        branches = [*branches, REFERENCE]
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def _takes_any_text(branch: Schema) -> bool:
    asked = branch.keys() & {"enum", "pattern"}
    return "string" in branch.get("type", ()) and (not asked or branch.get("x-expected") == NOT_BLANK.what)


def _branches(type_: Type) -> list[Schema]:
    match type_:
        case Number():
            return [_number(type_), _expression(type_.scope or "constant", ["string"])]
        case Flag():
            return [{"type": "boolean"}]
        case Word():
            return [_word(type_)]
        case Choice():
            return [{"type": "string", "enum": list(type_.values)}]
        case Constant():
            return [{"type": "integer", "const": value} for value in type_.values]
        case Formula():
            return [_expression(type_.scope, ["string", "number", "boolean"])]
        case _:
            return _containers(type_)


def _containers(type_: Type) -> list[Schema]:
    match type_:
        case Record():
            short = _branches(type_.fields[type_.shorthand].type) if type_.shorthand else []
            marked = [branch | {"x-short-for": type_.shorthand} for branch in short]
            return [{"$ref": f"#/definitions/{type_.cls.__name__}"}, *marked]
        case Table():
            names = {"propertyNames": _word(Word(pattern=type_.names))} if type_.names else {}
            return [{"type": "object", **names, "additionalProperties": _union([*_branches(type_.item), NULL])}]
        case Series():
            items = _branches(type_.item)
            return [{"type": "array", "items": _union(items)}, *(items if type_.bare else [])]
        case Row():
            size = len(type_.items)
            items = [_union(_branches(item)) for item in type_.items]
            return [{"type": "array", "items": items, "minItems": size, "maxItems": size}]
        case Free(map=True):
            return [{"type": "object", "additionalProperties": True}]
        case _:
            return [{}]


NULL: Schema = {"type": "null"}


def _number(type_: Number) -> Schema:
    bounds = type_.bounds
    limits = {
        "minimum": bounds.at_least,
        "exclusiveMinimum": bounds.above,
        "maximum": bounds.at_most,
        "exclusiveMaximum": bounds.below,
    }
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return {"type": "integer" if type_.whole else "number", **given}


def _expression(scope: str, kinds: list[str]) -> Schema:
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "x-scope": scope}


def _word(type_: Word) -> Schema:
    if type_.secret:
        return {"type": "string", "pattern": ENVIRONMENT_VARIABLE, "x-secret": True}
    if type_.pattern is None:
        return {"type": "string"}
    return {"type": "string", "pattern": f"^(?:{type_.pattern.regex})$", "x-expected": type_.pattern.what}


# --- examples ------------------------------------------------------------------------------------------------------


def _example(field: Field) -> Any:
    if field.example is not ABSENT:
        return field.example
    default = None if field.default is ABSENT else brief(field.default, field)
    return _sample(field.type) if default is None or default == {} else default


def _sample(type_: Type) -> Any:
    match type_:
        case Number(bounds=bounds):
            return 1 if bounds.at_least is None else max(1, bounds.at_least)
        case Choice():
            return type_.values[0]
        case Constant():
            return type_.values[0]
        case Record():
            return _sample_record(type_)
        case Series():
            return [_sample(type_.item)]
        case Table():
            return {}
        case _:
            return plain(True, type_)


def _sample_record(each: Record) -> Any:
    if each.shorthand is not None:
        return _example(each.fields[each.shorthand])
    fields = list(each.fields.values())
    telling = [field for field in fields if field.required or field.example is not ABSENT]
    first = not any(field.required for field in fields)
    return {field.name: _example(field) for field in (fields[:1] if first else telling)}


# --- documentation -------------------------------------------------------------------------------------------------


def _docs(cls: type) -> Mapping[str, str]:
    """The string under each field of a class, which only its source has."""
    module = _tree(cls.__module__)
    found = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__)
    return dict(_field_docs(found))


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def _field_docs(body: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement, after in zip(body.body, body.body[1:], strict=False):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        match after:
            case ast.Expr(value=ast.Constant(value=str(doc))):
                yield statement.target.id, " ".join(doc.split())


def main(arguments: list[str], file: Path = SCHEMA_FILE) -> int:
    if arguments == ["--check"]:
        fresh = file.is_file() and file.read_text(encoding="utf-8") == text()
        print(f"{file.name} is {'fresh' if fresh else 'not what the code says: run make docs'}")
        return 0 if fresh else 1
    file.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
