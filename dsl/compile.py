"""Compile a recipe: from its text to the plans of its runs, with everything that is wrong on the way.

This module owns the order of the phases: compose, bind, check the rules, lower. A phase that finds errors ends that
run; the other runs of a matrix go on.
"""

from __future__ import annotations

import json
import posixpath
from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from ..schemas import recipe_v1
from .catalog import Catalog
from .check.bind import Bound, TreePlaces, bind
from .check.json_schema import check_schema
from .check.no_effect import explain_no_effect, list_keys_without_effect
from .check.paths import mark_option_paths, rebase_paths
from .compose.compose import Variant, compose
from .compose.extends import add_route
from .compose.layers import list_changes, revert
from .compose.library import Found, Library, Refusal
from .diagnostics import Diagnostic, Note, Severity, has_errors, sort_by_place
from .frozen import frozen
from .model.algorithm import Preset
from .model.model_sizes import find_shape, is_folder, read_shape
from .model.plan import Plan
from .model.recipe import DType, Model, ModelShape, Recipe
from .model.reflect import Record, record, type_at
from .planning.lower import lower
from .publish.plan_json import dump_canonical
from .rules.all_rules import check_rules
from .rules.context import Case
from .rules.environment_folders import WithFolders, check_environment_folders
from .rules.files import find_wrong_paths
from .rules.names import find_unknown_names
from .rules.option_files import check_option_files
from .source import Source, Span
from .text.node import Entry, MapNode, Node, Path, child_nodes, get_entry

__all__ = ["Compiled", "CompiledVariant", "LeftOut", "compile_recipe"]

MISSING = "missing-key"
IDLE = "no-effect"
SECRET = "literal-secret"


@frozen
class LeftOut:
    """An inherited key that has no effect with what was laid over it."""

    path: Path
    span: Span
    reason: str


@frozen
class CompiledVariant:
    """One run without errors."""

    tree: MapNode
    choices: tuple[tuple[str, str], ...]
    """Axis and value for each axis of the matrix."""
    bound: Bound
    recipe: Recipe
    draft: Plan
    """The plan, except for the hash of its recipe."""
    folder: str
    """The paths in the plan are relative to it."""
    left_out: tuple[LeftOut, ...]
    """Inherited keys that are not in the tree."""

    @property
    def plan(self) -> Plan:
        """With its hash, which a caller that only checks the recipe need not wait for."""
        import hashlib  # nor for this

        return replace(self.draft, recipe_sha256=hashlib.sha256(dump_canonical(self.recipe).encode()).hexdigest())


@frozen
class Compiled:
    """What became of one source."""

    variants: tuple[CompiledVariant, ...]
    """The runs without errors, in the order of the matrix."""
    diagnostics: tuple[Diagnostic, ...]
    """In file order, each once, however many runs share it."""
    num_runs: int
    """Runs that the recipe stands for, valid or not; 0 where it could not be read that far."""
    bases: tuple[str, ...] = ()
    """The Library's keys of the recipes that it extends."""

    @property
    def failed(self) -> bool:
        return has_errors(self.diagnostics)


def compile_recipe(
    source: Source,
    library: Library,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] = MappingProxyType({}),
    catalog: Catalog | None = None,
    *,
    incomplete: bool = False,
    on_disk: bool = True,
) -> Compiled:
    """All runs of a recipe.

    With `incomplete`, keys may be missing: it is only there to be extended. Without `on_disk`, so may the files that it
    names.
    """
    composed = compose(source, library, settings, environ, find_shorthand)
    lenient = incomplete or composed.partial
    known = catalog or Catalog()
    environments = WithFolders(known.environments, partial(_read_anywhere, library, source))
    known = replace(known, environments=environments)
    phases = _Phases(source, library, known, environments, composed.diagnostics, lenient, on_disk)
    found = list(composed.diagnostics)
    variants = [made for each in composed.variants for made in phases.run(each, found)]
    # what one phase reported about a key that another then finds wrong as well is kept: all errors at once
    sound = () if has_errors(composed.diagnostics) else tuple(variants)
    return Compiled(
        variants=sound,
        diagnostics=_unique(add_route(each, composed.ways) for each in found),
        num_runs=len(composed.variants),
        bases=tuple(base.identity for base in composed.ways),
    )


def find_shorthand(path: Path) -> str | None:
    """The key that a bare scalar stands for: `use` for `algorithm: grpo`."""
    type_ = type_at(record(Recipe), path)
    return type_.shorthand if isinstance(type_, Record) else None


@frozen
class _Judged:
    """A tree, and what is wrong with it."""

    bound: Bound
    shape: ModelShape | None
    wrong: tuple[Diagnostic, ...]

    @property
    def marks(self) -> set[tuple[str, Span]]:
        return {(each.code, each.span) for each in self.wrong}


@frozen(kw_only=False)
class _Phases:
    """What follows composition, for one run."""

    source: Source
    library: Library
    catalog: Catalog
    environments: WithFolders
    """Those of the catalog."""
    before: tuple[Diagnostic, ...]
    """What was wrong with the text itself."""
    lenient: bool
    on_disk: bool

    def run(self, variant: Variant, found: list[Diagnostic]) -> Iterator[CompiledVariant]:
        """The run, if nothing is wrong with it; what is wrong is added to `found`."""
        variant = replace(variant, tree=self._rebased(variant.tree))
        judged, left_out = self._judge(variant.tree), list[LeftOut]()
        while lost := tuple(self._lost(variant, judged)):
            left_out += lost
            variant = replace(variant, tree=revert(variant.tree, None, [each.path for each in lost]))
            judged = self._judge(variant.tree)
        bound, wrong = judged.bound, judged.wrong
        if bound.recipe is None and not has_errors((*found, *wrong)):
            # whatever the check of the shape let pass must still be reported
            wrong += tuple(self._allowed(bound.rejected))
        elif bound.recipe is not None:
            wrong = _without_echoes([self._with_cause(each, variant) for each in wrong], variant.tree)
        found[:] = _join_secrets(found, wrong, variant.tree)
        if bound.recipe is not None and not has_errors(wrong):
            yield self._lowered(variant, bound, bound.recipe, judged.shape, tuple(left_out))

    def _judge(self, tree: MapNode) -> _Judged:
        bound = bind(tree)
        # the schema refuses nothing that binding lets pass, but words it better: used only where needed
        shape_errors = check_schema(tree, recipe_v1()) if bound.rejected else ()
        wrong = self._allowed((*shape_errors, *bound.diagnostics))
        if bound.recipe is None or has_errors(wrong):
            names = find_unknown_names(bound.places.tree, self.catalog)
            return _Judged(bound=replace(bound, recipe=None), shape=None, wrong=(*wrong, *names))
        shape = self._shape(bound.recipe.model)
        case = Case(recipe=bound.recipe, places=bound.places, catalog=self.catalog, shape=shape)
        wrong += check_rules(bound.recipe, bound.places, self.catalog, shape)
        wrong += check_option_files(case, self.environments.read)
        if self.on_disk:
            wrong += check_environment_folders(case, self.environments)
            wrong += find_wrong_paths(bound.recipe, bound.places, lambda path: self.library.find(path, self.source))
        return _Judged(bound=bound, shape=shape, wrong=tuple(wrong))

    def _lost(self, variant: Variant, judged: _Judged) -> Iterator[LeftOut]:
        """Inherited keys that have no effect because of what was laid over the layer that they are in."""
        recipe, places = judged.bound.recipe, judged.bound.places
        if recipe is None or not any(each.code == IDLE for each in judged.wrong):
            return
        for path, reason in list_keys_without_effect(recipe, places, self.catalog):
            below = self._below(variant, places.key(*path))
            changes = [each for each, _ in list_changes(variant.tree, below)] if below else []
            was = bind(revert(variant.tree, below, changes)) if below and changes else None
            if was is not None and was.recipe is not None and self._had_effect(path, was.recipe, was.places, below):
                yield LeftOut(path=path, span=places.key(*path), reason=reason)

    def _had_effect(self, path: Path, recipe: Recipe, places: TreePlaces, below: Node | None) -> bool:
        if path not in (each for each, _ in list_keys_without_effect(recipe, places, self.catalog)):
            return True
        # a base without stages is for stages of any kind
        uses = () if get_entry(below, "schedule") or path[0] != "algorithm" else Preset
        return any(explain_no_effect(path, replace(recipe.algorithm, use=use)) is None for use in uses)

    def _below(self, variant: Variant, span: Span) -> MapNode | None:
        below = variant.below(span)
        return below and self._rebased(below)

    def _rebased(self, tree: MapNode) -> MapNode:
        return rebase_paths(mark_option_paths(tree, self._path_options), self._way)

    def _with_cause(self, each: Diagnostic, variant: Variant) -> Diagnostic:
        """A mistake in a layer, placed in what was laid over it if the layer is right without that."""
        at = each.span
        # what was laid over one layer may be right except for what was laid over that
        while each.severity is Severity.ERROR and (cause := self._cause(each, at, variant)) is not None:
            at = cause
        if at is each.span:
            return each
        return replace(each, span=at, notes=(Note("it is inherited from here", each.span), *each.notes))

    def _cause(self, each: Diagnostic, at: Span, variant: Variant) -> Span | None:
        """The change without which there is no mistake, of those that were laid over the layer of a place."""
        below = self._below(variant, at)
        changes = list(list_changes(variant.tree, below)) if below else []

        def remains(count: int) -> bool:
            made = self._judge(revert(variant.tree, below or variant.tree, [path for path, _ in changes[:count]]))
            return made.bound.recipe is None or (each.code, each.span) in made.marks

        if not changes or remains(len(changes)):
            return None
        return changes[bisect_left(range(1, len(changes)), True, key=lambda count: not remains(count))][1]

    def _path_options(self, use: str, source: Source) -> Collection[str]:
        info = self.environments.get(f"./{posixpath.join(self._way(source), use)}" if use.startswith(".") else use)
        return info.path_options if info else ()

    def _way(self, source: Source) -> str:
        """The path to the folder of another file; empty if a value was written in the recipe itself."""
        if source.identity == self.source.identity:
            return ""
        here, there = (posixpath.join("/", self.library.folder(each)) for each in (self.source, source))
        return "" if here == there else posixpath.relpath(there, here)

    def _allowed(self, diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
        kept = (each for each in diagnostics if not (self.lenient and each.code == MISSING))
        return [each for each in kept if not any(_follows(each, first) for first in self.before)]

    def _lowered(
        self, variant: Variant, bound: Bound, recipe: Recipe, shape: ModelShape | None, left_out: tuple[LeftOut, ...]
    ) -> CompiledVariant:
        recipe = self._with_dtype(recipe)
        draft = lower(recipe, shape, variant.choices, "", self._used(recipe))
        return CompiledVariant(
            tree=variant.tree,
            choices=variant.choices,
            bound=bound,
            recipe=recipe,
            draft=draft,
            left_out=left_out,
            folder=self.library.folder(self.source),
        )

    def _with_dtype(self, recipe: Recipe) -> Recipe:
        """Settle `auto` where it depends on the machine: a pretrained model on a CPU."""
        model = recipe.model
        if model.dtype is not DType.AUTO or model.path is None or recipe.hardware.gpus_per_node:
            return recipe
        dtype = DType.BF16 if self.catalog.computes_bf16() else DType.FP32
        return replace(recipe, model=replace(model, dtype=dtype))

    def _used(self, recipe: Recipe) -> Catalog:
        """The catalog of what this recipe names: listing all that is registered takes a search of the machine."""
        names = {each.use for stage in recipe.schedule for each in stage.environments.values() if each.use}
        # a folder may be gone from a recipe that was run
        infos = {name: info for name in sorted(names) if (info := self.environments.get(name))}
        return Catalog(environments=infos)

    def _shape(self, model: Model) -> ModelShape | None:
        """Sizes of the model, of one in a folder from its own `config.json`."""
        known = find_shape(model)
        if known is not None or model.path is None or not is_folder(model.path):
            return known
        # an absolute path on the user's own machine is read as if given on the command line
        base = self.source if model.path.startswith(".") else None
        found = self.library.read(posixpath.join(model.path, "config.json"), base)
        return read_shape(_json(found.data)) if isinstance(found, Found) else None


def _read_anywhere(library: Library, recipe: Source, path: str) -> Found | Refusal:
    """What a path in the recipe leads to, inside the project or not: the run will read it as it is."""
    where = path if path.startswith("~") else posixpath.join(library.folder(recipe), path)
    return library.read(posixpath.normpath(where), None)


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _follows(each: Diagnostic, first: Diagnostic) -> bool:
    """Whether a mistake is about a value that could not be read as it was meant, which has been reported already."""
    inner, outer = each.span, first.span
    if inner.source.identity != outer.source.identity or each.code == MISSING or not outer.text:
        return False
    return inner.start == outer.start or (outer.start < inner.start and inner.end <= outer.end)


def _without_echoes(wrong: Collection[Diagnostic], tree: MapNode) -> tuple[Diagnostic, ...]:
    """Without what follows from another mistake.

    That is the memory of a context that is refused anyway, and a key without effect in a section that lacks a key which
    it may depend on.
    """
    refused = any(each.code == "context-too-long" for each in wrong)
    lacking = [_section(each.span, tree) for each in wrong if each.code == MISSING]
    rest = (each for each in wrong if not (refused and each.code == "out-of-memory"))
    return tuple(each for each in rest if not (each.code == IDLE and _section(each.span, tree) in lacking))


def _section(span: Span, tree: MapNode) -> Span | None:
    """The innermost map below the top that holds a place."""
    maps = [entry.value for entry in _entries(tree) if isinstance(entry.value, MapNode)]
    around = [each.span for each in maps if _within(span, each.span)]
    return min(around, key=lambda each: each.end - each.start, default=None)


def _join_secrets(before: list[Diagnostic], wrong: Collection[Diagnostic], tree: MapNode) -> list[Diagnostic]:
    """For a secret nothing else is worth reporting; nor is the secret if its key is unknown and must go anyway."""
    secrets = [each for each in before if each.code == SECRET]
    if not secrets:
        return [*before, *wrong]
    keys = {each.span for each in wrong if each.code == "unknown-key"}
    gone = [entry.value.span for entry in _entries(tree) if entry.key.span in keys]
    kept = [each for each in secrets if not any(_within(each.span, value) for value in gone)]
    said = {entry.key.span for entry in _entries(tree) for each in kept if _within(each.span, entry.value.span)}
    rest = (each for each in wrong if not any(_follows(each, first) for first in kept))
    return [
        *(each for each in before if each.code != SECRET or each in kept),
        *(each for each in rest if each.code != "unknown-option" or each.span not in said),
    ]


def _entries(node: Node) -> Iterator[Entry]:
    yield from node.entries if isinstance(node, MapNode) else ()
    for child in child_nodes(node):
        yield from _entries(child)


def _within(inner: Span, outer: Span) -> bool:
    same = inner.source.identity == outer.source.identity
    return same and outer.start <= inner.start and inner.end <= outer.end


def _unique(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Each mistake once: runs of a matrix share most of their text, and so their mistakes."""
    first: dict[Hashable, Diagnostic] = {}
    for each in diagnostics:
        first.setdefault((each.code, each.message, each.span.source.identity, each.span.start, each.span.end), each)
    return tuple(sort_by_place(first.values()))
