"""Diagnostics of a tree against a JSON Schema: keys, kinds of values, limits.

All mistakes at once, each at the token that holds it, in terms of the recipe. jsonschema finds them; the table HANDLERS
says for each of its keywords how to report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from typing import Any

from ...schemas import Schema
from ..diagnostics import Diagnostic, sort_by_place
from ..source import Span
from ..suggest import either, find_closest, fold_name, quote
from ..text.node import Entry, ListNode, MapNode, Node, Path, ScalarNode, get_entry, node_at, to_data
from .expected import MANY, Mistyped, advise, describe_node, describe_types, list_choices, scalar_text
from .foreign_names import load_aliases
from .key_suggestions import KeyPattern, SchemaKeys

__all__ = ["check_schema"]

MOST = 100
"""Mistakes reported for one recipe; a last one says that there are more."""


def check_schema(tree: Node, schema: Schema) -> tuple[Diagnostic, ...]:
    """Everything in the tree that the schema forbids."""
    scene = _Scene(tree=tree, schema=schema)
    errors = _validator()(schema).iter_errors(to_data(tree, _value))
    reports = list(islice(_reports(scene, errors), MOST + 20))
    explained = scene.explained()
    settled = sort_by_place(each for each in reports if each not in explained)
    return tuple(settled[:MOST]) + ((_too_many(settled[MOST]),) if len(settled) > MOST else ())


class _Nothing:
    """In place of null where nothing is written: it takes no key away."""


NOTHING = _Nothing()


def _value(node: ScalarNode) -> Any:
    return NOTHING if node.value is None and not node.text.value else node.value


def _too_many(first: Diagnostic) -> Diagnostic:
    message = f"more than {MOST} errors; the rest are not shown"
    return Diagnostic(code="too-many-errors", message=message, span=first.span, help="fix these first")


@dataclass(kw_only=True)
class _Scene:
    """The recipe, what may stand in it, and what was found so far."""

    tree: Node
    schema: Schema
    missing: dict[tuple[Path, str], Diagnostic] = field(default_factory=dict)
    """Keys that are not there, until an unknown one turns out to be meant as such."""
    misspelt: set[tuple[Path, str]] = field(default_factory=set)
    """Keys that were meant by an unknown one in the same map."""
    empty: dict[Path, Diagnostic] = field(default_factory=dict)
    """Empty sections, until keys next to them turn out to belong there."""
    unindented: set[Path] = field(default_factory=set)
    """Sections whose keys are next to them, on the same level."""

    @cached_property
    def keys(self) -> SchemaKeys:
        return SchemaKeys(self.schema)

    def node(self, error: Any) -> Node:
        return node_at(self.tree, tuple(error.absolute_path)) or self.tree

    def entry(self, path: Path) -> Entry | None:
        """The key and value that a path ends in; None in a list and at the top."""
        return get_entry(node_at(self.tree, path[:-1]), path[-1]) if path and isinstance(path[-1], str) else None

    def key_of(self, path: Path) -> str | None:
        """The name of the key that a value belongs to."""
        return next((step for step in reversed(path) if isinstance(step, str)), None)

    def start(self, path: Path) -> Span:
        """Where a map begins: its key, or, in a list and at the top, its first key."""
        entry = self.entry(path)
        node = node_at(self.tree, path) or self.tree
        if entry:
            return entry.key.span
        if path and isinstance(node, MapNode) and node.entries:
            return node.entries[0].key.span
        return node.span.source.span(node.span.start, node.span.start)

    def place(self, path: Path, node: Node) -> Span:
        """The value, or its key where there is nothing to point at."""
        entry = self.entry(path)
        return entry.key.span if entry and _is_nothing(node) else node.span

    def explained(self) -> list[Diagnostic]:
        """Reports of missing keys that are there, but misspelt, and of empty sections whose keys are next to them."""
        missing = [report for key, report in self.missing.items() if key in self.misspelt]
        return missing + [report for path, report in self.empty.items() if path in self.unindented]


def _is_nothing(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None and not node.text.value


# --- from jsonschema -----------------------------------------------------------------------------------------------


@cache
def _validator() -> Any:
    """Draft 7, except that in an `anyOf` only the branch that takes this kind of value counts."""
    from jsonschema.validators import Draft7Validator, extend  # costs 60 ms, which `agym --help` should not pay

    made: Any = extend  # typed as Any, for its own types are not complete
    return made(Draft7Validator, {"anyOf": _any_of})


def _any_of(validator: Any, branches: list[Schema], instance: Any, schema: Schema) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if any(branch.get("type") == "null" and _is_null_here(branch, instance) for branch in branches):
        return
    kind = KINDS.get(type(instance), "null")
    faults: list[Any] | None = None
    branches = _own(branches)
    if len(branches) == 1:
        yield from validator.descend(instance, branches[0], schema_path=0)
        return
    for index, branch in enumerate(branches):
        if kind not in _kinds(branch):
            continue
        errors = list(validator.descend(instance, branch, schema_path=index))
        if not errors:
            return
        if not _is_reference(branch):
            faults = faults or errors
    yield from faults or [ValidationError("no branch takes this kind of value")]


def _is_null_here(branch: Schema, instance: Any) -> bool:
    """Whether null is right: as a value, also by nothing, or to take a key away."""
    return instance is None or (instance is NOTHING and "x-unsets" not in branch)


def _own(branches: Iterable[Schema]) -> list[Schema]:
    """Without the null that takes a key away and is not a value of it."""
    return [branch for branch in branches if "x-unsets" not in branch]


KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
ALL_KINDS = frozenset({*KINDS.values(), "null"})


def _kinds(branch: Schema) -> frozenset[str]:
    """The kinds of values that a branch takes; what it refers to is a map, or text with `${...}`."""
    if "$ref" in branch:
        return frozenset({"string" if _is_reference(branch) else "object"})
    types = branch.get("type", ALL_KINDS)
    return frozenset("number" if each == "integer" else each for each in ([types] if isinstance(types, str) else types))


def _is_reference(branch: Schema) -> bool:
    return bool(branch.get("$ref", "").endswith("/reference"))


def _reports(scene: _Scene, errors: Iterable[Any]) -> Iterator[Diagnostic]:
    mistyped: set[Path] = set()
    for error in errors:
        path = tuple(error.absolute_path)
        if path in mistyped:
            continue  # for a value of the wrong kind nothing else is worth reporting
        if error.validator in ("type", "anyOf"):
            mistyped.add(path)
        yield from HANDLERS.get(error.validator, _other)(scene, error)


# --- one handler per keyword ---------------------------------------------------------------------------------------


def _unknown_keys(scene: _Scene, error: Any) -> Iterator[Diagnostic]:
    path = tuple(error.absolute_path)
    node = scene.node(error)
    pattern = scene.keys.pattern(path)
    entries = node.entries if isinstance(node, MapNode) else ()
    unknown = [entry for entry in entries if entry.name not in error.schema.get("properties", ())]
    for holder, fallen in _unindented(scene, entries, unknown, pattern):
        scene.unindented.add((*path, holder))
        names = " and ".join(quote(entry.name) for entry in fallen)
        message = f"{names} {'is' if len(fallen) == 1 else 'are'} next to {quote(holder)}, which is empty"
        help_text = f"indent {'it' if len(fallen) == 1 else 'them'} below '{holder}:'"
        yield Diagnostic(code="unknown-key", message=message, span=fallen[0].key.span, help=help_text)
        unknown = [entry for entry in unknown if entry not in fallen]
    for entry in unknown:
        meant = scene.keys.suggest(entry.name, pattern)
        if meant.key is not None:
            scene.misspelt.add((path, meant.key))
        where = scene.key_of(path)
        message = f"unknown key {quote(entry.name)}" + (f" in {quote(where)}" if where else "")
        # the keys in a misspelt section of ours are ours
        translated = _translated(scene, entry) if meant.key is None else None
        help_text = "; ".join(filter(None, (meant.help, translated)))
        yield Diagnostic(code="unknown-key", message=message, span=entry.key.span, help=help_text or None)


MOST_TRANSLATED = 6


def _translated(scene: _Scene, entry: Entry) -> str | None:
    """What the keys of another framework's section are called here."""
    inner = entry.value.entries if isinstance(entry.value, MapNode) else ()
    found = ((each.name, scene.keys.translate(each.name)) for each in _leaves(inner))
    known = [f"{quote(name)} is '{meant}' here" for name, meant in found if meant is not None]
    return ", ".join(known[:MOST_TRANSLATED]) or None


def _leaves(entries: Iterable[Entry]) -> Iterator[Entry]:
    for entry in entries:
        if isinstance(entry.value, MapNode):
            yield from _leaves(entry.value.entries)
        else:
            yield entry


def _unindented(
    scene: _Scene, entries: Iterable[Entry], unknown: list[Entry], pattern: KeyPattern
) -> list[tuple[str, list[Entry]]]:
    """Empty sections, and the unknown keys after them that would be right below them."""
    found: list[tuple[str, list[Entry]]] = []
    holder: str | None = None
    for entry in entries:
        if _is_nothing(entry.value):
            holder = entry.name
        elif entry in unknown and holder and (*pattern, holder, entry.name) in scene.keys.known:
            if not found or found[-1][0] != holder:
                found.append((holder, []))
            found[-1][1].append(entry)
        else:
            holder = None
    return found


def _missing_key(scene: _Scene, error: Any) -> Iterator[Diagnostic]:
    path = tuple(error.absolute_path)
    for name in error.validator_value:
        if name in error.instance or (path, name) in scene.missing:
            continue
        where = scene.key_of(path)
        message = f"missing key '{name}'" + (f" in {quote(where)}" if where else "")
        report = Diagnostic(
            code="missing-key", message=message, span=scene.start(path), help=_addition(scene, path, name)
        )
        scene.missing[path, name] = report
        yield report


def _addition(scene: _Scene, path: Path, name: str) -> str:
    key = scene.keys.known.get((*scene.keys.pattern(path), name), {})
    example = next(iter(key.get("examples", ())), None)
    return f"add {name}: {example}" if isinstance(example, str | int | float) else f"add {name}: ..."


def _wrong_type(scene: _Scene, error: Any) -> Iterator[Diagnostic]:
    node = scene.node(error)
    branches = _own(error.validator_value) if error.validator == "anyOf" else [error.schema]
    parts = [part for branch in branches for part in scene.keys.maps(branch)]
    case = Mistyped(
        node=node,
        branches=tuple(branches),
        key=scene.key_of(tuple(error.absolute_path)),
        takes=lambda key: _takes(scene, branches, key, error.instance),
        keys=tuple(name for part in parts for name in part.get("properties", ())),
        examples=_examples(scene, tuple(error.absolute_path)),
    )
    path = tuple(error.absolute_path)
    message = f"expected {describe_types(branches)}, got {describe_node(node)}"
    report = Diagnostic(code="wrong-type", message=message, span=scene.place(path, node), help=advise(case))
    if _is_nothing(node):
        scene.empty[path] = report
    yield report


def _examples(scene: _Scene, path: Path) -> tuple[Any, ...]:
    """Of a key that takes a map: its own, or one of its first key that has any."""
    at = scene.keys.pattern(path)
    own = tuple(scene.keys.known.get(at, {}).get("examples", ()))
    inner = ((name, scene.keys.known[(*at, name)].get("examples", ())) for name in scene.keys.children(at))
    made = tuple({name: each} for name, examples in inner for each in examples if isinstance(each, int | float | str))
    return (*(each for each in own if isinstance(each, dict)), *made[:1], *own)


def _takes(scene: _Scene, branches: Iterable[Schema], key: str, value: Any) -> bool:
    """Whether a key of the map that is expected would take a value."""
    parts = (part for branch in branches for part in scene.keys.maps(branch))
    inner = next((part["properties"][key] for part in parts if key in part.get("properties", ())), None)
    if inner is None:
        return False
    if isinstance(value, str):  # any text would do for an expression or a path
        return any(value in part.get("enum", ()) for part in (inner, *inner.get("anyOf", ())))
    schema = {**inner, "definitions": scene.keys.definitions}
    return bool(_validator()(schema).is_valid(value))


def _bad_value(scene: _Scene, error: Any) -> Iterator[Diagnostic]:
    node = scene.node(error)
    known = [str(each) for each in error.validator_value]
    key = scene.key_of(tuple(error.absolute_path))
    listed = ", ".join(known[:MANY]) + (", ..." if len(known) > MANY else "")
    message = f"expected one of {listed}, got {describe_node(node)}"
    yield Diagnostic(code="bad-value", message=message, span=node.span, help=_meant(node, known, key))


def _meant(node: Node, known: list[str], key: str | None) -> str | None:
    word = scalar_text(node)
    if key == "gpu":
        return _another_gpu(word, known)
    foreign = [each for each in _foreign_values(word, key) if each in known]
    if foreign:
        return f"did you mean {either(foreign[:3])}?"
    advice: Mapping[str, str] = load_aliases()["advice"]
    folded = _folded_value(word)
    if explained := advice.get(f"{key}.{folded}") or advice.get(folded):
        return f"{explained}; {list_choices(key, known) or ''}".removesuffix("; ")
    if "file" in known and re.search(r"[/.]", word):
        return f"of a file write {key}: file, and path: {word[:40]}"
    near = find_closest(word, known)
    if near:
        equal = [name for score, name in near if score <= near[0][0] + EQUAL]
        return f"did you mean {either(equal[:3])}?"
    # a short list stands in the message
    return list_choices(key, known) if len(known) > MANY else None


EQUAL = 0.02
"""Slips that differ by no more are offered together."""


def _foreign_values(word: str, key: str | None) -> list[str]:
    """What other frameworks mean by a value, at this key or at any; also of the last part of a dotted one."""
    values: Mapping[str, str] = load_aliases()["values"]
    tries = (_folded_value(word), _folded_value(word.rpartition(".")[2]))
    found = (values.get(f"{key}.{each}") or values.get(each) for each in tries)
    return next((each.split() for each in found if each), [])


def _folded_value(word: str) -> str:
    return re.sub(r"[\s_-]+", "", word).lower()


UNLISTED = frozenset({"v100", "p100", "t4", "a30", "a40", "a800", "h800", "h20", "b100", "gh200", "l20"})
"""GPUs that look like slips of others."""


def _another_gpu(word: str, known: list[str]) -> str:
    """With other digits in the same places it is another GPU, not a slip."""
    letters = re.sub(r"\d", "0", fold_name(word))
    slips = [name for _, name in find_closest(word, known) if re.sub(r"\d", "0", fold_name(name)) != letters]
    slips += [name for name in known if fold_name(name) == fold_name(word)]
    near = [name for name in known if fold_name(name).startswith(fold_name(word))] or slips[:1]
    near = [] if fold_name(word) in UNLISTED else near
    other = "of a GPU that is not listed give the memory instead: gpu_memory_gb: 80"
    return f"did you mean {' or '.join(map(repr, near[:2]))}? {other}" if near else other


def _not_constant(scene: _Scene, error: Any) -> Iterator[Diagnostic]:
    node = scene.node(error)
    message = f"expected {error.validator_value}, got {describe_node(node)}"
    advice = f"this version of agym reads recipes of version {error.validator_value}"
    is_version = scene.key_of(tuple(error.absolute_path)) == "agym"
    yield Diagnostic(code="bad-value", message=message, span=node.span, help=advice if is_version else None)


LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "greater than",
    "exclusiveMaximum": "less than",
}


def _out_of_range(scene: _Scene, error: Any) -> Iterator[Diagnostic]:
    node = scene.node(error)
    message = f"must be {LIMITS[error.validator]} {error.validator_value:.12g}, got {scalar_text(node)}"
    yield Diagnostic(code="out-of-range", message=message, span=node.span, help=_in_range(scene, error))


def _in_range(scene: _Scene, error: Any) -> str | None:
    value, path = error.instance, tuple(error.absolute_path)
    section = scene.keys.known.get(scene.keys.pattern(path[:-1]), {})
    takes_null = any(each.get("type") == "null" and "x-unsets" not in each for each in section.get("anyOf", ()))
    if value == 0 and path[-1] == "every" and takes_null:
        return f"write {scene.key_of(path[:-1])}: null for none at all"
    if value == -1:
        return "-1 has no special meaning here: remove the key for its default"
    is_percent = error.validator == "maximum" and error.validator_value == 1 and 1 < value <= 100
    return f"write {value / 100:g} for {value:g} %" if is_percent else None


def _bad_format(scene: _Scene, error: Any) -> Iterator[Diagnostic]:
    node: Node = scene.node(error)
    if "propertyNames" in error.absolute_schema_path:
        entry = get_entry(node, error.instance)
        node = entry.key if entry else node
    if error.schema.get("x-secret"):
        yield from _literal_secret(scene, error, node)
        return
    expected = error.schema.get("x-expected", "text that matches the pattern")
    message = f"expected {expected}, got {describe_node(node)}"
    help_text = _reformed(scalar_text(node), error.validator_value)
    yield Diagnostic(code="bad-format", message=message, span=node.span, help=help_text)


def _literal_secret(scene: _Scene, error: Any, node: Node) -> Iterator[Diagnostic]:
    if isinstance(node, ScalarNode) and node.secret:
        return
    key = scene.key_of(tuple(error.absolute_path)) or "token"
    message = f"'{key}' must come from an environment variable: secrets do not belong in a recipe"
    help_text = f"write {key}: ${{env:{fold_name(key).upper()}}}"
    yield Diagnostic(code="literal-secret", message=message, span=node.span, help=help_text)


REFORMS: tuple[Callable[[str], str], ...] = (
    lambda text: re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._"),
    lambda text: f"http{'s' * (':' not in text)}://{text}" if text.strip() and "://" not in text else "",
)


def _reformed(text: str, pattern: str) -> str | None:
    """The text as it may be written."""
    made = (reform(text[:200]) for reform in REFORMS)
    return next((f"write {quote(each, 80)[1:-1]}" for each in made if re.search(pattern, each)), None)


def _wrong_length(scene: _Scene, error: Any) -> Iterator[Diagnostic]:
    node = scene.node(error)
    count = len(node.items) if isinstance(node, ListNode) else 0
    low, high = error.schema.get("minItems"), error.schema.get("maxItems")
    expected = f"{low}" if low == high else f"at least {low}" if high is None else f"at most {high}"
    message = f"expected {expected} {'item' if error.validator_value == 1 else 'items'}, got {count}"
    yield Diagnostic(code="wrong-length", message=message, span=node.span)


def _empty(scene: _Scene, error: Any) -> Iterator[Diagnostic]:
    node = scene.node(error)
    yield Diagnostic(code="bad-value", message="expected text that is not empty", span=node.span)


def _other(scene: _Scene, error: Any) -> Iterator[Diagnostic]:
    """A keyword that only the schema of a plugin uses."""
    node = scene.node(error)
    message = f"expected {error.validator} {quote(str(error.validator_value))}, got {describe_node(node)}"
    yield Diagnostic(code="bad-value", message=message, span=node.span)


HANDLERS: Mapping[str, Callable[[_Scene, Any], Iterator[Diagnostic]]] = {
    "additionalProperties": _unknown_keys,
    "required": _missing_key,
    "type": _wrong_type,
    "anyOf": _wrong_type,
    "enum": _bad_value,
    "const": _not_constant,
    **dict.fromkeys(LIMITS, _out_of_range),
    "pattern": _bad_format,
    "minItems": _wrong_length,
    "maxItems": _wrong_length,
    "minLength": _empty,
}
