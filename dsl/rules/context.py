"""Context of a rule: a bound recipe, its source positions, the catalog, and the size of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ..catalog import Catalog
from ..check.spans import Places
from ..diagnostics import Diagnostic, Note, Severity
from ..frozen import frozen
from ..model.recipe import Environment, ModelShape, Recipe, Stage
from ..text.node import Path

__all__ = ["Case", "Rule"]


@frozen
class Case:
    """The recipe under examination."""

    recipe: Recipe
    places: Places
    catalog: Catalog
    shape: ModelShape | None
    """None where the model's sizes are not known here."""

    def stages(self) -> Iterator[tuple[Path, Stage]]:
        """Each stage with its path."""
        for index, stage in enumerate(self.recipe.schedule):
            yield ("schedule", index), stage

    def environments(self) -> Iterator[tuple[Path, Environment]]:
        """The environments of each stage, or of the recipe if it has no stage."""
        if not self.recipe.schedule:
            yield from ((("environments", name), each) for name, each in self.recipe.environments.items())
        for base, stage in self.stages():
            yield from (((*base, "environments", name), each) for name, each in stage.environments.items())

    def error(
        self, code: str, message: str, path: Path, hint: str | None = None, notes: tuple[Note, ...] = ()
    ) -> Diagnostic:
        """Report an error at the value of a key."""
        return Diagnostic(code=code, message=message, span=self.places.value(*path), help=hint, notes=notes)

    def missing(self, message: str, path: Path, hint: str | None = None) -> Diagnostic:
        """Report a missing key, at the key of its section."""
        return Diagnostic(code="missing-key", message=message, span=self.places.key(*path), help=hint)

    def warning(self, code: str, message: str, path: Path, hint: str | None = None) -> Diagnostic:
        return replace(self.error(code, message, path, hint), severity=Severity.WARNING)

    def note(self, message: str, path: Path) -> Note:
        return Note(message, self.places.value(*path))


Rule = Callable[[Case], Iterator[Diagnostic]]
"""Yields a diagnostic for each mistake of one sort."""
