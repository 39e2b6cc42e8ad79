"""`agym run --on SYSTEM`: writes a run's job file, and submits it where the system's client is installed."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from ...dsl.catalog import Catalog
from ...dsl.check.paths import list_paths
from ...dsl.compile import CompiledVariant
from ...dsl.model.recipe import Launcher
from ...dsl.suggest import did_you_mean
from ...files import STDIN, write_atomically
from ...launch.job import Job, JobError, make_job, needs_cluster, read_options
from ...launch.kubernetes import KUBERNETES_OPTIONS, MOUNTED_RECIPE, rayjob_yaml
from ...launch.ray_jobs import Submitted, dashboard_of, driver_command, follow, submit_line
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


class Files(Enum):
    """Which of this machine's files a job's nodes see."""

    SHARED = auto()
    """All, under the same paths."""
    COPIED = auto()
    """A copy of the folder that agym is called in; runs are on a volume."""
    COPIED_AND_RUNS = auto()
    """A copy of that folder; runs are in this machine's folder."""
    RECIPE = auto()
    """The resolved recipe alone; runs are on a volume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A scheduler: how its job files are named, written and submitted, and what its nodes see."""

    suffix: str
    write: Callable[[Request], str]
    submit: Callable[[Job, str], Sequence[str]]
    """The client's command line for a file."""
    options: Mapping[str, str] | None
    """What `--job-option` takes; None where that is whatever the client takes."""
    files: Files


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
        files=Files.SHARED,
    ),
    "kubernetes": System(
        suffix=".rayjob.yaml",
        write=lambda request: rayjob_yaml(request.job, request.recipe, request.options, command=request.command),
        submit=lambda _, file: ("kubectl", "apply", f"--filename={file}"),
        options=KUBERNETES_OPTIONS,
        files=Files.RECIPE,
    ),
    "skypilot": System(
        suffix=".sky.yaml",
        write=lambda request: sky_yaml(request.job, request.options, command=request.command),
        submit=_sky,
        options=SKYPILOT_OPTIONS,
        files=Files.COPIED,
    ),
}


def submit_runs(
    runs: Sequence[tuple[CompiledVariant, Path]], arguments: argparse.Namespace, known: Catalog, shell: Shell
) -> Exit:
    """Write a job file for each run, next to its folder, and submit it."""
    try:
        _refuse_misuse(arguments, len(runs))
        if arguments.on == "ray" or arguments.on.startswith("ray://"):
            return _run_on_ray(runs, arguments, known, shell)
        system = _find_system(arguments.on)
        options = read_options(arguments.job_option, system.options)
        for number, (variant, root) in enumerate(runs, arguments.run or 1):
            job = _job(variant, root, number, system.files, options, arguments, known, shell)
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


def _find_system(name: str) -> System:
    if name not in SYSTEMS:
        hint = did_you_mean(name, SYSTEMS) or f"known: {', '.join(SYSTEMS)}, ray, ray://HOST:PORT"
        raise JobError(f"--on: '{name[:60]}' is not a system that agym knows; {hint}")
    return SYSTEMS[name]


def _run_on_ray(
    runs: Sequence[tuple[CompiledVariant, Path]], arguments: argparse.Namespace, known: Catalog, shell: Shell
) -> Exit:
    """Run the driver as a job of a Ray cluster, and show its lines."""
    if len(runs) > 1:
        raise UsageError(f"there are {len(runs)} runs, and their jobs would share the GPUs: choose one with --run")
    if arguments.job_file or arguments.job_option:
        raise UsageError("--job-file and --job-option do not go with a Ray cluster, which takes no job file")
    ((variant, root),) = runs
    dashboard = dashboard_of(_address(arguments.on, variant))
    job = _job(variant, root, arguments.run or 1, Files.COPIED_AND_RUNS, {}, arguments, known, shell)
    if job.variables:
        shell.out.write(f"the cluster's nodes must have set: {', '.join(job.variables)}\n")
    if arguments.dry_run:
        shell.out.write(f"to submit it: {submit_line(dashboard, driver_command(job))}\n")
        return Exit.RIGHT
    submitted = Submitted(dashboard, job, [f"/{variant.draft.output}/", "/.*/"])
    by_hand = f"ray job stop {submitted.id} --address={dashboard}"
    shell.out.write(f"submitted {submitted.id}; to end it with a save: {by_hand}\n")
    try:
        status, message = follow(submitted, shell.out.write)
    except KeyboardInterrupt:
        print(f"agym run: {submitted.id} goes on; to end it with a save: {by_hand}", file=shell.err)
        return Exit.INTERRUPTED
    if status != "SUCCEEDED":
        print(f"agym run: {submitted.id}: {status.lower()}: {message}", file=shell.err)
    return _ENDINGS.get(status, Exit.RUN_FAILED)


_ENDINGS = {"SUCCEEDED": Exit.RIGHT, "STOPPED": Exit.INTERRUPTED}


def _address(on: str, variant: CompiledVariant) -> str:
    if on != "ray":
        return on
    host = (variant.draft.hardware.ray_address or "").rpartition(":")[0]
    if not host:
        raise JobError(
            "'--on ray' needs 'hardware.ray_address: HOST:PORT' in the recipe; else say --on ray://HOST:PORT"
        )
    return f"ray://{host}"


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
    files: Files,
    options: Mapping[str, str],
    arguments: argparse.Namespace,
    known: Catalog,
    shell: Shell,
) -> Job:
    plan, folder, settings = variant.plan, shell.cwd, list[str]()
    from_here = os.path.relpath(variant.folder, shell.cwd)
    if files in (Files.RECIPE, Files.COPIED):
        folder = _mount(options)
        root = folder / plan.output / root.name
        settings = [_setting("output", root.parent)]
    elif root.exists() and not arguments.resume:
        shown = os.path.relpath(root, shell.cwd)
        raise UsageError(f"'{shown}' is there already: say --resume to continue it, or move it aside")
    if files is Files.RECIPE and variant.choices:
        # what a matrix chose is in the recipe, and no longer in the folder's name
        root = root.with_name(re.sub(r"[^a-z0-9._-]+", "-", root.name.lower()))
        settings.append(_setting("name", root.name))
    if files is Files.COPIED_AND_RUNS:
        settings = [_setting("output", folder / plan.output)]
    if files is not Files.SHARED:
        _refuse_files(variant, arguments.recipe, files, from_here)
    if files is not Files.SHARED or needs_cluster(plan):
        # that of the node on which the driver runs
        settings.append("hardware.ray_address=auto")
    # in a copy, a path of this machine leads nowhere
    again = resume_words(plan, root, variant.folder if files is Files.SHARED else from_here)
    return make_job(
        plan,
        folder=str(folder),
        run_folder=str(root),
        first=again if (root / "plan.json").is_file() else _first_words(variant, number, files, settings, arguments),
        again=again,
        variables=_variables(variant, known),
    )


def _setting(key: str, value: object) -> str:
    """A setting for `--set`, which reads YAML."""
    plain = re.fullmatch(r"[\w/][\w./-]*", str(value))
    return f"{key}={value if plain else json.dumps(str(value))}"


def _first_words(
    variant: CompiledVariant, number: int, files: Files, settings: Sequence[str], arguments: argparse.Namespace
) -> list[str]:
    if files is Files.RECIPE:
        words, repeated = [MOUNTED_RECIPE], settings
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


def _refuse_files(variant: CompiledVariant, recipe: str, files: Files, folder: str) -> None:
    """Refuse what the nodes would not find; `folder` is that of the recipe, relative to where agym is called."""
    if variant.draft.hardware.launcher is Launcher.INLINE:
        raise JobError("'hardware.launcher: inline' does not go with a cluster: remove the key")
    if files is not Files.RECIPE and _leaves(recipe):
        raise JobError(f"the folder that agym is called in is copied, and '{recipe}' is outside: call agym there")
    for key, path in list_paths(variant.draft):
        if files is Files.RECIPE and not path.startswith("/"):
            raise JobError(
                f"'{key.rpartition('.settings.')[2]}' is the file '{path}' of this machine: put it on the shared "
                "volume, and write its path there"
            )
        if files is not Files.RECIPE and not path.startswith(("/", "~")) and _leaves(os.path.join(folder, path)):
            raise JobError(
                f"the folder that agym is called in is copied, and '{key.rpartition('.settings.')[2]}', '{path}', is "
                "outside: call agym in a folder that holds both"
            )


def _leaves(path: str) -> bool:
    return os.path.isabs(path) or os.path.normpath(path).startswith("..")


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
