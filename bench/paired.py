"""Two ways of doing the same, in turn, so that a machine whose speed drifts affects both alike. Shared by the benches.

A ratio is the median over the rounds of what one way took by what the other took in the same round; next to the wall
clock is the processor time of this process, which another's load does not lengthen.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Spent", "alternated", "ratio", "seconds", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Seconds."""

    wall: float
    process: float


async def alternated(ways: Mapping[str, Callable[[], Awaitable[object]]], rounds: int) -> dict[str, list[Spent]]:
    """Every way once per round, in the opposite order every other round; after one round that does not count."""
    spent: dict[str, list[Spent]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in reversed(ways) if number % 2 else ways:
            found = await seconds(ways[name])
            spent[name] += [found] if number else []
    return spent


async def seconds(work: Callable[[], Awaitable[object]]) -> Spent:
    gc.collect()
    wall, process = time.perf_counter(), time.process_time()
    await work()
    return Spent(wall=time.perf_counter() - wall, process=time.process_time() - process)


def ratio(ours: Sequence[Spent], limit: Sequence[Spent], clock: str) -> float:
    """Our speed relative to the limit's, where both do the same: above 1 it is the faster one."""
    return median(getattr(b, clock) / getattr(a, clock) for a, b in zip(ours, limit, strict=True))


def table(ours: str, spent: Mapping[str, Sequence[Spent]], tokens: Mapping[str, int]) -> str:
    """Tokens per second of each way, and how `ours` compares with it."""
    lines = [
        f"| | tokens | wall s, min / median / max | tokens/s | process s, median | {ours} by it: wall | process |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in spent.items():
        walls = sorted(each.wall for each in found)
        scale = tokens[ours] / tokens[name]
        by = [f"{scale * ratio(spent[ours], found, clock):.3f}" for clock in ("wall", "process")]
        lines.append(
            f"| {name} | {tokens[name]} | {walls[0]:.3f} / {median(walls):.3f} / {walls[-1]:.3f} "
            f"| {tokens[name] / median(walls):.0f} | {median(each.process for each in found):.3f} | {' | '.join(by)} |"
        )
    return "\n".join(lines)
