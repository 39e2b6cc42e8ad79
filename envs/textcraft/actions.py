"""Text to action, strictly: a text that is not one of the three commands gives `MalformedCraft`, with the reason.

    get 2 oak
    craft 1 oak rod using 2 oak, 1 tin
    inventory

Letter case, the amount of white space, articles, `and` in place of a comma and a full stop at the end do not matter;
everything else does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from ..protocol import split_words

__all__ = [
    "MAX_LENGTH",
    "Craft",
    "CraftCommand",
    "Get",
    "Inventory",
    "MalformedCraft",
    "parse_craft_command",
]

MAX_LENGTH = 400

_NAME = r"[a-z]+(?: [a-z]+)*"
_AND = r"(?: ?,(?: and)? ?| and )"
_AMOUNT = rf"[1-9][0-9]{{0,2}} {_NAME}"
_GET = re.compile(rf"get ([1-9][0-9]{{0,2}}) ({_NAME})")
_CRAFT = re.compile(rf"craft ([1-9][0-9]{{0,2}}) ({_NAME}) using ({_AMOUNT}(?:{_AND}{_AMOUNT})*)")


class MalformedCraft(StrEnum):
    """Reasons why a text is not an action; the keys of each phrase book's `malformed`."""

    EMPTY = "empty"
    LONG = "long"
    LINES = "lines"
    COMMAND = "command"
    GET = "get"
    CRAFT = "craft"


@dataclass(frozen=True, slots=True)
class Get:
    count: int
    item: str


@dataclass(frozen=True, slots=True)
class Craft:
    count: int
    item: str
    using: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    pass


CraftCommand: TypeAlias = Get | Craft | Inventory | MalformedCraft


def parse_craft_command(text: str) -> CraftCommand:
    if len(text) > MAX_LENGTH:
        return MalformedCraft.LONG
    words = split_words(text.lower())
    if not words:
        return MalformedCraft.EMPTY
    if len(text.strip().splitlines()) > 1:
        return MalformedCraft.LINES
    line = " ".join(words)
    return _PARSERS.get(words[0], _unknown)(line)


def _get(line: str) -> CraftCommand:
    match = _GET.fullmatch(line)
    return Get(int(match[1]), match[2]) if match else MalformedCraft.GET


def _craft(line: str) -> CraftCommand:
    match = _CRAFT.fullmatch(line)
    if match is None:
        return MalformedCraft.CRAFT
    return Craft(int(match[1]), match[2], tuple(_amount(part) for part in re.split(f"{_AND}(?=[1-9])", match[3])))


def _amount(part: str) -> tuple[str, int]:
    count, _, item = part.partition(" ")
    return item, int(count)


def _inventory(line: str) -> CraftCommand:
    return Inventory() if line == "inventory" else MalformedCraft.COMMAND


def _unknown(line: str) -> CraftCommand:
    return MalformedCraft.COMMAND


_PARSERS = {"get": _get, "craft": _craft, "inventory": _inventory}
