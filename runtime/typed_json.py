"""JSON back into the dataclass that it was made of, by its type hints; what does not fit is a ValueError with its
place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

__all__ = ["build_typed"]

T = TypeVar("T")
_LARGEST = 2**63
"""No count reaches whole numbers from here on."""
_hints = cache(get_type_hints)
_AS_JSON: Mapping[Any, type] = {tuple: list, Mapping: dict}


def build_typed(kind: type[T], value: Any, place: str = "") -> T:
    """Build a value of a type from what JSON holds."""
    return _build(kind, value, place)  # type: ignore[no-any-return]


def _build(kind: Any, value: Any, place: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        # values that JSON cannot hold were put there beforehand
        return value if isinstance(value, kind) else _build_dataclass(kind, value, place)
    if origin is UnionType:
        kind = next((each for each in parts if _accepts(each, value)), parts[0])
        return _build(kind, value, place)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and value in list(kind):
        return kind(value)
    if not _accepts(_AS_JSON.get(origin, origin) or kind, value):
        raise ValueError(f"{place or 'it'} is {str(value)[:40]!r}, expected {getattr(kind, '__name__', kind)}")
    if origin in (list, tuple):
        return origin(_build(parts[0], each, f"{place}[{at}]") for at, each in enumerate(value))
    if origin in (dict, Mapping):
        return {name: _build(parts[1], each, f"{place}.{name}") for name, each in value.items()}
    return value


def _accepts(kind: Any, value: Any) -> bool:
    if type(value) is int:
        return kind in (int, float) and abs(value) < _LARGEST
    if type(value) is float:
        return kind is float and isfinite(value)
    return value is None if kind is NoneType else type(value) is kind


def _build_dataclass(kind: Any, value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{place or 'it'} is {str(value)[:40]!r}, expected a map")
    hints = _hints(kind)
    if unknown := value.keys() - hints.keys():
        raise ValueError(f"{min(unknown)!r} is not known here")
    at = f"{place}." if place else ""
    try:
        return kind(**{name: _build(hints[name], each, at + name) for name, each in value.items()})
    except TypeError as error:
        raise ValueError(f"{place or 'it'}: {error}") from error
