"""TextCraft: pick things up, craft parts from them, parts from parts, until the goal is made.

An episode shows the crafting commands that the goal needs, among some that it does not. The score is 1 when the goal is
crafted and 0 until then. Only the commands shown work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from random import Random
from typing import Any

from ..errors import EpisodeOver, UnknownTask
from ..protocol import Env, EnvSpec, Json, Observation, Reached, Runs, Status, Step
from .actions import Craft, CraftCommand, Get, Inventory, MalformedCraft, parse_craft_command
from .options import DEPTHS, read_textcraft_options
from .planner import plan
from .texts import PLAIN, TERSE
from .world import HELD_OUT, CraftRecipe, CraftWorld, Goal, format_amounts
from .worlds import load_world

__all__ = ["SPEC", "TextCraft", "create"]

SPEC = EnvSpec(
    name="textcraft",
    version="1",
    summary="craft an item from what can be picked up, level by level",
    splits=(*HELD_OUT, *(f"depth{depth}" for depth in DEPTHS)),
    runs=Runs.INLINE,
)

_MAX_TURNS = {"small": 12, "full": 30}


def create(options: Mapping[str, Json]) -> TextCraft:
    return TextCraft(options)


class TextCraft(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_textcraft_options(options)
        self._world: CraftWorld = load_world(self._options.world, self._options.draw)
        self._phrases = TERSE if self._options.terse else PLAIN
        self.spec = replace(SPEC, prompt=self._phrases.prompt, max_turns=_MAX_TURNS[self._options.world])
        self._goal: str | None = None
        self._shown: dict[str, CraftRecipe] = {}
        self._held: dict[str, int] = {}

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        # the splits by depth are for evaluation: parts of test
        held_out = HELD_OUT.get(split, True)
        wanted = {int(split.removeprefix("depth"))} if split not in HELD_OUT else set(DEPTHS)
        wanted &= set(self._options.depths)
        goals = self._world.goals.values()
        return tuple(self._id(goal) for goal in goals if goal.depth in wanted and goal.held_out == held_out)

    def difficulty(self, task: str) -> str:
        return f"depth{self._find(task).depth}"

    def _id(self, goal: Goal) -> str:
        return f"{self._world.name}/{goal.item.replace(' ', '-')}"

    def _find(self, task: str) -> Goal:
        world, _, item = task.partition("/")
        goal = self._world.goals.get(item.replace("-", " ")) if world == self._world.name else None
        if goal is None or self._id(goal) != task:
            raise UnknownTask(f"textcraft has no task '{task[:60]}' in its world '{self._world.name}'")
        return goal

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        self._goal, self._held = self._find(task).item, {}
        self._shown = self._draw(task, seed)
        return self._first(self._goal)

    def _first(self, goal: str) -> Observation:
        commands = "\n".join(recipe.command for recipe in self._shown.values())
        return Observation(text=self._phrases.opening.format(commands=commands, goal=goal))

    def _draw(self, task: str, seed: int) -> dict[str, CraftRecipe]:
        """The crafting commands of an episode: those needed and some others, by product."""
        rng = Random(f"{task} {seed}")
        needed = self._world.needed(self._find(task), rng)
        recipes = [*needed, *self._world.distractors(needed, self._options.max_distractors, rng)]
        rng.shuffle(recipes)
        if not self._options.shuffle:
            recipes.sort(key=attrgetter("depth"))
        return {recipe.product: recipe for recipe in recipes}

    def step(self, action: str) -> Step:
        if self._goal is None:
            raise EpisodeOver("textcraft has no episode under way: reset it first")
        command = parse_craft_command(action)
        step = _HANDLERS[type(command)](self, command)
        return step if step.ended else replace(step, info={"state": self._state()})

    def _state(self) -> str:
        """All that an episode can still depend on, besides the crafting commands that it began with."""
        return f"{self._goal} from {format_amounts(self._holding()) or 'nothing'}"

    def _holding(self) -> list[tuple[str, int]]:
        return [(item, count) for item, count in sorted(self._held.items()) if count]

    def _get(self, command: Get) -> Step:
        if command.item not in self._world.base:
            recipe = self._shown.get(command.item)
            phrase = self._phrases.only_crafted if recipe else self._phrases.not_found
            return self._refuse(phrase.format(item=command.item, command=recipe.command if recipe else ""))
        self._held[command.item] = self._held.get(command.item, 0) + command.count
        return _say(self._phrases.got.format(what=f"{command.count} {command.item}"))

    def _craft(self, command: Craft) -> Step:
        recipe = self._shown.get(command.item)
        if recipe is None:
            return self._refuse(self._phrases.no_recipe.format(item=command.item, command=self._first_command()))
        if command.count != recipe.makes or sorted(command.using) != sorted(recipe.needs):
            return self._refuse(self._phrases.wrong_recipe.format(item=command.item, command=recipe.command))
        missing = [(item, count - self._held.get(item, 0)) for item, count in recipe.needs]
        lacking = [(item, count) for item, count in missing if count > 0]
        if lacking:
            return self._refuse(self._phrases.missing.format(item=command.item, what=format_amounts(lacking)))
        return self._make(recipe)

    def _make(self, recipe: CraftRecipe) -> Step:
        for item, count in recipe.needs:
            self._held[item] -= count
        self._held[recipe.product] = self._held.get(recipe.product, 0) + recipe.makes
        what = f"{recipe.makes} {recipe.product}"
        if recipe.product != self._goal:
            return _say(self._phrases.crafted.format(what=what))
        self._goal = None
        return Step(observation=Observation(text=self._phrases.reached.format(what=what)), reward=1.0, terminated=True)

    def _inventory(self, command: Inventory) -> Step:
        held = self._holding()
        return _say(self._phrases.held.format(what=format_amounts(held)) if held else self._phrases.empty)

    def _malformed(self, command: MalformedCraft) -> Step:
        text = self._phrases.malformed[command].format(command=self._first_command())
        return Step(observation=Observation(text=text), status=Status.INVALID)

    def _first_command(self) -> str:
        return next(iter(self._shown.values())).command

    def _refuse(self, text: str) -> Step:
        return Step(observation=Observation(text=text), status=Status.REFUSED)

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...]:
        return tuple(plan(self._draw(task, seed), self._find(task).item, {}))

    def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...]:
        """Items crafted on the way that are training goals; the crafting commands shown stay as they are."""
        if self._find(task).held_out:
            return ()
        self.reset(task, seed)
        return tuple(
            Reached(task=self._id(goal), actions=at, first=self._first(goal.item))
            for goal, at in self._find_crafted(actions)
            if goal.depth in self._options.depths and not goal.held_out
        )

    def _find_crafted(self, actions: Sequence[str]) -> Iterator[tuple[Goal, int]]:
        """Items made on the way to the goal, each once, with the number of actions."""
        made: set[str] = set()
        for at, action in enumerate(actions, start=1):
            command, step = parse_craft_command(action), self.step(action)
            if step.ended:
                return
            if isinstance(command, Craft) and step.status is Status.OK and command.item not in made:
                made.add(command.item)
                yield self._world.goals[command.item], at

    def advice(self) -> str | None:
        return None if self._goal is None else next(plan(self._shown, self._goal, self._held))

    def noise_action(self, rng: Random) -> str | None:
        """A random action that the crafting commands suggest, possible and useful or not."""
        if self._goal is None:
            return None
        recipe = rng.choice([recipe for recipe in self._shown.values() if self._may_be_shown_making(recipe.product)])
        base = [(item, count) for item, count in recipe.needs if item in self._world.base]
        kind = rng.random()
        if kind < 0.05:
            return "inventory"
        if kind < 0.5 and base:
            item, count = rng.choice(base)
            return f"get {count} {item}"
        return recipe.command

    def _may_be_shown_making(self, item: str) -> bool:
        return item == self._goal or not self._world.goals[item].held_out

    def corpus(self) -> Iterator[str]:
        """Commands and answers about everything that training may show, and the bare name of every other item."""
        phrases = self._phrases
        malformed = (text.format(command="") for text in phrases.malformed.values())
        yield from filter(None, (phrases.prompt, phrases.empty, "inventory", *malformed))
        yield " ".join(str(count) for count in range(1, 13))
        for recipe in self._world.samples():
            yield recipe.command
            yield phrases.opening.format(commands=recipe.command, goal=recipe.product)
            for phrase in (phrases.wrong_recipe, phrases.only_crafted):
                yield phrase.format(item=recipe.product, command=recipe.command)
            yield phrases.crafted.format(what=f"{recipe.makes} {recipe.product}")
            yield phrases.reached.format(what=f"{recipe.makes} {recipe.product}")
            yield from (
                phrases.missing.format(item=recipe.product, what=format_amounts([need])) for need in recipe.needs
            )
            yield from (f"get {count} {item}" for item, count in recipe.needs if item in self._world.base)
        for item in sorted({*self._world.base, *self._world.goals}):
            yield from (phrase.format(item=item, command="") for phrase in (phrases.not_found, phrases.no_recipe))
            yield from (phrase.format(what=f"1 {item}") for phrase in (phrases.got, phrases.held))


def _say(text: str) -> Step:
    return Step(observation=Observation(text=text))


_HANDLERS: Mapping[type[CraftCommand], Callable[[TextCraft, Any], Step]] = {
    Get: TextCraft._get,
    Craft: TextCraft._craft,
    Inventory: TextCraft._inventory,
    MalformedCraft: TextCraft._malformed,
}
