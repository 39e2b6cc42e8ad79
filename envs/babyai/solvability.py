"""How much of each level the expert solves: writes `data/expert.txt` again, from the first test seeds.

python -m agym.envs.babyai.solvability
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from .expert import solve
from .levels import SEEDS, Level, build, levels
from .world import World

__all__ = ["NUM_SEEDS", "row"]

NUM_SEEDS = 20


def row(level: Level, seeds: Iterable[int]) -> str:
    """The level, in how many of how many worlds the expert wins, and the most commands and single steps it takes."""
    wins, asked = [], 0
    for seed in seeds:
        asked += 1
        world = World(build(level, seed, None))
        if (commands := solve(world, macros=True)) is not None:
            wins.append((len(commands), len(solve(world, macros=False) or ())))
    longest = [max(lengths) for lengths in zip(*wins, strict=True)] or [0, 0]
    return f"{level.name} {len(wins)}/{asked} {longest[0]} {longest[1]}"


def _table() -> Iterator[str]:
    yield "# Level; worlds that the expert wins, of those tried; the most commands, and the most single steps, of one."
    for level in levels().values():
        if level.family != "minigrid":
            yield row(level, SEEDS["test"][:NUM_SEEDS])


def main() -> None:
    (Path(__file__).parent / "data" / "expert.txt").write_text("".join(f"{line}\n" for line in _table()), "utf-8")


if __name__ == "__main__":
    main()
