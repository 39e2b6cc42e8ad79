"""Places for a recipe that never was text."""

from __future__ import annotations

from collections.abc import Iterable

from agym.dsl.source import Source, Span


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

    def _is_inherited(self, path: tuple[str | int, ...]) -> bool:
        return path[:1] == ("schedule",) and any(listed[: len(path) - 2] == path[2:] for listed in self._lines)

    def _line(self, path: tuple[str | int, ...]) -> int:
        listed = list(self._lines)
        if path in self._lines:
            return listed.index(path) + 1
        if self._is_inherited(path):
            return self._line(path[2:])
        return self._line(path[:-1]) if path else 0
