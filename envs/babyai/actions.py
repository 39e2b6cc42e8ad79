"""Text to command, strictly: a text that is not a command gives `MalformedGridCommand`, with the reason.

    go to red ball 1
    go through green door 2
    move forward 3

Letter case, the amount of white space, articles and a full stop at the end do not matter. The number may be left out
where there is only one such thing, a door may be named with its state as well (`red locked door 1`), and `pickup` is
`pick up`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..protocol import split_words

__all__ = [
    "MACROS",
    "MAX_LENGTH",
    "MAX_STRIDE",
    "PRIMITIVES",
    "GridCommand",
    "MalformedGridCommand",
    "Verb",
    "parse_command",
]

MAX_LENGTH = 100
MAX_STRIDE = 20


class Verb(StrEnum):
    LEFT = "turn left"
    RIGHT = "turn right"
    FORWARD = "move forward"
    PICK_UP = "pick up"
    DROP = "drop"
    TOGGLE = "toggle"
    DONE = "done"
    CHECK = "check available actions"
    GO_TO = "go to"
    OPEN = "open"
    CLOSE = "close"
    GO_THROUGH = "go through"
    DROP_NEXT_TO = "drop next to"


PRIMITIVES = (Verb.LEFT, Verb.RIGHT, Verb.FORWARD, Verb.PICK_UP, Verb.DROP, Verb.TOGGLE, Verb.DONE, Verb.CHECK)
"""What needs no name of a thing."""
MACROS = (Verb.GO_TO, Verb.PICK_UP, Verb.OPEN, Verb.CLOSE, Verb.GO_THROUGH, Verb.DROP_NEXT_TO)
"""What is done with a thing that has been seen."""
_ALIASES: Mapping[str, str] = {"pickup": "pick up", "toggle and go through": "go through"}

_THING = r"(?P<color>[a-z]+) (?:(?:open|closed|locked) )?(?P<type>[a-z]+)(?: (?P<number>[1-9][0-9]?))?"
_WORDS = "|".join((*MACROS, *_ALIASES))
_ALONE = re.compile(rf"(?P<verb>{'|'.join((*PRIMITIVES, *_ALIASES))})")
_STRIDE = re.compile(r"(?P<verb>move forward) (?P<count>[1-9][0-9]?)")
_WITH_THING = re.compile(rf"(?P<verb>{_WORDS}) {_THING}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCommand:
    verb: Verb
    count: int = 1
    """Steps, where it is to move."""
    kind: str = ""
    """Colour and type of the thing meant, such as `red ball`; none of a bare command."""
    number: int | None = None


class MalformedGridCommand(StrEnum):
    """Reasons why a text is not a command."""

    EMPTY = "empty"
    LONG = "long"
    LINES = "lines"
    UNKNOWN = "unknown"


def parse_command(text: str, *, macros: bool) -> GridCommand | MalformedGridCommand:
    if len(text) > MAX_LENGTH:
        return MalformedGridCommand.LONG
    words = split_words(text.lower())
    if not words:
        return MalformedGridCommand.EMPTY
    if len(text.strip().splitlines()) > 1:
        return MalformedGridCommand.LINES
    return _command(" ".join(words), macros)


def _command(line: str, macros: bool) -> GridCommand | MalformedGridCommand:
    forms = (_ALONE, _STRIDE, _WITH_THING) if macros else (_ALONE,)
    match = next(filter(None, (form.fullmatch(line) for form in forms)), None)
    if match is None:
        return MalformedGridCommand.UNKNOWN
    found = match.groupdict()
    verb = Verb(_ALIASES.get(found["verb"], found["verb"]))
    count = int(found.get("count") or 1)
    if count > MAX_STRIDE or (verb not in PRIMITIVES and "type" not in found):
        return MalformedGridCommand.UNKNOWN
    if "type" not in found:
        return GridCommand(verb=verb, count=count)
    number = int(found["number"]) if found["number"] else None
    return GridCommand(verb=verb, kind=f"{found['color']} {found['type']}", number=number)
