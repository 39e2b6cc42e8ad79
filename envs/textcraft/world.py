"""What a world is: goals on either side of a split, and the recipes that an episode is played with.

Two kinds: a `FixedWorld` knows one recipe for each item (`fixed.py`); a `DrawnWorld` draws recipes anew for every
episode (`procedural.py`), so that nothing but the crafting commands shown can tell how a thing is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from .actions import Craft, parse_craft_command

__all__ = ["HELD_OUT", "CraftRecipe", "CraftWorld", "Goal", "format_amounts", "list_recipes", "parse_recipe"]

HELD_OUT: Mapping[str, bool] = {"train": False, "test": True}
"""The splits, and whether their goals are kept from training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    item: str
    depth: int
    """Levels of crafting, from what can be picked up."""
    held_out: bool
    """A goal of the test split: training never shows the item, whether as goal, as part or as a distraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CraftRecipe:
    """How an item is made."""

    product: str
    makes: int
    needs: tuple[tuple[str, int], ...]
    depth: int
    command: str
    """The action that carries it out, as the agent is shown it."""


class CraftWorld(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def goals(self) -> Mapping[str, Goal]:
        """By item, always in the same order."""

    @property
    def base(self) -> frozenset[str]:
        """Items that can be picked up."""

    def needed(self, goal: Goal, rng: Random) -> tuple[CraftRecipe, ...]:
        """The recipes on the way to a goal, each after those that it rests on."""

    def distractors(self, needed: Sequence[CraftRecipe], at_most: int, rng: Random) -> list[CraftRecipe]:
        """Recipes that could be mistaken for needed ones, none of a held-out item."""

    def samples(self) -> Iterator[CraftRecipe]:
        """Recipes that between them show every item of the training split, and every amount."""


def format_amounts(items: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {item}" for item, count in items)


def parse_recipe(command: str, depth: int) -> CraftRecipe:
    craft = parse_craft_command(command)
    if not isinstance(craft, Craft):
        raise ValueError(f"not a recipe: {command!r}")
    return CraftRecipe(product=craft.item, makes=craft.count, needs=craft.using, depth=depth, command=command)


def list_recipes(recipes: Mapping[str, CraftRecipe], goal: str) -> tuple[CraftRecipe, ...]:
    """The recipes on the way to a goal, each after those that it rests on."""
    found: dict[str, CraftRecipe] = {}
    _collect(recipes, goal, found)
    return tuple(found.values())


def _collect(recipes: Mapping[str, CraftRecipe], item: str, found: dict[str, CraftRecipe]) -> None:
    recipe = recipes.get(item)
    if recipe is None or item in found:
        return
    for ingredient, _ in recipe.needs:
        _collect(recipes, ingredient, found)
    found[item] = recipe
