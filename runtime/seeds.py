"""Seeds by name: no random draw of a run depends on how many came before it."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["derive"]


def derive(seed: int, *names: str | int) -> int:
    """Derive the 32-bit seed of the draw with these names, the same on every machine."""
    # lengths are part of what is hashed, so that ("a", "bc") and ("ab", "c") differ, and 1 differs from "1"
    parts = (f"{type(name).__name__}:{len(str(name))}:{name}" for name in (seed, *names))
    return int.from_bytes(blake2b("|".join(parts).encode(), digest_size=4).digest(), "little")
