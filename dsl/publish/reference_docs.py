"""Every key explained, from the published schema.

`write_reference` makes docs/recipe-reference.md, `describe` the lines about one key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...schemas import Schema, recipe_v1
from ..check.expected import WORDS
from ..check.key_suggestions import NAME, KeyPattern, SchemaKeys
from ..check.presets import load_presets

__all__ = ["UnknownKey", "describe_key", "explain_key", "write_reference"]

INTRODUCTION = """# Recipe reference

Every key of a recipe, with its type, its default and its meaning. `make docs` generates this page from the schema;
`agym schema --field KEY` and editors that read `schemas/recipe.v1.json` show the same text.

Wherever a number is expected, an expression works too. Most such numbers are fixed before the run starts; those marked
*may change* are evaluated at every step; [Expressions](expressions.md) explains how to write them. What each part of an
algorithm computes, in formulas, and how others compute it: [Conventions](conventions.md). NAME stands for a name of
your own. *`use` alone* means that `algorithm: grpo` is short for `algorithm: {use: grpo}`.
"""


class UnknownKey(LookupError):
    """No such key; the message says which was probably meant."""


def describe_key(path: str) -> str:
    """What a key means, as lines for a terminal: `algorithm.kl`, `schedule.turns`, `environments.craft.weight`."""
    keys = SchemaKeys(recipe_v1())
    steps = [step for step in re.split(r"[.\[\]]+", path) if step and not step.isdecimal()]
    at: KeyPattern = ()
    for step in steps:
        at = (*at, _step(keys, at, step))
    if not at:
        raise UnknownKey("expected a key such as algorithm.kl")
    return "\n".join(_lines(keys, at)) + "\n"


def _step(keys: SchemaKeys, at: KeyPattern, step: str) -> str:
    for each in (step, NAME):
        if (*at, each) in keys.known:
            return each
    help_text = keys.suggest(step, at).help
    where = f"'{'.'.join(at)}' has" if at else "there is"
    raise UnknownKey(f"{where} no key '{step[:40]}'" + (f": {help_text}" if help_text else ""))


def _lines(keys: SchemaKeys, at: KeyPattern) -> Iterator[str]:
    yield from explain_key(".".join(at), keys.known[at])
    children = keys.children(at)
    width = max(map(len, children), default=0)
    if children:
        yield "  keys"
    for child in children:
        yield f"    {child:{width}}  {_meaning(keys.known[(*at, child)])}"


def explain_key(key: str, schema: Schema) -> Iterator[str]:
    """The same for any key with a schema, without the keys below it."""
    yield key
    yield f"  {_meaning(schema)}"
    facts = {"type": _type(schema), "default": _default(schema), "example": _examples(schema)}
    for name, value in facts.items():
        if value:
            yield f"  {name:8} {value.replace('`', '')}"


def write_reference() -> str:
    """The page of all keys."""
    keys = SchemaKeys(recipe_v1())
    parts = [INTRODUCTION, *_sections(keys), *_presets()]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


# --- keys ----------------------------------------------------------------------------------------------------------


def _sections(keys: SchemaKeys) -> Iterator[str]:
    yield _section(keys, (), "The top of a recipe", "")
    done: set[str] = set()
    for at, schema in keys.known.items():
        refers_to = [branch["$ref"] for branch in _branches(schema) if "definitions" in branch.get("$ref", "")]
        refers_to = [name for name in refers_to if not name.endswith("/reference")]
        if refers_to and not done & set(refers_to) and keys.children(at):
            done.update(refers_to)
            definition = keys.definitions[refers_to[0].rpartition("/")[2]]
            yield _section(keys, at, f"`{'.'.join(at)}`", definition["description"])


def _section(keys: SchemaKeys, at: KeyPattern, title: str, meaning: str) -> str:
    rows = [_row(child, keys.known[(*at, child)]) for child in keys.children(at)]
    head = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([f"## {title}", "", *([meaning, ""] if meaning else []), *head, *rows, ""])


def _row(name: str, schema: Schema) -> str:
    cells = (f"`{name}`", _type(schema), _default(schema, "*required*"), _meaning(schema))
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _meaning(schema: Schema) -> str:
    return str(schema.get("description", "A name of your own."))


def _default(schema: Schema, absent: str = "") -> str:
    return f"`{_shown(schema['default'])}`" if "default" in schema else absent


def _examples(schema: Schema) -> str:
    return "  or  ".join(_shown(each) for each in schema.get("examples", ()))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


# --- types ---------------------------------------------------------------------------------------------------------

LIMITS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}


def _branches(schema: Schema) -> list[Schema]:
    """The alternatives, and those of a list's items."""
    found: list[Schema] = []
    for branch in schema.get("anyOf", [schema]):
        found.append(branch)
        items = branch.get("items")
        found += _branches(items) if isinstance(items, Mapping) else []
    return found


def _type(schema: Schema) -> str:
    branches = [each for each in schema.get("anyOf", [schema]) if "x-unsets" not in each]
    words = dict.fromkeys(word for branch in branches if (word := _word(branch)))
    listed = next((branch["items"] for branch in branches if isinstance(branch.get("items"), Mapping)), None)
    if listed is not None and _type(listed) == " or ".join(list(words)[1:]):
        words = {f"{next(iter(words))}; or one alone": None}
    changes = any(branch.get("x-scope", "constant") != "constant" and branch["type"] == "string" for branch in branches)
    return " or ".join(words) + (", *may change*" if changes else "")


def _word(branch: Schema) -> str:
    if "$ref" in branch:
        return "" if branch["$ref"].endswith("/reference") else "a map"
    if "x-short-for" in branch:
        return f"its `{branch['x-short-for']}` alone"
    if "x-scope" in branch:
        return f"an expression of the {branch['x-scope']}" if isinstance(branch["type"], list) else ""
    if "enum" in branch or "const" in branch:
        return ", ".join(f"`{each}`" for each in branch.get("enum", [branch.get("const")]))
    if branch.get("x-secret"):
        return "`${env:NAME}`"
    if branch.get("type") == "array":
        return _list_word(branch)
    limits = [f"{word} {branch[key]:.12g}" for key, word in LIMITS.items() if key in branch]
    return " ".join([WORDS.get(branch.get("type", ""), "anything"), *limits])


def _list_word(branch: Schema) -> str:
    items = branch["items"]
    if isinstance(items, list):
        return f"a list of {len(items)}: " + ", ".join(_type(item) for item in items)
    inner = _type(items)
    return f"a list, each {inner}" if inner else "a list"


# --- presets -------------------------------------------------------------------------------------------------------


def _presets() -> Iterator[str]:
    yield "## Algorithms by name\n\nWhat each `algorithm.use` sets; every part can still be set on its own."
    head = ["| name | kind of stage | what it is | described in | needs |", "| --- | --- | --- | --- | --- |"]
    rows = [
        f"| `{each.name}` | {each.kind} | {each.summary} | {each.source} | {', '.join(each.needs)} |"
        for each in load_presets().values()
    ]
    yield "\n".join([*head, *rows])
