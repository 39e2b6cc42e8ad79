"""The levels by name, the splits they make, and a level with a seed as a world ready to be played.

A task is a level and a seed, `GoToObjS6-17`: nothing else decides what its episode is like.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

from ..errors import UnknownTask
from ..protocol import parse_numbered

# read by pygame, which minigrid draws with, when it is imported: its greeting has no place in a server's output
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import gymnasium
from minigrid.core.roomgrid import RoomGrid
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.minigrid_env import MiniGridEnv

__all__ = ["SEEDS", "SPLITS", "GridLevel", "build_level", "find_level", "list_level_tasks", "load_levels", "task_id"]

SEEDS: Mapping[str, range] = {"train": range(250), "test": range(1000, 1050)}
"""By side: no world is used for both training and evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridLevel:
    name: str
    id: str
    """In minigrid's registry."""
    family: str
    starred: bool
    """One of the forty that make up the splits."""

    @property
    def needs_done(self) -> bool:
        """Whether it is won by saying that the agent has arrived."""
        return self.name.startswith(("MiniGrid-GoToDoor", "MiniGrid-GoToObject"))

    @property
    def forgiving(self) -> bool:
        """Whether a wrong move can always be corrected."""
        return self.family != "minigrid" and "Debug" not in self.name

    @property
    def ends_at_a_place(self) -> bool:
        """Whether going to the wrong place loses."""
        return self.name.startswith("MiniGrid-Memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    side: str
    families: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def has(self, level: GridLevel) -> bool:
        return not (self.families or self.names) or level.family in self.families or level.name in self.names


SPLITS: Mapping[str, Split] = {
    "train": Split(side="train"),
    "test": Split(side="test"),
    "goto": Split(side="test", families=("goto",)),
    "pickup": Split(side="test", families=("pickup",)),
    "action_obj_door": Split(side="test", names=("ActionObjDoor",)),
    "find_obj_s7": Split(side="test", names=("FindObjS7",)),
    "one_room_s20": Split(side="test", names=("OneRoomS20",)),
    "synth_loc": Split(side="test", names=("SynthLoc",)),
}


@cache  # the frozen list
def load_levels() -> Mapping[str, GridLevel]:
    text = files(__package__).joinpath("data", "levels.txt").read_text("utf-8")
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {level.name: level for level in (_level(*words) for words in lines)}


def _level(family: str, registered: str, star: str = "") -> GridLevel:
    name = registered.removeprefix("BabyAI-").rpartition("-v")[0]
    return GridLevel(name=name, id=registered, family=family, starred=bool(star))


def list_level_tasks(split: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Ids of a split, ordered by seed, then level: every prefix covers all levels."""
    named = [load_levels()[name] for name in wanted] or [level for level in load_levels().values() if level.starred]
    chosen = [level.name for level in named if SPLITS[split].has(level)]
    return tuple(task_id(name, seed) for seed in SEEDS[SPLITS[split].side] for name in chosen)


def task_id(name: str, seed: int) -> str:
    return f"{name}-{seed}"


def find_level(task: str) -> tuple[GridLevel, int]:
    found = parse_numbered(task)
    if found is None or found[0] not in load_levels():
        raise UnknownTask(f"babyai has no task '{task[:60]}': expected a level and a seed, such as GoToObj-17")
    return load_levels()[found[0]], found[1]


def build_level(level: GridLevel, seed: int, max_steps: int | None) -> MiniGridEnv:
    """Build a level's world; `max_steps` can only lower its own limit."""
    made: Any = gymnasium.make(level.id, disable_env_checker=True).unwrapped
    made.gen_obs = dict  # pictures that nobody looks at take most of a step's time
    if isinstance(made, RoomGridLevel):
        vars(made)["_gen_grid"] = partial(_draw, made)
    made.reset(seed=seed)
    vars(made).pop("_gen_grid", None)
    made.max_steps = min(made.max_steps, max_steps or made.max_steps)
    world: MiniGridEnv = made
    return world


def _draw(level: Any, width: int, height: int) -> None:
    """Draw worlds until one fits its mission, as minigrid does, but without printing each rejection."""
    while True:
        try:
            RoomGrid._gen_grid(level, width, height)
            level.gen_mission()
            level.validate_instrs(level.instrs)
        except (RecursionError, RejectSampling):
            continue
        break
    level.surface = level.mission = level.instrs.surface(level)
