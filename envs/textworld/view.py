"""A game's state in words: the room, its exits and what is in it, and what is carried. Nothing hidden is shown.

You are in the kitchen.
Exits: north; east, by wooden door (closed).
Here: chest (open): red key; table: apple, old note; lamp.
You carry: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

__all__ = ["View"]

_DIRECTIONS = ("north", "east", "south", "west")
_STATES = ("open", "closed", "locked")


class View:
    """The state of a game at one moment."""

    def __init__(self, game: Any, state: Any) -> None:
        self._infos = game.infos
        self._facts = sorted((fact.name, *(argument.name for argument in fact.arguments)) for fact in state.facts)
        self._room = next(place for name, who, *(place,) in self._of("at", 2) if who == "P")

    def text(self) -> str:
        here = [thing for _, thing, room in self._of("at", 2) if room == self._room and thing != "P"]
        carried = [thing for _, thing, place in self._of("in", 2) if place == "I"]
        exits, things = "; ".join(self._exits()), "; ".join(self._describe(thing) for thing in self._sorted(here))
        return "\n".join(
            (
                f"You are in the {self._name(self._room)}.",
                f"Exits: {exits or 'none'}.",
                f"Here: {things or 'nothing'}.",
                f"You carry: {', '.join(self._name(thing) for thing in self._sorted(carried)) or 'nothing'}.",
            )
        )

    def digest(self) -> str:
        """Digest of the state, independent of how it was reached."""
        return sha256(repr(self._facts).encode()).hexdigest()[:16]

    def _of(self, name: str, num: int) -> Iterator[tuple[str, ...]]:
        return (fact for fact in self._facts if fact[0] == name and len(fact) == num + 1)

    def _name(self, thing: str) -> str:
        return str(self._infos[thing].name or thing)

    def _sorted(self, things: list[str]) -> list[str]:
        return sorted(things, key=self._name)

    def _state(self, thing: str) -> str:
        return next((f" ({state})" for state in _STATES if (state, thing) in self._facts), "")

    def _describe(self, thing: str) -> str:
        shown = [inside for name in ("in", "on") for _, inside, place in self._of(name, 2) if place == thing]
        state = self._state(thing)
        within = ", ".join(self._name(inside) for inside in self._sorted(shown))
        hidden = state in (" (closed)", " (locked)") or not within
        return f"{self._name(thing)}{state}" + ("" if hidden else f": {within}")

    def _exits(self) -> Iterator[str]:
        doors = {to: door for _, room, door, to in self._of("link", 3) if room == self._room}
        for direction in _DIRECTIONS:
            for _, to, room in self._of(f"{direction}_of", 2):
                if room == self._room:
                    door = doors.get(to)
                    yield f"{direction}, by {self._name(door)}{self._state(door)}" if door else direction
