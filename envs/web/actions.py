"""Text to action, strictly: a text that is not an action gives `Malformed`, with the reason.

    click [18]
    type [7] [red shoes] [1]
    scroll [down]

Every argument is in brackets. A place is the number of an element, or a point of the page's window, `[40,25]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

__all__ = [
    "LONGEST",
    "Action",
    "Click",
    "CloseTab",
    "Drag",
    "GoBack",
    "GoForward",
    "GoTo",
    "Hover",
    "Malformed",
    "NewTab",
    "Point",
    "Press",
    "Scroll",
    "Select",
    "Spot",
    "Stop",
    "SwitchTab",
    "Type",
    "Wait",
    "parse",
]

LONGEST = 4000
"""Most characters of an action."""


class Malformed(StrEnum):
    """Reasons why a text is not an action."""

    EMPTY = "empty"
    LONG = "long"
    CONTROL = "control"
    UNKNOWN = "unknown"
    ARGUMENTS = "arguments"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int


Spot: TypeAlias = "int | Point"


@dataclass(frozen=True, slots=True)
class Click:
    place: Spot


@dataclass(frozen=True, slots=True)
class Hover:
    place: Spot


@dataclass(frozen=True, slots=True)
class Drag:
    start: Spot
    end: Spot


@dataclass(frozen=True, slots=True)
class Type:
    """Replace the content of a field."""

    element: int
    text: str
    enter: bool | None
    """Whether to press Enter afterwards; None where that was not said."""


@dataclass(frozen=True, slots=True)
class Select:
    element: int
    option: str


@dataclass(frozen=True, slots=True)
class Press:
    keys: str
    """As the browser's driver names them: `Control+a`."""


@dataclass(frozen=True, slots=True)
class Scroll:
    down: bool
    element: int | None


@dataclass(frozen=True, slots=True)
class GoTo:
    url: str


@dataclass(frozen=True, slots=True)
class SwitchTab:
    number: int


@dataclass(frozen=True, slots=True)
class GoBack:
    pass


@dataclass(frozen=True, slots=True)
class GoForward:
    pass


@dataclass(frozen=True, slots=True)
class NewTab:
    pass


@dataclass(frozen=True, slots=True)
class CloseTab:
    pass


@dataclass(frozen=True, slots=True)
class Wait:
    pass


@dataclass(frozen=True, slots=True)
class Stop:
    answer: str


Action: TypeAlias = (
    Click
    | Hover
    | Drag
    | Type
    | Select
    | Press
    | Scroll
    | GoTo
    | SwitchTab
    | GoBack
    | GoForward
    | NewTab
    | CloseTab
    | Wait
    | Stop
)

_NUMBER = r"\[([1-9][0-9]{0,5})\]"
_PLACE = r"\[([1-9][0-9]{0,5}|[0-9]{1,4}, ?[0-9]{1,4})\]"
_TEXT = r"\[(.*)\]"
_WORD = re.compile(r"([a-z_]+)(?: |\Z)", re.IGNORECASE | re.ASCII)
_KEYS: Mapping[str, str] = {
    **{key.lower(): key for key in ("Enter", "Tab", "Escape", "Backspace", "Delete", "Home", "End", "PageUp")},
    **{key.lower(): key for key in ("PageDown", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Space")},
    "esc": "Escape",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
}
_MODIFIERS: Mapping[str, str] = {
    "ctrl": "Control",
    "control": "Control",
    "shift": "Shift",
    "alt": "Alt",
    "meta": "Control",
    "cmd": "Control",
}


def parse(text: str) -> Action | Malformed:
    if len(text) > LONGEST:
        return Malformed.LONG
    line = text.strip()
    if not line:
        return Malformed.EMPTY
    if not line.replace("\n", "").isprintable():
        return Malformed.CONTROL
    word = _WORD.match(line)
    form = _FORMS.get(word[1].lower()) if word else None
    if word is None or form is None:
        return Malformed.UNKNOWN
    pattern, make = form
    match = pattern.fullmatch(line[word.end() :].strip())
    return make(*match.groups()) if match else Malformed.ARGUMENTS


def _place(text: str) -> Spot:
    x, comma, y = text.partition(",")
    return Point(int(x), int(y)) if comma else int(x)


def _type(element: str, text: str, enter: str | None) -> Type:
    return Type(int(element), text, None if enter is None else enter == "1")


def _press(text: str) -> Press | Malformed:
    *before, last = re.split(r"(?<=.)\+(?=.)", text.strip())
    modifiers = [_MODIFIERS.get(each.strip().lower(), "") for each in before]
    last = last.strip()
    key = last if len(last) == 1 and last.isascii() else _KEYS.get(last.lower(), "")
    return Press("+".join((*modifiers, key))) if key and all(modifiers) else Malformed.KEY


def _scroll(element: str | None, way: str) -> Scroll:
    return Scroll(way.lower() == "down", int(element) if element else None)


_ARGUMENTS: Mapping[str, tuple[str, Callable[..., Action | Malformed]]] = {
    "click": (_PLACE, lambda place: Click(_place(place))),
    "hover": (_PLACE, lambda place: Hover(_place(place))),
    "drag": (f"{_PLACE} ?{_PLACE}", lambda start, end: Drag(_place(start), _place(end))),
    # the last pair of brackets says whether to press Enter only where it holds 0 or 1 and is not the text itself
    "type": (rf"{_NUMBER} ?\[(.*?)\](?: ?\[([01])\])?", _type),
    "select": (f"{_NUMBER} ?{_TEXT}", lambda element, option: Select(int(element), option)),
    "press": (_TEXT, _press),
    "scroll": (rf"(?:{_NUMBER} ?)?\[(up|down)\]", _scroll),
    "goto": (_TEXT, GoTo),
    "go_back": ("", GoBack),
    "go_forward": ("", GoForward),
    "new_tab": ("", NewTab),
    "tab_focus": (r"\[([0-9]{1,3})\]", lambda number: SwitchTab(int(number))),
    "close_tab": ("", CloseTab),
    "wait": ("", Wait),
    "stop": (rf"(?:{_TEXT})?", lambda answer: Stop((answer or "").strip())),
}
_FORMS = {word: (re.compile(form, re.IGNORECASE | re.DOTALL), make) for word, (form, make) in _ARGUMENTS.items()}
