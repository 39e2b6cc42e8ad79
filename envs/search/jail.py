"""Runs a program of the agent's: a process that gives up everything, then runs what comes on standard input.

Run by `sandbox`, as a script in an interpreter of its own, with the limits as arguments. Every module that a program
may import is loaded first; then the process gives up its user, its root folder and its network where the kernel lets
it, and in any case every system call but those that compute, tell the time, and read and write what is open: files,
sockets, processes and threads cannot be asked for any more, by whatever way the program may find to ask.
"""

# ruff: noqa: F401 - most imports are for the program
import abc
import array
import ast
import base64
import bisect
import calendar
import cmath
import collections
import collections.abc
import contextlib
import copy
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import heapq
import io
import itertools
import json
import math
import numbers
import operator
import os
import random
import re
import resource
import statistics
import string
import struct
import sys
import textwrap
import time
import traceback
import types
import typing
import unicodedata
from collections.abc import Sequence
from typing import Any

_CLONE_NEW = 0x00020000 | 0x08000000 | 0x40000000 | 0x04000000
"""Mounts, queues and shared memory, network, host's name."""
_CLONE_NEWUSER = 0x10000000
_NOBODY = 65534
_CAPABILITIES = 0x20080522
"""In which form they are told: the third."""

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_ALLOW, _EPERM, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
"""Where a filter finds the number of the call, and the architecture whose number it is."""

# read write close fstat lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn writev sched_yield
# mremap madvise nanosleep getpid exit gettimeofday getrusage times sigaltstack gettid futex restart_syscall
# clock_gettime clock_getres clock_nanosleep exit_group getrandom
_X86_64 = "0 1 3 5 8 9 10 11 12 13 14 15 20 24 25 28 35 39 60 96 98 100 131 186 202 219 228 229 230 231 318"
_AARCH64 = (
    "63 64 57 80 62 222 226 215 214 134 135 139 66 124 216 233 101 172 93 169 165 153 132 178 98 128 113 114 115 94 278"
)
_CALLS = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
"""An architecture's number, and the numbers of the calls that are left."""

_PROGRAM = "program"
"""What its errors call it."""


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def _shut_in(cpu_s: int, memory_bytes: int) -> None:
    libc, machine = ctypes.CDLL(None, use_errno=True), os.uname().machine
    if sys.platform != "linux" or machine not in _CALLS:
        sys.exit(f"no filter of system calls is known for {sys.platform} on {machine}")
    _leave_the_host(libc)
    libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)  # reset when the user changes; nobody else would end one that sleeps
    _limit(cpu_s, memory_bytes)
    architecture, allowed = _CALLS[machine]
    _give_up_system_calls(libc, architecture, [int(number) for number in allowed.split()])


def _leave_the_host(libc: ctypes.CDLL) -> None:
    """Add a second barrier where the kernel allows it: no privileges, no network, an empty root."""
    root = os.geteuid() == 0
    libc.unshare(_CLONE_NEW if root else _CLONE_NEW | _CLONE_NEWUSER)
    with contextlib.suppress(OSError):
        # a folder with nothing in it but this process's own three pipes
        os.chroot("/proc/self/fdinfo")
        os.chdir("/")
    if root:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    # a process that is not root has every right in a user namespace of its own
    libc.capset((ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)())


def _limit(cpu_s: int, memory_bytes: int) -> None:
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 3,
    }
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))


def _give_up_system_calls(libc: ctypes.CDLL, architecture: int, allowed: Sequence[int]) -> None:
    program = [(_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_IF_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    program.append((_LOAD, 0, 0, _NUMBER))
    # each jumps over the rest of the list and the refusal behind it
    program += [(_JUMP_IF_EQUAL, len(allowed) - at, 0, number) for at, number in enumerate(allowed)]
    program += [(_RETURN, 0, 0, _EPERM), (_RETURN, 0, 0, _ALLOW)]
    instructions = (_Instruction * len(program))(*(_Instruction(*each) for each in program))
    filter_ = _Filter(len(program), instructions)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0
    ):
        sys.exit(f"the kernel takes no filter of system calls: {os.strerror(ctypes.get_errno())}")


def _run(source: str) -> None:
    """Run a program as at an interpreter's prompt: the value of its last line is shown."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    try:
        tree = ast.parse(source, _PROGRAM)
        *lines, last = tree.body or [ast.Pass()]
        if not isinstance(last, ast.Expr):
            exec(compile(tree, _PROGRAM, "exec"), scope)
            return
        exec(compile(ast.Module(lines, []), _PROGRAM, "exec"), scope)
        value = eval(compile(ast.Expression(last.value), _PROGRAM, "eval"), scope)
        if value is not None:
            print(repr(value))
    except SystemExit:
        pass
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _PROGRAM]
        print("".join([*traceback.format_list(frames), *traceback.format_exception_only(error)]).rstrip())


def _main() -> None:
    cpu_s, memory_bytes = map(int, sys.argv[1:])
    datetime.datetime.strptime("1", "%d")  # which loads a module of its own  # noqa: DTZ007
    try:
        _shut_in(cpu_s, memory_bytes)
    except OSError as error:
        sys.exit(f"cannot give up what this process may do: {error}")
    # whatever comes before this sign is a reason why no program can be run
    print(end="\x02", flush=True)
    source = sys.stdin.read()
    sys.path.clear()
    random.seed(0)
    _run(source)
    sys.stdout.flush()
    os._exit(0)  # there is nothing to clear up, and that may take long


if __name__ == "__main__":
    _main()
