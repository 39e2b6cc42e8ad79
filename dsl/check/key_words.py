"""Keys that share words with a name: `eval_num_attempts` has a word of the section `eval` and one of a key there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from .foreign_names import load_aliases, split_words

__all__ = ["WordIndex"]

EMPTY = frozenset(
    [
        "max",
        "min",
        "num",
        "n",
        "number",
        "total",
        "use",
        "enable",
        "is",
        "with",
        "the",
        "of",
        "per",
        "for",
        "to",
        "in",
        "on",
        "and",
        "a",
        "an",
        "size",
        "count",
        "mode",
        "type",
        "name",
        "value",
        "key",
        "config",
        "do",
        "s",
        "level",
        "list",
        "target",
        "set",
        "param",
        "rate",
        "data",
    ]
)
"""Words that are too common to be telling."""
ENOUGH = 0.5
NEAR = 0.12


def _stem(word: str) -> str:
    same: Mapping[str, str] = load_aliases()["words"]
    word = same.get(word, word)
    short = word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
    return same.get(short, short)


def _words(name: str) -> list[str]:
    return [_stem(word) for word in split_words(name)]


class WordIndex:
    """The words of all keys, and how telling each is."""

    def __init__(self, paths: Iterable[Sequence[str]]) -> None:
        self.paths = list(paths)
        self.own = {tuple(path): set(_words(path[-1])) for path in self.paths}
        self.above = {tuple(path): {word for part in path[:-1] for word in _words(part)} for path in self.paths}
        counts = Counter(word for words in self.own.values() for word in words)
        self.telling: Mapping[str, float] = {
            word: (0.15 if word in EMPTY else 1.0) * math.log(2 + len(self.paths) / count)
            for word, count in counts.items()
        }

    def find(self, name: str, at: Sequence[str]) -> list[tuple[str, ...]]:
        """The keys that share most with a name, at most three and nearly equal; none if they share little."""
        words = [word for word in _words(name) if word not in EMPTY]
        if not words:
            return []
        scored = ((self._score(words, tuple(path), at), tuple(path)) for path in self.paths)
        good = sorted(
            (pair for pair in scored if pair[0] >= ENOUGH), key=lambda pair: (-pair[0], len(pair[1]), pair[1])
        )
        return [path for score, path in good if score >= good[0][0] - NEAR][:3]

    def _score(self, words: Sequence[str], path: tuple[str, ...], at: Sequence[str]) -> float:
        own, above = self.own[path], self.above[path]
        weight = {word: self.telling.get(word, 3.0) for word in words}
        shared = sum(weight[word] * (1.0 if word in own else 0.7) for word in words if word in own or word in above)
        if not own.intersection(words) or not shared:
            return 0.0
        mine = sum(self.telling[word] for word in own if word in words) / sum(self.telling[word] for word in own)
        place = 0.04 * sum(a == b for a, b in zip(path, at, strict=False))
        return 0.6 * shared / sum(weight.values()) + 0.4 * mine + place
