"""The first process of a jail: runs commands one after the other, and ends what breaks a limit.

It has the agent's user, but nobody can trace or end it: it is the first process of its namespace, and not dumpable.
A command is a shell of its own that takes over folder, variables, functions and aliases from the one before.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .frames import read_frame, write_frame
from .trees import pack_tree, unpack_tree

__all__ = ["serve"]

_SHELL = "/bin/bash"
_STATE_OUT, _STATE_IN = 8, 9
_SCRIPT = r"""
. /dev/fd/9 2>/dev/null
exec 9<&-
__keep_state() { { printf 'cd -- %q\n' "$PWD"; umask -p; alias -p; declare -f; declare -p; } >&8 2>/dev/null; }
trap __keep_state EXIT
shopt -s expand_aliases
__command=$1
set --
eval "$__command"
"""
_MAX_STATE = 128 * 1024
_PIPE = 1 << 20
"""Bytes that a pipe holds, at most."""
_LOOK_S = 0.05
"""How often the memory of the processes is checked."""
_MAX_OUTPUT = 8 << 20
"""Bytes after which a command is ended; what it keeps of them is much less."""


@dataclass(slots=True)
class _Output:
    """The beginning and the end of what was written."""

    limit: int
    total: int = 0
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.limit // 2 - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room > 0 else data
        del self.tail[: -(self.limit - self.limit // 2)]

    @property
    def left_out(self) -> int:
        return self.total - len(self.head) - len(self.tail)


def serve(config: Mapping[str, Any], requests: int, answers: int) -> None:
    """Answer requests until their end."""
    supervisor = _Supervisor(config)
    operations: Mapping[str, Callable[[Mapping[str, Any], bytes], tuple[Mapping[str, Any], bytes]]] = {
        "run": supervisor.run,
        "put": _put,
        "get": _get,
    }
    while (message := read_frame(requests)) is not None:
        head, body = message
        write_frame(answers, *operations[head["op"]](head, body))


def _put(head: Mapping[str, Any], body: bytes) -> tuple[Mapping[str, Any], bytes]:
    try:
        unpack_tree(head["folder"], body)
    except OSError as error:
        return {"error": str(error)}, b""
    return {}, b""


def _get(head: Mapping[str, Any], body: bytes) -> tuple[Mapping[str, Any], bytes]:
    """Hand out a folder, once nothing runs any more that could change it."""
    _end_all()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    try:
        return {}, pack_tree(head["folder"], head["bytes"])
    except ValueError as error:
        return {"error": str(error)}, b""


@dataclass(frozen=True, slots=True)
class _Running:
    """A shell under way, and our ends of its pipes."""

    process: int
    out: int
    state_out: int
    state_in: int


class _Supervisor:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._state: bytes | None = None

    def run(self, head: Mapping[str, Any], command: bytes) -> tuple[Mapping[str, Any], bytes]:
        """Run a command; one that is `fresh` neither sees nor leaves a state."""
        state = None if head["fresh"] else self._state
        running, output, kept = self._start(command, state), _Output(head["output_bytes"]), bytearray()
        ends = {
            running.out: _reader(running.out, output.add),
            # one that does not fit is not kept at all
            running.state_out: _reader(running.state_out, lambda data: kept.extend(data[: _MAX_STATE + 1 - len(kept)])),
            running.state_in: _writer(running.state_in, state or b""),
        }
        ended = self._follow(running.process, head["timeout_s"], ends, output)
        if ended != "exit":
            _end_all()
        status = _collect(running.process)
        for fd, serve_end in ends.items():
            _drain(serve_end)
            os.close(fd)
        if 0 < len(kept) <= _MAX_STATE and ended == "exit" and not head["fresh"]:
            self._state = bytes(kept)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = {"code": os.waitstatus_to_exitcode(status), "ended": ended, "head": len(output.head)}
        answer |= {"left_out": output.left_out, "cpu_s": used.ru_utime + used.ru_stime}
        return answer, bytes(output.head + output.tail)

    def _start(self, command: bytes, state: bytes | None) -> _Running:
        out, state_out, state_in = os.pipe(), os.pipe(), os.pipe()
        process = os.fork()
        if process == 0:
            try:
                self._become_shell(command, state, {1: out[1], _STATE_OUT: state_out[1], _STATE_IN: state_in[0]})
            finally:
                os._exit(127)
        for fd in (out[1], state_out[1], state_in[0]):
            os.close(fd)
        ours = (out[0], state_out[0], state_in[1])
        for fd in ours:
            os.set_blocking(fd, False)
        return _Running(process, *ours)

    def _become_shell(self, command: bytes, state: bytes | None, ends: Mapping[int, int]) -> None:
        os.setsid()
        # first out of the way: the numbers may be those of other ends
        high = {number: fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for number, fd in ends.items()}
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for number, fd in high.items():
            os.dup2(fd, number)
        os.dup2(1, 2)
        os.closerange(3, _STATE_OUT)
        os.closerange(_STATE_IN + 1, 200)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(ignored, signal.SIG_DFL)
        for name, value in self._config["limits"].items():
            _limit(getattr(resource, name), value)
        os.chdir(self._config["work"])
        # from then on the state holds what is left of them
        environ = self._config["environ"] if state is None else {}
        words = ("bash", "--noprofile", "--norc", "-c", _SCRIPT, "bash", os.fsdecode(command))
        os.execve(_SHELL, words, environ)

    def _follow(self, process: int, timeout_s: float, ends: dict[int, Callable[[], bool]], output: _Output) -> str:
        """Serve the pipes of a command until it ends, or has to be ended; return which. Closes those at their ends."""
        handle, until, poll = os.pidfd_open(process), time.monotonic() + timeout_s, select.poll()
        for fd in (handle, *ends):
            poll.register(fd, select.POLLIN | select.POLLOUT)
        looked = 0.0
        try:
            while (left := until - time.monotonic()) > 0:
                for fd, _ in poll.poll(min(left, _LOOK_S) * 1000):
                    if fd == handle:
                        return "exit"
                    if not ends[fd]():
                        poll.unregister(fd)
                        os.close(fd)
                        del ends[fd]
                if output.total > _MAX_OUTPUT:
                    return "output"
                if time.monotonic() - looked > _LOOK_S:
                    looked = time.monotonic()
                    _reap(process)
                    if _memory() > self._config["memory_bytes"]:
                        return "memory"
            return "time"
        finally:
            os.close(handle)


def _limit(number: int, value: int) -> None:
    """Lower a limit; one that is lower already stays."""
    highest = resource.getrlimit(number)[1]
    value = value if highest == resource.RLIM_INFINITY else min(value, highest)
    resource.setrlimit(number, (value, value))


def _reader(fd: int, take: Callable[[bytes], None]) -> Callable[[], bool]:
    """A function that reads what is there; False at the end."""

    def read() -> bool:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        take(data)
        return bool(data)

    return read


def _writer(fd: int, data: bytes) -> Callable[[], bool]:
    """A function that writes what there is room for; False at the end."""
    left = memoryview(data)

    def write() -> bool:
        nonlocal left
        try:
            left = left[os.write(fd, left[: 1 << 16]) :] if left else left
        except BlockingIOError:
            return True
        except BrokenPipeError:
            left = left[:0]
        return bool(left)

    return write


def _drain(serve_end: Callable[[], bool]) -> None:
    """Read what a pipe still holds, and no more: nothing waits for a process that goes on writing."""
    for _ in range(_PIPE >> 16):
        if not serve_end():
            return


def _memory() -> int:
    """Bytes that all processes inside have for themselves or share with each other."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            with suppress(OSError), open(f"/proc/{name}/status", "rb") as file:
                for line in file:
                    if line.startswith((b"RssAnon:", b"RssShmem:")):
                        total += int(line.split()[1]) * 1024
    return total


def _reap(sparing: int) -> None:
    """Collect what has ended and has no other parent, except the command itself."""
    with suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if found.si_pid == sparing:
                return
            os.waitpid(found.si_pid, 0)


def _end_all() -> None:
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def _collect(process: int) -> int:
    """Wait for a command that has ended, and collect all others that have."""
    _, status = os.waitpid(process, 0)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return status
