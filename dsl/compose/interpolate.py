"""Interpolation of `${vars.x}` and `${env:NAME}`.

A value that is a single reference becomes the node it names, with its type and position; inside text a reference
becomes text, and errors in that text point at the reference. `$${` is a literal `${`. Values from the environment are
marked, so that they are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from ..diagnostics import Diagnostic, Note
from ..frozen import frozen
from ..source import Span, Text
from ..suggest import did_you_mean, find_nearest, quote
from ..text.decode import SURROGATE
from ..text.node import ListNode, MapNode, Measure, Node, ScalarNode, child_nodes, get_entry, with_children
from ..text.scalars import Refused, ScalarValue, resolve
from ..text.tree import MAX_ADVICE, MAX_DEPTH, MAX_NODES, MAX_SCALAR
from .settings import PathStep, parse_path

__all__ = ["Interpolator", "escape"]

TOKEN = re.compile(r"\$\$\{|\$\{(?P<inner>[^{}]*)\}|\$\{")
ENV = re.compile(r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<kind>[-?])(?P<rest>.*))?", re.DOTALL)
NOT_ENV = re.compile(r"(?:oc\.)?env[.:]\s*(\w+)|([A-Z_][A-Z0-9_]*)")
MAX_NESTING = MAX_DEPTH + 32
"""Nesting of values and references, far below Python's own limit."""


def escape(text: str) -> str:
    """Escape text so that a recipe reads it literally."""
    return text.replace("${", "$${")


@frozen(kw_only=False)
class _Reference:
    """A `${...}` and the value that contains it."""

    node: ScalarNode
    start: int
    end: int
    inner_start: int
    inner: str

    @property
    def span(self) -> Span:
        return self.node.text.span(self.start, self.end)

    @property
    def written(self) -> str:
        return self.node.text.value[self.start : self.end]

    def text(self, start: int, end: int) -> Text:
        """A part of the text between the braces."""
        return self.node.text.part(self.inner_start + start, self.inner_start + end)


class Interpolator:
    """Replaces references; each node once, however often it is shared."""

    def __init__(self, variables: Node | None, environ: Mapping[str, str]) -> None:
        self.variables = variables if isinstance(variables, MapNode) else None
        self._by_name = {entry.name: entry.value for entry in self.variables.entries} if self.variables else {}
        self.environ = environ
        self.diagnostics: list[Diagnostic] = []
        self.measure = Measure()
        self._done: dict[int, tuple[Node, Node]] = {}
        """By identity: the node, held so that its identity is not reused, and its result."""
        self._open: dict[int, tuple[str, Span]] = {}
        """The variables that are being worked out, with the reference that led to each."""
        self._depth = 0

    def check_variables(self) -> None:
        """Resolve every variable, used or not, so that mistakes are found before a variable is used."""
        for entry in self.variables.entries if self.variables else ():
            self._open[id(entry.value)] = (f"vars.{entry.name}", entry.key.span)
            self.node(entry.value)
            self._open.clear()

    def node(self, node: Node) -> Node:
        """Replace the references in a node; return the same object if it has none."""
        if _is_literal(node):
            return node
        done = self._done.get(id(node))
        if done is None:
            done = self._done[id(node)] = (node, self._descend(node))
        return done[1]

    def _descend(self, node: Node) -> Node:
        if self._depth >= MAX_NESTING:
            self._report("too-deep", "values and variables are nested too deeply here", node.span, None)
            return node
        self._depth += 1
        try:
            if isinstance(node, MapNode):
                return self._map(node)
            if isinstance(node, ListNode):
                return with_children(node, map(self.node, node.items))
            return self._scalar(node)
        finally:
            self._depth -= 1

    def _map(self, node: MapNode) -> MapNode:
        values = []
        for entry in node.entries:
            if "${" in entry.name:
                self._report("bad-reference", "a key cannot contain '${...}'", entry.key.span, "write the key out")
            values.append(self.node(entry.value))
        return with_children(node, values)

    def _scalar(self, node: ScalarNode) -> Node:
        if not isinstance(node.value, str) or "${" not in node.value:
            return node
        whole = TOKEN.fullmatch(node.value)
        if whole and whole["inner"] is not None:
            return self._resolve(_reference(node, whole)) or node
        return self._splice(node)

    def _splice(self, node: ScalarNode) -> ScalarNode:
        parts = list(self._parts(node))
        length = sum(len(part.value) for part, _ in parts)
        if length > MAX_SCALAR:
            message = f"expands to {length:,} characters; the limit is {MAX_SCALAR:,}"
            self._report("too-large", message, node.span, None)
            return node
        text = Text.joined((part for part, _ in parts), node.span)
        secret = any(redacted is not None for _, redacted in parts)
        kept = (escape(part.value) if redacted is None else redacted for part, redacted in parts)
        return replace(node, value=text.value, text=text, redacted="".join(kept) if secret else None)

    def _parts(self, node: ScalarNode) -> Iterator[tuple[Text, str | None]]:
        """The text in order, each part with its redacted form if it is secret."""
        at = 0
        for match in TOKEN.finditer(node.text.value):
            if at < match.start():
                yield node.text.part(at, match.start()), None
            at = match.end()
            if match.group() == "$${":
                yield Text.made("${", node.text.span(*match.span())), None
            elif match["inner"] is None:
                self._report_open(node, match)
                yield node.text.part(match.start(), len(node.text.value)), None
                return
            else:
                yield self._part(_reference(node, match))
        if at < len(node.text.value):
            yield node.text.part(at, len(node.text.value)), None

    def _part(self, reference: _Reference) -> tuple[Text, str | None]:
        found = self._resolve(reference)
        if isinstance(found, ScalarNode) and found.value is not None:
            return Text.made(found.text.value, reference.span), found.redacted
        if found is not None:
            what = {MapNode: "a map", ListNode: "a list"}.get(type(found), "null")
            message = f"{quote(reference.written)} is {what}, which cannot be part of a text"
            self._report("bad-reference", message, reference.span, "make it the whole value, or refer to a part of it")
        return reference.node.text.part(reference.start, reference.end), None

    def _report_open(self, node: ScalarNode, match: re.Match[str]) -> None:
        message, advice = "'${' is never closed", "close it with '}', or write '$${' for the literal text"
        end = node.text.value.find("}", match.end()) + 1
        if end:
            message, advice = "'${...}' cannot contain braces", "put the inner part into a variable under vars"
        self._report("bad-reference", message, node.text.span(match.start(), end or match.end()), advice)

    # References

    def _resolve(self, reference: _Reference) -> Node | None:
        """Resolve a reference; None after an error, which is reported."""
        if reference.inner.startswith("vars."):
            return self._variable(reference)
        env = ENV.fullmatch(reference.inner)
        if env:
            return self._environment(reference, env)
        self._unknown_form(reference)
        return None

    def _environment(self, reference: _Reference, match: re.Match[str]) -> ScalarNode | None:
        name, kind, plain = match["name"], match["kind"], reference.node.plain
        value = self.environ.get(name)
        if value is None or (not value and kind):
            if kind == "-":
                text = reference.text(*match.span("rest"))
                return ScalarNode(value=_typed(text.value, plain), text=text, span=reference.span, plain=plain)
            reason = (match["rest"] or "").strip()
            message = f"environment variable '{name}' is not set" + (f": {reason[:120]}" if reason else "")
            self._report("env-not-set", message, reference.span, f"set {name}, or write ${{env:{name}:-default}}")
            return None
        if SURROGATE.search(value):
            self._report("bad-reference", f"environment variable '{name}' is not UTF-8", reference.span, None)
            return None
        text, typed = Text.made(value, reference.span), _typed(value, plain)
        return ScalarNode(value=typed, text=text, span=reference.span, plain=plain, redacted=reference.written)

    def _unknown_form(self, reference: _Reference) -> None:
        inner = reference.inner.strip()
        env = NOT_ENV.fullmatch(inner)
        name = re.split(r"[.:]", inner, maxsplit=1)[-1]
        variable = find_nearest(name, self._by_name) if name and len(self.diagnostics) < MAX_ADVICE else None
        forms = "write ${vars.NAME}, ${env:NAME} or ${env:NAME:-default}, or '$${' for a literal '${'"
        advice = f"did you mean '${{vars.{variable}}}'?" if variable else forms
        if env and not variable:
            advice = f"did you mean '${{env:{env.group(1) or env.group(2)}}}'?"
        message = f"unknown reference {quote(reference.written)}: only vars and env can be referred to"
        self._report("bad-reference", message, reference.span, advice)

    def _variable(self, reference: _Reference) -> Node | None:
        path = reference.text(len("vars."), len(reference.inner))
        steps = parse_path(path, "bad-reference", "the name of a variable, as in ${vars.last}")
        if isinstance(steps, Diagnostic):
            self.diagnostics.append(steps)
            return None
        target: Node | None = self.variables
        finished = False
        for step in steps:
            if isinstance(target, ScalarNode) and not finished:
                target, finished = self._resolve_variable(target, reference, step), True
            at_top = target is self.variables and not step.is_index
            below = self._by_name.get(step.name) if at_top else _child(target, step)
            if below is None:
                self._unknown_variable(reference, step, target)
                return None
            target = below
        if target is None or finished:
            return target
        return self._resolve_variable(target, reference, steps[-1])

    def _resolve_variable(self, target: Node, reference: _Reference, step: PathStep) -> Node | None:
        """Resolve the references in a variable; a cycle is reported once."""
        if id(target) in self._open:
            self._cycle(target, reference)
            return None
        self._open[id(target)] = (reference.inner, reference.span)
        try:
            value = self.node(target)
        finally:
            del self._open[id(target)]
        size, depth = self.measure.of(value)
        if size > MAX_NODES:
            self._report("too-large", f"this variable has more than {MAX_NODES:,} values", step.span, None)
            return None
        if depth > MAX_DEPTH:
            self._report("too-deep", f"this variable is nested more than {MAX_DEPTH} levels deep", step.span, None)
            return None
        return value

    def _cycle(self, target: Node, reference: _Reference) -> None:
        names = list(self._open)
        chain = [self._open[key] for key in names[names.index(id(target)) :]]
        way = " -> ".join([name for name, _ in chain[:8]] + [reference.inner])
        note = Note("the cycle starts here", chain[0][1])
        self._report("vars-cycle", f"a variable refers to itself: {way[:200]}", reference.span, None, note)

    def _unknown_variable(self, reference: _Reference, step: PathStep, inside: Node | None) -> None:
        names = [entry.name for entry in inside.entries] if isinstance(inside, MapNode) else []
        where = f"'{step.name}' is not in {quote(reference.written)}" if inside is not self.variables else None
        message = where or f"unknown variable '{step.name}'"
        known = did_you_mean(step.name, names) if len(self.diagnostics) < MAX_ADVICE else None
        if isinstance(inside, ListNode):
            known = f"it has {len(inside.items)} item{'s' * (len(inside.items) != 1)}, counted from 0"
        advice = known or f"write vars: {{{step.name}: ...}} at the top of the recipe"
        self._report("unknown-var", message, step.span, advice)

    def _report(self, code: str, message: str, span: Span, help: str | None, *notes: Note) -> None:  # noqa: A002
        self.diagnostics.append(Diagnostic(code=code, message=message, span=span, help=help, notes=notes))


def _is_literal(node: Node) -> bool:
    """Whether a node contains no reference, nor anything that looks like one."""
    if isinstance(node, ScalarNode):
        return not isinstance(node.value, str) or "${" not in node.value
    return _all_literal(node)


@lru_cache(maxsize=1024)
def _all_literal(node: MapNode | ListNode) -> bool:
    """Cached because bases are shared by many recipes."""
    keys = node.entries if isinstance(node, MapNode) else ()
    return all("${" not in entry.name for entry in keys) and all(map(_is_literal, child_nodes(node)))


def _reference(node: ScalarNode, match: re.Match[str]) -> _Reference:
    return _Reference(node, match.start(), match.end(), match.start("inner"), match["inner"])


def _child(node: Node | None, step: PathStep) -> Node | None:
    if isinstance(node, ListNode) and step.name.isdecimal():
        return node.items[int(step.name)] if int(step.name) < len(node.items) else None
    entry = None if step.is_index else get_entry(node, step.name)
    return entry.value if entry else None


def _typed(value: str, plain: bool) -> ScalarValue:
    """Resolve an unquoted value as YAML does; empty text stays empty text."""
    known = resolve(value) if plain and value else value
    return value if isinstance(known, Refused) else known
