"""A world of few words: materials by forms, with recipes drawn anew for every episode.

A thing is made of a part of its own material, one level down. Which part, how many, and whether an extra goes with it
must be read off the crafting commands: no episode tells anything about another. Made for models too small to know any
words but these, and for a quick look at whether an agent reads or remembers.

What is held out is never asked for outside of the test split, nor needed on the way to anything, in either split. Its
command may be among the useless ones, so that the agent may have seen a held-out name, but never used it.

The goals come from a frozen file with lines such as `train 2 oak gear`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from .world import HELD_OUT, CraftRecipe, Goal, format_amounts

__all__ = ["EXTRAS", "Draw", "DrawnWorld"]

EXTRAS = ("glue", "oil", "dye", "pitch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Ranges that recipes are drawn from; smaller is easier."""

    extras: float = 0.25
    """Share of the recipes that ask for an extra."""
    max_amount: int = 3
    """The most of a bare material that a recipe asks for."""


class DrawnWorld:
    def __init__(self, name: str, text: str, draw: Draw) -> None:
        self.name = name
        self._draw = draw
        self.goals: dict[str, Goal] = {}
        for line in text.splitlines():
            split, depth, item = line.split(" ", 2)
            self.goals[item] = Goal(item=item, depth=int(depth), held_out=HELD_OUT[split])
        self._materials = tuple(dict.fromkeys(_material(item) for item in self.goals))
        self.base = frozenset((*self._materials, *EXTRAS))
        self._made_of: dict[str, list[Goal]] = {material: [] for material in self._materials}
        for goal in self.goals.values():
            self._made_of[_material(goal.item)].append(goal)

    def needed(self, goal: Goal, rng: Random) -> tuple[CraftRecipe, ...]:
        recipes = []
        step: Goal | None = goal
        while step is not None:
            part = self._part(step, rng)
            recipes.append(self._recipe(step, part, rng))
            step = part
        return tuple(reversed(recipes))

    def distractors(self, needed: Sequence[CraftRecipe], at_most: int, rng: Random) -> list[CraftRecipe]:
        taken = {recipe.product for recipe in needed}
        material = _material(needed[-1].product)
        found: dict[str, CraftRecipe] = {}
        for _ in range(rng.randint(0, at_most)):
            # the same material in one half, so that neither the material nor the form alone tells what is needed
            goal = rng.choice(self._made_of[rng.choice((material, rng.choice(self._materials)))])
            if goal.item not in taken:
                found[goal.item] = self._recipe(goal, self._part(goal, rng), rng)
        return list(found.values())

    def samples(self) -> Iterator[CraftRecipe]:
        rng = Random("samples")
        for goals in self._made_of.values():
            yield from (self._recipe(goal, self._part(goal, rng), rng) for goal in goals)

    def _part(self, goal: Goal, rng: Random) -> Goal | None:
        """The part that a thing is made of; None for the bare material."""
        below = [
            part for part in self._made_of[_material(goal.item)] if part.depth == goal.depth - 1 and not part.held_out
        ]
        return rng.choice(below) if below else None

    def _recipe(self, goal: Goal, part: Goal | None, rng: Random) -> CraftRecipe:
        main = (part.item, 1) if part else (_material(goal.item), rng.randint(1, self._draw.max_amount))
        extra = (rng.choice(EXTRAS), 1)
        # the extra comes first: close to the name it belongs to, a very small model finds it sooner
        needs = (extra, main) if rng.random() < self._draw.extras else (main,)
        command = f"craft 1 {goal.item} using {format_amounts(needs)}"
        return CraftRecipe(product=goal.item, makes=1, needs=needs, depth=goal.depth, command=command)


def _material(item: str) -> str:
    return item.partition(" ")[0]
