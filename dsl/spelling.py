"""How far two names are apart, for "did you mean".

Enters: a name that is not known, and those that are. Leaves: the near ones, nearest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

__all__ = ["distance", "find_closest", "fold_name"]

LONGEST = 60


@lru_cache(maxsize=4096)
def fold_name(name: str) -> str:
    """A name without what only style decides: `groupSize`, `group-size` and `GROUP_SIZE` are one."""
    return re.sub(r"[\W_]+", "", name).lower()


def find_closest(name: str, known: Iterable[str], within: float = 0.5) -> list[tuple[float, str]]:
    """Known names that `name` may be a slip of, with how far each is: 0 the same but for style, 1 not at all near."""
    word = fold_name(name[:LONGEST])
    scored = ((_apart(word, fold_name(each), within), each) for each in known)
    near = [(score, each) for score, each in scored if score < within]

    def rank(pair: tuple[float, str]) -> tuple[float, bool, int, str]:
        # among equals first what has the same letters: 'rl' is a slip of 'lr' rather than of 'kl'
        return pair[0], sorted(word) != sorted(fold_name(pair[1])), distance(name[:LONGEST], pair[1]), pair[1]

    return sorted(near, key=rank)


def _apart(word: str, known: str, within: float) -> float:
    if word == known:
        return 0.0
    longest = max(len(word), len(known), 1)
    is_part = min(len(word), len(known)) >= 4 and _is_part(word, known)
    if not is_part and abs(len(word) - len(known)) >= max(2, within * longest):
        return 1.0  # too far without a look at the letters
    edits = distance(word, known)
    # in a name of two or three letters one slip is half of it
    if edits == 1 and longest <= 3 and min(len(word), len(known)) >= 1:
        return 0.34
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
