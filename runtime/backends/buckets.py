"""Buckets of weights: as many tensors at a time as may be in memory twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..protocols import NamedTensors

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BUCKET_BYTES", "fill_buckets"]

BUCKET_BYTES = 256 * 2**20
"""Large enough for the cost of a message not to matter; a larger tensor has a bucket of its own."""


def fill_buckets(tensors: NamedTensors, size: int = BUCKET_BYTES) -> Iterator[list[tuple[str, Tensor]]]:
    """Yield tensors in buckets of at most `size` bytes, in their order."""
    bucket, filled = list[tuple[str, "Tensor"]](), 0
    for name, tensor in tensors:
        if bucket and filled + tensor.nbytes > size:
            yield bucket
            bucket, filled = [], 0
        bucket.append((name, tensor))
        filled += tensor.nbytes
    if bucket:
        yield bucket
