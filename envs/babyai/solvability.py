"""How much of each level the expert solves: rewrites `data/expert.txt`, from the first test seeds.

python -m agym.envs.babyai.solvability
"""

from __future__ import annotations

from collections.abc import Iterable

from ..tables import write_table
from .expert import solve
from .levels import SEEDS, GridLevel, build_level, load_levels
from .world import GridWorld

__all__ = ["NUM_SEEDS", "rate_level"]

NUM_SEEDS = 20


def rate_level(level: GridLevel, seeds: Iterable[int]) -> str:
    """Count the worlds that the expert wins, and the most commands and single steps it takes."""
    wins, num_tried = [], 0
    for seed in seeds:
        num_tried += 1
        world = GridWorld(build_level(level, seed, None))
        if (commands := solve(world, macros=True)) is not None:
            wins.append((len(commands), len(solve(world, macros=False) or ())))
    longest = [max(lengths) for lengths in zip(*wins, strict=True)] or [0, 0]
    return f"{len(wins)}/{num_tried} {longest[0]} {longest[1]}"


if __name__ == "__main__":
    seeds, ours = SEEDS["test"][:NUM_SEEDS], [each for each in load_levels().values() if each.family != "minigrid"]
    write_table(__package__, "expert.txt", {level.name: rate_level(level, seeds) for level in ours})
