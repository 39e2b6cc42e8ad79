"""What one key of a recipe means, from the JSON Schema that editors use.

Enters: a schema and a dotted key such as `algorithm.kl`. Leaves: its description, type, default, examples and keys, or
UnknownField with the nearest key there is. Names of a recipe's own are written as any word or `*`; lists are passed
through, so that `schedule.turns` is the key of a stage.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..dsl.suggest import did_you_mean, shown

__all__ = ["UnknownField", "field_doc"]

Schema = Mapping[str, Any]


class UnknownField(Exception):
    """A key that the schema does not have; the text says where it ends and what was meant."""


def field_doc(schema: Schema, key: str, width: int) -> str:
    """The documentation of a key, as text."""
    return "".join(f"{line}\n" for line in _lines(_found(schema, key), schema, key, width))


def _found(schema: Schema, key: str) -> Schema:
    here: Schema = schema
    done: list[str] = []
    for word in key.split("."):
        below = dict(_keys(here, schema))
        following = below.get(word.split("[")[0], _of_any_name(here, schema))
        if following is None:
            where = f"'{'.'.join(done)}'" if done else "a recipe"
            hint = did_you_mean(word, below) or (f"known: {', '.join(sorted(below))}" if below else "it has no keys")
            raise UnknownField(f"{where} has no key {shown(word)}; {hint}")
        done.append(word)
        here = following
    return here


def _forms(node: Schema, root: Schema) -> Iterator[Schema]:
    """A schema, what it refers to, and its alternatives, nearest first."""
    yield node
    if "$ref" in node:
        yield from _forms(_referred(node["$ref"], root), root)
    for word in ("allOf", "anyOf", "oneOf"):
        for each in node.get(word, ()):
            yield from _forms(each, root)


def _referred(pointer: str, root: Schema) -> Schema:
    here: Any = root
    for step in pointer.removeprefix("#/").split("/"):
        here = here[step]
    return dict(here)


def _keys(node: Schema, root: Schema) -> Iterator[tuple[str, Schema]]:
    for form in _forms(node, root):
        yield from form.get("properties", {}).items()
        if isinstance(form.get("items"), dict):
            yield from _keys(form["items"], root)


def _of_any_name(node: Schema, root: Schema) -> Schema | None:
    """What a map from names of one's own holds."""
    for form in _forms(node, root):
        inner = form.get("additionalProperties")
        if isinstance(inner, dict) and inner:
            return inner
        patterns = form.get("patternProperties", {})
        if patterns:
            return dict(next(iter(patterns.values())))
    return None


# --- text ----------------------------------------------------------------------------------------------------------


def _lines(node: Schema, root: Schema, key: str, width: int) -> Iterator[str]:
    forms, keys = tuple(_forms(node, root)), dict(_keys(node, root))
    yield key
    yield from _wrapped(_first(forms, "description", ""), width)
    yield from _fact("type", " or ".join(dict.fromkeys(_types(forms))), width)
    yield from _value_lines(forms, width)
    # an empty map as the default says no more than that there are keys
    yield from _fact("default", _json(_first(forms, "default") or None if keys else _first(forms, "default")), width)
    yield from _fact("example", ", ".join(_json(each) for each in _first(forms, "examples", ())), width)
    if keys:
        yield "  keys:"
        yield from _key_lines(keys, root, width)


def _wrapped(text: str, width: int) -> Iterator[str]:
    for paragraph in str(text).splitlines():
        yield from textwrap.wrap(paragraph, width - 2, initial_indent="  ", subsequent_indent="  ")


def _fact(name: str, value: str, width: int) -> Iterator[str]:
    head = f"  {name + ':':<9} "
    yield from textwrap.wrap(value, width, initial_indent=head, subsequent_indent=" " * len(head))


def _key_lines(keys: Mapping[str, Schema], root: Schema, width: int) -> Iterator[str]:
    column = max(map(len, keys)) + 2
    for name, node in keys.items():
        text = str(_first(tuple(_forms(node, root)), "description", ""))
        text = text.split("\n", 1)[0]
        yield f"    {name:<{column}}{textwrap.shorten(text, max(width - column - 4, 20), placeholder=' ...')}".rstrip()


def _first(forms: Sequence[Schema], word: str, otherwise: Any = None) -> Any:
    return next((form[word] for form in forms if word in form), otherwise)


def _types(forms: Sequence[Schema]) -> Iterator[str]:
    for form in forms:
        kind = form.get("type")
        yield from [kind] if isinstance(kind, str) else (kind or ())


def _value_lines(forms: Sequence[Schema], width: int) -> Iterator[str]:
    """The values there are: in one line, or each with what it means where the schema says that."""
    meanings = _first(forms, "markdownEnumDescriptions", ())
    values = [value for form in forms for value in ([form["const"]] if "const" in form else form.get("enum", ()))]
    if not meanings:
        yield from _fact("values", ", ".join(map(_json, dict.fromkeys(values))), width)
        return
    yield "  values:"
    column = max(map(len, values)) + 2
    for value, meaning in zip(values, meanings, strict=False):
        indent = " " * (4 + column)
        yield from textwrap.wrap(meaning, width, initial_indent=f"    {value:<{column}}", subsequent_indent=indent)


def _json(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
