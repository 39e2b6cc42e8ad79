"""`agym show RECIPE`: the recipe with everything resolved. Writes nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

from ..dsl.compile import CompiledVariant
from ..dsl.publish.resolved import resolve_recipe
from ..reporters.difference import compare_recipes, difference_json, difference_text
from ..reporters.resolved import resolved_data, resolved_yaml
from .invocation.compiling import build_compiler, choose
from .invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run"]


def _yaml(chosen: CompiledVariant, origins: bool) -> str:
    return resolved_yaml(chosen.tree, origins=origins, left_out=chosen.left_out)


def _json(chosen: CompiledVariant, origins: bool) -> str:
    if origins:
        raise UsageError("--origins writes comments, and JSON has none: leave out one of the two")
    return json.dumps(resolved_data(chosen.tree), indent=2, ensure_ascii=False) + "\n"


FORMATS: Mapping[str, Callable[[CompiledVariant, bool], str]] = {"yaml": _yaml, "json": _json}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", metavar="RECIPE", help="a recipe, or the name of a shipped one, or - for standard input"
    )
    parser.add_argument("--format", choices=FORMATS, default="yaml", help="output format (default: yaml)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the recipe")
    parser.add_argument("--run", type=int, metavar="N", help="which run of a matrix, counted from 1")
    parser.add_argument("--origins", action="store_true", help="comment each value with the place it comes from")
    parser.add_argument("--diff", metavar="OTHER", help="print how OTHER differs instead, defaults included")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    compiler = build_compiler(shell, arguments.set)
    chosen = choose(compiler.runs(arguments.recipe), arguments.recipe, arguments.run)
    if arguments.diff is None:
        shell.out.write(FORMATS[arguments.format](chosen, arguments.origins))
        return Exit.RIGHT
    other = choose(compiler.runs(arguments.diff), arguments.diff, None)
    found = compare_recipes(*(resolve_recipe(each.recipe, compiler.catalog) for each in (chosen, other)))
    names = (arguments.recipe, arguments.diff)
    shell.out.write(difference_json(found) if arguments.format == "json" else difference_text(found, names))
    return Exit.RIGHT
