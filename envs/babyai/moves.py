"""A command in single steps, from where the agent stands and over what it has seen; or why there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from minigrid.core.actions import Actions
from minigrid.core.world_object import Door, WorldObj

from .actions import MACROS, PRIMITIVES, GridCommand, Verb
from .routes import WayFinder, is_passable
from .texts import GridTexts
from .world import GridWorld, ahead_of, state_of

__all__ = ["SINGLE", "MoveRefusal", "Moves", "explain_fruitless", "list_available", "perform", "plan_moves"]

Moves: TypeAlias = tuple[Actions, ...]


@dataclass(frozen=True, slots=True)
class MoveRefusal:
    reason: str


SINGLE: Mapping[Verb, Actions] = {
    Verb.LEFT: Actions.left,
    Verb.RIGHT: Actions.right,
    Verb.FORWARD: Actions.forward,
    Verb.PICK_UP: Actions.pickup,
    Verb.DROP: Actions.drop,
    Verb.TOGGLE: Actions.toggle,
    Verb.DONE: Actions.done,
}


def plan_moves(command: GridCommand, world: GridWorld, routes: WayFinder) -> Moves | MoveRefusal:
    if not command.kind:
        return (SINGLE[command.verb],) * command.count
    thing = _find_thing(command, world)
    return thing if isinstance(thing, MoveRefusal) else _WITH_THING[command.verb](thing, world, routes)


def _find_thing(command: GridCommand, world: GridWorld) -> WorldObj | MoveRefusal:
    named = {name: thing for thing, name in world.names.items() if name.rpartition(" ")[0] == command.kind}
    there = {name: thing for name, thing in named.items() if thing in world.places or thing is world.carried}
    if command.number is not None:
        there = {name: there[name] for name in (f"{command.kind} {command.number}",) if name in there}
    if len(there) == 1:
        return next(iter(there.values()))
    if there:
        return MoveRefusal(GridTexts.WHICH.format(what=", ".join(there)))
    return MoveRefusal(GridTexts.UNKNOWN_THING.format(what=f"{command.kind} {command.number or ''}".strip()))


# --- the manoeuvres ---


def _go_to(thing: WorldObj, world: GridWorld, routes: WayFinder) -> Moves | MoveRefusal:
    name = world.names[thing]
    if thing is world.carried:
        return MoveRefusal(GridTexts.CARRIED.format(what=name))
    way = routes.facing(world.places[thing])
    if way is None:
        return MoveRefusal(GridTexts.NO_WAY.format(what=name))
    if thing.type == "goal":
        return (*way, Actions.forward)
    return way or MoveRefusal(GridTexts.THERE.format(what=name))


def _pick_up(thing: WorldObj, world: GridWorld, routes: WayFinder) -> Moves | MoveRefusal:
    if world.carried is not None:
        return MoveRefusal(GridTexts.HANDS_FULL.format(what=world.names[world.carried]))
    if not thing.can_pickup():
        return MoveRefusal(GridTexts.NOT_TAKEN.format(what=world.names[thing]))
    return _approach(thing, world, routes, Actions.pickup)


def _open(thing: WorldObj, world: GridWorld, routes: WayFinder) -> Moves | MoveRefusal:
    if not isinstance(thing, Door):
        if thing.type == "box" and thing is not world.carried:
            return _approach(thing, world, routes, Actions.toggle)
        return MoveRefusal(GridTexts.NOT_OPENED.format(what=world.names[thing]))
    if thing.is_open:
        return MoveRefusal(GridTexts.IS_OPEN.format(what=world.names[thing]))
    return _refuse_locked(thing, world) or _approach(thing, world, routes, Actions.toggle)


def _close(thing: WorldObj, world: GridWorld, routes: WayFinder) -> Moves | MoveRefusal:
    if state_of(thing) != "open":
        return MoveRefusal(GridTexts.NOT_CLOSED.format(what=world.names[thing]))
    return _approach(thing, world, routes, Actions.toggle)


def _go_through(thing: WorldObj, world: GridWorld, routes: WayFinder) -> Moves | MoveRefusal:
    if not isinstance(thing, Door):
        return MoveRefusal(GridTexts.NO_DOOR.format(what=world.names[thing]))
    opening = () if thing.is_open else (Actions.toggle,)
    return _refuse_locked(thing, world) or _approach(thing, world, routes, *opening, Actions.forward, Actions.forward)


def _drop_next_to(thing: WorldObj, world: GridWorld, routes: WayFinder) -> Moves | MoveRefusal:
    name = world.names[thing]
    if world.carried is None:
        return MoveRefusal(GridTexts.HANDS_EMPTY)
    if thing is world.carried:
        return MoveRefusal(GridTexts.CARRIED.format(what=name))
    way = routes.beside(world.places[thing])
    return MoveRefusal(GridTexts.NO_ROOM.format(what=name)) if way is None else (*way, Actions.drop)


def _approach(thing: WorldObj, world: GridWorld, routes: WayFinder, *actions: Actions) -> Moves | MoveRefusal:
    way = routes.facing(world.places[thing])
    return MoveRefusal(GridTexts.NO_WAY.format(what=world.names[thing])) if way is None else (*way, *actions)


def _refuse_locked(door: Door, world: GridWorld) -> MoveRefusal | None:
    held = world.carried
    if not door.is_locked or (held is not None and (held.type, held.color) == ("key", door.color)):
        return None
    return MoveRefusal(GridTexts.IS_LOCKED.format(what=world.names[door], color=door.color))


_WITH_THING: Mapping[Verb, Callable[[WorldObj, GridWorld, WayFinder], Moves | MoveRefusal]] = {
    Verb.GO_TO: _go_to,
    Verb.PICK_UP: _pick_up,
    Verb.OPEN: _open,
    Verb.CLOSE: _close,
    Verb.GO_THROUGH: _go_through,
    Verb.DROP_NEXT_TO: _drop_next_to,
}


# --- what is possible now ---


def list_available(world: GridWorld, routes: WayFinder | None, needs_done: bool) -> Iterator[str]:
    """Every command that would have an effect; without routes, single steps only."""
    yield from (verb.value for verb in PRIMITIVES if _is_possible(verb, world, needs_done))
    if routes is None:
        return
    for thing in (thing for thing in world.names if thing in world.places):
        moves = ((verb, _WITH_THING[verb](thing, world, routes)) for verb in MACROS)
        yield from (f"{verb} {world.names[thing]}" for verb, known in moves if isinstance(known, tuple))


def _is_possible(verb: Verb, world: GridWorld, needs_done: bool) -> bool:
    before, held = world.before, world.carried
    return {
        Verb.FORWARD: before is None or before.can_overlap(),
        Verb.PICK_UP: held is None and before is not None and before.can_pickup(),
        Verb.DROP: held is not None and before is None,
        Verb.TOGGLE: _can_toggle(before, world),
        Verb.DONE: needs_done,
    }.get(verb, True)


def _can_toggle(before: WorldObj | None, world: GridWorld) -> bool:
    if isinstance(before, Door):
        return _refuse_locked(before, world) is None
    return before is not None and before.type == "box"


# --- doing it ---


def explain_fruitless(verb: Verb, world: GridWorld) -> str:
    """The reason why a single step had no effect."""
    before, held = world.before, world.carried
    if verb is Verb.PICK_UP and held is not None:
        return GridTexts.HANDS_FULL.format(what=world.names[held])
    if verb is Verb.DROP and held is None:
        return GridTexts.HANDS_EMPTY
    if verb is Verb.TOGGLE and isinstance(before, Door):
        return GridTexts.IS_LOCKED.format(what=world.names[before], color=before.color)
    return _FRUITLESS.get(verb, GridTexts.NO_USE)


_FRUITLESS = {
    Verb.FORWARD: GridTexts.STOPPED,
    Verb.PICK_UP: GridTexts.NOTHING_BEFORE,
    Verb.DROP: GridTexts.NOT_FREE,
    Verb.TOGGLE: GridTexts.NOTHING_BEFORE,
}


def perform(world: GridWorld, moves: Moves) -> bool:
    """Perform a manoeuvre or a single step; return whether all of it was done."""
    for move in moves:
        if len(moves) > 1 and move is Actions.forward and _is_blocked(world):
            return False
        world.act(move)
        if world.over or world.steps >= world.limit:
            break
    return True


def _is_blocked(world: GridWorld) -> bool:
    """Whether a step forward would lead where a manoeuvre must not go."""
    before = world.before
    return not (is_passable(world, ahead_of(world.pose)) or (before is not None and before.type == "goal"))
