"""Descriptions of rooms made shorter: without what goes without saying, or without what an episode has shown before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

__all__ = ["TEXTS", "SeenRooms", "drop_the_usual"]

_HEAD = re.compile(r"(This [a-z ]+ is called the [^.\n]+\.)[^\n]*\n")
_SAME = "Nothing has changed since you last saw it."
_CHANGED = "This has changed since you last saw it:"
_NOW, _NO_LONGER = "  now:", "  no longer:"

TEXTS = (_SAME, _CHANGED, _NOW, _NO_LONGER)

_EVERYWHERE = ("  the agent", "  a substance called air")
_USUAL = re.compile(
    r" [IO]n the [^.:]+ is: nothing\.| \(containing nothing\)| The [^.:]+ door is open\.| \(that is open\)"
    r"|, which is (turned off|deactivated|off|open)(?=[.,)]|$)"
)
_NAME_ALONE = re.compile(r"( *[^.:]+)\.")


def drop_the_usual(text: str) -> str:
    """Leave out of a room's description what is empty, open or switched off, and what every room has."""
    if _HEAD.match(text) is None:
        return text
    lines = (_USUAL.sub("", line) for line in text.splitlines() if line not in _EVERYWHERE)
    return "\n".join(found[1] if (found := _NAME_ALONE.fullmatch(line)) else line for line in lines)


class SeenRooms:
    """The rooms of an episode, each as it was last described."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[str, ...]] = {}

    def shorten(self, text: str) -> str:
        """Return what has changed in the description of a room that was described before; other texts as they are."""
        found = _HEAD.match(text)
        if found is None:
            return text
        name, lines = found[1], tuple(text.splitlines()[1:])
        before, self._lines[name] = self._lines.get(name), lines
        if before is None:
            return text
        changes = [f"{_NOW} {line}" for line in _left_over(lines, before)]
        changes += [f"{_NO_LONGER} {line}" for line in _left_over(before, lines)]
        return "\n".join((f"{name} {_CHANGED if changes else _SAME}", *changes))


def _left_over(lines: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Lines, without their indent, that the others do not have, or not as often."""
    have = Counter(others)
    for line in lines:
        have[line] -= 1
        if have[line] < 0:
            yield line.strip()
