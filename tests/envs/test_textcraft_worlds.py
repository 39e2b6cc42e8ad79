from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from random import Random

import pytest
from agym.envs.textcraft import generate
from agym.envs.textcraft.fixed import FixedWorld
from agym.envs.textcraft.world import CraftRecipe, CraftWorld, list_recipes
from agym.envs.textcraft.worlds import WORLDS, load_world

DATA = files("agym.envs.textcraft").joinpath("data")


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> CraftWorld:
    return load_world(request.param)


def full() -> FixedWorld:
    world = load_world("full")
    assert isinstance(world, FixedWorld)
    return world


def test_the_frozen_files_are_what_the_generator_writes() -> None:
    assert DATA.joinpath("small.txt").read_text() == "".join(f"{line}\n" for line in generate.small_world())
    patterns = DATA.joinpath("full.patterns").read_text()
    assert DATA.joinpath("full.txt").read_text() == "".join(f"{line}\n" for line in generate.full_world(patterns))


def test_there_are_goals_enough_at_every_depth_on_both_sides(world: CraftWorld) -> None:
    counts = Counter((goal.held_out, goal.depth) for goal in world.goals.values())
    assert sum(counts.values()) >= 500
    assert sum(count for (held_out, _), count in counts.items() if held_out) >= 100
    assert {depth for _, depth in counts} == {1, 2, 3, 4, 5}
    assert all(counts[held_out, depth] >= 20 for held_out in (True, False) for depth in range(1, 6))


def test_names_are_words_that_every_client_can_write(world: CraftWorld) -> None:
    for item in {*world.goals, *world.base}:
        assert item.replace(" ", "").isascii()
        assert item.replace(" ", "").isalpha()
        assert item == item.lower()
        assert "using" not in item.split()


def test_nothing_that_can_be_picked_up_is_a_goal(world: CraftWorld) -> None:
    assert not world.base & world.goals.keys()


def test_the_depth_of_a_goal_is_the_length_of_the_longest_way_up(world: CraftWorld) -> None:
    for goal in world.goals.values():
        depths: dict[str, int] = {}
        for recipe in world.needed(goal, Random(1)):
            depths[recipe.product] = 1 + max(depths.get(item, 0) for item, _ in recipe.needs)
            assert recipe.depth == depths[recipe.product]
        assert depths[goal.item] == goal.depth


def test_no_training_episode_asks_for_or_needs_a_held_out_item(world: CraftWorld) -> None:
    held_out = {goal.item for goal in world.goals.values() if goal.held_out}
    for goal in world.goals.values():
        items = _named(world.needed(goal, Random(goal.item)))
        # a test episode needs its own goal, and no other of its kind
        assert items & held_out == ({goal.item} if goal.held_out else set())


def test_no_training_episode_of_the_full_world_shows_a_held_out_item() -> None:
    world = full()
    held_out = {goal.item for goal in world.goals.values() if goal.held_out}
    for goal in world.goals.values():
        rng = Random(goal.item)
        needed = world.needed(goal, rng)
        assert not (_named(world.distractors(needed, 20, rng)) & held_out)


def _named(recipes: Sequence[CraftRecipe]) -> set[str]:
    return {item for recipe in recipes for item in (recipe.product, *dict(recipe.needs))}


def test_what_is_of_no_use_in_the_small_world_has_held_out_names_as_often_as_others() -> None:
    world, rng = load_world("small"), Random(3)
    shown = []
    for goal in list(world.goals.values())[::5]:
        shown += [recipe.product for recipe in world.distractors(world.needed(goal, rng), 20, rng)]
    assert 0.09 < sum(world.goals[item].held_out for item in shown) / len(shown) < 0.16


def test_a_distraction_is_never_a_second_way_to_something_needed(world: CraftWorld) -> None:
    for goal in list(world.goals.values())[::7]:
        rng = Random(goal.item)
        needed = world.needed(goal, rng)
        products = [recipe.product for recipe in (*needed, *world.distractors(needed, 20, rng))]
        assert len(set(products)) == len(products)


def test_no_held_out_recipe_asks_for_what_a_training_recipe_asks_for() -> None:
    world = full()
    asked = {True: set(), False: set()}  # type: ignore[var-annotated]
    for recipe in world.recipes.values():
        asked[world.goals[recipe.product].held_out].add(frozenset(item for item, _ in recipe.needs))
    assert not asked[True] & asked[False]


def test_held_out_forms_of_the_full_world_are_unknown_to_training() -> None:
    world = full()
    forms = {True: set(), False: set()}  # type: ignore[var-annotated]
    for goal in world.goals.values():
        forms[goal.held_out].add(goal.item.split()[-1])
    assert not forms[True] & forms[False]


def test_each_material_and_each_form_of_the_small_world_is_on_both_sides() -> None:
    for half in (0, 1):
        sides = [
            {goal.item.split()[half] for goal in load_world("small").goals.values() if goal.held_out is h}
            for h in (0, 1)
        ]
        assert sides[0] == sides[1]


def test_recipes_of_the_small_world_tell_nothing_about_the_next_episode() -> None:
    world = load_world("small")
    goal = world.goals["oak plate"]
    commands = {world.needed(goal, Random(seed))[-1].command for seed in range(60)}
    assert len(commands) >= 10  # 3 amounts, with none or one of 4 extras


def test_recipes_of_the_full_world_stay() -> None:
    world = load_world("full")
    goal = world.goals["oak wagon"]
    assert world.needed(goal, Random(1)) == world.needed(goal, Random(2))


def test_every_item_that_training_may_show_is_among_the_samples(world: CraftWorld) -> None:
    shown = {recipe.product for recipe in world.samples()}
    assert shown == {goal.item for goal in world.goals.values() if world.name == "small" or not goal.held_out}


def test_a_chain_names_a_part_that_two_recipes_share_once() -> None:
    recipes = full().recipes
    products = [recipe.product for recipe in list_recipes(recipes, "oak ladder")]
    assert products == ["oak plank", "oak dowel", "oak beam", "oak ladder"]


def test_a_line_that_is_no_recipe_is_refused() -> None:
    with pytest.raises(ValueError, match="not a recipe"):
        FixedWorld("bad", "train 1 make 1 oak from nothing")
