"""Memory of a process whose learner is on a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

__all__ = ["return_freed_memory"]


def return_freed_memory() -> None:
    """Return freed memory to the kernel.

    glibc keeps what is freed between blocks that are still in use. Activations of rows of different lengths leave more
    such holes with each row, until a process holds twice what it uses.
    """
    if (trim := _find_trim()) is not None:
        trim(0)


@cache
def _find_trim() -> Callable[[int], int] | None:
    """Find `malloc_trim`, which only glibc has."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
