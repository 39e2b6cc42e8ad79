"""Words for values of the wrong kind: what was expected, what was found, what to write instead.

What came from the environment is shown as the reference that it came by, never as itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...schemas import Schema
from ..frozen import frozen
from ..suggest import quote
from ..text.tree import ListNode, MapNode, Node, ScalarNode

__all__ = ["MANY", "Mistyped", "advise", "describe_node", "describe_types", "list_choices", "scalar_text"]

MANY = 8
_MOST = 50
"""Values that fit into a message."""

WORDS = {
    "object": "a map",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def describe_types(branches: Iterable[Schema]) -> str:
    """`a map or text`; expressions and references go without saying."""
    branches = list(branches)
    choices = [value for branch in branches for value in branch.get("enum", ())]
    names = list(dict.fromkeys(name for branch in branches for name in _names(branch)))
    if 0 < len(choices) <= MANY and names == ["string"]:
        return f"one of {', '.join(choices)}"
    names = [name for name in names if name != "null"] or names
    words = [WORDS.get(name, name) for name in names]
    return ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else words[0] if words else "something else"


def _names(branch: Schema) -> list[str]:
    if "$ref" in branch:
        return [] if branch["$ref"].endswith("/reference") else ["object"]
    if "x-scope" in branch:
        return ["an expression"] if branch["type"] != "string" else []
    types = branch.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def scalar_text(node: Node) -> str:
    """A scalar's text, without what is secret in it."""
    if not isinstance(node, ScalarNode):
        return ""
    return node.redacted if node.redacted is not None else node.text.value


def describe_node(node: Node) -> str:
    """What stands there, as a noun."""
    if isinstance(node, MapNode):
        return "a map"
    if isinstance(node, ListNode):
        return "a list"
    if node.value is None:
        return "null" if node.text.value else "nothing"
    if isinstance(node.value, str):
        return quote(scalar_text(node)) if scalar_text(node).strip() else "empty text"
    return quote(scalar_text(node))[1:-1]


@frozen
class Mistyped:
    """A value of the wrong kind."""

    node: Node
    branches: tuple[Schema, ...]
    """What would have been right."""
    key: str | None
    takes: Callable[[str], bool]
    """Whether a key of the map that is expected would take the value."""
    keys: tuple[str, ...]

    def wants(self, name: str) -> bool:
        return any(name in _names(branch) for branch in self.branches)

    @property
    def text(self) -> str | None:
        """The value, where it is text."""
        is_text = isinstance(self.node, ScalarNode) and isinstance(self.node.value, str)
        return scalar_text(self.node) if is_text else None


def advise(case: Mistyped) -> str | None:
    """What to write instead, where that can be told."""
    return next((help_text for rule in RULES if (help_text := rule(case))), None)


YES = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _yes(case: Mistyped) -> str | None:
    word = (case.text or "").lower()
    if not case.wants("boolean") or word not in YES:
        return None
    return f"write {YES[word]}: in YAML 1.2 {quote(case.text or '')} is text"


def _quoted(case: Mistyped) -> str | None:
    text = (case.text or "").strip()
    if case.wants("boolean") and text.lower() in ("true", "false"):
        return f"write {text.lower()}, without quotes"
    if (case.wants("integer") or case.wants("number")) and text.lstrip("-").isdecimal():
        return f"write {text[:40]}, without quotes"
    return None


def _digit(case: Mistyped) -> str | None:
    is_digit = isinstance(case.node, ScalarNode) and case.node.value in (0, 1) and scalar_text(case.node) in ("0", "1")
    if not case.wants("boolean") or not is_digit:
        return None
    return "write true" if scalar_text(case.node) == "1" else "write false"


def _nothing(case: Mistyped) -> str | None:
    if not isinstance(case.node, ScalarNode) or case.node.value is not None:
        return None
    return "write a value, or remove the key"


def _unquoted(case: Mistyped) -> str | None:
    if not isinstance(case.node, ScalarNode) or not case.wants("string") or isinstance(case.node.value, str):
        return None
    choices = [value for branch in case.branches for value in branch.get("enum", ())]
    if choices:
        return list_choices(case.key, choices) if len(choices) > MANY or case.wants("object") else None
    return f"put it in quotes: '{scalar_text(case.node)[:40]}'"


def list_choices(key: str | None, choices: Sequence[str]) -> str | None:
    """All that may be chosen, where it can be read."""
    return f"'{key}' can be {', '.join(choices)}" if len(choices) <= _MOST else None


def _fraction(case: Mistyped) -> str | None:
    is_fraction = isinstance(case.node, ScalarNode) and isinstance(case.node.value, float)
    return "write it without a fraction" if case.wants("integer") and is_fraction else None


def _bare_item(case: Mistyped) -> str | None:
    if not isinstance(case.node, ScalarNode) or not case.wants("array"):
        return None
    item = quote(scalar_text(case.node))[1:-1]
    for branch in (each for each in case.branches if each.get("type") == "array"):
        if branch.get("minItems", 0) > 1 and "," not in item:
            return f"write a list of {branch['minItems']}: [{item}, ...]"
        items = branch["items"] if isinstance(branch.get("items"), Mapping) else {}
        if {name for each in items.get("anyOf", [items]) for name in _names(each)} == {"object"}:
            return "write a list of maps: [{...}]"
    return f"write [{item}]"


def _one_item(case: Mistyped) -> str | None:
    if not isinstance(case.node, ListNode):
        return None
    if any(isinstance(branch.get("additionalProperties"), Mapping) for branch in case.branches):
        return "write a map with a name for each: {one: ..., another: ...}"
    if case.wants("object") and case.node.items and all(isinstance(item, MapNode) for item in case.node.items):
        return "write a map, without the dashes"
    is_one = len(case.node.items) == 1 and isinstance(case.node.items[0], ScalarNode)
    return "write the item alone, without a list" if is_one else "only one is allowed here"


def _one_entry(case: Mistyped) -> str | None:
    if not isinstance(case.node, MapNode) or not case.wants("array"):
        return None
    if case.node.entries and all(isinstance(entry.value, MapNode) for entry in case.node.entries):
        return "write a list of maps, each with its name inside: [{...}, {...}]"
    return "write a list of maps: put '- ' before each, or [{...}]"


def _key_that_takes_it(case: Mistyped) -> str | None:
    """`kl: 0.001` for `kl: {coef: 0.001}`."""
    if not isinstance(case.node, ScalarNode) or isinstance(case.node.value, bool) or not case.wants("object"):
        return None
    key = next((key for key in case.keys if case.takes(key)), None)
    return f"write {case.key}: {{{key}: {scalar_text(case.node)[:40]}}}" if key and case.key else None


RULES: tuple[Callable[[Mistyped], str | None], ...] = (
    _yes,
    _quoted,
    _digit,
    _nothing,
    _unquoted,
    _fraction,
    _bare_item,
    _key_that_takes_it,
    _one_item,
    _one_entry,
)
