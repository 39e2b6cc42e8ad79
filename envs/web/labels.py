"""Name an element in the page's own words before its number: `click link 'Orders' [5]`.

A page ends each line with the element's number. A model that first writes what it means, and then the number behind it,
copies a line instead of counting lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .actions import LONGEST
from .tree import PageNode

__all__ = ["ElementLabel", "format_label", "split_label"]

_LONGEST = 60
"""Characters of a name that is worth repeating."""
_QUOTES = str.maketrans(dict.fromkeys('"‘’“”', "'"))
_LABELLED = re.compile(
    r"\s*(?P<verb>click|hover|type|select)\s+(?P<label>(?:[a-z]+\s*)?'.*?'[^\[\]]*|[a-z]+\s*)"
    r"(?P<rest>\[(?P<number>[1-9][0-9]{0,5})\].*)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ElementLabel:
    """What an action says of the element with a number: its role, its name, both, or its whole line."""

    number: int
    text: str

    def fits(self, node: PageNode) -> bool:
        name = f"'{node.name}'"
        return _plain(self.text) in map(_plain, (node.role, name, f"{node.role} {name}", str(node)))


def _plain(text: str) -> str:
    return " ".join(text.translate(_QUOTES).casefold().split())


def split_label(action: str) -> tuple[str, ElementLabel | None]:
    """Return an action without its label, and the label."""
    found = _LABELLED.fullmatch(action.translate(_QUOTES)) if len(action) <= LONGEST else None
    if found is None:
        return action, None
    rest = action[found.start("rest") :]
    return f"{found['verb']} {rest}", ElementLabel(int(found["number"]), action[slice(*found.span("label"))].strip())


def format_label(node: PageNode, number: int) -> str:
    """Format what an expert says: role, name, number; a long name is left out."""
    return f"{node.role} '{node.name}' [{number}]" if node.name and len(node.name) <= _LONGEST else f"[{number}]"
