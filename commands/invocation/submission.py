"""`agym run --on SYSTEM`: writes a run's job file, and submits it where the system's client is installed."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...dsl.catalog import Catalog
from ...dsl.check.paths import list_paths
from ...dsl.compile import CompiledVariant
from ...dsl.model.recipe import Launcher
from ...files import STDIN, write_atomically
from ...launch.job import Job, JobError, make_job, needs_cluster, read_options
from ...launch.kubernetes import KUBERNETES_OPTIONS, MOUNTED_RECIPE, rayjob_yaml
from ...launch.skypilot import RAY_TOKEN, SKYPILOT_OPTIONS, sky_yaml
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
    """A scheduler: how its job files are named, written and submitted, and what its nodes see."""

    suffix: str
    write: Callable[[Request], str]
    submit: Callable[[Job, str], Sequence[str]]
    """The client's command line for a file."""
    options: Mapping[str, str] | None
    """What `--job-option` takes; None where that is whatever the client takes."""
    shares_files: bool
    """Whether the nodes see this machine's files under the same paths, or else a volume."""
    recipe: str | None = None
    """Where the nodes find the resolved recipe; None where they find the file itself."""


def _sky(job: Job, file: str) -> Sequence[str]:
    named = (word for name in (*job.variables, RAY_TOKEN) for word in ("--secret", name))
    return ("sky", "jobs", "launch", "--yes", "--detach-run", *named, file)


SYSTEMS: Mapping[str, System] = {
    "slurm": System(
        suffix=".sbatch",
        write=lambda request: sbatch_script(
            request.job, request.options, command=request.command, python=sys.executable
        ),
        submit=lambda _, file: ("sbatch", file),
        options=None,
        shares_files=True,
    ),
    "kubernetes": System(
        suffix=".rayjob.yaml",
        write=lambda request: rayjob_yaml(request.job, request.recipe, request.options, command=request.command),
        submit=lambda _, file: ("kubectl", "apply", f"--filename={file}"),
        options=KUBERNETES_OPTIONS,
        shares_files=False,
        recipe=MOUNTED_RECIPE,
    ),
    "skypilot": System(
        suffix=".sky.yaml",
        write=lambda request: sky_yaml(request.job, request.options, command=request.command),
        submit=_sky,
        options=SKYPILOT_OPTIONS,
        shares_files=False,
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
        for number, (variant, root) in enumerate(runs, arguments.run or 1):
            job = _job(variant, root, number, system, options, arguments, known, shell)
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
        raise UsageError("--fresh does not go with --on: a requeued job would start over; move the run's folder aside")
    if arguments.job_file and num_runs > 1:
        raise UsageError(f"--job-file names one file, and there are {num_runs} runs: choose one with --run")


def _job(
    variant: CompiledVariant,
    root: Path,
    number: int,
    system: System,
    options: Mapping[str, str],
    arguments: argparse.Namespace,
    known: Catalog,
    shell: Shell,
) -> Job:
    plan = variant.plan
    if root.exists() and not arguments.resume and system.shares_files:
        shown = os.path.relpath(root, shell.cwd)
        raise UsageError(f"'{shown}' is there already: say --resume to continue it, or move it aside")
    folder = shell.cwd
    settings = [f"hardware.ray_address={_OWN_CLUSTER}"] if needs_cluster(plan) else []
    if not system.shares_files:
        _refuse_files(variant, arguments.recipe, system)
        folder = _mount(options)
        # one file per run: what a matrix chose would no longer be in the name
        name = re.sub(r"[^a-z0-9._-]+", "-", root.name.lower())
        root = folder / plan.output / name
        settings = [f"output={root.parent}", f"name={name}", f"hardware.ray_address={_OWN_CLUSTER}"]
    again = resume_words(plan, root)
    return make_job(
        plan,
        folder=str(folder),
        run_folder=str(root),
        first=again if (root / "plan.json").is_file() else _first_words(variant, number, system, settings, arguments),
        again=again,
        variables=_variables(variant, known),
    )


_OWN_CLUSTER = "auto"
"""That of the node on which the driver runs, which the job starts."""


def _first_words(
    variant: CompiledVariant, number: int, system: System, settings: Sequence[str], arguments: argparse.Namespace
) -> list[str]:
    if system.recipe is not None:
        words, repeated = [system.recipe], settings
    else:
        words, repeated = [arguments.recipe], [*arguments.set, *settings]
        if variant.choices:
            words += ["--run", str(number)]
    return ["run", *words, *(word for setting in repeated for word in ("--set", setting))]


def _mount(options: Mapping[str, str]) -> Path:
    mount = options.get("mount", "/shared")
    if not mount.startswith("/"):
        raise JobError(f"--job-option mount={mount}: an absolute path is needed")
    return Path(mount)


def _refuse_files(variant: CompiledVariant, recipe: str, system: System) -> None:
    """Refuse files of this machine in a recipe that travels without them."""
    if variant.draft.hardware.launcher is Launcher.INLINE:
        raise JobError("'hardware.launcher: inline' does not go with a cluster: remove the key")
    if system.recipe is None and (os.path.isabs(recipe) or os.path.normpath(recipe).startswith("..")):
        raise JobError(f"SkyPilot copies the folder that agym is called in, and '{recipe}' is outside: call agym there")
    for key, path in list_paths(variant.draft):
        if system.recipe is not None and not path.startswith("/"):
            raise JobError(
                f"'{key.rpartition('.settings.')[2]}' is the file '{path}' of this machine: put it on the shared "
                "volume, and write its path there"
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
            env={RAY_TOKEN: secrets.token_hex(32), **shell.environ},
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
            f"'{line}' failed with exit code {answer.returncode}: pass what it asks for with --job-option KEY=VALUE"
        )
