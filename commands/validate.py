"""`agym validate PATH...`: every mistake in every recipe, with its place. Writes nothing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .. import __version__
from ..dsl.diagnostics import Severity
from ..files import find_recipes, project_root
from ..reporters.diagnostics.for_programs import report_github, report_json, report_sarif
from ..reporters.diagnostics.report import Checked, Report, report
from ..reporters.diagnostics.text import report_text
from .invocation.compiling import Compiler, build_compiler
from .invocation.shell import Exit, Shell

__all__ = ["add_arguments", "run"]

FORMATS: Mapping[str, Callable[[Report, Shell, bool], str]] = {
    "text": lambda found, shell, quiet: report_text(found, shell.style, quiet=quiet),
    "json": lambda found, shell, quiet: report_json(found),
    "github": lambda found, shell, quiet: report_github(found, quiet=quiet),
    "sarif": lambda found, shell, quiet: report_sarif(found, __version__),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a recipe, a folder of recipes, a quoted pattern, the name of a shipped recipe, or - for standard input",
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="output format (default: text)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of every recipe")
    parser.add_argument(
        "--dependents", action="store_true", help="also check the recipes of the project that extend those named"
    )
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def _check_dependents(paths: Sequence[str], compiler: Compiler, shell: Shell) -> list[Checked]:
    named = {os.path.realpath(shell.cwd / path) for path in paths}
    roots = {str(project_root(Path(path).parent)) for path in named if os.path.isfile(path)}
    found = find_recipes([os.path.relpath(root, shell.cwd) for root in sorted(roots)], shell.cwd).paths
    others = [path for path in found if os.path.realpath(shell.cwd / path) not in named]
    return [compiler.check(path) for path in others if named & set(compiler.compile(compiler.open(path)).bases)]


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    search = find_recipes(arguments.paths, shell.cwd)
    compiler = build_compiler(shell, arguments.set)
    checked = [compiler.check(path) for path in search.paths]
    if arguments.dependents:
        checked += _check_dependents(search.paths, compiler, shell)
    found = report(checked, search.problems, search.left_out, strict=arguments.strict)
    shell.out.write(FORMATS[arguments.format](found, shell, arguments.quiet))
    if found.problems:
        return Exit.USAGE
    return Exit.WRONG if found.count(Severity.ERROR) else Exit.RIGHT
