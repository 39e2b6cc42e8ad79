"""Every sentence of the environment except those that say where things are."""

from __future__ import annotations

from collections.abc import Mapping

from .actions import MAX_LENGTH, MalformedGridCommand

__all__ = ["MALFORMED", "OPENING", "PROMPTS", "GridTexts"]

_WORLD = (
    "You are an agent in a grid world of rooms with walls, doors, keys, balls and boxes. You are given a goal. You see"
    " what is in front of you, up to 6 steps ahead and 3 steps to each side, but not through walls or closed doors."
    " Positions are relative to you and the direction you face. To open a locked door you must carry the key of its"
    " color; you can carry one object at a time. If the goal says then or after, the order matters. Reply with exactly"
    " one command each turn, using the names of objects that you have seen. Commands:\n"
)
_MACROS = """\
go to red ball 1: walk up to an object that you have seen
pick up red ball 1: walk up to it and pick it up
open red door 1: walk up to a door or a box and open it
close red door 1: walk up to a door and close it
go through red door 1: open the door if necessary and step into the room behind it
drop next to red ball 1: walk up to it and put down what you carry beside it
pick up, drop, toggle: pick up, put down, or open and close what is directly in front of you
turn left, turn right, move forward, move forward 3: look around and explore when you do not see what you need
check available actions: list the commands that are possible now"""
_PRIMITIVES = """\
turn left, turn right, move forward
pick up: pick up what is directly in front of you
drop: put down what you carry directly in front of you
toggle: open or close what is directly in front of you
done: say that you have arrived, if the goal asks for that
check available actions: list the commands that are possible now"""

PROMPTS: Mapping[str, str] = {"macro": _WORLD + _MACROS, "primitive": _WORLD + _PRIMITIVES}

OPENING = "Goal: {mission}.{done}"


class GridTexts:
    """Answers to a command; `{what}` is a thing, or several."""

    SAY_DONE = " Say done when you have arrived."
    WON = "You have reached the goal."
    LOST = "You have failed: the goal can no longer be reached."
    OUT_OF_STEPS = "You have no steps left."
    AVAILABLE = "You can: {what}."
    STOPPED = "The way is blocked."
    UNKNOWN_THING = "You have not seen {what}."
    WHICH = "There is more than one: {what}. Say which."
    CARRIED = "You are carrying {what}."
    NO_WAY = "You do not know a way to {what}."
    THERE = "You are directly in front of {what}."
    HANDS_FULL = "Your hands are full: you are carrying {what}."
    HANDS_EMPTY = "You are carrying nothing."
    NOT_TAKEN = "You cannot pick up {what}."
    NOT_OPENED = "You cannot open {what}."
    NOT_CLOSED = "You cannot close {what}."
    NO_DOOR = "You cannot go through {what}."
    IS_OPEN = "{what} is open."
    IS_LOCKED = "{what} is locked: you need a {color} key."
    NO_ROOM = "You do not know a free place next to {what}."
    NOTHING_BEFORE = "There is nothing like that directly in front of you."
    NOT_FREE = "The place directly in front of you is not free."
    NO_USE = "Nothing happens."


_LISTED = "'check available actions' lists the commands that are possible now."

MALFORMED: Mapping[MalformedGridCommand, str] = {
    MalformedGridCommand.EMPTY: f"Your reply is not a command; {_LISTED}",
    MalformedGridCommand.LONG: f"Your command is longer than {MAX_LENGTH} characters; {_LISTED}",
    MalformedGridCommand.LINES: "Give one command at a time, on one line.",
    MalformedGridCommand.UNKNOWN: f"Your reply is not a command; {_LISTED}",
}
