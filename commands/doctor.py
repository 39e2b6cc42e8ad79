"""`agym doctor [RECIPE|RUN_FOLDER]`: what this machine has; with a recipe, what is missing and the line that installs
it; of a run folder, which files are damaged; with `--cluster`, what is wrong with the nodes of a Ray cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..dsl.catalog import Catalog
from ..dsl.check.paths import anchor_paths, list_paths
from ..dsl.compile import CompiledVariant
from ..dsl.model.plan import Plan
from ..machine import Machine, inspect_machine
from ..reporters.quantity import binary, plural
from ..runtime.backends.registry import installed_versions
from ..runtime.pretrained.catalog import list_missing
from .invocation.cluster import examine_cluster
from .invocation.compiling import build_compiler
from .invocation.requirements import Requirement, find_missing, install_line, list_missing_tools, list_requirements
from .invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run"]

MIN_PYTHON = (3, 11)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", nargs="?", metavar="TARGET", help="a recipe that is to run here, or a run folder to check for damage"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the recipe")
    cluster = parser.add_argument_group("of a cluster")
    cluster.add_argument(
        "--cluster",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="check every node of the Ray cluster at HOST:PORT, by default the one that runs on this machine",
    )
    cluster.add_argument(
        "--folder", metavar="PATH", help="the folder that all nodes must share (default: that of the runs)"
    )
    cluster.add_argument("--format", choices=("text", "json"), help="how to print what was found (default: text)")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    if arguments.cluster is not None:
        return examine_cluster(arguments, shell)
    if arguments.folder is not None or arguments.format is not None:
        raise UsageError("--folder and --format go with --cluster")
    if arguments.recipe is not None and (shell.cwd / arguments.recipe).is_dir():
        return _inspect_folder(arguments.recipe, shell)
    machine = inspect_machine()
    compiler = build_compiler(shell, arguments.set)
    runs = compiler.runs(arguments.recipe, on_disk=False) if arguments.recipe is not None else ()
    shell.out.write(_format_table(_machine_rows(machine)))
    return _report_missing(runs, compiler.catalog, machine, shell) if runs else Exit.RIGHT


def _inspect_folder(target: str, shell: Shell) -> Exit:
    from ..runtime.storage.inspect_run import inspect_run

    found = list(inspect_run(shell.cwd / target))
    damaged = [name for name, problem in found if problem]
    shell.out.write(_format_table((name, problem or "sound") for name, problem in found))
    if not damaged:
        shell.out.write("\nnothing is damaged\n")
        return Exit.RIGHT
    checkpoints = [name for name in damaged if name.startswith("checkpoints/")]
    advice = "; a resume takes the newest sound checkpoint by itself" if checkpoints else ""
    shell.out.write(f"\ndamaged: {', '.join(damaged)}{advice}\n")
    return Exit.RUN_FAILED


def _report_missing(runs: tuple[CompiledVariant, ...], known: Catalog, machine: Machine, shell: Shell) -> Exit:
    required = tuple(dict.fromkeys(each for run in runs for each in list_requirements(run.plan, known)))
    found = installed_versions({package for each in required for package in each.packages})
    missing = find_missing(required, found)
    shell.out.write("\n" + _format_table(_requirement_rows(required, found)))
    problems = list(_missing_gpus(runs, machine))
    problems += dict.fromkeys(line for run in runs for line in list_missing_tools(run.plan, known))
    problems += dict.fromkeys(line for run in runs for line in _missing_files(run))
    problems += dict.fromkeys(line for run in runs for line in list_missing(run.plan, shell.environ))
    problems += dict.fromkeys(line for run in runs for line in _missing_variables(run.plan, known, shell.environ))
    if missing:
        shell.out.write(f"\nto install what is missing: {install_line(missing)}\n")
    for line in problems:
        shell.out.write(f"\n{line}\n")
    if not (missing or problems):
        shell.out.write("\nnothing is missing\n")
    return Exit.WRONG if missing or problems else Exit.RIGHT


def _requirement_rows(required: tuple[Requirement, ...], found: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    for each in required:
        have = next((f"{package} {found[package]}" for package in each.packages if found[package]), "MISSING")
        yield " or ".join(each.packages), f"{have}, for {each.why}"


def _missing_gpus(runs: tuple[CompiledVariant, ...], machine: Machine) -> Iterator[str]:
    needed, have = max(run.plan.hardware.gpus_per_node for run in runs), len(machine.gpus)
    if needed > have:
        yield f"the recipe needs {plural(needed, 'GPU')} per node; this machine has {have}"


def _missing_files(run: CompiledVariant) -> Iterator[str]:
    for key, path in list_paths(anchor_paths(run.plan, run.folder)):
        if not Path(path).expanduser().exists():
            yield f"{key.rpartition('.settings.')[2]}: '{path}' does not exist"


def _missing_variables(plan: Plan, known: Catalog, environ: Mapping[str, str]) -> Iterator[str]:
    for sink in plan.logging:
        for variable in () if sink.offline else known.sinks[sink.use].variables:
            if not environ.get(variable):
                yield f"logging to {sink.use}: the environment variable {variable} is not set"


def _machine_rows(machine: Machine) -> Iterator[tuple[str, str]]:
    python_is_old = tuple(map(int, machine.python.split(".")[:2])) < MIN_PYTHON
    yield "python", machine.python + (f", but {'.'.join(map(str, MIN_PYTHON))} is needed" if python_is_old else "")
    yield "system", machine.system
    yield "cores", str(machine.cores)
    yield "memory", binary(machine.memory_bytes) if machine.memory_bytes else "not known"
    yield "yaml", "libyaml" if machine.fast_yaml else "in Python: recipes load slower without libyaml"
    for package, version in machine.packages.items():
        yield package, version or "not installed"
    yield "browser", machine.browser or "none"
    for i, gpu in enumerate(machine.gpus):
        yield f"gpu {i}", f"{gpu.name}, {gpu.memory_mib} MiB"
    if not machine.gpus:
        yield "gpus", f"none ({machine.gpus_note})"


def _format_table(rows: Iterator[tuple[str, str]]) -> str:
    lines = list(rows)
    column = max(len(name) for name, _ in lines) + 2
    return "".join(f"{name:<{column}}{value}\n" for name, value in lines)
