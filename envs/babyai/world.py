"""One episode's world, and what the agent has seen of it.

Takes single steps. Gives what is in view, by where it is from the agent, and a map of everything seen so far, with a
name for each thing that stays the same for the whole episode.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeAlias

from minigrid.core.actions import Actions
from minigrid.core.world_object import Door, WorldObj
from minigrid.minigrid_env import MiniGridEnv

__all__ = ["DIRECTIONS", "TERRAIN", "Cell", "GridWorld", "Pose", "SeenThing", "ahead_of", "state_of"]

Cell: TypeAlias = tuple[int, int]
Pose: TypeAlias = tuple[int, int, int]
"""Where the agent is, and which of the four ways it faces."""

DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1))
TERRAIN = frozenset({"wall", "lava", "floor"})
"""What has no name of its own."""

_TILE = 24
"""Pixels of a side of a cell, in pictures."""


@dataclass(frozen=True, slots=True)
class SeenThing:
    """Something in view, other than bare floor."""

    ahead: int
    right: int
    """Steps to the right; to the left if below zero."""
    thing: WorldObj


def ahead_of(pose: Pose) -> Cell:
    x, y, facing = pose
    return x + DIRECTIONS[facing][0], y + DIRECTIONS[facing][1]


def state_of(thing: WorldObj) -> str:
    """State of a door; empty for any other thing."""
    if not isinstance(thing, Door):
        return ""
    return "open" if thing.is_open else "locked" if thing.is_locked else "closed"


class GridWorld:
    def __init__(self, level: MiniGridEnv) -> None:
        self.level = level
        self.seen: dict[Cell, WorldObj | None] = {}
        """What was there when last looked at."""
        self.places: dict[WorldObj, Cell] = {}
        """Where each thing with a name was seen last."""
        self.names: dict[WorldObj, str] = {}
        self.view: tuple[SeenThing, ...] = ()
        """Nearest first."""
        self.won = False
        self.over = False
        self.changed = False
        """Whether the last step had any effect."""
        self._counts: Counter[str] = Counter()
        self._look()

    # --- the agent ---

    @property
    def pose(self) -> Pose:
        x, y = self.level.agent_pos
        return int(x), int(y), int(self.level.agent_dir)

    def draw(self) -> Any:
        """Draw the world from above, with what is in view lit; rows of RGB bytes."""
        return self.level.get_frame(highlight=True, tile_size=_TILE)

    @property
    def carried(self) -> WorldObj | None:
        return self.level.carrying

    @property
    def underfoot(self) -> WorldObj | None:
        return self.level.grid.get(*self.pose[:2])

    @property
    def before(self) -> WorldObj | None:
        """The thing right in front."""
        return self.level.grid.get(*ahead_of(self.pose))

    @property
    def steps(self) -> int:
        return int(self.level.step_count)

    @property
    def limit(self) -> int:
        return int(self.level.max_steps)

    # --- acting and looking ---

    def act(self, action: Actions) -> None:
        """Perform a single step."""
        was = self._state()
        _, reward, self.over, _, _ = self.level.step(action)
        self.won = self.over and float(reward) > 0
        self._look()
        self.changed = self.over or was != self._state()

    def wait(self) -> None:
        """Use up a step of the limit: nothing is free."""
        self.level.step_count += 1

    def _state(self) -> tuple[object, ...]:
        before = self.before
        return self.pose, self.carried, before, state_of(before) if before else ""

    def _look(self) -> None:
        grid, visible = self.level.gen_obs_grid()
        x, y, facing = self.pose
        (ahead_x, ahead_y), (right_x, right_y) = DIRECTIONS[facing], DIRECTIONS[(facing + 1) % 4]
        size = grid.width
        self._note((x, y), self.underfoot)
        view = []
        for column, row in sorted(zip(*visible.nonzero(), strict=True), key=lambda at: _distance(at, size)):
            ahead, right = size - 1 - int(row), int(column) - size // 2
            cell = (x + ahead * ahead_x + right * right_x, y + ahead * ahead_y + right * right_y)
            if cell == (x, y) or not self._inside(cell):
                continue
            thing = grid.get(column, row)
            self._note(cell, thing)
            if thing is not None:
                view.append(SeenThing(ahead, right, thing))
        self.view = tuple(view)
        if self.carried is not None:
            self._name(self.carried)

    def _inside(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.level.width and 0 <= cell[1] < self.level.height

    def _note(self, cell: Cell, thing: WorldObj | None) -> None:
        gone = self.seen.get(cell)
        if gone is not None and gone is not thing and self.places.get(gone) == cell:
            del self.places[gone]
        self.seen[cell] = thing
        if thing is None or thing.type in TERRAIN:
            return
        self._name(thing)
        left = self.places.get(thing, cell)
        if left != cell:  # some things move by themselves
            self.seen[left] = None
        self.places[thing] = cell

    def _name(self, thing: WorldObj) -> None:
        if thing not in self.names:
            kind = f"{thing.color} {thing.type}"
            self._counts[kind] += 1
            self.names[thing] = f"{kind} {self._counts[kind]}"


def _distance(at: tuple[int, int], size: int) -> tuple[int, int]:
    """Sort key of a square in view: distance, then position from left to right."""
    column, row = int(at[0]), int(at[1])
    right = column - size // 2
    return size - 1 - row + abs(right), right
