"""Suggestions for messages: names by edit distance, and text quoted at a readable length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice

__all__ = ["did_you_mean", "distance", "either", "find_closest", "find_nearest", "fold_name", "quote"]

LONGEST = 60
MOST_LISTED = 32
"""Names that are shown if none is near."""
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
    return f"known: {', '.join(names)}" if 0 < len(names) <= MOST_LISTED else None


def either(names: Sequence[str]) -> str:
    """`'a', 'b' or 'c'`."""
    *others, last = (f"'{each}'" for each in names)
    return f"{', '.join(others)} or {last}" if others else last


def quote(text: str, limit: int = 40) -> str:
    """Quote a person's text, on one line and shortened."""
    text = str(text)  # for what comes from the environment only the reference
    flat = " ".join(text[: 4 * limit].split())
    return f"'{flat}'" if len(flat) <= limit and len(text) <= 4 * limit else f"'{flat[: limit - 3]}...'"


@lru_cache(maxsize=4096)
def fold_name(name: str) -> str:
    """A name without what only style decides: `groupSize`, `group-size` and `GROUP_SIZE` are one."""
    return re.sub(r"[\W_]+", "", name).lower()


def find_closest(name: str, known: Iterable[str], within: float = 0.5) -> list[tuple[float, str]]:
    """Known names that `name` may be a slip of, with how far each is: 0 the same but for style, 1 not at all near."""
    word = fold_name(name[:LONGEST])
    parts = _split(name[:LONGEST])
    scored = (
        (min(_apart(word, fold_name(each), within), 0.1 if len(parts) > 1 and _split(each) == parts else 1.0), each)
        for each in known
    )
    near = [(score, each) for score, each in scored if score < within]

    def rank(pair: tuple[float, str]) -> tuple[float, bool, int, bool, str]:
        # among equals first what has the same letters: 'rl' is a slip of 'lr' rather than of 'kl'; then the first
        other = fold_name(pair[1])
        apart = distance(name[:LONGEST], pair[1])
        return pair[0], sorted(word) != sorted(other), apart, word[:1] != other[:1], pair[1]

    return sorted(near, key=rank)


def _split(name: str) -> list[str]:
    """Words of a name, in any order: `max_kl` is `kl_max`."""
    return sorted(re.split(r"[\W_]+", name.lower()))


def _apart(word: str, known: str, within: float) -> float:
    if word == known:
        return 0.0
    longest = max(len(word), len(known), 1)
    is_part = min(len(word), len(known)) >= 4 and _is_part(word, known)
    if not is_part and abs(len(word) - len(known)) >= max(2, within * longest):
        return 1.0  # too far even without comparing the letters
    edits = distance(word, known)
    # in a name of two or three letters one slip is half of it, unless it is a swap
    if edits == 1 and longest <= 3 and min(len(word), len(known)) >= 1:
        return 0.25 if sorted(word) == sorted(known) else 0.34
    return 0.4 if edits > 1 and is_part else edits / longest


def _is_part(word: str, known: str) -> bool:
    """`size` of `group_size`, `temp` of `temperature`."""
    return known.startswith(word) or known.endswith(word) or word.startswith(known) or word.endswith(known)


@lru_cache(maxsize=8192)
def distance(a: str, b: str) -> int:
    """Letters to insert, delete, replace or swap with their neighbour."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        row = [i]
        for j, y in enumerate(b, start=1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]
