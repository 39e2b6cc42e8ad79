"""Numbers for people."""

from __future__ import annotations

__all__ = ["binary", "count", "plural"]

SCALES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def count(number: int) -> str:
    """`7.62 B`: three significant digits, and a scale."""
    for scale, letter in SCALES:
        if number >= scale:
            return f"{number / scale:.3g} {letter}"
    return str(number)


def binary(number: int) -> str:
    return f"{number / 2**30:.2f} GiB" if number >= 2**28 else f"{number / 2**20:.2f} MiB"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
