"""Composition of a recipe from `extends`, `--set`, `matrix`, `vars` and `${...}`: one tree per run.

In the result `extends`, `vars`, `matrix` and every `${...}` are gone, and each node knows where it was written. A part
that fails leaves the others to be checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from ..diagnostics import Diagnostic, sort_by_place
from ..frozen import frozen
from ..source import Source, Span, Text
from ..suggest import find_closest
from ..text.edit import Shorthand, drop_entries, no_shorthand
from ..text.node import MapNode, Node, ScalarNode, get_entry, is_null
from ..text.secrets import find_secrets
from ..text.tree import MAX_DEPTH, MAX_NODES
from .extends import Loader, parse_recipe
from .interpolate import Interpolator
from .layers import Layers
from .library import Library
from .matrix import Expanded, expand
from .renames import rename_keys
from .settings import apply_settings, assign, parse_path

__all__ = ["Composed", "Variant", "compose"]


@frozen(kw_only=False)
class Variant:
    """One run of a recipe."""

    tree: MapNode
    choices: tuple[tuple[str, str], ...]
    """Axis and value for each axis of the matrix; empty without one."""
    written: Layers
    """What it is made of, before `${...}` is replaced."""
    environ: Mapping[str, str]
    chosen: tuple[tuple[str, Node], ...]
    shorthand: Shorthand

    def below(self, span: Span) -> MapNode | None:
        """The recipe as it was without what was laid over the layer that a span is in; None if nothing was."""
        tree = self.written.below(span)
        if tree is None:
            return None
        axes = self.chosen if self.written.in_matrix(span) else ()
        for axis, value in (each for each in axes if each[1].span.source.identity not in self.written.settings):
            steps = parse_path(Text.made(axis, span), "bad-matrix", "a path")
            made = steps if isinstance(steps, Diagnostic) else assign(tree, steps, value, "bad-matrix", self.shorthand)
            tree = tree if isinstance(made, Diagnostic) else made
        variant = _make_variant(tree, (), _make_interpolator(tree, self.environ), self.written, self.shorthand)
        return variant.tree if variant else None


@frozen(kw_only=False)
class Composed:
    """All runs, and all diagnostics."""

    variants: tuple[Variant, ...]
    """Also where there are errors, so that later checks can find more; none where the recipe itself cannot be read."""
    diagnostics: tuple[Diagnostic, ...]
    partial: bool = False
    """Whether a base could not be read: what is missing from the trees may be there."""
    ways: Mapping[Source, Source] = field(default_factory=dict)
    """By base, the same with the `extends` value that led to it: for `add_route`."""


def compose(
    source: Source,
    library: Library,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] = MappingProxyType({}),
    shorthand: Shorthand = no_shorthand,
) -> Composed:
    """Compose a recipe; by `shorthand`, the key of a bare scalar, `algorithm: grpo` merges with a map."""
    root, diagnostics = parse_recipe(source)
    if root is None:
        return Composed((), diagnostics)
    loader = Loader(library, shorthand)
    own = loader.with_bases(root, source)
    assigned = apply_settings(own, settings, shorthand)
    expanded = expand(assigned.tree, assigned.paths, shorthand)
    found = [*diagnostics, *loader.diagnostics, *assigned.diagnostics, *expanded.diagnostics]
    extends = get_entry(root, "extends")
    found += [*find_secrets(assigned.tree), *(find_secrets(extends.value) if extends else ())]
    trees = {key: tree for key, tree in loader.loaded.items() if tree is not None} | {source.identity: own}
    set_by = frozenset(steps[0].span.source.identity for steps in assigned.paths)
    plain = {key: drop_entries(tree, "matrix") for key, tree in (trees | dict.fromkeys(set_by, assigned.tree)).items()}
    layers = Layers(trees=plain, axes=expanded.places, settings=set_by)
    variants = tuple(_make_variants(expanded, environ, found, layers, shorthand))
    return Composed(variants, tuple(sort_by_place(found)), loader.partial, loader.ways)


def _make_variants(
    expanded: Expanded, environ: Mapping[str, str], found: list[Diagnostic], layers: Layers, shorthand: Shorthand
) -> Iterator[Variant]:
    interpolator: Interpolator | None = None
    for tree, choices in expanded.trees:
        if interpolator is None or expanded.touches_vars:
            interpolator = _make_interpolator(tree, environ)
        variant = _make_variant(tree, choices, interpolator, layers, shorthand)
        found += dict.fromkeys(interpolator.diagnostics)
        interpolator.diagnostics.clear()
        if variant is not None:
            yield variant


def _make_interpolator(tree: MapNode, environ: Mapping[str, str]) -> Interpolator:
    # a misspelt `vars` need only be reported once
    maps = (entry for entry in tree.entries if isinstance(entry.value, MapNode))
    slips = (entry for entry in maps if entry.name.isidentifier() and find_closest(entry.name, ["vars"]))
    entry = get_entry(tree, "vars") or next(slips, None)
    variables = entry.value if entry else None
    interpolator = Interpolator(variables, environ)
    if isinstance(variables, MapNode):
        interpolator.check_variables()
    elif variables is not None and not is_null(variables):
        message = "expected a map of names to values"
        span = variables.span
        interpolator.diagnostics.append(
            Diagnostic(code="wrong-type", message=message, span=span, help="write vars: {name: value}")
        )
    return interpolator


def _make_variant(
    tree: MapNode,
    choices: Sequence[tuple[str, Node]],
    interpolator: Interpolator,
    layers: Layers,
    shorthand: Shorthand,
) -> Variant | None:
    body = interpolator.node(drop_entries(tree, "vars"))
    size, depth = interpolator.measure.of(body)
    if size > MAX_NODES or depth > MAX_DEPTH:
        code = "too-large" if size > MAX_NODES else "too-deep"
        message = f"expands to {size} values, nested {depth} deep; the limits are {MAX_NODES} and {MAX_DEPTH}"
        span = tree.span.source.span(tree.span.start, tree.span.start)
        interpolator.diagnostics.append(Diagnostic(code=code, message=message, span=span, help="use vars less often"))
        return None
    labels = tuple((axis, _label(interpolator.node(value))) for axis, value in choices)
    if not isinstance(body, MapNode):
        return None
    body, renamed = rename_keys(body)
    interpolator.diagnostics += renamed
    return Variant(body, labels, layers, interpolator.environ, tuple(choices), shorthand)


def _label(node: Node) -> str:
    """Shorten a value for the name of a run."""
    if isinstance(node, ScalarNode):
        return node.redacted or node.text.value
    return " ".join(node.span.text.split())
