"""Exact match and F1 with the nearest accepted answer, from 0 to 1, after SQuAD's normalisation."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

__all__ = ["SCORES", "exact_match", "f1", "normalize"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Lower the case; remove punctuation, articles and repeated blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    return float(any(_same(answer, each) for each in accepted))


def _same(answer: str, accepted: str) -> bool:
    left = normalize(accepted)
    # the rules leave nothing of a unit that is called A: nothing would equal it
    return normalize(answer) == left if left else answer.strip().lower() == accepted.strip().lower()


def f1(answer: str, accepted: Sequence[str]) -> float:
    """The harmonic mean of precision and recall, over words."""
    return max((_f1(normalize(answer).split(), normalize(each).split()) for each in accepted), default=0.0)


def _f1(answer: Sequence[str], accepted: Sequence[str]) -> float:
    shared = (Counter(answer) & Counter(accepted)).total()
    return 2 * shared / (len(answer) + len(accepted)) if shared else 0.0


SCORES: Mapping[str, Callable[[str, Sequence[str]], float]] = {"exact_match": exact_match, "f1": f1}
