"""What an agent of MiniGrid sees, in words: a map of marks, and where the things on it are.

An observation's image names by numbers the object, its colour and its state at each place, from the agent's point of
view or, by MiniGrid's wrapper for it, of the whole world.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["ACTIONS", "GUIDE", "is_minigrid", "tell_minigrid"]

ACTIONS = ("turn left", "turn right", "forward", "pick up", "drop", "toggle", "done")
GUIDE = (
    "You move in a world of square places. On the map @ is you, # a wall, . a free place, L lava, which ends it all,"
    " and ? what you cannot see; D is a door, K a key, B a ball, O a box and G a goal. Pick up, drop and toggle,"
    " which opens doors and boxes, act on the place ahead of you."
)

_Place = tuple[int, int]
_Cell = tuple[int, int, int]

# as minigrid.core.constants numbers them
_MARKS = "?.#.DKBOGL@"
_KINDS = {4: "door", 5: "key", 6: "ball", 7: "box", 8: "goal"}
_DOOR, _AGENT = 4, 10
_COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
_DOORS = ("open", "closed", "locked")
_COMPASS = ("east", "south", "west", "north")


def is_minigrid(space: Any) -> bool:
    """Whether an observation has the parts that MiniGrid's have."""
    parts = getattr(space, "spaces", None)
    if not isinstance(parts, dict) or not {"image", "direction", "mission"} <= parts.keys():
        return False
    shape = parts["image"].shape
    return shape is not None and len(shape) == 3 and shape[2] == 3 and max(shape) <= 32


def tell_minigrid(bare: Any, seen: Any) -> str:
    cells = _read_cells(seen["image"])
    itself = [place for place, cell in cells.items() if cell[0] == _AGENT]
    width, height = (1 + max(sides) for sides in zip(*cells, strict=True))
    here = itself[0] if itself else (width // 2, height - 1)
    held = getattr(bare, "carrying", None)
    carried = f"a {held.color} {held.type}" if held is not None else "nothing"
    rows = (" ".join(_mark(cells, (x, y), here) for x in range(width)) for y in range(height))
    return "\n".join((
        f"Your mission: {seen['mission']}.",
        f"You face {_COMPASS[int(seen['direction'])]} and carry {carried}.",
        "The map of the world:" if itself else "What you see, farther ahead is farther up:",
        *rows,
        *_list_things(cells, here, whole=bool(itself)),
    ))  # fmt: skip


def _read_cells(image: Any) -> dict[_Place, _Cell]:
    columns = enumerate(image.tolist())
    return {(x, y): (kind, colour, state) for x, column in columns for y, (kind, colour, state) in enumerate(column)}


def _mark(cells: dict[_Place, _Cell], place: _Place, here: _Place) -> str:
    return "@" if place == here else _MARKS[cells[place][0]]


def _list_things(cells: dict[_Place, _Cell], here: _Place, *, whole: bool) -> Iterator[str]:
    """One line for each thing, the nearest first."""
    for place in sorted(cells, key=lambda place: (_distance(place, here), place)):
        kind, colour, state = cells[place]
        if kind in _KINDS and place != here:
            condition = f", {_DOORS[state]}" if kind == _DOOR else ""
            where = f"column {place[0] + 1}, row {place[1] + 1}" if whole else _direct(place, here)
            yield f"A {_COLOURS[colour]} {_KINDS[kind]}{condition}: {where}."


def _distance(place: _Place, here: _Place) -> int:
    return abs(place[0] - here[0]) + abs(place[1] - here[1])


def _direct(place: _Place, here: _Place) -> str:
    """The way to a place from the agent's point of view."""
    ahead, right = here[1] - place[1], place[0] - here[0]
    ways = ((ahead, "ahead"), (-right, "to the left"), (right, "to the right"))
    return ", ".join(f"{steps} {way}" for steps, way in ways if steps > 0)
