"""A solution from wherever the episode stands, by minigrid's BabyAIBot, in single steps or in commands.

The bot knows only what was seen, so that its behaviour can be learned. It plays on a copy of the world to the end; an
episode it cannot win has no solution here. Each plan gets a new bot, which takes the world as it stands, whatever was
done before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

from minigrid.core.actions import Actions
from minigrid.core.world_object import Door, WorldObj
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import AfterInstr, Instr, PutNextInstr, SeqInstr
from minigrid.utils.baby_ai_bot import BabyAIBot, DropSubgoal, GoNextToSubgoal, OpenSubgoal

from .actions import MAX_STRIDE, GridCommand, Verb, parse_command
from .moves import SINGLE, perform, plan_moves
from .routes import WayFinder
from .world import DIRECTIONS, Cell, GridWorld, Pose, ahead_of, state_of

__all__ = ["solve"]

_WORDS = {action: verb.value for verb, action in SINGLE.items()}
_MOVES = (Actions.left, Actions.right, Actions.forward)
_MAX_SEARCHES = 1_000
"""For one action: the bot may go in circles without ever acting."""
_MAX_BOTS = 10


def solve(world: GridWorld, *, macros: bool) -> tuple[str, ...] | None:
    """Commands that lead from here to the goal."""
    if not isinstance(world.level, RoomGridLevel):
        return None  # the bot reads instructions that only these have
    steps = _plan(world)
    if steps is None:
        return None
    return (_in_commands(world, steps) or tuple(_strides(steps))) if macros else tuple(_WORDS[step] for step in steps)


# --- what the bot would do ---


_Untyped: Any = BabyAIBot


class _Lost(Exception):
    """Raised when the bot has searched for too long."""


class _Bot(_Untyped):  # type: ignore[misc]
    """minigrid's bot, started on what is left of the instructions."""

    def _process_instr(self, instr: Instr) -> None:
        for part in reversed(list(_left(instr))):
            super()._process_instr(part)

    def replan(self, action_taken: Any = None) -> Any:
        self.bfs_counter = 0
        return super().replan(action_taken)

    def _breadth_first_search(self, *args: Any, **kwargs: Any) -> Any:
        if self.bfs_counter > _MAX_SEARCHES:
            raise _Lost
        return super()._breadth_first_search(*args, **kwargs)


_Begin: TypeAlias = Callable[[_Bot, GridWorld], None]


def _parts(world: GridWorld) -> list[Instr]:
    return list(_left(world.level.instrs))  # type: ignore[attr-defined]


def _left(instr: Any) -> Iterator[Instr]:
    """The parts that are not done yet, in the order in which to do them."""
    if not isinstance(instr, SeqInstr):
        yield instr
        return
    outcomes = vars(instr)
    parts = [(outcomes["a_done"], instr.instr_a), (outcomes["b_done"], instr.instr_b)]
    for outcome, part in reversed(parts) if isinstance(instr, AfterInstr) else parts:
        if outcome != "success":
            yield from _left(part)


def _plan(world: GridWorld) -> list[Actions] | None:
    """Single steps of a bot that wins; where one is lost, another takes over with a different first move."""
    steps: list[Actions] = []
    for _ in range(_MAX_BOTS):
        trials = []
        for begin in _beginnings(world):
            trials.append(_trial(deepcopy(world), begin))
            if trials[-1][0].won:
                return steps + trials[-1][1]
        undecided = [(trial, more) for trial, more in trials if not trial.over]
        if not undecided:
            break
        world, more = max(undecided, key=lambda trial: len(trial[1]))
        steps += more or _search(world)
    return None


def _trial(world: GridWorld, begin: _Begin) -> tuple[GridWorld, list[Actions]]:
    """Run a bot in the given world for as long as it knows what to do."""
    steps: list[Actions] = []
    bot = _Bot(world.level)
    for cell in world.seen:
        bot.vis_mask[cell] = True
    begin(bot, world)
    while not world.over and world.steps < world.limit and (step := _next(bot)) is not Actions.done:
        steps.append(step)
        world.act(step)
    return world, steps


def _next(bot: _Bot) -> Actions:
    try:
        return Actions(bot.replan())
    except Exception:  # failed asserts and look-ups: whatever the bot stumbles over, it does not know what to do
        return Actions.done


def _search(world: GridWorld) -> list[Actions]:
    """Open the nearest box, or turn to find one, which no bot does."""
    routes = WayFinder(world)
    boxes = (cell for thing, cell in world.places.items() if thing.type == "box")
    ways = [way for cell in boxes if (way := routes.facing(cell)) is not None]
    steps = [*min(ways, key=len), Actions.toggle] if ways else [Actions.right]
    for number, step in enumerate(steps, start=1):
        world.act(step)
        if world.over:
            return steps[:number]
    return steps


def _beginnings(world: GridWorld) -> Iterator[_Begin]:
    """Possible first moves: use or put away what is carried, or open a door in the way."""
    held = world.carried
    first = next(iter(_parts(world)), None)
    if held and isinstance(first, PutNextInstr) and any(thing is held for thing in first.desc_move.obj_set):
        yield _put_it_there
    keys = {thing.color for thing in ([held] if held else world.places) if thing.type == "key"}
    doors = [thing for thing in world.places if isinstance(thing, Door) and not thing.is_open]
    unlocking: list[_Begin] = [partial(_open, door) for door in doors if door.is_locked and door.color in keys]
    yield from (*unlocking, _put_it_away, _as_it_stands) if held else (_as_it_stands, *unlocking)
    # a bot never closes a door, and does not know what to do where another has
    yield from (partial(_open, door) for door in doors if not door.is_locked)


def _as_it_stands(bot: _Bot, world: GridWorld) -> None:
    pass


def _put_it_there(bot: _Bot, world: GridWorld) -> None:
    del bot.stack[-2:]  # to go and pick it up


def _open(door: Door, bot: _Bot, world: GridWorld) -> None:
    bot.stack.append(OpenSubgoal(bot, reason="Unlock" if door.is_locked else None))
    bot.stack.append(GoNextToSubgoal(bot, door, reason="Open"))


def _put_it_away(bot: _Bot, world: GridWorld) -> None:
    bot.stack.append(DropSubgoal(bot))
    bot.stack.append(GoNextToSubgoal(bot, bot._find_drop_pos()))


# --- the same in commands ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leg:
    """A walk and the action at its end; no action where arriving was the purpose."""

    poses: tuple[Pose, ...]
    action: Actions | None

    @property
    def target(self) -> Cell:
        return ahead_of(self.poses[-1])


def _in_commands(world: GridWorld, steps: Sequence[Actions]) -> tuple[str, ...] | None:
    """Commands that do leg by leg what the steps do, each as soon as its target has come into view."""
    twin = deepcopy(world)
    legs = _legs(deepcopy(world), steps)
    said: list[str] = []
    for leg, after in zip(legs, (*legs[1:], None), strict=True):
        told = _word_leg(twin, leg, after)
        if told is None:
            return None
        said += told
        if twin.over:
            break
    return tuple(said) if twin.won else None


def _legs(world: GridWorld, steps: Sequence[Actions]) -> list[_Leg]:
    legs, poses = [], [world.pose]
    for step in steps:
        parts = len(_parts(world))
        world.act(step)
        if step in _MOVES:
            poses.append(world.pose)
        if step not in _MOVES or world.over or len(_parts(world)) < parts:
            legs.append(_Leg(poses=tuple(poses), action=None if step in _MOVES else step))
            poses = [world.pose]
    return legs


def _word_leg(world: GridWorld, leg: _Leg, after: _Leg | None) -> list[str] | None:
    """Commands for a leg, which are carried out in the given world."""
    walked: list[Actions] = []
    for move in _walk(world, leg):
        if (command := _at_once(world, leg, after)) is not None:
            return [*_strides(walked), command]
        walked.append(move)
        world.act(move)
        if world.over:
            return _strides(walked)
    if (command := _at_once(world, leg, after)) is not None:
        return [*_strides(walked), command]
    if world.pose != leg.poses[-1]:
        return None
    if leg.action is None:
        return _strides(walked)
    world.act(leg.action)
    return [*_strides(walked), _WORDS[leg.action]]


def _walk(world: GridWorld, leg: _Leg) -> Iterator[Actions]:
    """The leg's own walk, joined where that is quickest."""
    routes = WayFinder(world)
    ways = {at: way for at, pose in enumerate(leg.poses) if (way := routes.to(pose)) is not None}
    if not ways:
        return
    joined = min(ways, key=lambda at: (len(ways[at]) - at, -at))
    yield from ways[joined]
    for pose in leg.poses[joined + 1 :]:
        yield from WayFinder(world).to(pose) or ()


def _at_once(world: GridWorld, leg: _Leg, after: _Leg | None) -> str | None:
    """One command for all that is left of the leg, if there is one; it is carried out."""
    routes = WayFinder(world)
    for text in _wordings(world, leg, after):
        command = parse_command(text, macros=True)
        moves = plan_moves(command, world, routes) if isinstance(command, GridCommand) else None
        if isinstance(moves, tuple):
            perform(world, moves)
            return text
    return None


def _wordings(world: GridWorld, leg: _Leg, after: _Leg | None) -> Iterator[str]:
    thing = world.seen.get(leg.target)
    if leg.action is Actions.drop:
        yield from (f"{Verb.DROP_NEXT_TO} {name}" for name in _goals_beside(world, leg.target))
    elif thing in world.names:
        yield f"{_verb(thing, leg, after)} {world.names[thing]}"


def _verb(thing: WorldObj, leg: _Leg, after: _Leg | None) -> Verb:
    if leg.action is not Actions.toggle:
        return Verb.PICK_UP if leg.action is Actions.pickup else Verb.GO_TO
    if state_of(thing) == "open":
        return Verb.CLOSE
    passed = leg.target in {pose[:2] for pose in after.poses} if after else False
    return Verb.GO_THROUGH if passed and isinstance(thing, Door) else Verb.OPEN


def _goals_beside(world: GridWorld, cell: Cell) -> Iterator[str]:
    """Things that something must be put next to, and would be if dropped here."""
    wanted = [thing for part in _parts(world) for thing in _put_next_to(part)]
    for dx, dy in DIRECTIONS:
        thing = world.seen.get((cell[0] + dx, cell[1] + dy))
        if thing in world.names and any(thing is other for other in wanted):
            yield world.names[thing]


def _put_next_to(instr: Instr) -> Sequence[WorldObj]:
    return instr.desc_fixed.obj_set if isinstance(instr, PutNextInstr) else ()


def _strides(moves: Sequence[Actions]) -> list[str]:
    """Join consecutive steps forward into one command."""
    said = []
    for move, run in groupby(moves):
        times = len(list(run))
        if move is Actions.forward and 1 < times <= MAX_STRIDE:
            said.append(f"{_WORDS[move]} {times}")
        else:
            said += [_WORDS[move]] * times
    return said
