"""What the agent is shown: everything in view and where it is from the agent, the walls, and what it carries.

Complete: each thing in view is listed, nearest first, and each wall in view lies on one of the lines that are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeAlias

from minigrid.core.world_object import WorldObj

from .world import GridWorld, SeenThing, state_of

__all__ = ["describe_thing", "describe_view"]

Square: TypeAlias = tuple[int, int]
"""Steps ahead and to the right."""


def describe_view(world: GridWorld) -> str:
    named = [sight for sight in world.view if sight.thing in world.names]
    things = "; ".join(f"{describe_thing(world, sight.thing)}, {_place(sight.ahead, sight.right)}" for sight in named)
    walls, lava = (_lines(world.view, kind) for kind in ("wall", "lava"))
    under, carried = world.underfoot, world.carried
    lines = (
        f"You see {things}." if things else "You see no objects.",
        f"Walls: {'; '.join(walls)}." if walls else "",
        f"Lava: {'; '.join(lava)}." if lava else "",
        f"You are standing in {describe_thing(world, under)}." if under in world.names else "",
        f"You are carrying {world.names[carried]}." if carried else "You are carrying nothing.",
    )
    return "\n".join(filter(None, lines))


def describe_thing(world: GridWorld, thing: WorldObj) -> str:
    """Name of a thing, with the state of a door."""
    state = state_of(thing)
    return f"{world.names[thing]} ({state})" if state else world.names[thing]


def _place(ahead: int, right: int) -> str:
    if (ahead, right) == (1, 0):
        return "directly in front of you"
    return " and ".join(filter(None, (f"{_steps(ahead)} ahead" if ahead else "", _side(right) if right else "")))


def _steps(number: int) -> str:
    return f"{number} step" if number == 1 else f"{number} steps"


def _side(right: int) -> str:
    if not right:
        return "straight ahead"
    return f"{_steps(abs(right))} to the {'right' if right > 0 else 'left'}"


# --- walls, in as few lines as possible ---


def _lines(view: Iterable[SeenThing], kind: str) -> list[str]:
    """Straight lines that hold all squares of a kind, the longest first; a door is part of the wall that it is in."""
    left = {(sight.ahead, sight.right) for sight in view if sight.thing.type == kind}
    doors = {(sight.ahead, sight.right) for sight in view if sight.thing.type == "door" and kind == "wall"}
    lines = [*_rows(left | doors), *_columns(left | doors)]
    named = []
    while left:
        line = max(lines, key=lambda line: len(left.intersection(line)))
        left -= set(line)
        named.append(_span(line))
    return named


def _rows(squares: set[Square]) -> list[list[Square]]:
    return list(_runs(sorted(squares)))


def _columns(squares: set[Square]) -> list[list[Square]]:
    return [[(ahead, right) for right, ahead in run] for run in _runs(sorted((b, a) for a, b in squares))]


def _runs(squares: list[Square]) -> Iterator[list[Square]]:
    """Split squares into runs of neighbours along the second coordinate."""
    for _, run in groupby(enumerate(squares), lambda at: (at[1][0], at[1][1] - at[0])):
        yield [square for _, square in run]


def _span(line: list[Square]) -> str:
    (ahead, right), (last_ahead, last_right) = line[0], line[-1]
    if len(line) == 1:
        return _place(ahead, right)
    if ahead == last_ahead:
        where = f"{_steps(ahead)} ahead" if ahead else "beside you"
        return f"{where} ({_offset(right)} to {_offset(last_right)})"
    return f"{_side(right)} ({ahead} to {last_ahead} ahead)"


def _offset(right: int) -> str:
    return f"{abs(right)} {'right' if right > 0 else 'left'}" if right else "0"
