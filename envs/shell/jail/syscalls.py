"""A filter of system calls: what no command needs, and what reaches past the namespaces, is refused.

Namespaces hide files, processes and networks; this closes what they do not cover: memory that belongs to no file or
process, sockets to the machine below, changes to processes by others of the same user.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

from .libc import prctl

__all__ = ["MACHINES", "refuse_calls"]

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_X32 = 0x40000000
"""Marks the calls of a second table that some x86 kernels have."""
_NEW_NAMESPACES = 0x7E020000
"""Flags of `clone` that make namespaces."""
_AF_UNIX = 1

_X86_64 = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "mount": 165, "umount2": 166,
    "pivot_root": 155, "chroot": 161, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170,
    "setdomainname": 171, "init_module": 175, "delete_module": 176, "finit_module": 313, "kexec_load": 246,
    "kexec_file_load": 320, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250, "add_key": 248,
    "request_key": 249, "name_to_handle_at": 303, "open_by_handle_at": 304, "unshare": 272, "setns": 308, "syslog": 103,
    "acct": 163, "quotactl": 179, "memfd_create": 319, "shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64,
    "msgget": 68, "mq_open": 240, "sched_setaffinity": 203, "sched_setscheduler": 144, "sched_setparam": 142,
    "sched_setattr": 314, "setpriority": 141, "ioprio_set": 251, "migrate_pages": 256, "move_pages": 279,
    "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305, "fanotify_init": 300,
    "vhangup": 153, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "uselib": 134, "lookup_dcookie": 212,
    "socket": 41, "prlimit64": 302, "clone": 56,
}  # fmt: skip
_AARCH64 = {
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "mount": 40, "umount2": 39,
    "pivot_root": 41, "chroot": 51, "swapon": 224, "swapoff": 225, "reboot": 142, "sethostname": 161,
    "setdomainname": 162, "init_module": 105, "delete_module": 106, "finit_module": 273, "kexec_load": 104,
    "kexec_file_load": 294, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "keyctl": 219, "add_key": 217,
    "request_key": 218, "name_to_handle_at": 264, "open_by_handle_at": 265, "unshare": 97, "setns": 268, "syslog": 116,
    "acct": 89, "quotactl": 60, "memfd_create": 279, "shmget": 194, "shmat": 196, "shmctl": 195, "semget": 190,
    "msgget": 186, "mq_open": 180, "sched_setaffinity": 122, "sched_setscheduler": 119, "sched_setparam": 118,
    "sched_setattr": 274, "setpriority": 140, "ioprio_set": 30, "migrate_pages": 238, "move_pages": 239,
    "settimeofday": 170, "clock_settime": 112, "adjtimex": 171, "clock_adjtime": 266, "fanotify_init": 262,
    "vhangup": 58,
    "socket": 198, "prlimit64": 261, "clone": 220,
}  # fmt: skip
_EVERYWHERE = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "memfd_secret": 447,
}  # fmt: skip
MACHINES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "x86_64": (0xC000003E, {**_X86_64, **_EVERYWHERE}),
    "aarch64": (0xC00000B7, {**_AARCH64, **_EVERYWHERE}),
}
"""An architecture's number, and the numbers of the calls that are refused or looked at."""
_ONLY: Mapping[str, tuple[int, int]] = {"socket": (0, _AF_UNIX), "prlimit64": (0, 0)}
"""Allowed with this value of this argument: sockets between processes inside; a process's own limits."""

_Instruction = tuple[int, int, int, int]


class _Encoded(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Encoded)))


def refuse_calls() -> None:
    """Install the filter, for this process and all that it starts."""
    architecture, numbers = MACHINES[os.uname().machine]
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER), (_ANY_BIT, 0, 1, _X32), (_RETURN, 0, 0, _KILL),
    ]  # fmt: skip
    for name, number in numbers.items():
        program += _check_call(name, number)
    program.append((_RETURN, 0, 0, _ALLOW))
    encoded = (_Encoded * len(program))(*(_Encoded(*each) for each in program))
    prctl(_NO_NEW_PRIVS, 1)
    prctl(_SECCOMP, _FILTER, ctypes.byref(_Program(len(program), encoded)))


def _check_call(name: str, number: int) -> list[_Instruction]:
    refusal = (_RETURN, 0, 0, _REFUSE | _EPERM)
    if name == "clone3":  # its flags lie in memory, which no filter can read: libraries then turn to clone
        return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | _ENOSYS)]
    if name == "clone":
        return _with_argument(number, 0, (_ANY_BIT, 0, 1, _NEW_NAMESPACES))
    if name in _ONLY:
        argument, value = _ONLY[name]
        return _with_argument(number, argument, (_EQUAL, 1, 0, value))
    return [(_EQUAL, 0, 1, number), refusal]


def _with_argument(number: int, argument: int, test: _Instruction) -> list[_Instruction]:
    """Refuse a call where a test of an argument falls through, and allow it where it jumps."""
    # of eight bytes the lower four, which come first on both machines
    assert sys.byteorder == "little"
    load = (_LOAD, 0, 0, _FIRST_ARGUMENT + 8 * argument)
    return [(_EQUAL, 0, 4, number), load, test, (_RETURN, 0, 0, _REFUSE | _EPERM), (_RETURN, 0, 0, _ALLOW)]
