"""The process that an environment of the verifiers ecosystem runs in: requests and answers in lines of JSON.

Concurrent episodes with the same options share one, as its import alone takes seconds and hundreds of megabytes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from ..errors import BadOption, EnvFault, FaultKind

__all__ = ["Process", "Shared", "shared"]

_START = "import sys; sys.path.insert(0, sys.argv.pop()); import inside.server as it; del sys.path[0]; it.main()"
"""Modules of this folder can only be found there while ours is imported, as their names are common ones."""

_KEPT_LINES, _SHOWN_LINES, _SHOWN = 40, 4, 400
_PATIENCE_S = 5.0
"""For the process to end by itself."""


class Process:
    def __init__(self, python: Path, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [str(python), "-P", "-u", "-c", _START, str(Path(__file__).parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._lock, self._numbers, self._gone = threading.Lock(), count(), False
        self._words: deque[str] = deque(maxlen=_KEPT_LINES)
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._listen)]
        for reader in self._readers:
            reader.start()

    @property
    def alive(self) -> bool:
        return not self._gone and self._process.poll() is None

    def ask(self, what: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        number, answer = next(self._numbers), Future[dict[str, Any]]()
        self._send(number, answer, {"id": number, "do": what, "with": arguments})
        try:
            reply = answer.result(timeout_s)
        except TooLate:
            raise EnvFault(f"no answer within {timeout_s:g} s", kind=FaultKind.DEADLINE) from None
        if "refused" in reply:
            raise BadOption(str(reply["refused"])[:_SHOWN])
        if "fault" in reply:
            raise EnvFault(str(reply["fault"])[:_SHOWN])
        return reply

    def _send(self, number: int, answer: Future[dict[str, Any]], request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with self._lock:
            if self._gone:
                raise self._death()
            self._waiting[number] = answer
            try:
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            except OSError:
                self._waiting.pop(number)
                raise self._death() from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            with self._lock:
                answer = self._waiting.pop(reply.pop("id"), None)
            if answer is not None:
                answer.set_result(reply)
        self._readers[1].join(_PATIENCE_S)  # what it said at the end
        with self._lock:
            self._gone, left = True, list(self._waiting.values())
            self._waiting.clear()
        for answer in left:
            answer.set_exception(self._death())

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self._words.extend(line for line in map(str.strip, self._process.stderr) if line)

    def _death(self) -> EnvFault:
        said = " | ".join(list(self._words)[-_SHOWN_LINES:])[-_SHOWN:]
        return EnvFault(f"the environment's process died{f': {said}' if said else ''}")

    def close(self) -> None:
        """End the process with all that it started; may be called more than once."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join(_PATIENCE_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


class Shared:
    """One process for all instances with the same options; a dead one is replaced, and the last user ends it."""

    def __init__(self, python: Path, environ: Mapping[str, str], load: Mapping[str, Any], load_s: float) -> None:
        self._python, self._environ, self._load, self._load_s = python, environ, load, load_s
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._facts: dict[str, Any] = {}
        self._users = 0

    def enter(self) -> tuple[Process, dict[str, Any]]:
        """The process, with what it said about the environment; each call is answered by one `leave`."""
        with self._lock:
            if self._process is None or not self._process.alive:
                self._replace()
            assert self._process is not None
            self._users += 1
            return self._process, self._facts

    def _replace(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
        process = Process(self._python, self._environ)
        try:
            self._facts = process.ask("load", self._load_s, **self._load)
        except BaseException:
            process.close()
            raise
        self._process = process

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._process is not None:
                self._process.close()
                self._process = None


@cache  # one for each set of options, whichever instance asks
def shared(python: Path, environ: tuple[tuple[str, str], ...], load: str, load_s: float) -> Shared:
    return Shared(python, dict(environ), json.loads(load), load_s)
