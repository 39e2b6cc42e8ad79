"""Compile a recipe: from its text to the plans of its runs, with everything that is wrong on the way.

This module owns the order of the phases: compose, bind, check the rules, lower. A phase that finds errors ends the way
of that run; the other runs of a matrix go on.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..schemas import recipe_v1
from .catalog import Catalog
from .check.bind import Bound, bind
from .check.json_schema import check_schema
from .check.paths import mark_option_paths, rebase_paths
from .compose.compose import Variant, compose
from .compose.extends import add_route
from .compose.library import Found, Library, Refusal
from .diagnostics import Diagnostic, has_errors, sort_by_place
from .frozen import frozen
from .model.model_sizes import find_shape, is_folder, read_shape
from .model.plan import Plan
from .model.recipe import Model, ModelShape, Recipe
from .model.reflect import Record, record, type_at
from .planning.lower import lower
from .publish.plan_json import dump_canonical
from .rules.all_rules import check_rules
from .rules.context import Case
from .rules.names import find_unknown_names
from .rules.option_files import check_option_files
from .source import Source
from .text.node import MapNode, Path

__all__ = ["Compiled", "CompiledVariant", "compile_recipe"]

MISSING = "missing-key"


@frozen
class CompiledVariant:
    """One run that is right."""

    tree: MapNode
    choices: tuple[tuple[str, str], ...]
    """Axis and value for each axis of the matrix."""
    bound: Bound
    recipe: Recipe
    draft: Plan
    """The plan, but for the hash of its recipe."""
    folder: str
    """From which the paths in the plan count."""

    @property
    def plan(self) -> Plan:
        """With its hash, which who only wants to know whether the recipe is right need not wait for."""
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
    """Runs that the recipe stands for, right or wrong; 0 where it could not be read so far."""

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
) -> Compiled:
    """All runs of a recipe. With `incomplete`, keys may be missing: it is only there to be extended."""
    composed = compose(source, library, settings, environ, find_shorthand)
    lenient = incomplete or composed.partial
    phases = _Phases(source, library, catalog or Catalog(), composed.diagnostics, lenient)
    found = list(composed.diagnostics)
    variants = [made for each in composed.variants for made in phases.run(each, found)]
    # what one phase said of a key that another then finds wrong as well is kept: all errors at once
    sound = () if has_errors(composed.diagnostics) else tuple(variants)
    return Compiled(
        variants=sound,
        diagnostics=_unique(add_route(each, composed.ways) for each in found),
        num_runs=len(composed.variants),
    )


def find_shorthand(path: Path) -> str | None:
    """The key that a bare scalar stands for: `use` for `algorithm: grpo`."""
    type_ = type_at(record(Recipe), path)
    return type_.shorthand if isinstance(type_, Record) else None


@frozen(kw_only=False)
class _Phases:
    """What follows composition, for one run."""

    source: Source
    library: Library
    catalog: Catalog
    before: tuple[Diagnostic, ...]
    """What was wrong with the text itself."""
    lenient: bool

    def run(self, variant: Variant, found: list[Diagnostic]) -> Iterator[CompiledVariant]:
        """The run, if nothing is wrong with it; what is wrong is added to `found`."""
        marked = mark_option_paths(variant.tree, self._path_options)
        variant = replace(variant, tree=rebase_paths(marked, self._way))
        bound = bind(variant.tree)
        # the schema refuses nothing that binding lets pass, but has better words: asked only where needed
        shape_errors = check_schema(variant.tree, recipe_v1()) if bound.rejected else ()
        wrong = self._allowed((*shape_errors, *bound.diagnostics))
        if bound.recipe is None and not has_errors((*found, *wrong)):
            # whatever the shape's check let pass must not pass unsaid
            wrong += self._allowed(bound.rejected)
        if bound.recipe is None or has_errors(wrong):
            found += (*wrong, *find_unknown_names(bound.places.tree, self.catalog))
            return
        shape = self._shape(bound.recipe.model)
        wrong += check_rules(bound.recipe, bound.places, self.catalog, shape)
        case = Case(recipe=bound.recipe, places=bound.places, catalog=self.catalog, shape=shape)
        wrong += check_option_files(case, self._read_anywhere)
        found += wrong
        if not has_errors(wrong):
            yield self._lowered(variant, bound, bound.recipe, shape)

    def _path_options(self, use: str) -> Collection[str]:
        info = self.catalog.environments.get(use)
        return info.path_options if info else ()

    def _read_anywhere(self, path: str) -> Found | Refusal:
        """What a path in the recipe leads to, inside the project or not: the run will read it as it is."""
        where = path if path.startswith("~") else posixpath.join(self.library.folder(self.source), path)
        return self.library.read(posixpath.normpath(where), None)

    def _way(self, source: Source) -> str:
        """To the folder of another file; none where a value was written in the recipe itself."""
        if source.identity == self.source.identity:
            return ""
        here, there = (posixpath.join("/", self.library.folder(each)) for each in (self.source, source))
        return "" if here == there else posixpath.relpath(there, here)

    def _allowed(self, diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
        kept = (each for each in diagnostics if not (self.lenient and each.code == MISSING))
        return [each for each in kept if not any(_follows(each, first) for first in self.before)]

    def _lowered(self, variant: Variant, bound: Bound, recipe: Recipe, shape: ModelShape | None) -> CompiledVariant:
        draft = lower(recipe, shape, variant.choices, "", self._used(recipe))
        return CompiledVariant(
            tree=variant.tree,
            choices=variant.choices,
            bound=bound,
            recipe=recipe,
            draft=draft,
            folder=self.library.folder(self.source),
        )

    def _used(self, recipe: Recipe) -> Catalog:
        """The catalog of what this recipe names: to list all that is registered takes a search of the machine."""
        names = {each.use for stage in recipe.schedule for each in stage.environments.values() if each.use}
        return Catalog(environments={name: self.catalog.environments[name] for name in sorted(names)})

    def _shape(self, model: Model) -> ModelShape | None:
        """Sizes of the model, of one in a folder from its own `config.json`."""
        known = find_shape(model)
        if known is not None or model.path is None or not is_folder(model.path):
            return known
        # what the person's own machine has at an absolute path is read as a command line would
        base = self.source if model.path.startswith(".") else None
        found = self.library.read(f"{model.path}/config.json", base)
        return read_shape(_json(found.data)) if isinstance(found, Found) else None


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _follows(each: Diagnostic, first: Diagnostic) -> bool:
    """Whether a mistake is said of a value that could not be read as it was meant, which has been said already."""
    inner, outer = each.span, first.span
    if inner.source.identity != outer.source.identity or each.code == MISSING or not outer.text:
        return False
    return inner.start == outer.start or (outer.start < inner.start and inner.end <= outer.end)


def _unique(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Each mistake once: runs of a matrix share most of their text, and so their mistakes."""
    first: dict[Hashable, Diagnostic] = {}
    for each in diagnostics:
        first.setdefault((each.code, each.message, each.span.source.identity, each.span.start, each.span.end), each)
    return tuple(sort_by_place(first.values()))
