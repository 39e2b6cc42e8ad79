"""Tasks by id: twenty kinds in five groups, each drawn anew for every number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...errors import UnknownTask
from ...protocol import parse_numbered
from . import data, find, fix, git, testing
from .task import WORK, Draw, FileIs, Passes, Prints, ShellTask

__all__ = [
    "GROUPS",
    "KINDS",
    "NUM_PER_KIND",
    "WORK",
    "FileIs",
    "Passes",
    "Prints",
    "ShellTask",
    "list_ids",
    "load_task",
]

NUM_PER_KIND = 15
_HELD_OUT = 3
"""Of each kind, the first so many."""

_MAKERS: Mapping[str, tuple[Callable[[Draw], ShellTask], ...]] = {
    "find": (find.find_setting, find.find_largest, find.count_errors, find.find_twins),
    "fix": (fix.fix_function, fix.fix_settings, fix.fix_import, fix.fix_script),
    "test": (testing.write_test, testing.extend_test, testing.fix_test, testing.write_check),
    "data": (data.sum_column, data.filter_rows, data.flatten_records, data.clean_list),
    "git": (git.commit_file, git.merge_branch, git.restore_file, git.find_commit),
}
GROUPS = tuple(_MAKERS)
KINDS = {make.__name__: (group, make) for group, makers in _MAKERS.items() for make in makers}
"""Group and maker of each kind."""


def list_ids(groups: tuple[str, ...], *, held_out: bool) -> tuple[str, ...]:
    numbers = range(_HELD_OUT) if held_out else range(_HELD_OUT, NUM_PER_KIND)
    return tuple(f"{kind}-{number}" for number in numbers for kind, (group, _) in KINDS.items() if group in groups)


def load_task(task: str) -> ShellTask:
    parsed = parse_numbered(task)
    if parsed is None or parsed[0] not in KINDS or parsed[1] >= NUM_PER_KIND:
        raise UnknownTask(f"shell has no task '{task[:60]}'")
    group, make = KINDS[parsed[0]]
    return replace(make(Draw(task, held_out=parsed[1] < _HELD_OUT)), id=task, group=group)
