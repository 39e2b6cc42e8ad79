"""Runs work that leaves no process and no temporary file behind, even when killed.

There are two processes, and each notices the other's end. The first becomes the guard: it adopts orphans below it,
passes signals on, and clears up when the other has ended. The other does the work, and clears up itself where the guard
was killed; orphans are then out of its reach, as they were the guard's. If both are killed, the next guard removes the
folder that nobody holds any more.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

from ..temp_files import Temporary

__all__ = ["run_guarded"]

_PR_SET_CHILD_SUBREAPER = 36
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_END_S = 5.0
"""Longest wait for killed processes to be gone."""


def run_guarded(work: Callable[[], int], *, leashed: bool) -> int:
    """Run the work; with a leash it also ends when standard input does. Call it before there are threads."""
    if sys.platform != "linux":  # nothing can adopt orphans
        if leashed:
            _at_the_end_of(0, _end_group)
        return work()
    temporary = Temporary()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    left_alone, here = os.pipe()
    worker = os.fork()
    if worker:
        os.close(left_alone)
        return _guard(worker, temporary, leashed)
    os.close(here)
    _at_the_end_of(left_alone, lambda: _end_alone(temporary))
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary.path)  # for the processes that it starts, and for itself
    return work()


# --- the guard ---


def _guard(worker: int, temporary: Temporary, leashed: bool) -> int:
    for number in _PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: _send(worker, number))
    if leashed:
        _at_the_end_of(0, lambda: _send(worker, signal.SIGKILL))
    ended, status = 0, 0
    while ended != worker:  # it may be an orphan that has
        ended, status = os.wait()
    _clear_up(temporary)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:  # whoever waits for this process must see how the other ended
        with suppress(OSError):  # some have no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _clear_up(temporary: Temporary) -> None:
    until = time.monotonic() + _END_S
    while (left := [*_below(os.getpid())]) and time.monotonic() < until:
        for pid in left:
            _send(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
    temporary.remove()


def _below(pid: int) -> Iterator[int]:
    """All descendants of a process."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended meanwhile
            for child in map(int, file.read_text().split()):
                yield child
                yield from _below(child)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


# --- the other ---


def _end_alone(temporary: Temporary) -> None:
    _clear_up(temporary)
    os._exit(1)


def _end_group() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _at_the_end_of(pipe: int, then: Callable[[], None]) -> None:
    def wait() -> None:
        while os.read(pipe, 4096):
            pass
        then()

    Thread(target=wait, name="leash", daemon=True).start()
