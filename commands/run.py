"""`agym run RECIPE`: trains the agent."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import warnings
from collections.abc import Mapping

from ..catalog import catalog
from ..dsl.compile import CompiledVariant
from ..files import DiskLibrary
from ..reporters.resolved import resolved_yaml
from .compiling import Compiler
from .shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe, or the name of a shipped one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the recipe")
    parser.add_argument("--run", type=int, metavar="N", help="only this run of a matrix, counted from 1")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--resume", action="store_true", help="go on from the last checkpoint of the run's folder")
    how.add_argument("--fresh", action="store_true", help="start anew; what the folder holds is moved aside")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    compiler = Compiler(library=DiskLibrary(shell.cwd), catalog=catalog(), shell=shell, settings=tuple(arguments.set))
    runs = compiler.runnable(arguments.recipe)
    if isinstance(runs, Exit):
        return runs
    if arguments.run is not None:
        if not 1 <= arguments.run <= len(runs):
            raise UsageError(f"'{arguments.recipe}' has {len(runs)} runs, there is no run {arguments.run}")
        runs = runs[arguments.run - 1 : arguments.run]
    _prepare_process(runs[0], shell.environ)
    _quiet()
    for each in runs:
        code = _one(each, arguments, shell)
        if code is not Exit.RIGHT:
            return code
    return Exit.RIGHT


def _prepare_process(variant: CompiledVariant, environ: Mapping[str, str]) -> None:
    """The engines read variables when their process starts: one that lacks them starts once more."""
    from ..runtime.backends.environment import missing_variables

    hardware = variant.plan.hardware
    missing = missing_variables(environ, threads=hardware.threads or 1, cpu=hardware.gpus_per_node == 0)
    if missing and _STARTED_AGAIN not in environ:
        sys.stdout.flush()
        os.execve(
            sys.executable,
            [sys.executable, "-m", "agym", *sys.argv[1:]],
            {**environ, **missing, _STARTED_AGAIN: "1"},
        )


_STARTED_AGAIN = "AGYM_STARTED_AGAIN"


def _quiet() -> None:
    """The engines' words to their own developers are not for who trains an agent."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(vllm|torch|deepspeed)\b")
    warnings.filterwarnings("ignore", category=FutureWarning, message=r".*torch\.distributed\.reduce_op")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)


def _one(variant: CompiledVariant, arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..runtime.engine import OutcomeKind
    from ..runtime.errors import RunError
    from ..runtime.run import Start, folder_of, run_plan
    from ..runtime.sinks.console import Terminal, wants_live
    from ..runtime.workspace import FolderError

    codes = {
        OutcomeKind.FINISHED: Exit.RIGHT,
        OutcomeKind.INTERRUPTED: Exit.INTERRUPTED,
        OutcomeKind.GUARDED: Exit.STOPPED,
    }
    try:
        outcome = run_plan(
            variant.plan,
            folder_of(variant.plan, shell.cwd),
            Start(recipe=resolved_yaml(variant.tree), resume=arguments.resume, fresh=arguments.fresh),
            terminal=Terminal(out=shell.out, live=wants_live(shell.out, shell.environ)),
            environ=shell.environ,
            clock=time.perf_counter,
            wall_clock=time.time,
        )
    except (RunError, FolderError) as error:
        print(f"agym run: error: {error}", file=shell.err)
        return Exit.RUN_FAILED
    if outcome.reason:
        print(f"agym run: {outcome.kind}: {outcome.reason}", file=shell.err)
    return codes[outcome.kind]
