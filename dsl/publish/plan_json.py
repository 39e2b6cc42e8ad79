"""Frozen dataclasses as plain JSON data, by what `reflect.py` reads from their type hints.

Of a secret only a reference such as `${env:NAME}` is ever written; a secret itself becomes null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ..expression.expr import Expr
from ..model.reflect import Number, Record, Row, Series, Table, Type, Word, record

__all__ = ["REFERENCE", "dump_canonical", "dump_json", "to_json"]

REFERENCE = re.compile(r"\$\{env:[A-Za-z_][A-Za-z0-9_]*(:-|:\?[^{}]*)?\}")
"""Where a secret is to be read from; with a default in it, it could hold the secret."""


def to_json(value: Any) -> Any:
    """Plain data of a dataclass: dicts in field order, lists, scalars."""
    cls: Any = type(value)
    return _encode(value, record(cls))


def dump_json(value: Any) -> str:
    """Text for a file: indented, in field order, with a final line break. Equal values give equal bytes."""
    return json.dumps(to_json(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def dump_canonical(value: Any) -> str:
    """Text for a hash: keys sorted, no blanks; the order of mappings does not show."""
    return json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _encode(value: Any, type_: Type) -> Any:
    if value is None:
        return None
    match type_:
        case Record():
            return {each.name: _encode(getattr(value, each.name), each.type) for each in type_.fields.values()}
        case Table():
            return {name: _encode(item, type_.item) for name, item in value.items()}
        case Series():
            return [_encode(item, type_.item) for item in value]
        case Row():
            return [_encode(item, each) for item, each in zip(value, type_.items, strict=True)]
        case Word(secret=True):
            return value if REFERENCE.fullmatch(value) else None
        case Number(whole=False) if isinstance(value, int):
            return float(value)  # so that 1 and 1.0 give the same bytes
        case _:
            return _encode_free(value)


def _encode_free(value: Any) -> Any:
    if isinstance(value, Expr):
        return value.text
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: _encode_free(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_encode_free(item) for item in value]
    return value
