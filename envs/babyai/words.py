"""Every word that the environment says or understands, in texts to make a tokenizer from."""

from __future__ import annotations

from collections.abc import Iterator

from minigrid.core.constants import COLOR_NAMES

from .actions import MACROS, MAX_STRIDE, PRIMITIVES
from .texts import MALFORMED, OPENING, PROMPTS, GridTexts

__all__ = ["list_texts"]

_MISSIONS = (
    "go to the ball on your left, then pick up a key behind you",
    "open the door in front of you after you put the box next to an object on your right and go to a ball",
)
_MINIGRID_MISSIONS = (
    "avoid the lava and get to the green goal square",
    "find the opening and get to the green goal square",
    "use the key to open the door and then get to the goal",
    "traverse the rooms to get to the goal",
    "get the red key from the blue room, unlock the red door and go to the goal",
    "go to the matching object at the end of the hallway",
    "open the red door then the blue door",
    "put the red ball near the blue box",
    "go get a key",
    "you must fetch a ball",
    "reach the goal",
)
_VIEW = """\
You see red ball 1, directly in front of you; blue door 1 (closed), 3 steps ahead and 2 steps to the left; grey door 1
(open); key (locked).
You see no objects.
Walls: 1 step to the right (0 to 5 ahead); 2 steps ahead (0 to 1 right); beside you (1 left to 1 right); straight ahead.
You are standing in red door 1 (open).
You are carrying green box 1."""


def list_texts(actions: str, *, minigrid: bool) -> Iterator[str]:
    yield PROMPTS[actions]
    yield " ".join(str(number) for number in range(MAX_STRIDE + 1))
    yield " ".join((*COLOR_NAMES, *PRIMITIVES, *(MACROS if actions == "macro" else ())))
    for mission in (*_MISSIONS, *(_MINIGRID_MISSIONS if minigrid else ())):
        yield OPENING.format(mission=mission, done=GridTexts.SAY_DONE if minigrid else "")
    yield _VIEW
    yield from ("Lava: green goal",) if minigrid else ()
    said = (text for name, text in vars(GridTexts).items() if name.isupper())
    yield from (text.format(what="the red ball 1", color="red") for text in (*said, *MALFORMED.values()))
