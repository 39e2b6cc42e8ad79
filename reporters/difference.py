"""Difference of two recipes, key by key. Their stages hold only what they do not inherit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["compare_recipes", "difference_json", "difference_text"]

SIGNS = {"before": "-", "after": "+"}


def compare_recipes(before: Any, after: Any) -> list[dict[str, Any]]:
    """Compare two recipes as plain data: objects with `key`, and `before` and `after` where there is such a value."""
    old, new = dict(_flat(before, ())), dict(_flat(after, ()))
    found = []
    for key in dict.fromkeys((*old, *new)):
        sides = {side: flat[key] for side, flat in (("before", old), ("after", new)) if key in flat}
        if len(sides) < 2 or not _same(**sides):
            found.append({"key": ".".join(key), **sides})
    return found


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


def _same(before: Any, after: Any) -> bool:
    return type(before) is type(after) and bool(before == after)


def difference_text(found: list[dict[str, Any]], names: tuple[str, str]) -> str:
    """Lines that begin with `-` for the first recipe and `+` for the second."""
    if not found:
        return f"{names[0]} and {names[1]} are the same\n"
    lines = [f"--- {names[0]}", f"+++ {names[1]}"]
    for each in found:
        values = ((sign, each[side]) for side, sign in SIGNS.items() if side in each)
        lines += [f"{sign} {each['key']}: {json.dumps(value, ensure_ascii=False)}" for sign, value in values]
    return "".join(f"{line}\n" for line in lines)


def difference_json(found: list[dict[str, Any]]) -> str:
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
