"""A world in which every item is made in one way, read from a frozen file with one recipe a line:

    train 2 craft 1 oak shelf using 2 oak plank, 1 resin

The first word is the split of the goal, the number its depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from .world import HELD_OUT, CraftRecipe, Goal, list_recipes, parse_recipe

__all__ = ["FixedWorld"]


class FixedWorld:
    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.goals: dict[str, Goal] = {}
        self.recipes: dict[str, CraftRecipe] = {}
        for line in text.splitlines():
            split, depth, command = line.split(" ", 2)
            recipe = parse_recipe(command, int(depth))
            self.recipes[recipe.product] = recipe
            self.goals[recipe.product] = Goal(item=recipe.product, depth=recipe.depth, held_out=HELD_OUT[split])
        ingredients = {item for recipe in self.recipes.values() for item, _ in recipe.needs}
        self.base = frozenset(ingredients - self.recipes.keys())
        self._users = _users(self.samples())

    def needed(self, goal: Goal, rng: Random) -> tuple[CraftRecipe, ...]:
        return list_recipes(self.recipes, goal.item)

    def distractors(self, needed: Sequence[CraftRecipe], at_most: int, rng: Random) -> list[CraftRecipe]:
        taken = {recipe.product for recipe in needed}
        items = dict.fromkeys(item for recipe in needed for item, _ in recipe.needs)
        related = {user.product: user for item in items for user in self._users.get(item, ())}
        pool = [recipe for product, recipe in related.items() if product not in taken]
        return rng.sample(pool, min(rng.randint(0, at_most), len(pool)))

    def samples(self) -> Iterator[CraftRecipe]:
        return (recipe for recipe in self.recipes.values() if not self.goals[recipe.product].held_out)


def _users(recipes: Iterator[CraftRecipe]) -> Mapping[str, Sequence[CraftRecipe]]:
    """For each item the recipes that need it."""
    users: dict[str, list[CraftRecipe]] = {}
    for recipe in recipes:
        for item, _ in recipe.needs:
            users.setdefault(item, []).append(recipe)
    return users
