"""What a user may choose about ScienceWorld."""

from __future__ import annotations

from dataclasses import dataclass

from .tasks import TASKS

__all__ = ["SIMPLIFICATIONS", "SciWorldOptions"]

SIMPLIFICATIONS = ("teleportAction", "openDoors", "openContainers", "selfWateringFlowerPots", "noElectricalAction")


@dataclass(frozen=True, slots=True, kw_only=True)
class SciWorldOptions:
    tasks: tuple[str, ...] = tuple(TASKS)
    """Variations of these tasks only, in every split."""
    simplifications: tuple[str, ...] = ()
    """Of the simulator, by name; tasks about electricity keep its actions."""
    max_steps: int = 100
    """Most actions in one episode."""
    look: bool = False
    """Describe each room as it is entered, as `look around` would, which the solutions never do."""
    repeats: bool = True
    """Whether a room that was described before is described in full again, in place of what has changed in it."""
    terse: bool = False
    """Whether descriptions of rooms leave out what is empty, open or switched off, and what every room has."""
    valid_actions: bool = False
    """Every possible action listed with each observation, which takes far longer than to act."""
    heap_mb: int = 2048
    """Largest heap of one Java process, in MiB."""
    processes: int = 2
    """Most Java processes at a time."""
