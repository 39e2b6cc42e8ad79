"""Where the keys and values of a bound recipe were written: what rules need to know of it.

`bind.Places` is the real one; a path that was not written itself stands where its nearest written ancestor does.
`Listed` is for a recipe that never was text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..source import Source, Span

__all__ = ["Listed", "Path", "Places", "dotted"]

Path = tuple[str | int, ...]


class Places(Protocol):
    """Spans by the path of a value in the bound recipe."""

    def key(self, *path: str | int) -> Span:
        """The key, or the whole item of a list."""
        ...

    def value(self, *path: str | int) -> Span: ...

    def written(self, *section: str | int) -> Iterable[str]:
        """Names of the keys in a section that a person gave a value; in a stage, those that stand there and not above
        it."""
        ...


def dotted(path: Path) -> str:
    """A path as a person would write it: `schedule[1].algorithm.lr`."""
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return shown.removeprefix(".")


class Listed:
    """Places by a list of dotted keys: `algorithm.lr`, `schedule.0.turns`. Each key is a line of its source."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._lines = {tuple(int(part) if part.isdigit() else part for part in key.split(".")): key for key in keys}
        self._source = Source("listed", "\n".join(["(the recipe)", *self._lines.values()]))

    def key(self, *path: str | int) -> Span:
        """The line of a path; of what it inherits from, if a stage does not list it; of the nearest listed ancestor."""
        line = self._line(path)
        start = self._source.line_starts[line]
        return self._source.span(start, start + len(self._source.line_text(line + 1)))

    def value(self, *path: str | int) -> Span:
        return self.key(*path)

    def written(self, *section: str | int) -> Iterable[str]:
        depth = len(section)
        below = (listed[depth] for listed in self._lines if listed[:depth] == section and len(listed) > depth)
        return dict.fromkeys(map(str, below))

    def _is_inherited(self, path: Path) -> bool:
        return path[:1] == ("schedule",) and any(listed[: len(path) - 2] == path[2:] for listed in self._lines)

    def _line(self, path: Path) -> int:
        listed = list(self._lines)
        if path in self._lines:
            return listed.index(path) + 1
        if self._is_inherited(path):
            return self._line(path[2:])
        return self._line(path[:-1]) if path else 0
