"""Grade what an agent has left: files are compared out here, commands are run on a copy in a jail of its own.

What is expected never enters a jail: a program of the agent's can print what it likes, but not what it does not know.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from ..errors import EnvFault
from .jail.trees import encode_files, read_entry
from .tasks import FileIs, Passes, Prints, ShellTask
from .terminal import TESTS, Limits, Terminal

__all__ = ["can_test", "grade"]

Entries = Sequence[Mapping[str, Any]]

_CHECK_S = 4.0
_ALL_S = 12.0
"""Time of all commands together, so that an answer comes before a player gives up."""
_OUTPUT = 100_000
_PYTEST_FOLDER = "/opt/pytest"
_PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "py")
"""Packages that pytest is made of."""
_GIT_KEPT = ("HEAD", "MERGE_HEAD", "index", "logs", "objects", "packed-refs", "refs")
"""What of a repository is history; its settings, hooks and filters could run programs in the name of git."""
_OWN_GIT = "export GIT_CONFIG_GLOBAL=/dev/null\n"
"""The agent's folder is its home: settings there would hold for git too."""
_GIT_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"


def can_test() -> bool:
    """Whether pytest is installed, which `Passes` is for."""
    return find_spec("pytest") is not None


def grade(task: ShellTask, entries: Entries, limits: Limits, tests_s: float) -> bool:
    """Whether all checks of a task hold for a work folder; tests have this many seconds."""
    if not all(_holds(check, entries) for check in task.checks if isinstance(check, FileIs)):
        return False
    commands = [check for check in task.checks if isinstance(check, Prints)]
    if commands and not _try_commands(commands, entries, limits):
        return False
    slow = replace(limits, command_s=tests_s, output_bytes=_OUTPUT)
    return all(_passes(check, task.work, entries, slow) for check in task.checks if isinstance(check, Passes))


def _passes(check: Passes, work: str, entries: Entries, limits: Limits) -> bool:
    """Whether tests pass in a jail in which this process's own installation of pytest is visible."""
    shown = dict(_list_pytest())
    terminal = Terminal(limits, work, shown, (TESTS,))
    try:
        if terminal.put(json.dumps(_clean(entries)).encode()):
            return False
        if trouble := terminal.put(encode_files(check.files), TESTS):
            raise EnvFault(f"tests cannot be written: {trouble}")
        result = terminal.run(f"{_OWN_GIT}{check.command}", fresh=True)
        return result.ended == "exit" and result.code == 0
    finally:
        terminal.close()


def _list_pytest() -> Iterator[tuple[str, str]]:
    """Where each part of pytest is seen inside, and where it is: a folder, or one file."""
    for name in _PYTEST:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            yield f"{_PYTEST_FOLDER}/{name}", spec.submodule_search_locations[0]
        elif spec is not None and spec.origin:
            yield f"{_PYTEST_FOLDER}/{name}.py", spec.origin


def _holds(check: FileIs, entries: Entries) -> bool:
    found = [entry for entry in entries if entry["path"] == check.path and entry["kind"] == "file"]
    return bool(found) and _tidy(read_entry(found[0])) == _tidy(check.text.encode())


def _tidy(data: bytes) -> list[bytes]:
    return [line.rstrip() for line in data.rstrip().split(b"\n")]


def _try_commands(checks: Sequence[Prints], entries: Entries, limits: Limits) -> bool:
    terminal = Terminal(replace(limits, command_s=_CHECK_S, output_bytes=_OUTPUT))
    until = time.monotonic() + _ALL_S
    try:
        # an agent may have left what cannot be written again: that is its failure, not the terminal's
        if terminal.put(json.dumps(_clean(entries)).encode()):
            return False
        return all(time.monotonic() < until and _is_met(terminal, check) for check in checks)
    finally:
        terminal.close()


def _is_met(terminal: Terminal, check: Prints) -> bool:
    if check.files and terminal.put(encode_files(check.files)):
        return False
    result = terminal.run(f"{_OWN_GIT}{{ {check.command}\n}} 2> /dev/null", fresh=True)
    if result.ended != "exit" or result.left_out:
        return False
    return (result.code != 0) == check.fails and _tidy(result.output) == _tidy(check.output.encode())


def _clean(entries: Entries) -> list[Mapping[str, Any]]:
    """Replace the settings of a repository by plain ones."""
    kept = [entry for entry in entries if _is_plain(entry)]
    if any(entry["path"] == ".git" for entry in kept):
        kept += json.loads(encode_files({".git/config": _GIT_CONFIG}))
    return kept


def _is_plain(entry: Mapping[str, Any]) -> bool:
    top, _, below = entry["path"].partition("/")
    if top != ".git":
        return True
    return entry["kind"] != "link" and (entry["kind"] == "folder" if not below else below.split("/")[0] in _GIT_KEPT)
