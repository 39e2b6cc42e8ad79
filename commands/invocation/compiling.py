"""Compiles the recipe that the command line names; its mistakes are shown, and become an exit code."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...dsl.catalog import Catalog
from ...dsl.compile import Compiled, CompiledVariant, compile_recipe
from ...dsl.diagnostics import Diagnostic, Severity
from ...dsl.source import Source
from ...dsl.text.decode import MAX_BYTES, decode
from ...files import STDIN, DiskLibrary, Target
from ...reporters.diagnostics.report import Checked, report
from ...reporters.diagnostics.text import Style, report_text
from .engines import has_started_again, put_back
from .shell import Exit, Shell, UsageError

if TYPE_CHECKING:
    from ...dsl.model.plan import Plan
    from ...runtime.storage.run_reader import RunReader

__all__ = ["Compiler", "choose", "open_stored"]

STDIN_NAME = "<stdin>"
NOT_BUILT = "not-built"
RECIPE = "recipe.yaml"
"""In a run's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """The language, with the files, plugins and settings of one call."""

    library: DiskLibrary
    catalog: Catalog
    shell: Shell
    settings: tuple[str, ...] = field(default=())

    def open(self, reference: str) -> Source | Diagnostic:
        """Read the text of a path, a shipped name, or `-`."""
        if reference != STDIN:
            return self.library.open(reference)
        # its references count from the folder that agym was called in
        key = os.path.join(self.shell.cwd, STDIN_NAME)
        data = self.shell.stdin.read(MAX_BYTES + 1)
        put_back(self.shell.stdin, data)
        return decode(STDIN_NAME, data, key=key)

    def compile(self, source: Source, *, base: bool = False) -> Compiled:
        return compile_recipe(source, self.library, self.settings, self.shell.environ, self.catalog, incomplete=base)

    def check(self, target: Target) -> Checked:
        """Check one recipe of many, for a report."""
        source = self.open(target.path)
        if isinstance(source, Diagnostic):
            return Checked(path=target.path, runs=0, base=target.base, failed=True, diagnostics=(source,))
        return _checked(target, self.compile(source, base=target.base))

    def runs(self, reference: str) -> tuple[CompiledVariant, ...] | Exit:
        """Compile all runs of a recipe; its mistakes and warnings go to standard error."""
        source = self.open(reference)
        if isinstance(source, Diagnostic):
            return self.tell(reference, source)
        compiled = self.compile(source)
        code = self._told(reference, compiled)
        return compiled.variants if code is Exit.RIGHT else code

    def runnable(self, reference: str, text: Source | Diagnostic | None = None) -> tuple[CompiledVariant, ...] | Exit:
        """As `runs`, for a recipe that is to be run now: parts that this version lacks are mistakes.

        `text` is that of a recipe which lies elsewhere than its paths count from.
        """
        source = text or self.open(reference)
        if isinstance(source, Diagnostic):
            return self.tell(reference, source)
        compiled = self.compile(source)
        strict = tuple(
            replace(each, severity=Severity.ERROR) if each.code == NOT_BUILT else each for each in compiled.diagnostics
        )
        code = self._told(reference, replace(compiled, diagnostics=strict))
        return compiled.variants if code is Exit.RIGHT else code

    def recompile(self, target: str, stored: RunReader) -> Plan | Exit:
        """The plan of the run in a folder, from the recipe that it keeps; warnings were told when it began."""
        source = open_stored(target, stored)
        if isinstance(source, Diagnostic):
            return self.tell(target, source)
        compiled = self.compile(source)
        if compiled.failed:
            return self._told(target, compiled)
        return replace(compiled.variants[0].plan, choices=stored.manifest.get("choices", {}))

    def one(self, reference: str, number: int | None) -> CompiledVariant | Exit:
        """Compile one run, of a matrix by its number."""
        runs = self.runs(reference)
        return runs if isinstance(runs, Exit) else choose(runs, reference, number)

    def right(self, reference: str, source: Source) -> Exit:
        """Check a text that is not in a file yet; mistakes are shown."""
        return self._told(reference, self.compile(source))

    def tell(self, reference: str, diagnostic: Diagnostic) -> Exit:
        """A recipe that could not be opened."""
        return self._told(reference, Compiled(variants=(), diagnostics=(diagnostic,), num_runs=0))

    def _told(self, reference: str, compiled: Compiled) -> Exit:
        # warnings were shown before this process restarted
        if compiled.failed or (compiled.diagnostics and not has_started_again(self.shell.environ)):
            found = report([_checked(Target(path=reference, base=False), compiled)])
            self.shell.err.write(report_text(found, Style(width=self.shell.width, colour=self._colour)))
        return Exit.WRONG if compiled.failed else Exit.RIGHT

    @property
    def _colour(self) -> bool:
        return self.shell.colour and self.shell.err.isatty()


def _checked(target: Target, compiled: Compiled) -> Checked:
    return Checked(
        path=target.path,
        runs=compiled.num_runs,
        base=target.base,
        failed=compiled.failed,
        diagnostics=compiled.diagnostics,
    )


def open_stored(target: str, stored: RunReader) -> Source | Diagnostic:
    """The recipe in a run's folder; its paths count from where it was run."""
    return decode(os.path.join(target, RECIPE), stored.recipe, key=os.path.join(stored.folder, RECIPE))


def choose(runs: tuple[CompiledVariant, ...], reference: str, number: int | None) -> CompiledVariant:
    if number is None and len(runs) > 1:
        raise UsageError(f"'{reference}' is a matrix of {len(runs)} runs: choose one with --run 1 to --run {len(runs)}")
    chosen = 1 if number is None else number
    if not 1 <= chosen <= len(runs):
        raise UsageError(f"--run {chosen}: '{reference}' has {len(runs)} runs, numbered from 1")
    return runs[chosen - 1]
