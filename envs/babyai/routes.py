"""Routes over the squares seen so far: each reachable pose, and the fewest single steps that lead there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from minigrid.core.actions import Actions
from minigrid.core.world_object import Door

from .world import DIRECTIONS, Cell, GridWorld, Pose, ahead_of

__all__ = ["WayFinder", "is_passable"]


def is_passable(world: GridWorld, cell: Cell) -> bool:
    """Whether a cell is known to be free to walk on, without side effects."""
    if cell not in world.seen:
        return False
    thing = world.seen[cell]
    return thing is None or thing.type == "floor" or (isinstance(thing, Door) and thing.is_open)


class WayFinder:
    def __init__(self, world: GridWorld) -> None:
        self._world = world
        self._from: dict[Pose, tuple[Pose, Actions] | None] = {world.pose: None}
        self._distance: dict[Pose, int] = {world.pose: 0}
        self._flood()

    def to(self, pose: Pose) -> tuple[Actions, ...] | None:
        return self._way(pose) if pose in self._from else None

    def facing(self, cell: Cell) -> tuple[Actions, ...] | None:
        """Moves to the nearest square next to this one, facing it."""
        poses = [
            pose
            for facing, (dx, dy) in enumerate(DIRECTIONS)
            if (pose := (cell[0] - dx, cell[1] - dy, facing)) in self._from
        ]
        return self._way(min(poses, key=self._distance.__getitem__)) if poses else None

    def beside(self, cell: Cell) -> tuple[Actions, ...] | None:
        """Moves to a pose whose square in front is free and next to this one."""
        free = [spot for dx, dy in DIRECTIONS if self._empty(spot := (cell[0] + dx, cell[1] + dy))]
        ways = [way for spot in free if (way := self.facing(spot)) is not None]
        return min(ways, key=len, default=None)

    def _empty(self, cell: Cell) -> bool:
        return cell in self._world.seen and self._world.seen[cell] is None

    def _flood(self) -> None:
        waiting = deque(self._from)
        while waiting:
            pose = waiting.popleft()
            for action, reached in self._next(pose):
                if reached not in self._from:
                    self._from[reached] = pose, action
                    self._distance[reached] = self._distance[pose] + 1
                    waiting.append(reached)

    def _next(self, pose: Pose) -> Iterator[tuple[Actions, Pose]]:
        x, y, facing = pose
        cell = ahead_of(pose)
        if is_passable(self._world, cell):
            yield Actions.forward, (*cell, facing)
        yield Actions.left, (x, y, (facing - 1) % 4)
        yield Actions.right, (x, y, (facing + 1) % 4)

    def _way(self, pose: Pose) -> tuple[Actions, ...]:
        way: list[Actions] = []
        while (step := self._from[pose]) is not None:
            pose, action = step
            way.append(action)
        return tuple(reversed(way))
