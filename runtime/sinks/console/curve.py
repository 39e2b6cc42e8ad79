"""A curve of any length in a few columns of block characters.

Enters: values from 0 to 1, one by one. Leaves: text. When the columns are full, neighbours are merged and each column
stands for twice as many values: memory and time stay the same over a run of any length.
"""

from __future__ import annotations

from math import isnan

__all__ = ["Curve"]

_BLOCKS = "▁▂▃▄▅▆▇█"


class Curve:
    """The whole past, oldest at the left."""

    def __init__(self, columns: int = 40) -> None:
        if columns < 2 or columns % 2:
            raise ValueError(f"expected an even number of columns, got {columns}")
        self._columns = columns
        self._means: list[float] = []
        self._per_column = 1
        self._pending: list[float] = []

    def add(self, value: float) -> None:
        if isnan(value):
            return
        self._pending.append(value)
        if len(self._pending) < self._per_column:
            return
        if len(self._means) == self._columns:
            self._halve()
            return
        self._means.append(sum(self._pending) / len(self._pending))
        self._pending = []

    def _halve(self) -> None:
        # a new list, so that a reader in another thread sees the old curve or the new one
        self._means = [(a + b) / 2 for a, b in zip(self._means[::2], self._means[1::2], strict=True)]
        self._per_column *= 2

    def __str__(self) -> str:
        return "".join(_block(value) for value in tuple(self._means))


def _block(value: float) -> str:
    return _BLOCKS[min(max(int(value * len(_BLOCKS)), 0), len(_BLOCKS) - 1)]
