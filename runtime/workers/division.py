"""Which sequences each of several learners gets: as many tokens as the others', within what whole episodes allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..protocols import TrainSequence

__all__ = ["divide", "divides_sequences", "is_divided", "join"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_MARK = "_divides_sequences"


def divides_sequences(work: F) -> F:
    """Mark a method of the learner worker: each rank is called with its own share of the sequences, its first argument.

    A list that comes back has an entry for each sequence; any other value is the same on all ranks.
    """
    setattr(work, _MARK, True)
    return work


def is_divided(work: Callable[..., Any]) -> bool:
    """Return whether each rank gets its own share of the sequences."""
    return getattr(work, _MARK, False)


def divide(sequences: Sequence[TrainSequence], shares: int) -> list[list[int]]:
    """Divide sequences by tokens; return the indices of each share, ascending. Segments of an episode stay together."""
    units: dict[tuple[bool, int], list[int]] = {}
    for at, sequence in enumerate(sequences):
        alone = sequence.episode is None
        units.setdefault((alone, at if sequence.episode is None else sequence.episode), []).append(at)
    sizes = [(sum(len(sequences[at].ids) for at in unit), unit) for unit in units.values()]
    divided, tokens = [list[int]() for _ in range(shares)], [0] * shares
    # longest first, each to the share with the fewest tokens so far
    for size, unit in sorted(sizes, key=lambda each: (-each[0], each[1][0])):
        least = min(range(shares), key=lambda share: (tokens[share], share))
        divided[least] += unit
        tokens[least] += size
    return [sorted(share) for share in divided]


def join(shares: Sequence[Sequence[int]], results: Sequence[Any]) -> Any:
    """Join what the shares came to: lists in the order of the sequences; of anything else the first."""
    if not isinstance(results[0], list):
        return results[0]
    places = [
        (at, each)
        for share, result in zip(shares, results, strict=True)
        for at, each in zip(share, result, strict=True)
    ]
    return [each for _, each in sorted(places, key=lambda place: place[0])]
