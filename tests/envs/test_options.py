"""One reader for the options of every environment, and that `env.json` and the dataclass next to it say the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from agym.catalog import ENVS
from agym.envs.errors import BadOption
from agym.envs.options import _expectation, read_key, read_options
from agym.envs.protocol import Json

FILES = sorted(ENVS.glob("*/env.json"))
TYPES = {"boolean": bool, "integer": int, "number": float, "string": str, "array": tuple, "object": Mapping}
BARE = {"integer": (None,), "number": (None,), "string": (None, "", MISSING), "array": (None, ()), "object": ({},)}


def options_of(name: str) -> type[Any]:
    module = f"agym.envs.{name}.options"
    found = import_module(module if find_spec(module) else f"agym.envs.{name}.env")
    (cls,) = (getattr(found, each) for each in found.__all__ if each.endswith("Options"))
    return cls  # type: ignore[no-any-return]


def kind_of(hint: Any) -> Any:
    """The type of a value that is given."""
    if get_origin(hint) in (Union, UnionType):
        hint = get_args(hint)[0]
    return get_origin(hint) or hint


def default_of(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


@pytest.mark.parametrize("file", FILES, ids=[file.parent.name for file in FILES])
def test_the_data_for_recipes_and_the_dataclass_say_the_same(file: Path) -> None:
    schemas: Mapping[str, Any] = json.loads(file.read_text("utf-8"))["options"]
    cls = options_of(file.parent.name)
    hints = get_type_hints(cls)
    assert set(schemas) == {field.name for field in fields(cls)}
    for field in fields(cls):
        schema, default = schemas[field.name], default_of(field)
        shape = schema["anyOf"][-1] if "anyOf" in schema else schema
        kind = shape.get("type", "string")  # an enum of texts
        assert kind_of(hints[field.name]) is TYPES[kind], field.name
        if "default" in schema:
            assert (list(default) if kind == "array" else default) == schema["default"], field.name
        else:
            every = schema.get("items", {}).get("enum")
            is_left_out = default is None and "anyOf" in schema
            assert is_left_out or default in BARE[kind] or list(default) == every, field.name


@pytest.mark.parametrize("file", FILES, ids=[file.parent.name for file in FILES])
def test_what_every_option_must_be_can_be_said(file: Path) -> None:
    for schema in json.loads(file.read_text("utf-8"))["options"].values():
        assert _expectation(schema)


# --- the reader ---


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """The options of an environment in a package of its own."""
    options = {
        "rate": {"type": "number", "exclusiveMinimum": 0, "maximum": 2, "description": "A rate."},
        "least": {"type": "integer", "minimum": 1, "description": "The least."},
        "code": {"type": "string", "pattern": "^[a-z]+$", "description": "A code."},
        "names": {"type": "array", "items": {"enum": ["one", "two"]}, "uniqueItems": True, "description": "Some."},
        "pair": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2, "description": "Two."},
        "more": {"type": "object", "description": "More."},
    }
    (tmp_path / "sample_env").mkdir()
    (tmp_path / "sample_env" / "__init__.py").touch()
    data = {"name": "sample", "options": options, "required": ["rate"]}
    (tmp_path / "sample_env" / "env.json").write_text(json.dumps(data), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    @dataclass(frozen=True, kw_only=True)
    class SampleOptions:
        rate: float
        least: int = 1
        code: str = ""
        names: tuple[str, ...] = ()
        pair: tuple[float, ...] = ()
        more: Mapping[str, Any] | None = None

    SampleOptions.__module__ = "sample_env.env"
    return SampleOptions


def test_values_have_the_kinds_that_the_dataclass_names(sample: type[Any]) -> None:
    read = read_options(sample, {"rate": 1, "names": ("two",), "pair": [1, 2], "more": {"a": ({"b": (1,)},)}})
    assert read == sample(rate=1.0, names=("two",), pair=(1.0, 2.0), more={"a": [{"b": [1]}]})
    assert isinstance(read.rate, float)
    assert isinstance(read.more["a"][0]["b"], list)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "sample needs the option 'rate': a rate"),
        ({"rates": 1}, "sample has no option 'rates'; did you mean 'rate'?"),
        ({"zzz": 1}, "sample has no option 'zzz'; expected one of rate, least, code, names, pair, more"),
        ({"rate": 0}, "sample option 'rate' must be a number above 0 and at most 2"),
        ({"rate": float("nan")}, "sample option 'rate' must be a number above 0 and at most 2"),
        ({"rate": True}, "sample option 'rate' must be a number above 0 and at most 2"),
        ({"rate": 1, "least": 1.0}, "sample option 'least' must be a whole number of at least 1"),
        ({"rate": 1, "code": "A"}, "sample option 'code' must match ^[a-z]+$"),
        ({"rate": 1, "names": ["tow"]}, "sample option 'names' knows no 'tow'; did you mean 'two'?"),
        ({"rate": 1, "names": [3]}, "sample option 'names' must list different ones of one, two"),
        ({"rate": 1, "pair": [1]}, "sample option 'pair' must list 2 numbers"),
        ({"rate": 1, "more": []}, "sample option 'more' must be a table"),
    ],
)
def test_a_wrong_option_is_named(sample: type[Any], options: Mapping[str, Json], complaint: str) -> None:
    with pytest.raises(BadOption) as caught:
        read_options(sample, options)
    assert str(caught.value) == complaint


@pytest.mark.parametrize("value", ["sk-secret", "sk-secret\n", " sk-secret\r\n"])
def test_a_key_is_read_without_the_white_space_around_it(value: str) -> None:
    assert read_key("KEY", {"KEY": value}) == "sk-secret"
    assert read_key("NO_KEY", {"KEY": value}) == ""


@pytest.mark.parametrize("value", ["sk-sécret", "sk-\nsecret", "sk-secret\x00", "sk-\udcffsecret"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(BadOption, match=r"^the environment variable KEY is no key: expected printable"):
        read_key("KEY", {"KEY": value})
