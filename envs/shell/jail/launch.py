"""From the host into the jail: new namespaces, another user, another root, no rights; then the supervisor.

    python -I -S -B -c '...; launch.main()'

The first message on standard input is the configuration; the first answer is empty, or says what the kernel refused.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from . import libc
from .frames import read_frame, write_frame
from .mounts import build_root, open_sources
from .supervisor import serve
from .syscalls import MACHINES, refuse_calls

__all__ = ["main"]

_NEW_USER, _NEW_PIDS = 0x10000000, 0x20000000
_NEW_OTHERS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x40000000
"""Mounts, cgroups, host's name, queues and shared memory, network."""
_AGENT = 1000
_NOBODY = 65534
"""Who the agent is outside where root starts the jail: nobody who owns anything."""
_DEATH_SIGNAL, _DUMPABLE, _DROP_BOUND, _AMBIENT, _CLEAR_ALL = 1, 4, 24, 47, 4
_CAPABILITIES = 0x20080522
_CAPSET = {"x86_64": 126, "aarch64": 91}
_LAST_CAPABILITY = 63


def main() -> None:
    message = read_frame(0)
    if message is None:
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.uname().machine not in MACHINES:
        _refuse(f"no filter of system calls is known for {os.uname().machine}")
    _launch(message[0])


def _refuse(reason: str) -> None:
    write_frame(1, {"error": reason})
    os._exit(1)


def _launch(config: Mapping[str, Any]) -> None:
    """Fork a process that enters the jail, and tell the kernel who it is outside."""
    left, mapped = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(left[0])
        os.close(mapped[1])
        _guarded(lambda: _leave_host(config, left[1], mapped[0]))
    os.close(left[1])
    os.close(mapped[0])
    if os.read(left[0], 1):
        _map_user(child)
        os.write(mapped[1], b"\n")
    os.close(mapped[1])
    os.waitpid(child, 0)
    os._exit(0)


def _guarded(do: Callable[[], None]) -> None:
    try:
        do()
    except OSError as error:
        _refuse(error.strerror or str(error))
    except Exception as error:  # nobody else could say what it was
        _refuse(f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _map_user(child: int) -> None:
    """Make this user the agent, alone: inside there is nobody else to become."""
    outside = (_NOBODY, _NOBODY) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    try:
        with open(f"/proc/{child}/setgroups", "w") as file:
            file.write("deny")
        for name, number in zip(("uid_map", "gid_map"), outside, strict=True):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(f"{_AGENT} {number} 1\n")
    except OSError as error:
        os.kill(child, signal.SIGKILL)
        _refuse(f"map the user: {error.strerror}")


def _leave_host(config: Mapping[str, Any], left: int, mapped: int) -> None:
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    with suppress(PermissionError):  # nobody but root may
        os.setgroups([])
    libc.unshare(_NEW_USER | _NEW_PIDS | _NEW_OTHERS)
    sources = open_sources(config)
    os.write(left, b"\n")
    if not os.read(mapped, 1):
        os._exit(1)
    os.close(left)
    os.close(mapped)
    os.setresgid(_AGENT, _AGENT, _AGENT)
    os.setresuid(_AGENT, _AGENT, _AGENT)
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)  # reset when the user changes
    first = os.fork()
    if first == 0:
        _guarded(lambda: _be_first(config, sources))
    os.closerange(0, 2)
    os.waitpid(first, 0)
    os._exit(0)


def _be_first(config: Mapping[str, Any], sources: Mapping[str, int]) -> None:
    """Go on as the first process of the jail."""
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    os.umask(0o022)
    libc.sethostname("agym")
    build_root(config, sources)
    os.setsid()
    _drop_rights()
    refuse_calls()
    libc.prctl(_DUMPABLE, 0)
    write_frame(1, {})
    serve(config, 0, 1)


def _drop_rights() -> None:
    libc.prctl(_AMBIENT, _CLEAR_ALL)
    for number in range(_LAST_CAPABILITY + 1):
        try:
            libc.prctl(_DROP_BOUND, number)
        except OSError:  # the kernel knows no more of them
            break
    nothing = ((ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)())
    libc.call_kernel("drop all rights", _CAPSET[os.uname().machine], *map(ctypes.byref, nothing))
