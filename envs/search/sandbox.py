"""Run a program of the agent's where it can do no harm.

Each program has a process of its own, `jail`, with an empty environment and no open file but its input and output;
time, memory and output are limited. Without the filter of system calls none is run.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import EnvFault

__all__ = ["Sandbox", "explain_unavailable"]

_SHUT_IN = b"\x02"
_START_S = 20.0
"""To load the modules, on a machine that is busy."""
_JAIL = Path(__file__).with_name("jail.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The limits of one program."""

    wall_s: float = 5.0
    memory_bytes: int = 256 * 2**20
    output_bytes: int = 4_000

    def run(self, program: str) -> str:
        process = self._begin()
        try:
            begun, _ = _read(process, 1, _START_S)
            if begun != _SHUT_IN:
                raise EnvFault(f"no program can be run: {_text(begun + _read(process, 500, 1.0)[0])}")
            _send(process, program)
            printed, in_time = _read(process, self.output_bytes + 1, self.wall_s)
        finally:
            process.kill()
            code = process.wait()
            assert process.stdout is not None
            process.stdout.close()
        return self._format_output(printed, code, in_time=in_time)

    def _begin(self) -> subprocess.Popen[bytes]:
        limits = (str(int(self.wall_s) + 1), str(self.memory_bytes))
        return subprocess.Popen(
            [sys.executable, "-s", "-S", "-P", "-B", "-u", "-X", "utf8", str(_JAIL), *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PYTHONHASHSEED": "0"},
            cwd="/",
        )

    def _format_output(self, printed: bytes, code: int, *, in_time: bool) -> str:
        if len(printed) > self.output_bytes:
            return f"{_text(printed[: self.output_bytes])}\nThe output was longer, and the program was stopped."
        if not in_time:
            return f"{_text(printed)}\nThe program was stopped after {self.wall_s:g} s.".strip()
        if code < 0 and code != -signal.SIGKILL:  # which comes from here
            return f"{_text(printed)}\nThe program crashed.".strip()
        return _text(printed) or "The program printed nothing."


def _send(process: subprocess.Popen[bytes], program: str) -> None:
    """Send no more than a pipe holds, so that nothing blocks."""
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            pipe.write(program.encode("utf-8", "replace"))
    except BrokenPipeError:
        pass  # it has ended, and its output says why


def _read(process: subprocess.Popen[bytes], size: int, timeout_s: float) -> tuple[bytes, bool]:
    """Read to the end, up to a size; return the output and whether it came in time."""
    assert process.stdout is not None
    fd, read, until = process.stdout.fileno(), b"", time.monotonic() + timeout_s
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while len(read) < size:
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            return read, False
        some = os.read(fd, size - len(read))
        if not some:
            break
        read += some
    return read, True


def _text(printed: bytes) -> str:
    return printed.decode("utf-8", "replace").strip()


@cache  # a machine does not change
def explain_unavailable() -> str | None:
    """The reason why no program can be run here, if any."""
    try:
        Sandbox().run("")
    except (OSError, EnvFault) as error:
        return str(error)
    return None
