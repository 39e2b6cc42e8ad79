"""`--set algorithm.lr=3e-6`: values assigned into a tree, and the paths that a matrix and `${vars...}` use too.

Each `--set` is a source of its own, so its values know where they came from. Whether a key exists is checked later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..diagnostics import Diagnostic
from ..frozen import frozen
from ..source import Source, Span, Text
from ..suggest import quote
from ..text.decode import without_surrogates
from ..text.edit import Shorthand, no_shorthand, open_shorthand, set_entry
from ..text.node import Entry, ListNode, MapNode, Node, Path, ScalarNode, get_entry, is_null, node_at
from ..text.tree import MAX_DEPTH, parse_tree
from ..text.yaml_traps import foreign_character

__all__ = ["Assigned", "PathStep", "apply_settings", "assign", "parse_path", "path_name"]


@frozen(kw_only=False)
class PathStep:
    """One part of a path: `schedule`, `[0]`, `0`."""

    text: Text
    """The name or the digits alone."""
    is_index: bool
    """Written in brackets: a place in a list and never a key."""

    @property
    def name(self) -> str:
        return self.text.value

    @property
    def span(self) -> Span:
        return self.text.span(0, len(self.text.value))


@frozen(kw_only=False)
class Assigned:
    """A tree after settings, and the paths that were set."""

    tree: MapNode
    paths: tuple[tuple[PathStep, ...], ...]
    diagnostics: tuple[Diagnostic, ...]


STEP = re.compile(r'(?P<dot>\.)?(?:"(?P<quoted>[^"]+)"|(?P<name>[^\s.\[\]"=:{},]+))|\[(?P<index>[0-9]{1,6})\]')
VARIABLE = r"\$\{vars\.([\w.-]+)\}"
HOW = "write KEY=VALUE, as in algorithm.lr=3e-6 or schedule[0].turns=5"


def parse_path(path: Text, code: str, expected: str) -> tuple[PathStep, ...] | Diagnostic:
    """Split `a.b[0]."c.d"` into steps; `code` and `expected` are for the error."""
    steps: list[PathStep] = []
    at = 0
    while at < len(path.value) or not steps:
        match = STEP.match(path.value, at)
        fits = match and (match["index"] is not None or bool(match["dot"]) == bool(steps)) and (steps or match["name"])
        if match is None or not fits or len(steps) == MAX_DEPTH:
            return _bad_path(path, at, code, expected)
        group = match.lastgroup or "name"
        steps.append(PathStep(path.part(*match.span(group)), group == "index"))
        at = match.end()
    return tuple(steps)


def _bad_path(path: Text, at: int, code: str, expected: str) -> Diagnostic:
    found = f"got {quote(path.value[at:])}" if at < len(path.value) else "got nothing"
    advice = "separate names by '.', and write list items as [0]"
    return Diagnostic(code=code, message=f"expected {expected}, {found}", span=path.span(at, at + 1), help=advice)


def path_name(steps: Sequence[PathStep]) -> str:
    """Write a path as a person would."""
    return ".".join(step.name for step in steps)


class _WrongPath(Exception):
    """A step that leads nowhere; caught where the path starts."""

    def __init__(self, step: PathStep, message: str, advice: str | None) -> None:
        self.step, self.message, self.advice = step, message, advice
        super().__init__(message)


def assign(
    tree: MapNode, steps: Sequence[PathStep], value: Node, code: str, shorthand: Shorthand = no_shorthand
) -> MapNode | Diagnostic:
    """Put `value` at a path; missing maps are created, lists must be long enough."""
    try:
        result = _Placing(tree, shorthand).place(tree, tuple(steps), value, ())
    except _WrongPath as wrong:
        return Diagnostic(code=code, message=wrong.message, span=wrong.step.span, help=wrong.advice)
    return result if isinstance(result, MapNode) else tree


@frozen(kw_only=False)
class _Placing:
    """Puts a value into a tree."""

    root: MapNode
    shorthand: Shorthand

    def place(self, node: Node | None, steps: tuple[PathStep, ...], value: Node, path: Path) -> Node:
        if not steps:
            return value
        step, rest = steps[0], steps[1:]
        if isinstance(node, ListNode):
            index = _index(step, node, path)
            item = self.place(node.items[index], rest, value, (*path, index))
            return ListNode(items=(*node.items[:index], item, *node.items[index + 1 :]), span=node.span)
        inside = self.as_map(node, step, path)
        entry = get_entry(inside, step.name)
        inner = self.place(entry.value if entry else None, rest, value, (*path, step.name))
        key = ScalarNode(value=step.name, text=step.text, span=step.span)
        return set_entry(inside, Entry(key=key, value=inner))

    def as_map(self, node: Node | None, step: PathStep, path: Path) -> MapNode:
        where = _where(path)
        if step.is_index:
            raise _WrongPath(step, f"{where} is not a list", "write '.' and a key")
        if node is None or is_null(node):
            return MapNode(entries=(), span=step.span)
        written = node.text.value if isinstance(node, ScalarNode) else ""
        variable = re.fullmatch(VARIABLE, written) if written.startswith("${") else None
        if variable and isinstance(node_at(self.root, ("vars", *variable[1].split("."))), MapNode | ListNode):
            message = f"{where} is {quote(written)}, so there are no keys to set in it"
            raise _WrongPath(step, message, f"set vars.{variable[1]}.{step.name} instead")
        inside = open_shorthand(node, self.shorthand, path)
        if inside is None:
            message = f"{where} is {quote(written)}, not a map"
            raise _WrongPath(step, message, f"set {path[-1]} to a map" if path else None)
        return inside


def _index(step: PathStep, node: ListNode, path: Path) -> int:
    count = len(node.items)
    if not step.name.isdecimal():
        raise _WrongPath(step, f"{_where(path)} is a list: expected an index", f"write [0] to [{count - 1}]")
    if int(step.name) >= count:
        message = f"{_where(path)} has {count} item{'s' * (count != 1)}, counted from 0"
        raise _WrongPath(step, message, f"the last one is [{count - 1}]" if count else None)
    return int(step.name)


def _where(path: Path) -> str:
    return f"'{'.'.join(map(str, path))}'" if path else "a recipe"


def apply_settings(tree: MapNode, settings: Sequence[str], shorthand: Shorthand = no_shorthand) -> Assigned:
    """Apply each setting in turn; later ones override earlier ones."""
    diagnostics: list[Diagnostic] = []
    paths: list[tuple[PathStep, ...]] = []
    for number, written in enumerate(settings, start=1):
        setting = _read_setting(Source(f"--set #{number}", without_surrogates(written)))
        if isinstance(setting, tuple):
            diagnostics += setting
            continue
        diagnostics += setting.diagnostics
        changed = assign(tree, _matrix_axis(setting), setting.value, "bad-setting", shorthand)
        if isinstance(changed, Diagnostic):
            diagnostics.append(changed)
        else:
            tree = changed
            paths.append(setting.steps)
    return Assigned(tree, tuple(paths), tuple(diagnostics))


@frozen(kw_only=False)
class _Setting:
    path: Text
    steps: tuple[PathStep, ...]
    value: Node
    diagnostics: tuple[Diagnostic, ...]


def _read_setting(source: Source) -> _Setting | tuple[Diagnostic, ...]:
    foreign = foreign_character(source, 0)
    if foreign:
        return (foreign,)
    equals = source.text.find("=")
    if equals < 0:
        message = f"expected KEY=VALUE, got {quote(source.text)}"
        return (Diagnostic(code="bad-setting", message=message, span=source.span(0, len(source.text)), help=HOW),)
    path = Text.exact(source.span(0, equals))
    steps = parse_path(path, "bad-setting", "a key like algorithm.lr or schedule[0].turns")
    if isinstance(steps, Diagnostic):
        return (steps,)
    if not source.text[equals + 1 :].strip():
        message = f"no value for '{path_name(steps)}'"
        span = source.span(equals + 1, len(source.text))
        return (Diagnostic(code="bad-setting", message=message, span=span, help="write null, or '\"\"' for no text"),)
    parsed = parse_tree(source, equals + 1)
    if parsed.root is None:
        return parsed.diagnostics
    if steps[0].name == "extends":
        message = "'extends' cannot be set: it is read before settings are applied"
        return (Diagnostic(code="bad-setting", message=message, span=steps[0].span, help="write it in a file"),)
    return _Setting(path, steps, parsed.root, parsed.diagnostics)


def _matrix_axis(setting: _Setting) -> tuple[PathStep, ...]:
    """Join `algorithm.lr` in `matrix.algorithm.lr`: an axis is a single key, dots included."""
    steps = setting.steps
    if steps[0].name != "matrix" or len(steps) < 3:
        return steps
    return steps[0], PathStep(setting.path.part(setting.path.value.index(".") + 1, len(setting.path.value)), False)
