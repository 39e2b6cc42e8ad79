"""Every sentence of the environment but those that say where things are."""

from __future__ import annotations

from collections.abc import Mapping

from .actions import MAX_LENGTH, MalformedGridCommand

__all__ = ["MALFORMED", "OPENING", "PROMPTS", "GridTexts"]

_WORLD = (
    "You are in a grid world of rooms with walls, doors, keys, balls and boxes, and have a goal to reach. You see what"
    " is before you, up to 6 steps ahead and 3 to each side, but not through walls and closed doors. Positions are"
    " counted in steps from where you stand, in the direction you face. A locked door opens with a key of its colour in"
    " your hands, which hold one thing. Where the goal says then, or after, the order counts. Each turn, give exactly"
    " one command:\n"
)
_MACROS = """\
go to red ball 1 - walk up to something you have seen, and face it
pick up red ball 1 - go to it and take it
open red door 1 - go to a door or a box and open it
close red door 1
go through red door 1 - open it if need be, and step into the room behind it
drop next to red ball 1 - go to it and put down what you carry beside it
pick up, drop, toggle - take, put down, or open and close, right in front of you
turn left, turn right, move forward, move forward 3
check available actions - have them listed"""
_PRIMITIVES = """\
turn left, turn right, move forward
pick up - take what is right in front of you
drop - put down in front of you what you carry
toggle - open or close what is right in front of you
done - say that you are there, where the goal asks for that
check available actions - have them listed"""

PROMPTS: Mapping[str, str] = {"macro": _WORLD + _MACROS, "primitive": _WORLD + _PRIMITIVES}

OPENING = "Goal: {mission}.{done}"


class GridTexts:
    """Answers to a command; `{what}` is a thing, or several."""

    SAY_DONE = " Say done when you are there."
    WON = "The goal is reached."
    LOST = "You have failed: the goal can no longer be reached."
    OUT_OF_STEPS = "You have no steps left."
    AVAILABLE = "You can: {what}."
    STOPPED = "The way is blocked."
    UNKNOWN_THING = "You have seen no {what}."
    WHICH = "There is more than one: {what}."
    CARRIED = "You carry {what}."
    NO_WAY = "You know no way to {what}."
    THERE = "You are right in front of {what}."
    HANDS_FULL = "Your hands are full: you carry {what}."
    HANDS_EMPTY = "You carry nothing."
    NOT_TAKEN = "You cannot pick up {what}."
    NOT_OPENED = "You cannot open {what}."
    NOT_CLOSED = "You cannot close {what}."
    NO_DOOR = "You cannot go through {what}."
    IS_OPEN = "{what} is open."
    IS_LOCKED = "{what} is locked: it takes a {color} key."
    NO_ROOM = "You know no free place next to {what}."
    NOTHING_BEFORE = "There is nothing like that right in front of you."
    NOT_FREE = "What is right in front of you is not free."
    NO_USE = "Nothing comes of it."


_LISTED = "'check available actions' lists those that are possible now."

MALFORMED: Mapping[MalformedGridCommand, str] = {
    MalformedGridCommand.EMPTY: f"That was no command; {_LISTED}",
    MalformedGridCommand.LONG: f"That was longer than {MAX_LENGTH} characters; {_LISTED}",
    MalformedGridCommand.LINES: "Give one command at a time, on one line.",
    MalformedGridCommand.UNKNOWN: f"That is not a command; {_LISTED}",
}
