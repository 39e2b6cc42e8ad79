"""Words for values of the wrong kind: what was expected, what was found, what to write instead.

A value from the environment is shown as its reference, never as itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...schemas import Schema
from ..frozen import frozen
from ..suggest import quote
from ..text.node import ListNode, MapNode, Node, ScalarNode

__all__ = ["MANY", "Mistyped", "advise", "describe_node", "describe_types", "list_choices", "scalar_text"]

MANY = 8
MOST_KEYS = 32
WORD = r"[a-z0-9][a-z0-9._-]*"
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
    """`a map or text`; expressions and references are not mentioned."""
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
    """What is written there, as a noun."""
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
    """What would have been valid."""
    key: str | None
    takes: Callable[[str], bool]
    """Whether a key of the map that is expected would take the value."""
    keys: tuple[str, ...]
    examples: tuple[Any, ...] = ()
    """Right values of the key."""

    def wants(self, *names: str) -> bool:
        """Whether a value of one of these types was expected; always where none is named."""
        return not names or any(name in _names(branch) for name in names for branch in self.branches)

    @property
    def text(self) -> str | None:
        """The value, where it is text."""
        is_text = isinstance(self.node, ScalarNode) and isinstance(self.node.value, str)
        return scalar_text(self.node) if is_text else None


def advise(case: Mistyped) -> str | None:
    """What to write instead, where that is known."""
    fitting = (rule for wanted, found, rule in RULES if isinstance(case.node, found) and case.wants(*wanted))
    return next((help_text for rule in fitting if (help_text := rule(case, case.node))), None)


YES = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _yes(case: Mistyped, _: ScalarNode) -> str | None:
    word = (case.text or "").lower()
    return f"write {YES[word]}: in YAML 1.2 {quote(case.text or '')} is text" if word in YES else None


def _quoted_flag(case: Mistyped, _: ScalarNode) -> str | None:
    text = (case.text or "").strip().lower()
    return f"write {text}, without quotes" if text in ("true", "false") else None


def _quoted_number(case: Mistyped, _: ScalarNode) -> str | None:
    text = (case.text or "").strip()
    return f"write {text[:40]}, without quotes" if text.lstrip("-").isdecimal() else None


def _digit(_: Mistyped, node: ScalarNode) -> str | None:
    is_digit = node.value in (0, 1) and scalar_text(node) in ("0", "1")
    return f"write {'true' if node.value else 'false'}" if is_digit else None


def _nothing(_: Mistyped, node: ScalarNode) -> str | None:
    return "write a value, or remove the key" if node.value is None else None


def _unquoted(case: Mistyped, node: ScalarNode) -> str | None:
    if isinstance(node.value, str) or (isinstance(node.value, bool) and case.wants("array")):
        return None
    if case.wants("object") and case.keys:  # a share, where tasks are named
        return None
    choices = [value for branch in case.branches for value in branch.get("enum", ())]
    if choices:
        return list_choices(case.key, choices) if len(choices) > MANY or case.wants("object") else None
    return f"put it in quotes: '{scalar_text(node)[:40]}'"


def list_choices(key: str | None, choices: Sequence[str]) -> str | None:
    """All that may be chosen, where it can be read."""
    return f"'{key}' can be {', '.join(choices)}" if len(choices) <= _MOST else None


def _fraction(_: Mistyped, node: ScalarNode) -> str | None:
    return "write it without a fraction" if isinstance(node.value, float) else None


def _bare_item(case: Mistyped, node: ScalarNode) -> str | None:
    if isinstance(node.value, bool):
        return None
    item = quote(scalar_text(node))[1:-1]
    for branch in (each for each in case.branches if each.get("type") == "array"):
        if branch.get("minItems", 0) > 1 and "," not in item:
            return f"write a list of {branch['minItems']}: [{item}, ...]"
        items = branch["items"] if isinstance(branch.get("items"), Mapping) else {}
        if {name for each in items.get("anyOf", [items]) for name in _names(each)} == {"object"}:
            return "write a list of maps: [{...}]"
    return f"write [{item}]"


def _key_that_takes_it(case: Mistyped, node: ScalarNode) -> str | None:
    """`kl: 0.001` for `kl: {coef: 0.001}`."""
    key = None if isinstance(node.value, bool) else next((key for key in case.keys if case.takes(key)), None)
    return f"write {case.key}: {{{key}: {scalar_text(node)[:40]}}}" if key and case.key else None


def _no_section(case: Mistyped, node: ScalarNode) -> str | None:
    takes_null = any(branch.get("type") == "null" and "x-unsets" not in branch for branch in case.branches)
    is_off = node.value is False or (case.text or "").lower() in ("no", "off", "none", "never")
    return "write null" if is_off and takes_null else None


def _sample_map(case: Mistyped, node: ScalarNode) -> str | None:
    """A map as it may be written, with the text as a name where names are the writer's own."""
    made = next((each for each in case.examples if isinstance(each, Mapping) and each), None)
    text = case.text or ""
    if made and not case.keys and re.fullmatch(WORD, text):
        made = {text: text}
    shown = json.dumps(made, ensure_ascii=False) if made else ""
    if not made or not case.key or len(shown) > 80:
        return None
    keys = f"; its keys are {', '.join(case.keys)}" if 1 < len(case.keys) <= MOST_KEYS else ""
    return f"write {case.key}: {shown.replace(chr(34), '')}{keys}"


def _one_item(case: Mistyped, node: ListNode) -> str | None:
    if any(isinstance(branch.get("additionalProperties"), Mapping) for branch in case.branches):
        return "write a map with a name for each: {one: ..., another: ...}"
    if case.wants("object") and node.items and all(isinstance(item, MapNode) for item in node.items):
        return "write a map, without the dashes"
    if len(node.items) == 1 and isinstance(node.items[0], ScalarNode):
        return f"write {case.key}: {scalar_text(node.items[0])[:40]}, the item alone, without a list"
    if case.wants("object") and 0 < len(case.keys) <= MANY:
        return f"write a map; its keys are {', '.join(case.keys)}"
    several = node.items and all(isinstance(item, ScalarNode) for item in node.items)
    one = f": write {case.key}: {scalar_text(node.items[0])[:40]}" if several and case.key else ""
    runs = "; a run for each is made by 'matrix'" if several and one else ""
    return f"only one is allowed here{one}{runs}"


def _one_value(case: Mistyped, node: MapNode) -> str | None:
    """A map where a single value stands: one of those in it, or an example."""
    example = next((each for each in case.examples if isinstance(each, int | float | str)), None)
    first = next((entry.value for entry in node.entries if isinstance(entry.value, ScalarNode)), None)
    shown = scalar_text(first)[:40] if isinstance(first, ScalarNode) else example
    return f"write one value: {case.key}: {shown}" if case.key and shown is not None else None


def _sample(case: Mistyped, _: ScalarNode) -> str | None:
    """A right value, and the keys of a map where one is expected."""
    if any("enum" in branch for branch in case.branches):  # which the message lists
        return None
    keys = f"its keys are {', '.join(case.keys)}" if 0 < len(case.keys) <= MOST_KEYS else ""
    example = next((each for each in case.examples if isinstance(each, int | float | str | list)), None)
    if keys:
        return f"write a map; {keys}"
    text = json.dumps(example) if isinstance(example, list) else example
    return f"write a value such as {case.key}: {text}" if case.key and example is not None else None


def _one_entry(_: Mistyped, node: MapNode) -> str | None:
    if node.entries and all(isinstance(entry.value, MapNode) for entry in node.entries):
        return "write a list of maps, each with its name inside: [{...}, {...}]"
    return "write a list of maps: put '- ' before each, or [{...}]"


RULES: tuple[tuple[tuple[str, ...], type[Node], Callable[[Mistyped, Any], str | None]], ...] = (
    (("boolean",), ScalarNode, _yes),
    (("boolean",), ScalarNode, _quoted_flag),
    (("integer", "number"), ScalarNode, _quoted_number),
    (("boolean",), ScalarNode, _digit),
    ((), ScalarNode, _nothing),
    (("string",), ScalarNode, _unquoted),
    (("integer",), ScalarNode, _fraction),
    (("array",), ScalarNode, _bare_item),
    (("object",), ScalarNode, _no_section),
    (("object",), ScalarNode, _key_that_takes_it),
    (("object",), ScalarNode, _sample_map),
    ((), ListNode, _one_item),
    (("array",), MapNode, _one_entry),
    ((), MapNode, _one_value),
    ((), ScalarNode, _sample),
)
"""By what was expected, where that matters, and what was found."""
