"""The JSON Schema of plans, made from the dataclasses; `python -m agym.dsl.publish.plan_schema` writes plan.v1.json.

`python -m agym.dsl.publish.plan_schema` writes schemas/plan.v1.json.

Enters: the classes of `plan.py`. Leaves: a draft-07 schema for whoever reads a plan.json with other tools. A plan is
written by a machine: every key is there, and nothing has a second spelling. What is sound beyond the shape is for
`codec.py` and `verify.py` to say.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..model.plan import Plan
from ..model.reflect import (
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
from .plan_json import REFERENCE

__all__ = ["SCHEMA_FILE", "plan_schema", "text"]

Schema = dict[str, Any]

SCHEMA_FILE = Path(__file__).parents[2] / "schemas" / "plan.v1.json"


def plan_schema() -> Schema:
    """The published schema of plan.json."""
    plan = record(Plan)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "urn:agym:schema:plan:v1",
        "title": "agym plan, version 1",
        **_definition(plan),
        "definitions": {each.cls.__name__: _definition(each) for each in records(plan) if each is not plan},
    }


def text() -> str:
    """The file, byte for byte."""
    return json.dumps(plan_schema(), indent=1, ensure_ascii=False) + "\n"


def _definition(each: Record) -> Schema:
    return {
        "description": each.doc,
        "type": "object",
        "additionalProperties": False,
        "required": list(each.fields),
        "properties": {name: _property(field) for name, field in each.fields.items()},
    }


def _property(field: Field) -> Schema:
    branches = [*_branches(field.type), *([{"type": "null"}] if field.nullable else [])]
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def _branches(type_: Type) -> list[Schema]:
    if isinstance(type_, Number):
        return [_number(type_), *([{"type": "string", "minLength": 1}] if type_.scope else [])]
    return [_one(type_)]


def _one(type_: Type) -> Schema:
    match type_:
        case Record():
            return {"$ref": f"#/definitions/{type_.cls.__name__}"}
        case Table():
            names = {"propertyNames": _one(Word(pattern=type_.names))} if type_.names else {}
            return {"type": "object", **names, "additionalProperties": _union(type_.item)}
        case Series():
            return {"type": "array", "items": _union(type_.item)}
        case Row():
            size = len(type_.items)
            return {
                "type": "array",
                "items": [_union(each) for each in type_.items],
                "minItems": size,
                "maxItems": size,
            }
        case Free():
            return {"type": "object"} if type_.map else {}
        case _:
            return _scalar(type_)


def _union(type_: Type) -> Schema:
    branches = _branches(type_)
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def _scalar(type_: Type) -> Schema:
    match type_:
        case Word(secret=True):
            return {"type": "string", "pattern": f"^{REFERENCE.pattern}$"}
        case Word():
            return {"type": "string"} | ({"pattern": f"^(?:{type_.pattern.regex})$"} if type_.pattern else {})
        case Choice():
            return {"type": "string", "enum": list(type_.values)}
        case Constant():
            return {"enum": list(type_.values)}
        case Flag():
            return {"type": "boolean"}
        case Formula():
            return {"type": "string", "minLength": 1}
        case _:
            raise TypeError(f"a plan cannot hold {type_!r}")


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


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        fresh = SCHEMA_FILE.is_file() and SCHEMA_FILE.read_text(encoding="utf-8") == text()
        print(f"{SCHEMA_FILE.name} is {'fresh' if fresh else 'not what the code says: run make docs'}")
        return 0 if fresh else 1
    SCHEMA_FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
