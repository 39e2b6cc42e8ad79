"""Which part of a call each of several workers gets: ranks get sequences, with as equal numbers of tokens as whole
episodes allow; samplers get tasks, episodes or requests in turn.

And how sequences get there: as few arrays, since each object takes longer to cross to another process than a thousand
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..protocols import TrainSequence

__all__ = ["Share", "deal", "deals_work", "divide", "divides_sequences", "is_dealt", "is_divided", "join"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_MARK = "_divides_sequences"
_DEALT = "_deals_work"


def divides_sequences(work: F) -> F:
    """Mark a method of the learner worker: each rank is called with its own share of the sequences, its first argument.

    A list that comes back has an entry for each sequence; any other value is the same on all ranks; a tuple
    may hold both.
    """
    setattr(work, _MARK, True)
    return work


def is_divided(work: Callable[..., Any]) -> bool:
    """Return whether each rank gets its own share of the sequences."""
    return getattr(work, _MARK, False)


def deals_work(work: F) -> F:
    """Mark a method of the rollout worker: each sampler is called with its own share of the first argument, whose items
    do not depend on each other, and with its share of the slots and sessions in the second. It returns a list with an
    entry for each item."""
    setattr(work, _DEALT, True)
    return work


def is_dealt(work: Callable[..., Any]) -> bool:
    """Return whether each sampler gets its own share of the work."""
    return getattr(work, _DEALT, False)


def deal(count: int, shares: int) -> list[list[int]]:
    """Deal items out in turn; return the indices of each share, ascending."""
    return [list(range(first, count, shares)) for first in range(shares)]


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
    """Join the results of the shares: lists in the order of the sequences; tuples part by part; of anything else the
    first."""
    if isinstance(results[0], tuple):
        return tuple(join(shares, part) for part in zip(*results, strict=True))
    if not isinstance(results[0], list):
        return results[0]
    places = [
        (at, each)
        for share, result in zip(shares, results, strict=True)
        for at, each in zip(share, result, strict=True)
    ]
    return [each for _, each in sorted(places, key=lambda place: place[0])]


class Share(list[TrainSequence]):
    """Sequences for one rank, pickled as one array of each kind; elsewhere they are a plain list again."""

    def __reduce__(self) -> tuple[Callable[..., list[TrainSequence]], tuple[Mapping[str, Any]]]:
        columns = {each.name: [getattr(sequence, each.name) for sequence in self] for each in fields(TrainSequence)}
        return _unpack, ({name: _Column.of(column) for name, column in columns.items()},)


def _unpack(columns: Mapping[str, _Column | list[Any]]) -> list[TrainSequence]:
    rows = zip(*columns.values(), strict=True)
    return [TrainSequence(**dict(zip(columns, row, strict=True))) for row in rows]


class _Column:
    """Several arrays in one, by their sizes; None where there is none."""

    def __init__(self, whole: NDArray[Any], sizes: Sequence[int | None]) -> None:
        self._whole, self._sizes = whole, sizes

    @classmethod
    def of(cls, values: list[Any]) -> _Column | list[Any]:
        """Join what are arrays; leave numbers as they are."""
        arrays = [each for each in values if isinstance(each, np.ndarray)]
        if not arrays:
            return values
        # of one dtype, or a number would be rounded on the way
        whole = np.concatenate(arrays, dtype=arrays[0].dtype, casting="no")
        return cls(whole, [None if each is None else len(each) for each in values])

    def __iter__(self) -> Iterator[NDArray[Any] | None]:
        end = 0
        for size in self._sizes:
            end += size or 0
            yield None if size is None else self._whole[end - size : end]
