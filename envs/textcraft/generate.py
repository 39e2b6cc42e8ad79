"""Write the frozen worlds: `python -m agym.envs.textcraft.generate` makes `data/small.txt` and `data/full.txt`.

Both are functions of what is written here and in `data/full.patterns`, without randomness. What is held out for the
test split is never part of another recipe, so no training episode needs it on the way:

- small: the goals are 64 materials x 16 forms; a form fixes the depth. An eighth of each form's and each material's is
  held out. There are no recipes in the file: `drawn.py` draws them for each episode.
- full: a hand-written pattern stands for a family of recipes, and whole families are held out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .actions import Craft, parse_craft_command

__all__ = ["full_world", "small_world"]

MATERIALS = (
    *("oak", "pine", "ash", "elm", "iron", "tin", "zinc", "lead", "gold", "jade", "onyx", "opal", "clay", "chalk"),
    *("flint", "slate", "wool", "silk", "hemp", "linen", "wax", "cork", "bone", "horn", "coal", "salt", "sand"),
    *("glass", "amber", "reed", "straw", "felt", "birch", "cedar", "maple", "teak", "beech", "yew", "copper", "brass"),
    *("bronze", "steel", "nickel", "silver", "ruby", "pearl", "topaz", "beryl", "agate", "quartz", "marble", "granite"),
    *("basalt", "cotton", "jute", "velvet", "suede", "paper", "rubber", "ivory", "coral", "shell", "bamboo", "willow"),
)

FORMS: tuple[tuple[str, ...], ...] = (
    ("rod", "plate", "ring", "bead"),
    ("tube", "gear", "hook"),
    ("frame", "wheel", "valve"),
    ("lamp", "pump", "clock"),
    ("cart", "loom", "kiln"),
)
"""By depth, from 1."""

_HELD_OUT = 8
"""One item in so many."""


def small_world() -> Iterator[str]:
    """Lines of `small.txt`."""
    for depth, forms in enumerate(FORMS, start=1):
        for column, form in enumerate(forms):
            for row, material in enumerate(MATERIALS):
                held_out = (row + column + depth) % _HELD_OUT == 0
                yield f"{'test' if held_out else 'train'} {depth} {material} {form}"


def full_world(patterns: str) -> Iterator[str]:
    """Lines of `full.txt`, from the patterns, each with its depth."""
    kinds: dict[str, list[str]] = {}
    depths: dict[str, int] = {}
    lines = [line.split() for line in patterns.splitlines() if line and not line.startswith("#")]
    kinds |= {words[0]: words[1:] for words in lines if words[0].startswith("{")}
    recipes = [command for words in lines if words[0] not in kinds for command in _family(words, kinds)]
    needs = {
        craft.item: craft.using for _, command in recipes if isinstance(craft := parse_craft_command(command), Craft)
    }
    for split, command in recipes:
        item = command.split(" using ")[0].split(" ", 2)[2]
        yield f"{split} {_depth(item, needs, depths)} {command}"


def _family(words: Sequence[str], kinds: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    split, pattern = words[0], " ".join(words[1:])
    driver = re.findall(r"\{\w+\}", pattern)[0]
    for index in range(len(kinds[driver])):
        yield split, re.sub(r"\{\w+\}", lambda kind: kinds[kind[0]][index % len(kinds[kind[0]])], pattern)  # noqa: B023


def _depth(item: str, needs: Mapping[str, Sequence[tuple[str, int]]], known: dict[str, int]) -> int:
    if item not in needs:
        return 0
    if item not in known:
        known[item] = 1 + max(_depth(part, needs, known) for part, _ in needs[item])
    return known[item]


def main() -> None:
    data = Path(__file__).parent / "data"
    worlds = {"small": small_world(), "full": full_world((data / "full.patterns").read_text("utf-8"))}
    for name, lines in worlds.items():
        (data / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")


if __name__ == "__main__":
    main()
