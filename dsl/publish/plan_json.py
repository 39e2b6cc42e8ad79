"""Frozen dataclasses to plain JSON data and back, by what `reflect.py` reads from their type hints.

Enters: a dataclass, or text. Leaves: text, or a dataclass. Strict both ways: an unknown or missing key, a wrong type, a
value out of its bounds or an expression that is none is a CodecError that names the path. Of a secret only a reference
such as `${env:NAME}` is ever written; a secret itself becomes null.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NoReturn, TypeVar

from ..expression.check import examine
from ..expression.expr import Expr, ExprType
from ..model.fields import Bounds
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
)
from ..suggest import shown

__all__ = ["REFERENCE", "CodecError", "canonical", "dumps", "from_json", "loads", "to_json"]

T = TypeVar("T")
Path = tuple[str | int, ...]

MAX_DEPTH = 100
REFERENCE = re.compile(r"\$\{env:[A-Za-z_][A-Za-z0-9_]*(:-|:\?[^{}]*)?\}")
"""Where a secret is to be read from; with a default in it, it could hold the secret."""


class CodecError(ValueError):
    """Data that is not what its type says."""

    def __init__(self, path: Path, message: str) -> None:
        self.path = path
        super().__init__(f"{_show(path)}: {message}")


def to_json(value: Any) -> Any:
    """Plain data of a dataclass: dicts in field order, lists, scalars."""
    return _encode(value, _described(type(value)), ())


def from_json(cls: type[T], data: Any) -> T:
    """The dataclass that the data describes."""
    made: T = _decode(data, _described(cls), ())
    return made


def _described(cls: Any) -> Record:
    return record(cls)


def dumps(value: Any) -> str:
    """Text for a file: indented, in field order, with a final line break. Equal values give equal bytes."""
    return json.dumps(to_json(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def canonical(value: Any) -> str:
    """Text for a hash: keys sorted, no blanks; the order of mappings does not show."""
    return json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def loads(cls: type[T], text: str) -> T:
    """The dataclass that a JSON text describes."""
    return from_json(cls, _parse(text))


# --- text to data --------------------------------------------------------------------------------------------------


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_constant)
    except CodecError:
        raise
    except RecursionError:
        raise CodecError((), "is nested too deeply") from None
    except ValueError as error:
        raise CodecError((), f"is not JSON: {error}") from None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise CodecError((), f"holds the key {shown(twice)} twice")
    return made


def _no_constant(name: str) -> NoReturn:
    raise CodecError((), f"{name} is not a number that JSON knows")


# --- dataclass to data ---------------------------------------------------------------------------------------------


def _encode(value: Any, type_: Type, path: Path) -> Any:
    if value is None:
        return None
    match type_:
        case Record():
            parts = type_.fields.values()
            return {each.name: _encode(getattr(value, each.name), each.type, (*path, each.name)) for each in parts}
        case Table():
            return {name: _encode(item, type_.item, (*path, name)) for name, item in value.items()}
        case Series():
            return [_encode(item, type_.item, (*path, i)) for i, item in enumerate(value)]
        case Row():
            return [_encode(item, type_.items[i], (*path, i)) for i, item in enumerate(value)]
        case Word(secret=True):
            return value if REFERENCE.fullmatch(value) else None
        case Number(whole=False) if isinstance(value, int):
            return float(value)  # so that 1 and 1.0 give the same bytes
        case _:
            return _encode_free(value, path)


def _encode_free(value: Any, path: Path) -> Any:
    if isinstance(value, Expr):
        return value.text
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: _encode_free(item, (*path, name)) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_encode_free(item, (*path, i)) for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise CodecError(path, "is not a finite number")
    return value


# --- data to dataclass ---------------------------------------------------------------------------------------------


def _decode(data: Any, type_: Type, path: Path) -> Any:
    return _DECODERS[type(type_)](data, type_, path)


def _record(data: Any, type_: Record, path: Path) -> Any:
    # a plan of an earlier version has the old names of keys
    given = {type_.renamed.get(name, name): value for name, value in _object(data, path).items()}
    unknown = sorted(given.keys() - type_.fields.keys())
    if unknown:
        raise CodecError((*path, unknown[0]), "is not a known key")
    missing = [name for name in type_.fields if name not in given]
    if missing:
        raise CodecError((*path, missing[0]), "is missing")
    return type_.cls(**{name: _field(given[name], field, (*path, name)) for name, field in type_.fields.items()})


def _field(data: Any, field: Field, path: Path) -> Any:
    return None if data is None and field.nullable else _decode(data, field.type, path)


def _table(data: Any, type_: Table, path: Path) -> Any:
    named = {_word(name, Word(pattern=type_.names), (*path, name)): item for name, item in _object(data, path).items()}
    return {name: _decode(item, type_.item, (*path, name)) for name, item in named.items()}


def _series(data: Any, type_: Series, path: Path) -> Any:
    return tuple(_decode(item, type_.item, (*path, i)) for i, item in enumerate(_list(data, path)))


def _row(data: Any, type_: Row, path: Path) -> Any:
    items = _list(data, path)
    if len(items) != len(type_.items):
        raise CodecError(path, f"expected {len(type_.items)} items, not {len(items)}")
    return tuple(_decode(item, type_.items[i], (*path, i)) for i, item in enumerate(items))


def _word(data: Any, type_: Word, path: Path) -> str:
    text = _text(data, "text", path)
    if type_.secret and not REFERENCE.fullmatch(text):
        raise CodecError(path, "expected where the secret is read from, as '${env:NAME}'")
    if type_.pattern is not None and not re.fullmatch(type_.pattern.regex, text):
        raise CodecError(path, f"expected {type_.pattern.what}")
    return text


def _choice(data: Any, type_: Choice, path: Path) -> Any:
    if data not in type_.values:
        raise CodecError(path, f"expected one of {', '.join(type_.values)}")
    return type_.enum(data)


def _constant(data: Any, type_: Constant, path: Path) -> Any:
    if not any(type(each) is type(data) and each == data for each in type_.values):
        raise CodecError(path, f"expected {' or '.join(map(repr, type_.values))}")
    return data


def _flag(data: Any, type_: Flag, path: Path) -> bool:
    return data if isinstance(data, bool) else _wrong(data, "true or false", path)


def _number(data: Any, type_: Number, path: Path) -> int | float | Expr:
    if type_.scope is not None and isinstance(data, str):
        return _expression(data, type_.scope, type_.want, path)
    if isinstance(data, bool) or not isinstance(data, int if type_.whole else int | float):
        return _wrong(data, f"a {type_.want}" + (" or an expression" if type_.scope else ""), path)
    value = data if type_.whole else _finite(data, path)
    broken = _broken(value, type_.bounds)
    if broken is not None:
        raise CodecError(path, f"expected {broken}")
    return value


def _finite(data: int | float, path: Path) -> float:
    try:
        value = float(data)
    except OverflowError:
        raise CodecError(path, "is too large") from None
    if not math.isfinite(value):
        raise CodecError(path, "expected a finite number")
    return value


def _broken(value: int | float, bounds: Bounds) -> str | None:
    limits: Iterable[tuple[str, float | None, Callable[[Any, Any], bool]]] = (
        ("at least", bounds.at_least, operator.ge),
        ("at most", bounds.at_most, operator.le),
        ("more than", bounds.above, operator.gt),
        ("less than", bounds.below, operator.lt),
    )
    return next(
        (f"{what} {limit:g}" for what, limit, holds in limits if limit is not None and not holds(value, limit)), None
    )


def _formula(data: Any, type_: Formula, path: Path) -> Expr:
    return _expression(_text(data, "an expression", path), type_.scope, type_.want, path)


def _expression(text: str, scope: str, want: ExprType, path: Path) -> Expr:
    """Checked here too, as the text of a plan may come from anywhere."""
    faults = [problem for problem in examine(text, scope, want)[1] if not problem.warning]
    if faults:
        raise CodecError(path, f"{faults[0].message}: {shown(text)}")
    return Expr(text)


def _free(data: Any, type_: Free, path: Path) -> Any:
    if type_.map:
        _object(data, path)
    return _json(data, path)


def _json(data: Any, path: Path) -> Any:
    if len(path) > MAX_DEPTH:
        raise CodecError(path[:4], "is nested too deeply")
    if isinstance(data, dict):
        return {_text(name, "text", (*path, name)): _json(item, (*path, name)) for name, item in data.items()}
    if isinstance(data, list):
        return tuple(_json(item, (*path, i)) for i, item in enumerate(data))
    if isinstance(data, str):
        return _text(data, "text", path)
    return _finite(data, path) if isinstance(data, float) else data


_DECODERS: Mapping[type, Callable[[Any, Any, Path], Any]] = {
    Record: _record,
    Table: _table,
    Series: _series,
    Row: _row,
    Word: _word,
    Choice: _choice,
    Constant: _constant,
    Flag: _flag,
    Number: _number,
    Formula: _formula,
    Free: _free,
}


def _object(data: Any, path: Path) -> dict[str, Any]:
    return data if isinstance(data, dict) else _wrong(data, "an object", path)


def _list(data: Any, path: Path) -> list[Any]:
    return data if isinstance(data, list) else _wrong(data, "a list", path)


def _text(data: Any, what: str, path: Path) -> str:
    if not isinstance(data, str):
        _wrong(data, what, path)
    if any("\ud800" <= char <= "\udfff" for char in data):
        raise CodecError(path, "holds half a character")  # JSON can spell what no encoding can write
    return str(data)


# --- words ---------------------------------------------------------------------------------------------------------

_KINDS: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    type(None): "null",
}


def _wrong(data: Any, expected: str, path: Path) -> NoReturn:
    raise CodecError(path, f"expected {expected}, not {_KINDS.get(type(data), 'something else')}")


def _show(path: Path) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:40]}" for part in path).lstrip(".")
    return parts or "the document"
