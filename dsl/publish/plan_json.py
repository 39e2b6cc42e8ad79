"""Frozen dataclasses as plain JSON data, by what `reflect.py` reads from their type hints.

Of a secret only a reference such as `${env:NAME}` is ever written; a secret itself becomes null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from ..expression.expr import Expr
from ..model.hidden import Hidden
from ..model.reflect import Number, Record, Row, Series, Table, Type, Word, record

__all__ = ["REFERENCE", "dump_canonical", "dump_json", "encode", "encode_free", "to_json"]

REFERENCE = re.compile(r"\$\{env:[A-Za-z_][A-Za-z0-9_]*(:-|:\?[^{}]*)?\}")
"""Where a secret is to be read from; with a default in it, it could hold the secret."""


def to_json(value: Any) -> Any:
    """Plain data of a dataclass: dicts in field order, lists, scalars."""
    cls: Any = type(value)
    return encode(value, record(cls), _leaf)


def dump_json(value: Any) -> str:
    """Text for a file: indented, in field order, with a final line break. Equal values give equal bytes."""
    return json.dumps(to_json(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def dump_canonical(value: Any) -> str:
    """Text for a hash: keys sorted, no blanks; the order of mappings does not show."""
    return json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _leaf(value: Any, type_: Type) -> Any:
    match type_:
        case Word(secret=True):
            return value if REFERENCE.fullmatch(value) else None
        case Number(whole=False) if isinstance(value, int):
            return float(value)  # so that 1 and 1.0 give the same bytes
        case _:
            return encode_free(value)


def encode(value: Any, type_: Type, leaf: Callable[[Any, Type], Any]) -> Any:
    """Plain data of a value, whose leaves are encoded by `leaf`."""
    if value is None:
        return None
    match type_:
        case Record():
            return {each.name: encode(getattr(value, each.name), each.type, leaf) for each in type_.fields.values()}
        case Table():
            return {name: encode(item, type_.item, leaf) for name, item in value.items()}
        case Series():
            return [encode(item, type_.item, leaf) for item in value]
        case Row():
            return [encode(item, each, leaf) for item, each in zip(value, type_.items, strict=True)]
        case _:
            return leaf(value, type_)


def encode_free(value: Any, write_text: Callable[[str], str] = str) -> Any:
    """Plain data of a value of any type."""
    if isinstance(value, Expr):
        value = value.text
    if isinstance(value, Hidden):
        return value.shown
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: encode_free(item, write_text) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode_free(item, write_text) for item in value]
    return write_text(value) if isinstance(value, str) else value
