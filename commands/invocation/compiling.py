"""Compiles the recipe that the command line names; its mistakes are shown, and end the command."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from ...catalog import catalog
from ...dsl.catalog import Catalog
from ...dsl.compile import Compiled, CompiledVariant, compile_recipe
from ...dsl.diagnostics import Diagnostic
from ...dsl.source import Source
from ...dsl.text.decode import MAX_BYTES, decode
from ...files import STDIN, DiskLibrary, is_base
from ...reporters.diagnostics.report import Checked, report
from ...reporters.diagnostics.text import report_text
from .engines import has_started_again, put_back
from .shell import Shell, UsageError, WrongRecipe

if TYPE_CHECKING:
    from ...dsl.model.plan import Plan
    from ...runtime.storage.run_reader import RunReader

__all__ = ["Compiler", "build_compiler", "choose", "open_stored"]

STDIN_NAME = "<stdin>"
RECIPE = "recipe.yaml"
"""In a run's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """The language, with the files, plugins and settings of one call."""

    library: DiskLibrary
    catalog: Catalog
    shell: Shell
    settings: tuple[str, ...]

    def open(self, reference: str) -> Source | Diagnostic:
        """Read the text of a path, a shipped name, or `-`."""
        if reference != STDIN:
            return self.library.open(reference)
        # its references are relative to the folder that agym was called in
        key = os.path.join(self.shell.cwd, STDIN_NAME)
        data = self.shell.stdin.read(MAX_BYTES + 1)
        put_back(self.shell.stdin, data)
        return decode(STDIN_NAME, data, key=key)

    def compile(self, source: Source | Diagnostic, *, base: bool = False, on_disk: bool = True) -> Compiled:
        """Compile a text, or what is known about one that could not be opened."""
        if isinstance(source, Diagnostic):
            return Compiled(variants=(), diagnostics=(source,), num_runs=0)
        environ, known = self.shell.environ, self.catalog
        return compile_recipe(source, self.library, self.settings, environ, known, incomplete=base, on_disk=on_disk)

    def check(self, path: str) -> Checked:
        """Check one recipe of many, for a report."""
        base = is_base(path)
        return _checked(path, base, self.compile(self.open(path), base=base))

    def runs(
        self,
        reference: str,
        source: Source | Diagnostic | None = None,
        *,
        on_disk: bool = True,
    ) -> tuple[CompiledVariant, ...]:
        """Compile all runs of a recipe; its mistakes and warnings go to standard error.

        `source` is that of a recipe which is not in the folder that its paths are relative to. Without `on_disk`,
        missing files are not mistakes.
        """
        compiled = self.compile(source or self.open(reference), on_disk=on_disk)
        if compiled.failed:
            self.refuse(reference, compiled)
        # warnings were shown before this process restarted
        if compiled.diagnostics and not has_started_again(self.shell.environ):
            self._show(reference, compiled)
        return compiled.variants

    def recompile(self, target: str, stored: RunReader) -> Plan:
        """The plan of the run in a folder, from the recipe that it keeps; warnings were shown when it began."""
        compiled = self.compile(open_stored(target, stored), on_disk=False)
        if compiled.failed:
            self.refuse(target, compiled)
        return replace(compiled.variants[0].plan, choices=stored.manifest.get("choices", {}))

    def refuse(self, reference: str, compiled: Compiled) -> NoReturn:
        """Show the mistakes of a recipe, and end the command."""
        self._show(reference, compiled)
        raise WrongRecipe

    def _show(self, reference: str, compiled: Compiled) -> None:
        style = replace(self.shell.style, colour=self.shell.colour and self.shell.err.isatty())
        self.shell.err.write(report_text(report([_checked(reference, False, compiled)]), style))


def build_compiler(shell: Shell, settings: Iterable[str] = ()) -> Compiler:
    return Compiler(library=DiskLibrary(shell.cwd), catalog=catalog(), shell=shell, settings=tuple(settings))


def _checked(path: str, base: bool, compiled: Compiled) -> Checked:
    return Checked(
        path=path,
        runs=compiled.num_runs,
        base=base,
        failed=compiled.failed,
        diagnostics=compiled.diagnostics,
        idle=len({each.span for run in compiled.variants for each in run.left_out}),
    )


def open_stored(target: str, stored: RunReader) -> Source | Diagnostic:
    """The recipe in a run's folder; its paths are relative to where it was run."""
    return decode(os.path.join(target, RECIPE), stored.recipe, key=os.path.join(stored.folder, RECIPE))


def choose(runs: tuple[CompiledVariant, ...], reference: str, number: int | None) -> CompiledVariant:
    if number is None and len(runs) > 1:
        raise UsageError(f"'{reference}' is a matrix of {len(runs)} runs: choose one with --run 1 to --run {len(runs)}")
    chosen = 1 if number is None else number
    if not 1 <= chosen <= len(runs):
        raise UsageError(f"--run {chosen}: '{reference}' has {len(runs)} runs, numbered from 1")
    return runs[chosen - 1]
