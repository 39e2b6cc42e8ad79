"""What a user may choose about the shell."""

from __future__ import annotations

from dataclasses import dataclass

from .tasks import GROUPS

__all__ = ["GROUPS", "ShellOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellOptions:
    tasks_folder: str = ""
    """Folder of task folders that others wrote; the shipped tasks if none is given."""
    tests_s: float = 30.0
    """Seconds of the tests of such a task."""
    groups: tuple[str, ...] = GROUPS
    """Tasks of these groups only, in every split."""
    max_steps: int = 20
    """Commands after which an episode is cut short."""
    command_s: float = 5.0
    """Seconds after which a command is ended."""
    episode_s: float = 60.0
    """Seconds of commands after which an episode is cut short."""
    memory_mb: int = 512
    """Memory of all processes of an episode together."""
    processes: int = 64
    """Processes and threads of an episode at once."""
    disk_mb: int = 64
    """Files of an episode together."""
    output_chars: int = 2000
    """Output that is shown: the beginning and the end of what is longer."""
