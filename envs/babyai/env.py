"""BabyAI: follow an instruction in a grid world of rooms, doors and things.

An episode is a level with a seed, played in whole manoeuvres or in single steps. The score is 1 when the goal is
reached and 0 until then; `info` gives the number of steps taken, and the score scaled by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random

from ..errors import EpisodeOver
from ..options import read_options
from ..pictures import encode_png
from ..protocol import Env, EnvSpec, Json, Observation, Runs, Status, Step
from .actions import GridCommand, MalformedGridCommand, Verb, parse_command
from .describe import describe_view
from .expert import solve
from .levels import SPLITS, GridLevel, build_level, find_level, list_level_tasks, load_levels
from .moves import MoveRefusal, explain_fruitless, list_available, perform, plan_moves
from .options import BabyAIOptions
from .routes import WayFinder
from .texts import MALFORMED, OPENING, PROMPTS, GridTexts
from .words import list_texts
from .world import GridWorld

__all__ = ["SPEC", "BabyAI", "create"]

SPEC = EnvSpec(
    name="babyai",
    version="1",
    summary="follow an instruction in a grid world of rooms, doors and things",
    splits=tuple(SPLITS),
    runs=Runs.POOL,
)

_TURNING = ("turn",)
_WANDERING = (*_TURNING, "move", "go to")
"""Commands that leave everything where it is, begin so."""


def create(options: Mapping[str, Json]) -> BabyAI:
    return BabyAI(options)


class BabyAI(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_options(BabyAIOptions, options)
        self._macros = self._options.actions == "macro"
        self.spec = replace(SPEC, prompt=PROMPTS[self._options.actions])
        self._world: GridWorld | None = None
        self._level: GridLevel | None = None
        self._plan: tuple[str, ...] | None = None
        """The expert's actions from here on, once asked for."""
        self._listed: tuple[str, ...] = ()
        """What is possible now."""

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        return list_level_tasks(split, self._options.levels)

    def difficulty(self, task: str) -> str:
        return find_level(task)[0].family

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        self._level, self._world, self._plan = find_level(task)[0], self._build(task), None
        done = GridTexts.SAY_DONE if self._level.needs_done else ""
        opening = OPENING.format(mission=self._world.level.mission, done=done)
        return self._observe(f"{opening}\n{describe_view(self._world)}", self._world)

    def _build(self, task: str) -> GridWorld:
        return GridWorld(build_level(*find_level(task), self._options.max_steps))

    def step(self, action: str) -> Step:
        world = self._require_world()
        before = world.steps
        text, status = self._obey(parse_command(action, macros=self._macros), world)
        if world.steps == before:
            world.wait()
        else:
            self._follow(action)
        return self._finish_step(world, text, status)

    def _obey(self, command: GridCommand | MalformedGridCommand, world: GridWorld) -> tuple[str, Status]:
        if isinstance(command, MalformedGridCommand):
            return MALFORMED[command], Status.INVALID
        if command.verb is Verb.CHECK:
            return GridTexts.AVAILABLE.format(what="; ".join(self._listed)), Status.OK
        moves = plan_moves(command, world, WayFinder(world))
        if isinstance(moves, MoveRefusal):
            return moves.reason, Status.REFUSED
        before = world.steps
        all_done = perform(world, moves)
        if world.steps == before or (len(moves) == 1 and not world.changed):
            return explain_fruitless(command.verb, world), Status.REFUSED
        return describe_view(world) if all_done else f"{GridTexts.STOPPED}\n{describe_view(world)}", Status.OK

    def _finish_step(self, world: GridWorld, text: str, status: Status) -> Step:
        out_of_steps = world.steps >= world.limit and not world.over
        if world.over:
            text = GridTexts.WON if world.won else GridTexts.LOST
        elif out_of_steps:
            text = GridTexts.OUT_OF_STEPS
        if world.over or out_of_steps:
            self._world = None
        scaled = 1 - 0.9 * world.steps / world.limit if world.won else 0.0
        return Step(
            observation=self._observe(text, world),
            reward=float(world.won),
            terminated=world.over,
            truncated=out_of_steps,
            status=status,
            info={"steps": world.steps, "scaled": scaled},
        )

    def _observe(self, text: str, shown: GridWorld) -> Observation:
        world, level, self._listed = self._world, self._level, ()
        if world is not None and level is not None:
            self._listed = tuple(list_available(world, WayFinder(world) if self._macros else None, level.needs_done))
        picture = encode_png(shown.draw()) if self._options.screenshots else None
        return Observation(text=text, valid_actions=self._listed, picture=picture)

    def _require_world(self) -> GridWorld:
        if self._world is None:
            raise EpisodeOver("babyai has no episode under way: reset it first")
        return self._world

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        return solve(self._build(task), macros=self._macros)

    def advice(self) -> str | None:
        if self._world is None:
            return None
        if self._plan is None:
            self._plan = solve(self._world, macros=self._macros) or ()
        return next(iter(self._plan), None)

    def _follow(self, action: str) -> None:
        """Advance the plan if the action follows it, drop it otherwise."""
        first, *rest = self._plan or ("",)
        self._plan = tuple(rest) if rest and " ".join(action.lower().split()) == first else None

    def noise_action(self, rng: Random) -> str | None:
        """A random possible command whose effect can be undone."""
        if self._world is None or self._level is None:
            return None
        harmless = () if self._level.forgiving else _TURNING if self._level.ends_at_a_place else _WANDERING
        return rng.choice([text for text in self._listed if _spares(text, self._world, harmless)])

    def corpus(self) -> Iterator[str]:
        wanted = [load_levels()[name] for name in self._options.levels]
        yield from list_texts(self._options.actions, minigrid=any(level.family == "minigrid" for level in wanted))


def _spares(command: str, world: GridWorld, harmless: tuple[str, ...]) -> bool:
    """Whether a command neither loses the episode nor destroys what may be needed."""
    before = world.before.type if world.before else ""
    if command == Verb.CHECK or (command, before) in ((Verb.TOGGLE, "box"), (Verb.FORWARD, "lava")):
        return False
    opens_box = command.startswith(Verb.OPEN) and " box " in command
    return command.startswith(harmless) if harmless else not opens_box
