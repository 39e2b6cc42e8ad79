"""Options of an environment, checked strictly against the JSON Schemas in its `env.json`; and keys that options
name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import Any, TypeVar

from jsonschema.validators import Draft7Validator, extend

from .errors import BadOption, suggest
from .protocol import Json

__all__ = ["read_key", "read_options"]

T = TypeVar("T")
Schema = Mapping[str, Any]

_FEW = 12
"""Values that are listed in a message."""


def read_options(cls: type[T], given: Mapping[str, Json]) -> T:
    """Make the dataclass of an environment's options, whose module lies next to the environment's `env.json`.

    Lists become tuples; one value where a list is allowed becomes a tuple of one. An option that is not given has the
    dataclass's default, which a test compares with the schema's.
    """
    env = _load_env(cls.__module__.rpartition(".")[0])
    for name in given:
        if name not in env["options"]:
            raise BadOption(f"{env['name']} has no option '{name[:40]}'{suggest(name, env['options'])}")
    for name in env.get("required", ()):
        if name not in given:
            raise BadOption(f"{env['name']} needs the option '{name}': {_describe(env['options'][name])}")
    return cls(**{name: _read(env["name"], name, env["options"][name], value) for name, value in given.items()})


def read_key(variable: str, environ: Mapping[str, str]) -> str:
    """Read a key from an environment variable, empty where it is not set.

    White space around it, as at the end of a file, is removed; what no header can hold is refused here, because an HTTP
    client would show it.
    """
    key = environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise BadOption(f"the environment variable {variable} is no key: expected printable ASCII on one line")
    return key


@cache
def _load_env(package: str) -> Any:
    return json.loads(files(package).joinpath("env.json").read_text("utf-8"))


def _describe(schema: Schema) -> str:
    description = str(schema["description"])
    return description[0].lower() + description[1:].rstrip(".")


# --- values ---

_is_kind = Draft7Validator.TYPE_CHECKER.redefine_many(
    {
        "array": lambda _, value: isinstance(value, list | tuple),
        "object": lambda _, value: isinstance(value, Mapping),
        "integer": lambda _, value: isinstance(value, int) and not isinstance(value, bool),
        # isfinite raises on a whole number too large for a float
        "number": lambda _, value: (
            (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and isfinite(value))
        ),
    }
)
_extend: Any = extend  # typed as Any, because its own types are not complete
_Validator = _extend(Draft7Validator, type_checker=_is_kind)


def _read(env: str, option: str, schema: Schema, value: Json) -> object:
    for error in _Validator(schema).iter_errors(value):
        if error.validator == "enum" and error.path and type(error.instance) is type(error.validator_value[0]):
            hint = suggest(str(error.instance), map(str, error.validator_value))
            raise BadOption(f"{env} option '{option}' knows no '{str(error.instance)[:60]}'{hint}")
        raise BadOption(f"{env} option '{option}' must {_expectation(schema)}")
    return _convert(schema, value)


def _convert(schema: Schema, value: Any) -> object:
    for each in schema.get("anyOf", [schema]):
        if each.get("type") == "array":
            listed = value if isinstance(value, list | tuple) else [value]
            return tuple(_convert(each.get("items", {}), item) for item in listed)
    return float(value) if schema.get("type") == "number" else _copy(value)


def _copy(value: Json) -> Any:
    """Copy into the plain lists and dicts that foreign packages expect."""
    if isinstance(value, Mapping):
        return {name: _copy(each) for name, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list | tuple) else value


# --- what a schema asks for, in words ---


def _expectation(schema: Schema) -> str:
    """What a schema asks for, to be read after "must"."""
    if "anyOf" in schema:
        return " or ".join(map(_expectation, schema["anyOf"]))
    if "enum" in schema:
        return f"be one of {', '.join(map(str, schema['enum']))}"
    expectation = _EXPECTATIONS.get(schema.get("type", ""))
    return expectation(schema) if expectation else "be as env.json says"


def _expected_list(schema: Schema) -> str:
    num = f" {schema['minItems']}" if schema.get("minItems") == schema.get("maxItems") is not None else ""
    different = " different" if schema.get("uniqueItems") else ""
    return f"list{num}{different} {_items(schema.get('items', {}))}"


def _items(schema: Schema) -> str:
    if "enum" in schema:
        return f"ones of {', '.join(map(str, schema['enum']))}" if len(schema["enum"]) <= _FEW else "names"
    kinds = {"string": "texts", "number": "numbers", "integer": "whole numbers"}
    return kinds.get(schema.get("type", ""), "values") + _range(schema)


def _expected_text(schema: Schema) -> str:
    pattern = schema.get("pattern")
    if pattern is not None:
        return {"^https?://": "begin with http:// or https://"}.get(pattern, f"match {pattern}")
    return "be a text that is not empty" if schema.get("minLength") else "be a text"


def _range(schema: Schema) -> str:
    low, above, high = (schema.get(key) for key in ("minimum", "exclusiveMinimum", "maximum"))
    if low is not None and high is not None:
        return f" from {low} to {high}"
    bounds = {"of at least": low, "above": above, "of at most" if above is None else "and at most": high}
    return "".join(f" {words} {bound}" for words, bound in bounds.items() if bound is not None)


_EXPECTATIONS: Mapping[str, Callable[[Schema], str]] = {
    "boolean": lambda schema: "be true or false",
    "integer": lambda schema: f"be a whole number{_range(schema)}",
    "number": lambda schema: f"be a number{_range(schema)}",
    "string": _expected_text,
    "object": lambda schema: "be a table",
    "array": _expected_list,
}
