"""Places of the keys and values of a bound recipe in its text, as rules ask for them.

A path that was not written itself is placed at its nearest written ancestor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..source import Span
from ..text.node import Path

__all__ = ["Places", "join_path"]


class Places(Protocol):
    """Spans by the path of a value in the bound recipe."""

    def key(self, *path: str | int) -> Span:
        """The key, or the whole item of a list."""
        ...

    def value(self, *path: str | int) -> Span: ...

    def written(self, *section: str | int) -> Iterable[str]:
        """Names of the keys in a section that a person gave a value; in a stage, those written there and not above
        it."""
        ...


def join_path(path: Path) -> str:
    """A path as a person would write it: `schedule[1].algorithm.lr`."""
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return shown.removeprefix(".")
