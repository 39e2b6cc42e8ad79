"""Difference of two recipes, key by key. Their stages hold only what they do not inherit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Absent", "KeyDifference", "compare_recipes", "difference_json", "difference_text"]

Flat = Mapping[tuple[str, ...], Any]


class Absent:
    """A missing value; null is a value."""


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key, with its value in either recipe."""

    key: tuple[str, ...]
    before: Any
    after: Any


def compare_recipes(before: Any, after: Any) -> tuple[KeyDifference, ...]:
    """Compare two recipes as plain data."""
    old, new = dict(_flat(before, ())), dict(_flat(after, ()))
    keys = [*old, *(key for key in new if key not in old)]
    found = (KeyDifference(key, old.get(key, ABSENT), new.get(key, ABSENT)) for key in keys)
    return tuple(each for each in found if not _same(each.before, each.after))


def _flat(data: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Leaves by path, with a stage of the schedule by its name."""
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _flat(value, (*path, str(key)))
    elif isinstance(data, list) and any(isinstance(item, dict) for item in data):
        for i, item in enumerate(data):
            name = item.get("stage", i) if isinstance(item, dict) else i
            yield from _flat(item, (*path, str(name)))
    else:
        yield path, data


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def difference_text(found: tuple[KeyDifference, ...], names: tuple[str, str]) -> str:
    """Lines that begin with `-` for the first recipe and `+` for the second."""
    if not found:
        return f"{names[0]} and {names[1]} are the same\n"
    lines = [f"--- {names[0]}", f"+++ {names[1]}"]
    for each in found:
        key = ".".join(each.key)
        lines += [
            f"{sign} {key}: {json.dumps(value, ensure_ascii=False)}"
            for sign, value in (("-", each.before), ("+", each.after))
            if not isinstance(value, Absent)
        ]
    return "".join(f"{line}\n" for line in lines)


def difference_json(found: tuple[KeyDifference, ...]) -> str:
    """A list of objects with `key`, and `before` and `after` where there is such a value."""
    return json.dumps([_to_data(each) for each in found], indent=2, ensure_ascii=False) + "\n"


def _to_data(difference: KeyDifference) -> dict[str, Any]:
    sides = {"before": difference.before, "after": difference.after}
    present = {side: value for side, value in sides.items() if not isinstance(value, Absent)}
    return {"key": ".".join(difference.key), **present}
