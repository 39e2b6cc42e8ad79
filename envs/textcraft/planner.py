"""A solution from any state: the canonical plan, which makes the deepest part first and copies each amount as listed.

It picks up what a recipe asks for when the recipe is next, rather than all of a kind at once: one turn more now and
then, but every action can be read off the crafting commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .world import CraftRecipe

__all__ = ["plan"]


def plan(recipes: Mapping[str, CraftRecipe], goal: str, inventory: Mapping[str, int]) -> Iterator[str]:
    """Actions that lead from what is held to the goal; what no recipe makes is picked up."""
    return _Planner(recipes, dict(inventory)).provide(goal, 1)


class _Planner:
    def __init__(self, recipes: Mapping[str, CraftRecipe], held: dict[str, int]) -> None:
        self._recipes = recipes
        self._held = held

    def provide(self, item: str, count: int) -> Iterator[str]:
        recipe = self._recipes.get(item)
        if recipe is None:
            yield from self._pick_up(item, count)
            return
        while self._held.get(item, 0) < count:
            # deepest first: making one ingredient never uses up another that is as deep or deeper
            for ingredient, needed in sorted(recipe.needs, key=self._height):
                yield from self.provide(ingredient, needed)
            yield self._craft(recipe)

    def _height(self, need: tuple[str, int]) -> int:
        recipe = self._recipes.get(need[0])
        return -recipe.depth if recipe else 0

    def _pick_up(self, item: str, count: int) -> Iterator[str]:
        if self._held.get(item, 0) < count:
            self._held[item] = self._held.get(item, 0) + count
            yield f"get {count} {item}"

    def _craft(self, recipe: CraftRecipe) -> str:
        for ingredient, needed in recipe.needs:
            self._held[ingredient] -= needed
        self._held[recipe.product] = self._held.get(recipe.product, 0) + recipe.makes
        return recipe.command
