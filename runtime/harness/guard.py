"""Run one command within limits, and leave none of its processes behind: `python -I -S guard.py SPEC`.

A program of its own that imports nothing of agym, so that it starts at once. It adopts all that its command starts,
ends it when the command ends, when a limit is passed or when its own standard input closes, and then says in one line
of JSON what happened. The command's output goes straight to files: no unread pipe can fill up.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

__all__ = ["descendants", "main"]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_S = 0.1
_END_S = 10.0
"""Longest wait for killed processes to be gone."""


def descendants(pid: int) -> list[int]:
    """List all processes below one."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                for child in map(int, file.read().split()):
                    found += [child, *descendants(child)]
    return found


def main(spec: dict[str, Any]) -> int:
    libc = ctypes.CDLL(None)
    if sys.platform == "linux":
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    child = os.fork()
    if child == 0:
        _become(spec, libc)
    code, trouble = _watch(child, woken, spec)
    _end_all()
    sys.stdout.write(json.dumps({"code": code, "trouble": trouble}) + "\n")
    return 0


def _become(spec: dict[str, Any], libc: ctypes.CDLL) -> None:
    """Turn this process into the command."""
    try:
        os.setsid()
        if sys.platform == "linux":
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _open_as(spec["stdin"], os.O_RDONLY, 0)
        _open_as(spec["stdout"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 1)
        _open_as(spec["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 2)
        memory, size = spec["memory_mb"] * 2**20, spec["file_mb"] * 2**20
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        os.chdir(spec["folder"])
        os.execvp(spec["command"][0], spec["command"])
    except BaseException as error:
        with suppress(OSError):
            os.write(2, f"cannot start '{spec['command'][0]}': {error}\n".encode())
    os._exit(127)


def _open_as(path: str, flags: int, number: int) -> None:
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, number)
    os.close(opened)


def _watch(child: int, woken: int, spec: dict[str, Any]) -> tuple[int | None, str]:
    """Wait until the command has ended or must; return its exit code and which limit it passed."""
    while True:
        ready, _, _ = select.select([0, woken], [], [], _LOOK_S)
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
        if 0 in ready and not os.read(0, 4096):
            return None, "called off"
        if trouble := _find_excess(spec):
            return None, trouble
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    return os.waitstatus_to_exitcode(ended[1]), _find_excess(spec)


def _find_excess(spec: dict[str, Any]) -> str:
    for name in ("stdout", "stderr"):
        with suppress(OSError):
            if os.path.getsize(spec[name]) > spec["output_kb"] * 1024:
                return name
    below = descendants(os.getpid())
    if len(below) > spec["processes"]:
        return "processes"
    return "memory" if sum(map(_resident, below)) > spec["memory_mb"] * 2**20 else ""


def _resident(pid: int) -> int:
    with suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/statm") as file:
        pages = file.read().split()
        # memory shared with other processes, such as a library, is not counted
        return (int(pages[1]) - int(pages[2])) * resource.getpagesize()
    return 0


def _end_all() -> None:
    until = time.monotonic() + _END_S
    while (left := descendants(os.getpid())) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
