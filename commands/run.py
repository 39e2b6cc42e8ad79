"""`agym run RECIPE`: trains the agent."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..dsl.compile import CompiledVariant
from ..dsl.model.plan import Plan
from ..reporters.resolved import resolved_yaml
from .invocation.compiling import Compiler, build_compiler, open_stored
from .invocation.engines import prepare_process
from .invocation.requirements import check_installed, check_models
from .invocation.shell import Exit, Shell, UsageError
from .invocation.stored_code import refuse_stored_code, resume_command
from .invocation.submission import SYSTEMS, submit_runs

if TYPE_CHECKING:
    from ..runtime.storage.run_reader import RunReader

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", metavar="RECIPE", help="a recipe, the name of a shipped one, or with --resume the folder of a run"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the recipe")
    parser.add_argument("--run", type=int, metavar="N", help="only this run of a matrix, counted from 1")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--resume", action="store_true", help="continue from the last checkpoint in the run's folder")
    how.add_argument("--fresh", action="store_true", help="start over; what the folder holds is moved aside")
    job = parser.add_argument_group("on a cluster", "writes a job file next to the run's folder, and submits it")
    job.add_argument("--on", metavar="SYSTEM", help=f"{', '.join(SYSTEMS)}, or ray://HOST:PORT, a cluster's dashboard")
    job.add_argument("--job-file", metavar="PATH", help="the job file to write")
    job.add_argument(
        "--job-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the scheduler, such as partition=gpu; repeatable",
    )
    job.add_argument("--dry-run", action="store_true", help="write the job file and submit nothing")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    if arguments.on is None and (arguments.job_file or arguments.job_option or arguments.dry_run):
        raise UsageError("--job-file, --job-option and --dry-run go with --on")
    compiler = build_compiler(shell, arguments.set)
    stored = _open_run(arguments, shell)
    text = None if stored is None else open_stored(arguments.recipe, stored)
    runs = compiler.runs(arguments.recipe, text)
    if arguments.run is not None:
        if not 1 <= arguments.run <= len(runs):
            raise UsageError(f"'{arguments.recipe}' has {len(runs)} runs, there is no run {arguments.run}")
        runs = runs[arguments.run - 1 : arguments.run]
    if arguments.on is not None:
        return _submit(runs, arguments, compiler, stored)
    for each in runs:
        check_installed(each.plan, compiler.catalog)
        check_models(each.plan, shell.environ)
    prepare_process(runs[0].plan, shell.environ)
    for each in runs:
        code = _one(each, arguments, shell, stored)
        if code is not Exit.RIGHT:
            return code
    return Exit.RIGHT


def _submit(
    runs: Sequence[CompiledVariant], arguments: argparse.Namespace, compiler: Compiler, given: RunReader | None
) -> Exit:
    from ..runtime.run import folder_of

    shell = compiler.shell
    roots = [folder_of(each.plan, shell.cwd) if given is None else given.root for each in runs]
    return submit_runs(list(zip(runs, roots, strict=True)), arguments, compiler.catalog, shell)


def _open_run(arguments: argparse.Namespace, shell: Shell) -> RunReader | None:
    """The run to resume, where its folder is given in place of a recipe."""
    root = shell.cwd / arguments.recipe
    if not (root / "plan.json").is_file():
        return None
    if not arguments.resume:
        raise UsageError(f"'{arguments.recipe}' is the folder of a run: continue it with --resume, or name a recipe")
    from ..runtime.storage.run_reader import RunReader

    return RunReader(root)


def _one(variant: CompiledVariant, arguments: argparse.Namespace, shell: Shell, given: RunReader | None) -> Exit:
    from ..runtime.engine import OutcomeKind
    from ..runtime.run import Start, folder_of, run_plan
    from ..runtime.sinks.console.console import Terminal, wants_live

    codes = {
        OutcomeKind.FINISHED: Exit.RIGHT,
        OutcomeKind.INTERRUPTED: Exit.INTERRUPTED,
        OutcomeKind.GUARDED: Exit.STOPPED,
    }
    plan, root = variant.plan, folder_of(variant.plan, shell.cwd)
    if given is not None:
        plan, root = replace(plan, choices=given.manifest.get("choices", {})), given.root
    stored = _stored(root, shell) if arguments.resume else None
    if stored is not None:
        # environments of a person's own recipe are their own
        refuse_stored_code(plan if given is not None else replace(plan, stages=()), root, arguments.set)
    outcome = run_plan(
        plan,
        root,
        Start(
            recipe=resolved_yaml(variant.tree),
            folder=Path(variant.folder),
            resume=stored,
            fresh=arguments.fresh,
            resume_command=resume_command(plan, root, variant.folder),
        ),
        terminal=Terminal(out=shell.out, live=wants_live(shell.out, shell.environ)),
        environ=shell.environ,
        clock=time.perf_counter,
        wall_clock=time.time,
    )
    if outcome.reason:
        print(f"agym run: {outcome.kind}: {outcome.reason}", file=shell.err)
    return codes[outcome.kind]


def _stored(root: Path, shell: Shell) -> Plan:
    """The plan of the run that a folder holds, from the recipe that is stored there."""
    from ..runtime.storage.run_reader import RunReader

    return build_compiler(shell).recompile(os.path.relpath(root, shell.cwd), RunReader(root))
