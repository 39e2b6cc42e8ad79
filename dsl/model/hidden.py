"""Text from the environment: itself when compared, joined or opened, its reference when shown or written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

__all__ = ["Hidden", "conceal", "reveal"]

T = TypeVar("T")


class Hidden(str):
    """A text with `${env:NAME}` in it."""

    shown: str

    def __new__(cls, value: str, shown: str) -> Hidden:
        made = super().__new__(cls, value)
        made.shown = shown
        return made

    def __str__(self) -> str:
        return self.shown

    def __format__(self, spec: str) -> str:
        return format(self.shown, spec)

    def __repr__(self) -> str:
        return repr(self.shown)

    def __reduce__(self) -> Any:
        return Hidden, (str.__add__(self, ""), self.shown)


def conceal(value: T) -> T:
    """A recipe or plan as it may be shown: with references in place of what they stand for."""
    made: T = _replaced(value, lambda text: text.shown)
    return made


def reveal(value: T) -> T:
    """A recipe or plan as it is run: with plain text."""
    made: T = _replaced(value, lambda text: str.__add__(text, ""))
    return made


def _replaced(value: Any, change: Callable[[Hidden], str]) -> Any:
    if isinstance(value, Hidden):
        return change(value)
    if isinstance(value, Mapping):
        made: Any = {name: _replaced(item, change) for name, item in value.items()}
        return made if any(made[name] is not value[name] for name in value) else value
    if isinstance(value, tuple | list):
        items = [_replaced(item, change) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        changed = {name: new for name, old in parts.items() if (new := _replaced(old, change)) is not old}
        return replace(value, **changed) if changed else value
    return value
