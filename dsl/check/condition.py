"""Conditions on keys, and the tree of keys made from a table of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from ..frozen import frozen

__all__ = ["Condition", "NestedKeys", "nest_conditions"]

C = TypeVar("C")


@frozen(kw_only=False)
class Condition(Generic[C]):
    """A key, or a section with all its keys, and the condition under which it has an effect."""

    key: str
    applies: Callable[[C], bool]
    reason: str
    """Why it has none otherwise."""


@frozen(kw_only=False)
class NestedKeys(Generic[C]):
    """The conditions of a key and of its sections, in table order; and the keys below it."""

    conditions: tuple[Condition[C], ...]
    below: Mapping[str, NestedKeys[C]]

    def in_vain(self, settings: Iterable[C]) -> str | None:
        """The reason why the key matters in none of the settings, taken from the setting that comes closest."""
        furthest = -1
        for each in settings:
            for place, condition in enumerate(self.conditions):
                if not condition.applies(each):
                    furthest = max(furthest, place)
                    break
            else:
                return None
        return self.conditions[furthest].reason if furthest >= 0 else None


def nest_conditions(table: Iterable[Condition[C]]) -> NestedKeys[C]:
    return _keys([(tuple(each.key.split(".")), each) for each in table], 0)


def _keys(table: Sequence[tuple[tuple[str, ...], Condition[C]]], depth: int) -> NestedKeys[C]:
    above = [(path, each) for path, each in table if len(path) <= depth]
    names = dict.fromkeys(path[depth] for path, _ in table if len(path) > depth)
    inner = {name: [row for row in table if len(row[0]) <= depth or row[0][depth] == name] for name in names}
    return NestedKeys(tuple(each for _, each in above), {name: _keys(rows, depth + 1) for name, rows in inner.items()})
