"""Every random draw of a run comes from a seed made here, by name: no draw depends on how many came before it.

Enters: the run's seed and words that name the draw. Leaves: an integer, the same on every machine.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["derive"]


def derive(seed: int, *names: str | int) -> int:
    """A 32-bit seed for the draw that `names` name, under the run's `seed`."""
    # lengths are part of what is hashed, so that ("a", "bc") and ("ab", "c") differ, and 1 differs from "1"
    parts = (f"{type(name).__name__}:{len(str(name))}:{name}" for name in (seed, *names))
    return int.from_bytes(blake2b("|".join(parts).encode(), digest_size=4).digest(), "little")
