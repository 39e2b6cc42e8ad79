"""Suggestions for messages: the name that was probably meant, and text quoted at a readable length."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from .spelling import find_closest

__all__ = ["did_you_mean", "find_nearest", "quote"]

MAX_KNOWN = 200
"""More names than a person could have meant; comparing takes its time."""


def find_nearest(word: str, known: Iterable[str]) -> str | None:
    """Find the known name that `word` is most likely a misspelling of."""
    matches = find_closest(word, islice(known, MAX_KNOWN))
    return matches[0][1] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Make the help line for an unknown name: the nearest known one, or all of them if there are few."""
    names = sorted(known)
    near = find_nearest(word, names)
    if near is not None:
        return f"did you mean '{near}'?"
    return f"known: {', '.join(names)}" if 0 < len(names) <= 10 else None


def quote(text: str, limit: int = 40) -> str:
    """Quote a person's text, on one line and shortened."""
    flat = " ".join(text[: 4 * limit].split())
    return f"'{flat}'" if len(flat) <= limit and len(text) <= 4 * limit else f"'{flat[: limit - 3]}...'"
