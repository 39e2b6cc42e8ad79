"""Memory of a process whose learner is on a CPU."""

from __future__ import annotations

import ctypes
from functools import cache

__all__ = ["return_freed_memory"]

_KEPT_BYTES = 128 << 20
"""Freed memory that is kept for the next row: faulting its pages in again takes a small model a tenth of a run."""


def return_freed_memory() -> None:
    """Return freed memory to the kernel, unless there is little of it.

    glibc keeps what is freed between blocks that are still in use. Activations of rows of different lengths leave more
    such holes with each row, until a process holds twice what it uses.
    """
    libc = _find_glibc()
    if libc is not None and (not hasattr(libc, "mallinfo2") or libc.mallinfo2().fordblks > _KEPT_BYTES):
        libc.malloc_trim(0)


class _Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`; `fordblks` is how many bytes are free, in all arenas."""

    _fields_ = [("others", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)]


@cache
def _find_glibc() -> ctypes.CDLL | None:
    """Find the C library, if it is glibc, which reports since 2.33 how much is free."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallinfo2"):
        libc.mallinfo2.restype = _Mallinfo
    return libc if hasattr(libc, "malloc_trim") else None
