"""Bind a composed tree: its Recipe, and the place of each value.

The binder decides whether a recipe has the right form; `json_schema.py` words the errors for what it rejects. Reported
here is what a schema cannot see: expressions, their limits, keys that a stage lacks with all that it inherits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from ..diagnostics import Diagnostic, has_errors
from ..expression import expr
from ..expression.expr import Expr
from ..expression.inferred import type_words
from ..frozen import frozen
from ..model import reflect
from ..model.algorithm import Algorithm
from ..model.fields import SLUG, Bounds
from ..model.hidden import Hidden
from ..model.recipe import Recipe
from ..model.reflect import ABSENT, Field, Record, Type, record
from ..source import Span, Text
from ..suggest import find_closest
from ..text.node import ListNode, MapNode, Node, Path, ScalarNode, get_entry, is_null, node_at
from .expected import describe_node
from .inherit import apply_layers, takes_away
from .no_effect import explain_no_effect
from .presets import find_preset

__all__ = ["Bound", "TreePlaces", "bind"]


@frozen
class Bound:
    """A recipe, or why there is none."""

    recipe: Recipe | None
    places: TreePlaces
    diagnostics: tuple[Diagnostic, ...]
    rejected: tuple[Diagnostic, ...]
    """Why there is no recipe, though no diagnostics: what `json_schema.py` and `compose` report in better words."""


def bind(tree: MapNode) -> Bound:
    """The recipe that a tree describes."""
    whole = apply_layers(tree, _effects)
    reader = _Reader()
    recipe = reader.read(whole, record(Recipe), Seat())
    diagnostics = tuple(dict.fromkeys([*_emptied(tree), *reader.diagnostics]))
    made = recipe if isinstance(recipe, Recipe) and not has_errors(diagnostics) else None
    return Bound(recipe=made, places=TreePlaces(whole), diagnostics=diagnostics, rejected=tuple(reader.rejected))


def _effects(algorithm: MapNode) -> Callable[[Path], bool]:
    made = _Reader().read(algorithm, record(Algorithm), Seat())
    return lambda path: not isinstance(made, Algorithm) or explain_no_effect(path, made) is None


def _emptied(tree: MapNode) -> Iterator[Diagnostic]:
    """Environments with nothing after their name: null leaves one out, and should be written on purpose."""
    schedule = get_entry(tree, "schedule")
    stages = schedule.value.items if schedule and isinstance(schedule.value, ListNode) else ()
    for worlds in (get_entry(part, "environments") for part in (tree, *stages)):
        for entry in worlds.value.entries if worlds and isinstance(worlds.value, MapNode) else ():
            if is_null(entry.value) and isinstance(entry.value, ScalarNode) and not entry.value.text.value:
                yield Diagnostic(
                    code="wrong-type",
                    message="expected a map or text, got nothing",
                    span=entry.key.span,
                    help=f"write {entry.name}: {{use: ...}}, or {entry.name}: null to remove it",
                )


# --- places --------------------------------------------------------------------------------------------------------


class TreePlaces:
    """Spans by the path of a value in the recipe; a stage has places for all that it inherited."""

    def __init__(self, tree: MapNode) -> None:
        self.tree = tree
        """The recipe with every shorthand written out, where it could be read."""

    def key(self, *path: str | int) -> Span:
        """The key, or the whole item of a list; for what nobody wrote, the nearest key that somebody did write."""
        return self._nearest(path)[0]

    def value(self, *path: str | int) -> Span:
        """The value; for a section its key, as a map of many lines is too large a place."""
        return self._nearest(path)[1]

    def written(self, *section: str | int) -> Iterator[str]:
        """Names of the keys in a section that a person wrote; in a stage, those written there and not above it."""
        node = node_at(self.tree, section)
        above = node_at(self.tree, section[2:]) if section[:1] == ("schedule",) else None
        inherited = {entry.name: entry for entry in above.entries} if isinstance(above, MapNode) else {}
        for entry in node.entries if isinstance(node, MapNode) and node is not above else ():
            same = inherited.get(entry.name)
            is_own = same is not entry and (same is None or same.key.span != entry.key.span)
            if is_own and find_preset(entry.key.span.source) is None and not is_null(entry.value):
                yield entry.name

    def _nearest(self, path: Path) -> tuple[Span, Span]:
        steps = list(self._steps(path))
        if len(steps) == len(path) and steps and not _is_written(steps[-1]):
            path = (*path[: path.index("algorithm") + 1], "use")  # a preset's values are where it is named
            steps = list(self._steps(path))
        start = self.tree.span.source.span(self.tree.span.start, self.tree.span.start)
        return next((step for step in reversed(steps) if _is_written(step)), (start, start))

    def _steps(self, path: Path) -> Iterator[tuple[Span, Span]]:
        """Spans of key and value for each step, as far as the path leads."""
        node: Node | None = self.tree
        for step in path:
            entry = get_entry(node, step) if isinstance(step, str) else None
            node = entry.value if entry else node_at(node, (step,))
            if node is None:
                return
            key = entry.key.span if entry else node.span
            yield key, key if _is_section(node) else node.span


def _is_section(node: Node) -> bool:
    """A map that was written as one, not the scalar that stands for it."""
    return isinstance(node, MapNode) and not any(entry.key.span == node.span for entry in node.entries)


def _is_written(step: tuple[Span, Span]) -> bool:
    return find_preset(step[1].source) is None


# --- values --------------------------------------------------------------------------------------------------------


class _Bad:
    """In place of a value that could not be read; the reason has been reported."""


BAD = _Bad()
UNREPLACED = re.compile(r"(?<!\$)\$\{")


class Seat(NamedTuple):
    """Where a value is, as far as its reader must know."""

    key: str | None = None
    in_stage: bool = False
    """Inside an item of a list, where a schema cannot demand keys that may be inherited."""


@lru_cache(maxsize=1024)
def _sound(node: MapNode, type_: Record) -> Any:
    """The value of a section in which nothing is wrong, read once for all recipes that share it; else BAD."""
    reader = _Reader()
    value = reader.record(node, type_, Seat())
    return BAD if reader.diagnostics or reader.rejected else value


class _Reader:
    """Reads nodes by their types; each node once, however many stages share it."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.rejected: list[Diagnostic] = []
        self._done: dict[tuple[int, int], tuple[Any, Node]] = {}

    def read(self, node: Node, type_: Type, seat: Seat) -> Any:
        if isinstance(node, MapNode) and isinstance(type_, Record):
            sound = _sound(node, type_)
            if sound is not BAD:
                return sound
        if isinstance(node, ScalarNode):
            return READERS[type(type_)](self, node, type_, seat)
        key = id(node), id(type_)
        if key not in self._done:
            self._done[key] = READERS[type(type_)](self, node, type_, seat), node
        return self._done[key][0]

    def report(self, code: str, message: str, span: Span, advice: str | None = None) -> _Bad:
        self.diagnostics.append(Diagnostic(code=code, message=message, span=span, help=advice))
        return BAD

    def reject(self, node: Node, expected: str, code: str = "wrong-type") -> _Bad:
        """Reject what a schema sees as well; but it takes text with an escaped `${` in it for a reference."""
        report = Diagnostic(code=code, message=f"expected {expected}, got {describe_node(node)}", span=node.span)
        is_escaped = isinstance(node, ScalarNode) and "${" in node.text.value and not UNREPLACED.search(node.span.text)
        (self.diagnostics if is_escaped else self.rejected).append(report)
        return BAD

    # Scalars

    def number(self, node: Node, type_: reflect.Number, seat: Seat) -> Any:
        if not isinstance(node, ScalarNode) or node.value is None or isinstance(node.value, bool):
            return self.reject(node, str(type_.want))
        if isinstance(node.value, str):
            return self.calculated(node, type_)
        return self.within(node, _as(type_, node.value), type_, self.rejected)

    def within(self, node: Node, value: int | float | None, type_: reflect.Number, reports: list[Diagnostic]) -> Any:
        if value is None:
            return self.reject(node, str(type_.want))
        limit = _passed(value, value, type_.bounds)
        if limit is None:
            return value
        reports.append(Diagnostic(code="out-of-range", message=f"must be {limit}, got {value:g}", span=node.span))
        return BAD

    def calculated(self, node: ScalarNode, type_: reflect.Number) -> Any:
        """An expression; one without names becomes the number that it evaluates to."""
        before = len(self.diagnostics)
        if not self.is_sound(node, type_.scope or "constant", type_.want):
            self.diagnostics[before:] = [_with_range(each, node, type_) for each in self.diagnostics[before:]]
            return BAD
        value, _ = expr.evaluate_constant(node.text, type_.want)
        if value is not None and not isinstance(value, str):
            return self.within(node, _as(type_, value), type_, self.diagnostics)
        made = Expr(_hidden(node, node.text.value))
        limit = _passed(*expr.infer_range(made, type_.scope or "constant"), type_.bounds)
        if limit is not None:
            return self.report("out-of-range", f"must be {limit}, but {describe_node(node)} never is", node.span)
        return made

    def formula(self, node: Node, type_: reflect.Formula, seat: Seat) -> Any:
        if not isinstance(node, ScalarNode) or node.value is None:
            return self.reject(node, "an expression")
        text = node.text if isinstance(node.value, str) else Text.made(_spelt(node.value), node.span)
        return Expr(_hidden(node, text.value)) if self.is_sound(node, type_.scope, type_.want, text) else BAD

    def is_sound(self, node: ScalarNode, scope: str, want: expr.ExprType, text: Text | None = None) -> bool:
        if UNREPLACED.search(node.text.value) and UNREPLACED.search(node.span.text):
            self.reject(node, "an expression")
            return False
        problems = expr.check_expression(text or node.text, scope, want)
        if node.secret and has_errors(problems):
            message = f"the value of {describe_node(node)} is not {expr.type_words(want)}"
            self.report("wrong-type", message, node.span)
            return False
        self.diagnostics += problems
        return not has_errors(problems)

    def flag(self, node: Node, type_: reflect.Flag, seat: Seat) -> Any:
        is_flag = isinstance(node, ScalarNode) and isinstance(node.value, bool)
        return node.value if is_flag and isinstance(node, ScalarNode) else self.reject(node, "true or false")

    def word(self, node: Node, type_: reflect.Word, seat: Seat) -> Any:
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            return self.reject(node, "text")
        if type_.secret:
            return self.secret(node)
        if type_.pattern and not re.fullmatch(type_.pattern.regex, node.value):
            return self.reject(node, type_.pattern.what, "bad-format")
        # a named file is known by its name, in the run's folder too
        return node.value if type_.pattern is SLUG else _hidden(node, node.value)

    def secret(self, node: ScalarNode) -> Any:
        """The reference itself: its value is read when the run begins, and never kept."""
        reference = node.redacted if node.redacted is not None else node.text.value
        if re.search(r"\$\{env:[^{}]+\}", reference):
            return reference
        return self.reject(node, "${env:NAME}", "literal-secret")

    def choice(self, node: Node, type_: reflect.Choice, seat: Seat) -> Any:
        value = node.value if isinstance(node, ScalarNode) else None
        if isinstance(value, str) and value in type_.values:
            return type_.enum(value)
        return self.reject(node, f"one of {', '.join(type_.values)}", "bad-value")

    def constant(self, node: Node, type_: reflect.Constant, seat: Seat) -> Any:
        value = node.value if isinstance(node, ScalarNode) and not isinstance(node.value, bool) else None
        known = next((each for each in type_.values if each == value), None)
        return self.reject(node, " or ".join(map(str, type_.values)), "bad-value") if known is None else known

    # Containers

    def record(self, node: Node, type_: Record, seat: Seat) -> Any:
        if not isinstance(node, MapNode):
            return self.reject(node, "a map")
        entries = {entry.name: entry for entry in node.entries}
        values = {
            name: self.field(entries.pop(name).value, field, seat) if name in entries else field.default
            for name, field in type_.fields.items()
        }
        for unknown in entries.values():
            self.reject(unknown.key, "a known key", "unknown-key")
        missing = [name for name, value in values.items() if value is ABSENT]
        self.demand(node, [name for name in missing if not any(find_closest(each, [name]) for each in entries)], seat)
        is_bad = missing or entries or any(value is BAD for value in values.values())
        return BAD if is_bad else type_.cls(**values)

    def field(self, node: Node, field: Field, seat: Seat) -> Any:
        if isinstance(node, ScalarNode) and node.value is None and field.nullable:
            return None
        if takes_away(node) and not field.required:
            return field.default
        return self.read(node, field.type, Seat(field.name, seat.in_stage))

    def demand(self, node: MapNode, missing: list[str], seat: Seat) -> None:
        span = node.span.source.span(node.span.start, node.span.start)
        for name in missing:
            message = f"missing key '{name}'" + (f" in '{seat.key}'" if seat.key else "")
            report = Diagnostic(code="missing-key", message=message, span=span, help=f"add {name}: ...")
            (self.diagnostics if seat.in_stage and seat.key else self.rejected).append(report)

    def table(self, node: Node, type_: reflect.Table, seat: Seat) -> Any:
        if not isinstance(node, MapNode):
            return self.reject(node, "a map")
        if type_.names:
            unlike = [entry.key for entry in node.entries if not re.fullmatch(type_.names.regex, entry.name)]
            for key in unlike:
                self.reject(key, type_.names.what, "bad-format")
        seats = {entry.name: Seat(entry.name, seat.in_stage) for entry in node.entries}
        values = {entry.name: self.read(entry.value, type_.item, seats[entry.name]) for entry in node.entries}
        return BAD if any(value is BAD for value in values.values()) or (type_.names and unlike) else values

    def series(self, node: Node, type_: reflect.Series, seat: Seat) -> Any:
        if not isinstance(node, ListNode):
            return self.reject(node, "a list")
        return self.items(node, [type_.item] * len(node.items))

    def row(self, node: Node, type_: reflect.Row, seat: Seat) -> Any:
        if not isinstance(node, ListNode):
            return self.reject(node, "a list")
        if len(node.items) != len(type_.items):
            return self.reject(node, f"{len(type_.items)} items", "wrong-length")
        return self.items(node, type_.items)

    def items(self, node: ListNode, types: Iterable[Type]) -> Any:
        values = tuple(self.read(item, type_, Seat(None, True)) for item, type_ in zip(node.items, types, strict=True))
        return BAD if any(value is BAD for value in values) else values

    def free(self, node: Node, type_: reflect.Free, seat: Seat) -> Any:
        return self.reject(node, "a map") if type_.map and not isinstance(node, MapNode) else _free(node)


READERS: Mapping[type, Callable[[_Reader, Node, Any, Seat], Any]] = {
    reflect.Number: _Reader.number,
    reflect.Formula: _Reader.formula,
    reflect.Flag: _Reader.flag,
    reflect.Word: _Reader.word,
    reflect.Choice: _Reader.choice,
    reflect.Constant: _Reader.constant,
    Record: _Reader.record,
    reflect.Table: _Reader.table,
    reflect.Series: _Reader.series,
    reflect.Row: _Reader.row,
    reflect.Free: _Reader.free,
}


def _with_range(problem: Diagnostic, node: ScalarNode, type_: reflect.Number) -> Diagnostic:
    """A mistake in what should be a fixed number, with all that is allowed there."""
    is_certain = problem.help is not None and re.match(r"write \d", problem.help)
    is_enough = is_certain and type_.bounds.at_most != 1 and not type_.whole
    if type_.scope is not None or not problem.code.startswith("expr-") or is_enough:
        return problem
    bounds = type_.bounds
    limits = (
        ("at least", bounds.at_least),
        ("at most", bounds.at_most),
        ("above", bounds.above),
        ("below", bounds.below),
    )
    words = " and ".join(f"{words} {limit:g}" for words, limit in limits if limit is not None)
    if bounds.at_least is not None and bounds.at_most is not None:
        words = f"from {bounds.at_least:g} to {bounds.at_most:g}"
    kind = f"{type_words(type_.want)} {words}".rstrip()
    advice = f"{problem.help}; {kind} is expected" if is_certain else f"write {kind}"
    is_plain = "(" not in node.text.value and "\n" not in node.span.text
    span = node.span if is_plain and problem.code in ("expr-syntax", "expr-name") else problem.span
    return replace(problem, help=advice, span=span)


def _hidden(node: ScalarNode, value: str) -> str:
    return value if node.redacted is None else Hidden(value, node.redacted)


def _free(node: Node) -> Any:
    """Plain data; of text from the environment only the reference, as an option may well be a secret."""
    if isinstance(node, MapNode):
        return {entry.name: _free(entry.value) for entry in node.entries}
    if isinstance(node, ListNode):
        return tuple(_free(item) for item in node.items)
    return node.redacted if node.secret and isinstance(node.value, str) else node.value


def _as(type_: reflect.Number, value: int | float) -> int | float | None:
    """The number as its type holds it; None for a fraction where a whole number is wanted."""
    if not type_.whole:
        return float(value)
    return int(value) if value == int(value) else None


def _spelt(value: int | float | bool | None) -> str:
    """A value of YAML as expressions write it."""
    return str(value).lower() if isinstance(value, bool) else f"{value!r}"


def _passed(low: float, high: float, bounds: Bounds) -> str | None:
    """The limit that every number from `low` to `high` breaks, in words."""
    broken = (
        ("at least", bounds.at_least, bounds.at_least is not None and high < bounds.at_least),
        ("at most", bounds.at_most, bounds.at_most is not None and low > bounds.at_most),
        ("greater than", bounds.above, bounds.above is not None and high <= bounds.above),
        ("less than", bounds.below, bounds.below is not None and low >= bounds.below),
    )
    return next((f"{words} {limit:.12g}" for words, limit, is_broken in broken if is_broken), None)
