"""Signals of a run: the first asks it to finish its step and save, the second ends it, a third ends it at once.

Before the engine walks the plan there is nothing to save, and the first ends the start. An end is raised as
KeyboardInterrupt, so that servers and Ray end in good order; a library may swallow that, or be slow: a thread then ends
the process, which the run folder survives at any moment.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["StopSignal", "handle_signals"]

_CLOSING_S = 10.0
"""For servers and engines to end."""
_EXIT_CODE = 130
_REPEATED_S = 5.0
"""A scheduler may send SIGTERM to a job and to each of its processes; only a person interrupts twice on purpose."""


@dataclass(slots=True)
class StopSignal:
    """Set from outside; the engine looks at it between steps."""

    wanted: bool = False
    ending: bool = False
    """Whether the run ends without a save."""
    loop: asyncio.AbstractEventLoop | None = None
    """The loop in which the engine walks; None before and after."""


@contextmanager
def handle_signals(
    stop: StopSignal,
    note: Callable[[str], None],
    *,
    before_exit: Callable[[], None] = lambda: None,
    exit_now: Callable[[int], None] = os._exit,
    closing_s: float = _CLOSING_S,
    repeated_s: float = _REPEATED_S,
) -> Iterator[None]:
    """Handle SIGINT and SIGTERM for as long as the run lasts, its start and its summary included.

    A thread calls `before_exit` and ends the process if it is still there `closing_s` after the signal; `before_exit`
    has as long again.
    """
    terminated = -math.inf

    def handle(number: int, frame: object) -> None:
        nonlocal terminated
        if number == signal.SIGTERM:
            before, terminated = terminated, time.monotonic()
            if terminated - before < repeated_s:
                return
        if stop.ending:
            exit_now(_EXIT_CODE)
        elif stop.wanted or stop.loop is None:
            stop.ending = True
            _silence_tracebacks()
            threading.Thread(target=_exit_after, args=(closing_s, before_exit, exit_now), daemon=True).start()
            raise KeyboardInterrupt
        else:
            stop.wanted = True
            # not from here: the interrupted code may itself be reporting something
            stop.loop.call_soon_threadsafe(note, "finishing this step, then saving; interrupt again to stop now")

    handlers = {each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def _exit_after(seconds: float, before_exit: Callable[[], None], exit_now: Callable[[int], None]) -> None:
    time.sleep(seconds)
    last = threading.Timer(seconds, exit_now, [_EXIT_CODE])
    last.daemon = True
    last.start()
    try:
        before_exit()
    finally:
        last.cancel()
        exit_now(_EXIT_CODE)


def _silence_tracebacks() -> None:
    """What an interrupt breaks in callbacks, threads and tasks is of no interest to the person who sent it."""
    sys.unraisablehook = lambda _: None
    threading.excepthook = lambda _: None
    logging.disable()
