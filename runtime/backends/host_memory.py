"""Memory of a process on a CPU that nothing uses any more."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

__all__ = ["return_freed_memory"]


def return_freed_memory() -> None:
    """Return freed memory to the kernel.

    glibc keeps what is freed between blocks that are still used. Activations of rows of different lengths leave more
    of such holes with each row, until a process holds twice what it uses.
    """
    if (trim := _find_trim()) is not None:
        trim(0)


@cache
def _find_trim() -> Callable[[int], int] | None:
    """glibc alone has it."""
    try:
        return ctypes.CDLL(None).malloc_trim  # type: ignore[no-any-return]
    except (AttributeError, OSError, TypeError):
        return None
