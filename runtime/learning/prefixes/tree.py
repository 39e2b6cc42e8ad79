"""Prefix tree of token sequences: the order in which a row holds them, and the borders of its nodes. Pure.

In depth-first order a sequence has most in common with the one just before it, so the tree is an order and one number
per sequence: how many tokens it takes over from its predecessor. A node's tokens stand together in the row, and those
of all its descendants right behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MIN_SHARED", "Node", "SharedOrder", "find_nodes", "find_order", "find_paths", "plan_shared_rows"]

Ids = NDArray[np.integer[Any]]
Indices = NDArray[np.int64]

MIN_SHARED = 8
"""Fewest tokens of a node: below it, attention in one more piece costs what the shared tokens save."""
_ROW_COST = 64
"""What a row costs besides its tokens, in tokens: each row reads all weights and writes all gradients once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOrder:
    """Sequences in depth-first order."""

    members: tuple[int, ...]
    shared: tuple[int, ...]
    """Tokens that each takes over from its predecessor; 0 for the first."""


@dataclass(frozen=True, slots=True)
class Node:
    """Tokens of a row that the same sequences share."""

    start: int
    end: int
    stop: int
    """End of its descendants, which begin at `end`."""


# --- the order -----------------------------------------------------------------------------------------------------


def find_order(ids: Sequence[Ids]) -> SharedOrder:
    """Order sequences depth first, the longest branch of each node before the others."""
    ranked = sorted(range(len(ids)), key=lambda at: (_sort_key(ids[at]), at))
    common = [0, *(_count_common(ids[one], ids[other]) for one, other in pairwise(ranked))]
    members, shared = list[int](), list[int]()
    # a branch: its first and last place in `ranked`, the depth of its parent, and what its first sequence takes over
    branches = [(0, len(ranked), 0, 0)] if ranked else []
    while branches:
        first, last, depth, taken = branches.pop()
        if last - first == 1:
            members.append(ranked[first])
            shared.append(taken)
            continue
        lowest = min(common[first + 1 : last])
        depth = lowest if lowest >= depth + MIN_SHARED else depth
        parts = _split(common, first, last, depth + MIN_SHARED)
        parts.sort(key=lambda part: (-max(len(ids[at]) for at in ranked[slice(*part)]), part))
        branches += [(*part, depth, depth if at else taken) for at, part in enumerate(parts)][::-1]
    return SharedOrder(members=tuple(members), shared=tuple(shared))


def _sort_key(ids: Ids) -> bytes:
    # most significant byte first: then bytes compare as the numbers do
    return ids.astype(">u4").tobytes()


def _count_common(one: Ids, other: Ids) -> int:
    length = min(len(one), len(other))
    apart = one[:length] != other[:length]
    return int(apart.argmax()) if apart.any() else length


def _split(common: Sequence[int], first: int, last: int, least: int) -> list[tuple[int, int]]:
    """Split a branch wherever neighbours have less than this in common."""
    cuts = [first, *(at for at in range(first + 1, last) if common[at] < least), last]
    return list(pairwise(cuts))


# --- rows ----------------------------------------------------------------------------------------------------------


def plan_shared_rows(ids: Sequence[Ids], trained: Sequence[int], capacity: int) -> list[SharedOrder] | None:
    """Assign sequences to rows of at most `capacity` tokens, shared ones counted once, and as many trained ones; a
    longer sequence has a row of its own. None if no two have a prefix in common."""
    order = find_order(ids)
    if not any(order.shared):
        return None
    lengths = [len(ids[member]) for member in order.members]
    cuts = _cut(lengths, order.shared, [trained[member] for member in order.members], capacity)
    return [_order_row(ids, order, start, end) for start, end in pairwise(cuts)]


def _order_row(ids: Sequence[Ids], order: SharedOrder, start: int, end: int) -> SharedOrder:
    """Order a row by its own tree, or as in the whole tree where that shares more: by the latter it fits. A node that
    is long enough in one of them can be too short in the other, where it begins deeper."""
    part = SharedOrder(members=order.members[start:end], shared=(0, *order.shared[start + 1 : end]))
    own = find_order([ids[member] for member in part.members])
    if sum(own.shared) < sum(part.shared):
        return part
    return SharedOrder(members=tuple(part.members[at] for at in own.members), shared=own.shared)


def _cut(lengths: Sequence[int], shared: Sequence[int], trained: Sequence[int], capacity: int) -> list[int]:
    """Cut an order into rows so that they have the fewest tokens in all: a cut repeats what its two sides share."""
    best = [0, *[0] * len(lengths)]
    cut_before = [0] * (len(lengths) + 1)
    for end in range(1, len(lengths) + 1):
        options = [
            (best[start] + tokens + _ROW_COST, start)
            for start, tokens in _list_rows_ending(end, lengths, shared, trained, capacity)
        ]
        best[end], cut_before[end] = min(options)
    cuts = [len(lengths)]
    while cuts[-1]:
        cuts.append(cut_before[cuts[-1]])
    return cuts[::-1]


def _list_rows_ending(
    end: int, lengths: Sequence[int], shared: Sequence[int], trained: Sequence[int], capacity: int
) -> Iterator[tuple[int, int]]:
    """Yield the start and the tokens of each row that fits and ends before `end`."""
    added = in_loss = 0
    for start in range(end - 1, -1, -1):
        tokens, in_loss = added + lengths[start], in_loss + trained[start]
        # what is shared is never longer than what stands before it, so no earlier start makes the row shorter
        if start < end - 1 and max(tokens, in_loss) > capacity:
            return
        yield start, tokens
        added += lengths[start] - shared[start]


# --- the tree of a row ---------------------------------------------------------------------------------------------


def find_paths(lengths: Sequence[int], shared: Sequence[int]) -> list[Indices]:
    """Find the places in the row of each sequence's tokens."""
    paths, taken = list[Indices](), 0
    for length, common in zip(lengths, shared, strict=True):
        own = np.arange(taken, taken + length - common)
        paths.append(np.concatenate([paths[-1][:common], own]) if common else own)
        taken += len(own)
    return paths


def find_nodes(paths: Sequence[Indices], shared: Sequence[int]) -> list[Node]:
    """Find the nodes of a row, in its order."""
    tokens = 1 + max(int(path[-1]) for path in paths)
    # what stands before each token on its path; -1 before the first
    before = np.arange(-1, tokens - 1)
    for path, common in zip(paths, shared, strict=True):
        if common < len(path):
            before[path[common]] = path[common - 1] if common else -1
    jumps = np.flatnonzero(before != np.arange(-1, tokens - 1))
    starts = sorted({0, *jumps.tolist(), *(before[jumps] + 1).tolist()})
    ends = [*starts[1:], tokens]
    stops = list(ends)
    node_of = np.repeat(np.arange(len(starts)), np.diff([*starts, tokens]))
    for at in reversed(range(len(starts))):
        if (parent := before[starts[at]]) >= 0:
            above = node_of[parent]
            stops[above] = max(stops[above], stops[at])
    return [Node(*borders) for borders in zip(starts, ends, stops, strict=True)]
