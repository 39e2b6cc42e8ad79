"""How a task is done: the actions of an agent, with an element's role and name in place of its number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from string import Formatter
from typing import Any

__all__ = ["Element", "PathAction", "list_placeholders", "parse_path_action"]

_NUM_ARGUMENTS: Mapping[str, int] = {"click": 0, "type": 2, "select": 1, "goto": 1}
_LINE = re.compile(r"(\w+)((?: \[[^\[\]]+\])+)")
_ELEMENT = re.compile(r"(\w+) '(.+?)'(?: below '(.+)')?")


@dataclass(frozen=True, slots=True)
class Element:
    """An element as a page's text shows it, `button 'Save'`."""

    role: str
    name: str
    below: str = ""
    """Only the first one below an element of this name, where there are several alike."""


@dataclass(frozen=True, slots=True)
class PathAction:
    verb: str
    element: Element | None
    arguments: tuple[str, ...]

    def fill_in(self, scope: Mapping[str, Any]) -> PathAction:
        """The same action with values for its placeholders."""
        element = self.element and Element(
            self.element.role, self.element.name.format_map(scope), self.element.below.format_map(scope)
        )
        return replace(self, element=element, arguments=tuple(each.format_map(scope) for each in self.arguments))

    def texts(self) -> Iterator[str]:
        if self.element:
            yield from (self.element.name, self.element.below)
        yield from self.arguments


def parse_path_action(line: str) -> PathAction | None:
    """`type [textbox 'Title'] [{title}] [0]`; None where a line is not an action of an agent's."""
    found = _LINE.fullmatch(line)
    if found is None or found[1] not in _NUM_ARGUMENTS:
        return None
    arguments = found[2][2:-1].split("] [")
    element = None
    if found[1] != "goto":
        named = _ELEMENT.fullmatch(arguments.pop(0))
        if named is None:
            return None
        element = Element(named[1], named[2], named[3] or "")
    return PathAction(found[1], element, tuple(arguments)) if len(arguments) == _NUM_ARGUMENTS[found[1]] else None


def list_placeholders(text: str) -> set[str]:
    """Names in braces; nothing but names is allowed there."""
    fields = {(name, spec, conversion) for _, name, spec, conversion in Formatter().parse(text) if name is not None}
    if any(spec or conversion or not name.isidentifier() for name, spec, conversion in fields):
        raise ValueError(f"only names can stand in braces: {text}")
    return {name for name, _, _ in fields}
