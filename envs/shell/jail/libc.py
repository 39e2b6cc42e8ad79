"""System calls that Python has no function for; each raises OSError with what was tried."""

from __future__ import annotations

import ctypes
import os

__all__ = ["call_kernel", "mount", "prctl", "set_mount_flags", "sethostname", "unmount", "unshare"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_MOUNT_SETATTR = 442
"""The same on every architecture, as are all numbers from 424 on."""
_HERE = -100
_RECURSIVE, _EMPTY_PATH = 0x8000, 0x1000


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def call_kernel(what: str, number: int, *arguments: object) -> int:
    return _check(_LIBC.syscall(ctypes.c_long(number), *arguments), what)


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode() if kind else None)
    _check(_LIBC.mount(*arguments, ctypes.c_ulong(flags), data.encode()), f"mount {kind or source} on {target}")


def unmount(target: str, flags: int) -> None:
    _check(_LIBC.umount2(target.encode(), flags), f"unmount {target}")


def set_mount_flags(target: str | int, flags: int, *, below: bool = True) -> None:
    """Set flags on a mount and on all below it; the target is a path, or the number of an open one."""
    values = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    folder, path = (_HERE, target) if isinstance(target, str) else (target, "")
    at = (_RECURSIVE if below else 0) | (0 if path else _EMPTY_PATH)
    where = (ctypes.c_int(folder), path.encode(), ctypes.c_uint(at))
    call_kernel("set flags of a mount", _MOUNT_SETATTR, *where, ctypes.byref(values), ctypes.c_size_t(32))


def unshare(flags: int) -> None:
    _check(_LIBC.unshare(flags), "leave the host's namespaces")


def sethostname(name: str) -> None:
    _check(_LIBC.sethostname(name.encode(), len(name)), "set the host's name")


def prctl(option: int, *values: object) -> int:
    padded = [each if not isinstance(each, int) else ctypes.c_ulong(each) for each in values]
    padded += [ctypes.c_ulong(0)] * (4 - len(padded))
    return _check(_LIBC.prctl(option, *padded), f"set option {option} of the process")
