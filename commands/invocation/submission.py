"""`agym run --on SYSTEM`: writes a run's job file, and submits it where the system's client is installed."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...dsl.catalog import Catalog
from ...dsl.compile import CompiledVariant
from ...files import STDIN, write_atomically
from ...launch.job import Job, JobError, make_job, needs_cluster, read_options
from ...launch.slurm import sbatch_script
from ...reporters.quantity import plural
from ...reporters.resolved import resolved_yaml
from ...runtime.errors import RunError
from .shell import Exit, Shell, UsageError
from .stored_code import resume_words

__all__ = ["SYSTEMS", "submit_runs"]

_CLIENT_S = 600.0
"""For a client to accept a job."""
_MARK = "Written by: agym run"
"""In the first lines of every job file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a job file is written from."""

    job: Job
    recipe: str
    """Resolved, with references to environment variables."""
    options: Mapping[str, str]
    command: str
    """That wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A scheduler: how its job files are named, written and submitted."""

    suffix: str
    write: Callable[[Request], str]
    submit: Callable[[Job, str], Sequence[str]]
    """The client's command line for a file."""
    options: Mapping[str, str] | None
    """What `--job-option` takes; None where that is whatever the client takes."""


SYSTEMS: Mapping[str, System] = {
    "slurm": System(
        suffix=".sbatch",
        write=lambda request: sbatch_script(
            request.job, request.options, command=request.command, python=sys.executable
        ),
        submit=lambda job, file: ("sbatch", file),
        options=None,
    ),
}


def submit_runs(
    runs: Sequence[tuple[CompiledVariant, Path]], arguments: argparse.Namespace, known: Catalog, shell: Shell
) -> Exit:
    """Write a job file for each run, next to its folder, and submit it."""
    try:
        _refuse_misuse(arguments, len(runs))
        system = SYSTEMS[arguments.on]
        options = read_options(arguments.job_option, system.options)
        for number, (variant, root) in enumerate(runs, 1):
            job = _job(variant, root, arguments, known, shell, number)
            command = shlex.join(["agym", "run", arguments.recipe, "--on", arguments.on])
            request = Request(job=job, recipe=resolved_yaml(variant.tree), options=options, command=command)
            file = shell.cwd / arguments.job_file if arguments.job_file else Path(f"{root}{system.suffix}")
            _write(file, system.write(request))
            shown = os.path.relpath(file, shell.cwd)
            gpus = f"{plural(job.gpus_per_node, 'GPU')}, " if job.gpus_per_node else ""
            size = f"{gpus}{job.cpus_per_node} cores and {job.memory_gib} GiB"
            shell.out.write(f"wrote {shown}: {plural(job.nodes, 'node')}, {size} on each\n")
            _submit(system.submit(job, shown), job, arguments.dry_run, shell)
    except JobError as error:
        raise UsageError(str(error)) from error
    return Exit.RIGHT


def _refuse_misuse(arguments: argparse.Namespace, num_runs: int) -> None:
    if arguments.recipe == STDIN:
        raise UsageError("a job cannot read standard input: write the recipe to a file")
    if arguments.fresh:
        raise UsageError(
            "a job that may be requeued must not start over: move the run's folder aside instead of --fresh"
        )


def _job(
    variant: CompiledVariant, root: Path, arguments: argparse.Namespace, known: Catalog, shell: Shell, number: int
) -> Job:
    plan = variant.plan
    if root.exists() and not arguments.resume:
        shown = os.path.relpath(root, shell.cwd)
        raise UsageError(f"'{shown}' is there already: say --resume to continue it, or move it aside")
    # that of the cluster that the job starts
    address = ["hardware.ray_address=auto"] if needs_cluster(plan) else []
    settings = [*arguments.set, *address]
    words = [arguments.recipe, *(word for setting in settings for word in ("--set", setting))]
    if variant.choices:
        words += ["--run", str(arguments.run or number)]
    again = resume_words(plan, root)
    return make_job(
        plan,
        folder=str(shell.cwd),
        run_folder=str(root),
        first=again if (root / "plan.json").is_file() else ("run", *words),
        again=again,
        variables=_variables(variant, known),
    )


def _variables(variant: CompiledVariant, known: Catalog) -> set[str]:
    """Names of the environment variables without which the run does not start."""
    # ${env:NAME:-default} needs none
    named = re.findall(r"\$\{env:(\w+)(?:\}|:\?)", resolved_yaml(variant.tree))
    sinks = [known.sinks[sink.use] for sink in variant.draft.logging if not sink.offline]
    return {*named, *(name for sink in sinks for name in sink.variables)}


def _write(file: Path, text: str) -> None:
    try:
        if file.exists() and _MARK not in file.read_text(encoding="utf-8", errors="replace")[:1000]:
            raise UsageError(f"'{file}' is there and was not written by agym: name another with --job-file")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text, replace=True)
    except OSError as error:
        raise UsageError(f"'{file}' cannot be written: {(error.strerror or str(error)).lower()}") from error


def _submit(words: Sequence[str], job: Job, dry: bool, shell: Shell) -> None:
    line = shlex.join(words)
    client = shutil.which(words[0], path=shell.environ.get("PATH"))
    if dry or client is None:
        why = "" if dry else f"there is no {words[0]} on this machine; "
        shell.out.write(f"{why}to submit it: {line}\n")
        return
    shell.out.write(f"{line}\n")
    try:
        answer = subprocess.run(
            [client, *words[1:]],
            cwd=shell.cwd,
            env=dict(shell.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_CLIENT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"'{line}': {type(error).__name__}: the job may have been submitted or not") from error
    shell.out.write(answer.stdout)
    shell.err.write(answer.stderr)
    if answer.returncode:
        raise RunError(
            f"'{line}' failed with exit code {answer.returncode}: correct the job file, or pass --job-option, and call it again"
        )
