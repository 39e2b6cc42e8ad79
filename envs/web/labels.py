"""Name an element in the page's own words before its number: `click link 'Orders' [5]`.

A page ends each line with the element's number. A model that first writes what it means, and then the number behind it,
copies a line instead of counting lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .tree import PageNode

__all__ = ["ElementLabel", "format_label", "split_label"]

_LONGEST = 60
"""Characters of a name that is worth repeating."""
_LABELLED = re.compile(
    r"\s*(?P<verb>click|hover|type|select)\s+(?:(?P<role>[a-z]+)\s*)?(?:'(?P<name>.*?)'\s*)?(?P<rest>\[(?P<number>[1-9][0-9]{0,5})\].*)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementLabel:
    """What an action says of the element with a number."""

    number: int
    role: str
    """Empty where only the name is given."""
    name: str
    """Empty where only the role is given."""

    def fits(self, node: PageNode) -> bool:
        return _same(self.role, node.role) and _same(self.name, node.name)


def _same(said: str, there: str) -> bool:
    return not said or " ".join(said.lower().split()) == " ".join(there.lower().split())


def split_label(action: str) -> tuple[str, ElementLabel | None]:
    """Return an action without its label, and the label."""
    found = _LABELLED.fullmatch(action)
    role, name = (found["role"] or "", found["name"] or "") if found else ("", "")
    if found is None or not (role or name):
        return action, None
    return f"{found['verb']} {found['rest']}", ElementLabel(number=int(found["number"]), role=role, name=name)


def format_label(node: PageNode, number: int) -> str:
    """Format what an expert says: role, name, number; a long name is left out."""
    return f"{node.role} '{node.name}' [{number}]" if node.name and len(node.name) <= _LONGEST else f"[{number}]"
