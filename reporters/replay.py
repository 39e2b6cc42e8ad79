"""The result of an episode that was played again, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import ndiff
from typing import TYPE_CHECKING

from .episodes import escape_line, wrap_text
from .quantity import plural

if TYPE_CHECKING:
    from ..viewer.play.replay import Difference, Replayed

__all__ = ["replay_text"]

_MOST_LINES = 40
"""Of a difference."""


def replay_text(id_: str, replayed: Replayed, width: int) -> str:
    return "\n".join((*_lines(escape_line(id_), replayed, width), ""))


def _lines(id_: str, replayed: Replayed, width: int) -> Iterator[str]:
    passed = f", {plural(replayed.skipped, 'turn')} without an action passed over" if replayed.skipped else ""
    if replayed.difference is None:
        yield f"{id_}: {plural(replayed.turns, 'turn')} played again without a difference{passed}"
        return
    yield f"{id_}: {plural(replayed.turns, 'turn')} played again{passed}; the first difference is {_place(replayed)}"
    yield from _difference(replayed.difference, width)


def _place(replayed: Replayed) -> str:
    assert replayed.difference is not None
    turn = replayed.difference.turn
    return f"the {replayed.difference.what} " + (f"of turn {turn}" if turn else "before the first turn")


def _difference(difference: Difference, width: int) -> Iterator[str]:
    yield "  - as recorded, + now"
    lines = ndiff(difference.recorded.splitlines()[:500], difference.now.splitlines()[:500])
    shown = [line for line in lines if not line.startswith("?")]
    for line in shown[:_MOST_LINES]:
        yield from wrap_text(line, width, "  ")
    if len(shown) > _MOST_LINES:
        yield f"  and {len(shown) - _MOST_LINES} more lines"
