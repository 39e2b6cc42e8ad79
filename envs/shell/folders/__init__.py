"""Folders of tasks that others wrote, for terminal-bench, Harbor or in the style of SWE-bench.

`read_folder` -> tasks by id, and why others are left out. Of a task's image, only what is copied into it is reproduced
here.
"""

from __future__ import annotations

from .reader import TaskFolder, read_folder

__all__ = ["TaskFolder", "read_folder"]
