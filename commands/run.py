"""`agym run RECIPE`: trains the agent."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from ..dsl.compile import CompiledVariant
from ..dsl.model.plan import Plan
from ..reporters.resolved import resolved_yaml
from .invocation.compiling import build_compiler
from .invocation.engines import prepare_process
from .invocation.requirements import check_installed
from .invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe, or the name of a shipped one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the recipe")
    parser.add_argument("--run", type=int, metavar="N", help="only this run of a matrix, counted from 1")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--resume", action="store_true", help="continue from the last checkpoint in the run's folder")
    how.add_argument("--fresh", action="store_true", help="start over; what the folder holds is moved aside")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    compiler = build_compiler(shell, arguments.set)
    runs = compiler.runs(arguments.recipe, to_run=True)
    if arguments.run is not None:
        if not 1 <= arguments.run <= len(runs):
            raise UsageError(f"'{arguments.recipe}' has {len(runs)} runs, there is no run {arguments.run}")
        runs = runs[arguments.run - 1 : arguments.run]
    for each in runs:
        check_installed(each.plan, compiler.catalog)
    prepare_process(runs[0].plan, shell.environ)
    for each in runs:
        code = _one(each, arguments, shell)
        if code is not Exit.RIGHT:
            return code
    return Exit.RIGHT


def _one(variant: CompiledVariant, arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..runtime.engine import OutcomeKind
    from ..runtime.run import Start, folder_of, run_plan
    from ..runtime.sinks.console.console import Terminal, wants_live

    codes = {
        OutcomeKind.FINISHED: Exit.RIGHT,
        OutcomeKind.INTERRUPTED: Exit.INTERRUPTED,
        OutcomeKind.GUARDED: Exit.STOPPED,
    }
    root = folder_of(variant.plan, shell.cwd)
    stored = _stored(root, shell) if arguments.resume else None
    outcome = run_plan(
        variant.plan,
        root,
        Start(recipe=resolved_yaml(variant.tree), folder=Path(variant.folder), resume=stored, fresh=arguments.fresh),
        terminal=Terminal(out=shell.out, live=wants_live(shell.out, shell.environ)),
        environ=shell.environ,
        clock=time.perf_counter,
        wall_clock=time.time,
    )
    if outcome.reason:
        print(f"agym run: {outcome.kind}: {outcome.reason}", file=shell.err)
    return codes[outcome.kind]


def _stored(root: Path, shell: Shell) -> Plan:
    """The plan of the run that a folder holds, from its own recipe as it was kept there."""
    from ..runtime.storage.run_reader import RunReader

    return build_compiler(shell).recompile(os.path.relpath(root, shell.cwd), RunReader(root))
