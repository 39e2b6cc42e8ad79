"""`matrix: {seed: [0, 1], algorithm.lr: [1e-6, 3e-6]}`: one run per combination, the first axis slowest.

Trees share what the axes do not touch. A wrong matrix leaves one tree to go on checking with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ..diagnostics import Diagnostic, Note
from ..frozen import frozen
from ..source import Span
from ..suggest import quote
from ..text.edit import Shorthand, drop_entries, no_shorthand
from ..text.node import Entry, ListNode, MapNode, Node, ScalarNode, get_entry, is_null, to_data
from .settings import PathStep, assign, parse_path, path_name

__all__ = ["MAX_RUNS", "Expanded", "expand"]

MAX_RUNS = 1000
MAX_AXES = 32

RESERVED = {"extends", "matrix"}


Chosen = tuple[MapNode, tuple[tuple[str, Node], ...]]
"""The tree of a run, with the axes of the matrix and the value chosen for each."""


@frozen(kw_only=False)
class Expanded:
    """The trees of all combinations."""

    trees: tuple[Chosen, ...]
    touches_vars: bool
    diagnostics: tuple[Diagnostic, ...]
    places: tuple[Span, ...] = ()
    """Of the axes and of their values."""


@frozen(kw_only=False)
class _Axis:
    key: ScalarNode
    steps: tuple[PathStep, ...]
    items: tuple[Node, ...]

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps)


def expand(
    tree: MapNode, settings: Sequence[tuple[PathStep, ...]] = (), shorthand: Shorthand = no_shorthand
) -> Expanded:
    """Expand the matrix; `settings` are the paths set by `--set`, which an axis would undo."""
    entry = get_entry(tree, "matrix")
    body = drop_entries(tree, "matrix")
    if entry is None or is_null(entry.value):
        return Expanded(((body, ()),), False, ())
    reader = _Reader(settings)
    axes = reader.axes(entry)
    combinations: list[Chosen] = [(body, ())]
    for axis in axes:
        items = axis.items[:1] if reader.diagnostics else axis.items
        combinations = list(_multiply(combinations, axis, items, reader, shorthand))
    if reader.diagnostics:
        combinations = combinations[:1] or [(body, ())]
    touches_vars = any(axis.path[0] == "vars" for axis in axes)
    places = (
        span
        for inner in (entry.value.entries if isinstance(entry.value, MapNode) else ())
        for span in (inner.key.span, inner.value.span)
    )
    return Expanded(tuple(combinations), touches_vars, tuple(reader.diagnostics), tuple(places))


def _multiply(
    combinations: Sequence[Chosen],
    axis: _Axis,
    items: Sequence[Node],
    reader: _Reader,
    shorthand: Shorthand,
) -> Iterator[Chosen]:
    for tree, choices in combinations:
        for item in items:
            changed = assign(tree, axis.steps, item, "bad-matrix", shorthand)
            if isinstance(changed, Diagnostic):
                # the path is as wrong for every other item and combination
                reader.diagnostics.append(changed)
                yield tree, choices
                return
            yield changed, (*choices, (axis.key.text.value, item))


class _Reader:
    """Reads the axes of a matrix."""

    def __init__(self, settings: Sequence[tuple[PathStep, ...]]) -> None:
        self.settings = settings
        self.diagnostics: list[Diagnostic] = []

    def axes(self, entry: Entry) -> list[_Axis]:
        if not isinstance(entry.value, MapNode):
            self.report("bad-matrix", "expected a map of paths to lists", entry.value, "write matrix: {seed: [0, 1]}")
            return []
        if len(entry.value.entries) > MAX_AXES:
            message = f"the matrix has {len(entry.value.entries)} axes; the limit is {MAX_AXES}"
            self.report("matrix-too-large", message, entry.key, "remove some of them")
            return []
        read = (self.axis(inner) for inner in entry.value.entries)
        axes = [axis for axis in read if axis is not None]
        self.check_overlaps(axes)
        self.check_settings(axes)
        self.check_size(entry, axes)
        return axes

    def axis(self, entry: Entry) -> _Axis | None:
        steps = parse_path(entry.key.text, "bad-matrix", "a path like algorithm.lr")
        items = self.items(entry)
        if isinstance(steps, Diagnostic):
            self.diagnostics.append(steps)
            return None
        if steps[0].name in RESERVED:
            self.report("bad-matrix", f"'{steps[0].name}' cannot be an axis of a matrix", entry.key, None)
            return None
        return _Axis(entry.key, steps, items) if items else None

    def items(self, entry: Entry) -> tuple[Node, ...]:
        value = entry.value
        if isinstance(value, ListNode) and value.items:
            self.check_repeats(value.items)
            return value.items
        what = (
            "an empty list" if isinstance(value, ListNode) else "a map" if isinstance(value, MapNode) else "one value"
        )
        inner = value.entries[0].name if isinstance(value, MapNode) and value.entries else None
        advice = f"write {entry.name}.{inner}: [...]" if inner else f"write {entry.name}: [..., ...]"
        self.report("bad-matrix", f"expected a list of values for '{entry.name}', got {what}", value, advice)
        return ()

    def check_repeats(self, items: Sequence[Node]) -> None:
        first: dict[str, Node] = {}
        for item in items:
            written = repr(to_data(item))  # tells 1 from 1.0 and from '1'
            if written in first:
                note = Note("first written here", first[written].span)
                message = f"the value {quote(item.span.text)} is listed twice"
                self.report("bad-matrix", message, item, "remove one of them", note)
            first.setdefault(written, item)

    def check_overlaps(self, axes: Sequence[_Axis]) -> None:
        for index, axis in enumerate(axes):
            for earlier in axes[:index]:
                length = min(len(axis.path), len(earlier.path))
                if axis.path[:length] == earlier.path[:length]:
                    note = Note("the other axis", earlier.key.span)
                    message = f"this axis sets the same place as '{path_name(earlier.steps)}'"
                    self.report("bad-matrix", message, axis.key, "merge both into one list of maps", note)

    def check_settings(self, axes: Sequence[_Axis]) -> None:
        for steps in self.settings:
            path = tuple(step.name for step in steps)
            axis = next((axis for axis in axes if axis.path == path[: len(axis.path)]), None)
            if axis is not None:
                span = steps[0].span.source.span(steps[0].span.start, steps[-1].span.end)
                message = f"no effect: the matrix sets '{path_name(axis.steps)}' in every run"
                advice = f"write --set matrix.{path_name(steps)}=[...], or --set matrix=null"
                note = Note("the axis", axis.key.span)
                found = Diagnostic(code="no-effect", message=message, span=span, help=advice, notes=(note,))
                self.diagnostics.append(found)

    def check_size(self, entry: Entry, axes: Sequence[_Axis]) -> None:
        count = prod(len(axis.items) for axis in axes)
        if count > MAX_RUNS:
            message = f"the matrix makes {count} runs; the limit is {MAX_RUNS}"
            self.report("matrix-too-large", message, entry.key, "shorten a list or remove an axis")

    def report(self, code: str, message: str, node: Node, help: str | None, *notes: Note) -> None:  # noqa: A002
        self.diagnostics.append(Diagnostic(code=code, message=message, span=node.span, help=help, notes=notes))
