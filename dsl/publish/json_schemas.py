"""The JSON Schemas of recipes and plans, made from the dataclasses and the strings under their fields.

Two rules make their errors exact and editors quiet: the alternatives of an `anyOf` take different kinds of values, so
that the one a person meant is known by what they wrote; and where text is not allowed, text with `${...}` is, because
an editor sees a recipe before such references are replaced.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..check.presets import load_presets
from ..model import reflect
from ..model.algorithm import Preset
from ..model.fields import NOT_BLANK, SLUG
from ..model.plan import Plan
from ..model.recipe import Environment, Recipe, Stage
from ..model.reflect import ABSENT, Field, Record, Type, record, records
from .plan_json import REFERENCE as SECRET
from .resolved import to_brief, to_plain

__all__ = ["make_plan_schema", "make_recipe_schema", "write_plan_schema", "write_recipe_schema"]

SchemaDict = dict[str, Any]

COMPOSITION = Path(__file__).with_name("composition.json")
"""The keys that are gone once a recipe is composed, and the text that stands for a reference."""
ROOT = Path(__file__).resolve().parents[2]
"""Of the package, where the shipped recipes and environments are."""
REFERENCE = {"$ref": "#/definitions/reference"}
ENVIRONMENT_VARIABLE = r"\$\{env:[A-Za-z_][A-Za-z0-9_]*(:[?-][^{}]*)?\}"


def make_recipe_schema() -> SchemaDict:
    """The published schema: what may stand in one file, before and after it is composed with others."""
    recipe, writer = record(Recipe), RecipeSchemaWriter()
    composition = json.loads(COMPOSITION.read_text(encoding="utf-8"))
    properties = {**composition["properties"], **writer.properties(recipe)}
    properties["extends"] |= {"examples": _names(properties["extends"]["examples"], "recipes/**/*.yaml")}
    order = ["agym", "name", "description", *properties]
    return {
        **_head("recipe"),
        "description": "One training run: the model, its environments, the algorithm and the schedule.",
        "type": "object",
        "required": ["agym"],
        "additionalProperties": False,
        "properties": {name: properties[name] for name in dict.fromkeys(order)},
        "if": {"not": {"required": ["extends"]}},
        "then": _demands(recipe),
        "definitions": {"reference": composition["reference"]} | writer.definitions(recipe),
    }


def _names(first: Iterable[Any], pattern: str) -> list[Any]:
    """Examples for an editor to offer: these, then all that are shipped."""
    files = sorted(ROOT.glob(pattern))
    shipped = [
        json.loads(file.read_text(encoding="utf-8"))["name"]
        if file.suffix == ".json"
        else file.relative_to(ROOT / "recipes").with_suffix("").as_posix()
        for file in files
    ]
    examples = list(first)
    return examples + [name for name in shipped if name not in examples]


def make_plan_schema() -> SchemaDict:
    """The published schema of plan.json."""
    plan, writer = record(Plan), SchemaWriter()
    return {**_head("plan"), **writer.definition(plan), "definitions": writer.definitions(plan)}


def _head(what: str) -> SchemaDict:
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": f"urn:agym:schema:{what}:v1",
        "title": f"agym {what}, version 1",
    }


def write_recipe_schema() -> str:
    return _as_text(make_recipe_schema())


def write_plan_schema() -> str:
    return _as_text(make_plan_schema())


def _as_text(schema: SchemaDict) -> str:
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


# --- values as a machine writes them ---------------------------------------------------------------------------------


class SchemaWriter:
    """Schemas by the types of values: every key is present, and nothing has a second spelling."""

    def definitions(self, root: Record) -> dict[str, SchemaDict]:
        return {each.cls.__name__: self.definition(each) for each in records(root) if each is not root}

    def definition(self, each: Record) -> SchemaDict:
        return {
            "description": each.doc,
            "type": "object",
            "additionalProperties": False,
            "required": list(each.fields),
            "properties": self.properties(each),
        }

    def properties(self, each: Record) -> dict[str, SchemaDict]:
        return {name: self.union(self.field(field)) for name, field in each.fields.items()}

    def field(self, field: Field) -> list[SchemaDict]:
        return self.branches(field.type) + [NULL] * field.nullable

    def union(self, branches: list[SchemaDict]) -> SchemaDict:
        return branches[0] if len(branches) == 1 else {"anyOf": branches}

    def branches(self, type_: Type) -> list[SchemaDict]:
        match type_:
            case reflect.Number():
                return [_number(type_), *self.calculated(type_)]
            case reflect.Flag():
                return [{"type": "boolean"}]
            case reflect.Word():
                return [self.word(type_)]
            case reflect.Choice():
                return [{"type": "string", "enum": list(type_.values)}]
            case reflect.Constant():
                return self.constant(type_)
            case reflect.Formula():
                return self.formula(type_)
            case Record():
                return self.record(type_)
            case reflect.Table():
                names = {"propertyNames": self.word(reflect.Word(pattern=type_.names))} if type_.names else {}
                return [{"type": "object", **names, "additionalProperties": self.union(self.item(type_))}]
            case reflect.Series():
                return self.series(type_)
            case reflect.Row():
                size, items = len(type_.items), [self.union(self.branches(item)) for item in type_.items]
                return [{"type": "array", "items": items, "minItems": size, "maxItems": size}]
            case reflect.Free():
                return self.free(type_)
        raise TypeError(f"no schema for {type_!r}")

    # Where a person has more to choose from

    def calculated(self, type_: reflect.Number) -> list[SchemaDict]:
        return [{"type": "string", "minLength": 1}] if type_.scope else []

    def formula(self, type_: reflect.Formula) -> list[SchemaDict]:
        return [{"type": "string", "minLength": 1}]

    def word(self, type_: reflect.Word) -> SchemaDict:
        if type_.secret:
            return {"type": "string", "pattern": f"^{SECRET.pattern}$"}
        regex = type_.pattern.regex if type_.pattern else ""
        # a plan has `${env:NAME}` where the recipe has it
        regex = regex if type_.pattern is SLUG or re.fullmatch(regex, "${env:A}") else rf"{regex}|.*\$\{{env:.+"
        return {"type": "string"} | ({"pattern": f"^(?:{regex})$"} if type_.pattern else {})

    def constant(self, type_: reflect.Constant) -> list[SchemaDict]:
        return [{"enum": list(type_.values)}]

    def record(self, type_: Record) -> list[SchemaDict]:
        return [{"$ref": f"#/definitions/{type_.cls.__name__}"}]

    def item(self, type_: reflect.Table) -> list[SchemaDict]:
        return self.branches(type_.item)

    def series(self, type_: reflect.Series) -> list[SchemaDict]:
        return [{"type": "array", "items": self.union(self.branches(type_.item))}]

    def free(self, type_: reflect.Free) -> list[SchemaDict]:
        return [{"type": "object"} if type_.map else {}]


NULL: SchemaDict = {"type": "null"}


def _unsets(field: Field) -> list[SchemaDict]:
    """`null` where it is no value of its own: it takes the key away, and the default returns."""
    return [] if field.nullable or field.required else [NULL | {"x-unsets": True}]


def _number(type_: reflect.Number) -> SchemaDict:
    bounds = type_.bounds
    limits = {
        "minimum": bounds.at_least,
        "exclusiveMinimum": bounds.above,
        "maximum": bounds.at_most,
        "exclusiveMaximum": bounds.below,
    }
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return {"type": "integer" if type_.whole else "number", **given}


# --- values as a person writes them ----------------------------------------------------------------------------------


class RecipeSchemaWriter(SchemaWriter):
    """Schemas with expressions, references and short forms, explained at every key."""

    def definition(self, each: Record) -> SchemaDict:
        made: SchemaDict = {
            "title": _words(each.cls.__name__),
            "description": each.doc,
            "type": "object",
            "additionalProperties": False,
        }
        required = [field.name for field in each.fields.values() if field.required]
        if required and each in _listed():  # a list is never merged, so what its items need must be written in them
            made["required"] = required
        return made | {"properties": self.properties(each)}

    def properties(self, each: Record) -> dict[str, SchemaDict]:
        docs = _docs(each.cls)
        made = {
            name: _explanation(field, docs[name], each.cls) | self.union(self.field(field) + _unsets(field))
            for name, field in each.fields.items()
        }
        if each.cls is Environment:
            made["use"]["examples"] = _names(made["use"]["examples"], "envs/*/env.json")
        return made | {old: _old_name(made[new], old, new) for old, new in each.renamed.items()}

    def union(self, branches: list[SchemaDict]) -> SchemaDict:
        if not any(map(_takes_any_text, branches)) and not any("const" in branch for branch in branches):
            branches = [*branches, REFERENCE]
        return super().union(branches)

    def calculated(self, type_: reflect.Number) -> list[SchemaDict]:
        return [{"type": "string", "x-scope": type_.scope or "constant"}]

    def formula(self, type_: reflect.Formula) -> list[SchemaDict]:
        return [{"type": ["string", "number", "boolean"], "x-scope": type_.scope}]

    def word(self, type_: reflect.Word) -> SchemaDict:
        if type_.secret:
            return {"type": "string", "pattern": ENVIRONMENT_VARIABLE, "x-secret": True}
        pattern = type_.pattern
        made = {"pattern": f"^(?:{pattern.regex})$", "x-expected": pattern.what} if pattern else {}
        return {"type": "string"} | made

    def constant(self, type_: reflect.Constant) -> list[SchemaDict]:
        return [{"type": "integer", "const": value} for value in type_.values]

    def record(self, type_: Record) -> list[SchemaDict]:
        short = self.branches(type_.fields[type_.shorthand].type) if type_.shorthand else []
        if type_.cls is Environment:
            short = [branch | {"examples": _names((), "envs/*/env.json")} for branch in short]
        return super().record(type_) + [branch | {"x-short-for": type_.shorthand} for branch in short]

    def item(self, type_: reflect.Table) -> list[SchemaDict]:
        return [*super().item(type_), NULL]

    def series(self, type_: reflect.Series) -> list[SchemaDict]:
        return super().series(type_) + (self.branches(type_.item) if type_.bare else [])

    def free(self, type_: reflect.Free) -> list[SchemaDict]:
        return [{"type": "object", "additionalProperties": True} if type_.map else {}]


def _takes_any_text(branch: SchemaDict) -> bool:
    asked = branch.keys() & {"enum", "pattern"}
    return "string" in branch.get("type", ()) and (not asked or branch.get("x-expected") == NOT_BLANK.what)


@cache
def _listed() -> list[Type]:
    every = [field.type for each in records(record(Recipe)) for field in each.fields.values()]
    return [type_.item for type_ in every if isinstance(type_, reflect.Series)]


def _demands(type_: Type) -> SchemaDict:
    """The keys that must be there once nothing more can be laid over or under; those in lists excepted."""
    match type_:
        case Record():
            required = [field.name for field in type_.fields.values() if field.required]
            inner = {field.name: part for field in type_.fields.values() if (part := _demands(field.type))}
            return ({"required": required} if required else {}) | ({"properties": inner} if inner else {})
        case reflect.Table():
            part = _demands(type_.item)
            return {"additionalProperties": part} if part else {}
        case _:
            return {}


def _old_name(property_: SchemaDict, old: str, new: str) -> SchemaDict:
    doc = f"Renamed to `{new}`."
    return property_ | {"title": old, "description": doc, "deprecated": True, "deprecationMessage": doc}


def _explanation(field: Field, doc: str, owner: type) -> SchemaDict:
    made: SchemaDict = {"title": field.name, "description": doc}
    if field.default is not ABSENT:
        made["default"] = {} if owner is Stage and isinstance(field.type, Record) else to_brief(field.default, field)
    if isinstance(field.type, reflect.Choice) and field.type.enum is Preset:
        made["markdownEnumDescriptions"] = [load_presets()[Preset(name)].summary for name in field.type.values]
    return made | {"examples": [_example(field)]}


def _words(name: str) -> str:
    spaced = "".join(f" {char}" if char.isupper() else char for char in name)
    return name if name.isupper() else spaced.strip().lower()


# --- examples ------------------------------------------------------------------------------------------------------


def _example(field: Field) -> Any:
    if field.example is not ABSENT:
        return field.example
    default = None if field.default is ABSENT else to_brief(field.default, field)
    return _sample(field.type) if default is None or default == {} else default


def _sample(type_: Type) -> Any:
    match type_:
        case reflect.Number(bounds=bounds):
            return 1 if bounds.at_least is None else max(1, bounds.at_least)
        case reflect.Choice() | reflect.Constant():
            return type_.values[0]
        case Record():
            return _sample_record(type_)
        case reflect.Series():
            return [_sample(type_.item)]
        case reflect.Table():
            return {}
        case _:
            return to_plain(True, type_)


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
