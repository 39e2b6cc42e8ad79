"""`agym doctor [RECIPE]`: what this machine has; with a recipe, what it lacks and the line that installs it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..catalog import catalog
from ..dsl.catalog import Catalog
from ..dsl.check.paths import anchored, named
from ..dsl.compile import CompiledVariant
from ..dsl.model.plan import Plan
from ..dsl.model.recipe import Launcher
from ..dsl.model.stage_kinds import learns
from ..files import DiskLibrary
from ..machine import Machine, installed, look
from ..reporters.quantity import binary, plural
from ..runtime.backends.registry import DEFAULT_LEARNER, DEFAULT_SAMPLER, TORCH_PACKAGES
from .invocation.compiling import Compiler
from .invocation.shell import Exit, Shell

__all__ = ["Need", "add_arguments", "needs", "run"]

ENV_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "babyai": ("minigrid",),
    "sciworld": ("scienceworld",),
    "web": ("playwright",),
    "search": ("tantivy",),
    "mcp": ("mcp",),
    "gymnasium": ("gymnasium",),
    "textworld": ("textworld",),
    "reasoning-gym": ("reasoning-gym",),
}
MIN_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Need:
    """Packages, any of which will do, what asks for them, and the extra that brings one."""

    packages: tuple[str, ...]
    why: str
    extra: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="a recipe to run here")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the recipe")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    machine = look()
    if arguments.recipe is None:
        shell.out.write(_table(_machine(machine)))
        return Exit.RIGHT
    known = catalog()
    compiler = Compiler(library=DiskLibrary(shell.cwd), catalog=known, shell=shell, settings=tuple(arguments.set))
    runs = compiler.runs(arguments.recipe)
    if isinstance(runs, Exit):
        return runs
    shell.out.write(_table(_machine(machine)))
    return _prescribe(runs, known, machine, shell)


def needs(plan: Plan, known: Catalog) -> tuple[Need, ...]:
    """What a run imports, each with what asks for it."""
    return tuple(dict.fromkeys(_needs(plan, known)))


def _needs(plan: Plan, known: Catalog) -> Iterator[Need]:
    engines = "cuda" if plan.hardware.gpus_per_node else "cpu"
    yield from (Need((package,), "every run", engines) for package in TORCH_PACKAGES)
    yield Need(DEFAULT_SAMPLER.packages, "sampling", engines)
    if any(learns(stage.settings.algorithm) for stage in plan.stages):
        yield Need(DEFAULT_LEARNER.packages, "learning", engines)
    if plan.placement.launcher == Launcher.RAY:
        yield Need(("ray",), "hardware.launcher: ray", "ray")
    for sink in plan.logging:
        info = known.sinks[sink.use]
        if info.extra is not None:
            yield Need(info.packages, f"logging to {sink.use}", info.extra)
    yield from _environment_needs(plan, known)


def _environment_needs(plan: Plan, known: Catalog) -> Iterator[Need]:
    used = {env.use for stage in plan.stages for env in stage.settings.environments.values() if env.use}
    for name in sorted(used):
        extra = known.environments[name].extra
        if extra is not None and extra in ENV_PACKAGES:
            yield Need(ENV_PACKAGES[extra], f"environment {name}", extra)
    if any(env.url for stage in plan.stages for env in stage.settings.environments.values()):
        yield Need(("httpx",), "an environment by url", "serve")


def _prescribe(runs: tuple[CompiledVariant, ...], known: Catalog, machine: Machine, shell: Shell) -> Exit:
    wanted = tuple(dict.fromkeys(need for each in runs for need in needs(each.plan, known)))
    found = installed({package for need in wanted for package in need.packages})
    missing = [need for need in wanted if not any(found[package] for package in need.packages)]
    shell.out.write("\n" + _table(_need_rows(wanted, found)))
    short = [each for each in (_short_of_cards(runs, machine), _short_of_a_browser(wanted, machine)) if each]
    short += dict.fromkeys(line for each in runs for line in _short_of_files(each))
    short += dict.fromkeys(line for each in runs for line in _short_of_variables(each.plan, known, shell.environ))
    if missing:
        extras = ",".join(dict.fromkeys(need.extra for need in missing))
        shell.out.write(f"\nto install what is missing: pip install 'agym[{extras}]'\n")
    for each in short:
        shell.out.write(f"\n{each}\n")
    if not (missing or short):
        shell.out.write("\nnothing is missing\n")
    return Exit.WRONG if missing or short else Exit.RIGHT


def _need_rows(wanted: tuple[Need, ...], found: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    for need in wanted:
        have = next((f"{package} {found[package]}" for package in need.packages if found[package]), None)
        yield " or ".join(need.packages), f"{have or 'MISSING'}, for {need.why}"


def _short_of_cards(runs: tuple[CompiledVariant, ...], machine: Machine) -> str:
    wanted = max(each.plan.hardware.gpus_per_node for each in runs)
    have = len(machine.cards)
    return f"the recipe asks for {plural(wanted, 'GPU')} on each node, this machine has {have}" if wanted > have else ""


def _short_of_a_browser(wanted: tuple[Need, ...], machine: Machine) -> str:
    names = [need.why for need in wanted if need.extra == "web"]
    if not names or machine.browser:
        return ""
    install = "on Debian: apt-get install chromium-headless-shell"
    return f"{', '.join(names)}: needs a browser, and this machine has none; {install}"


def _short_of_files(run: CompiledVariant) -> Iterator[str]:
    for key, path in named(anchored(run.plan, run.folder)):
        if not Path(path).expanduser().exists():
            yield f"{key.rpartition('.settings.')[2]}: '{path}' is not there"


def _short_of_variables(plan: Plan, known: Catalog, environ: Mapping[str, str]) -> Iterator[str]:
    for sink in plan.logging:
        for variable in () if sink.offline else known.sinks[sink.use].variables:
            if not environ.get(variable):
                yield f"logging to {sink.use}: the environment variable {variable} is not set"


def _machine(machine: Machine) -> Iterator[tuple[str, str]]:
    python_is_old = tuple(map(int, machine.python.split(".")[:2])) < MIN_PYTHON
    yield "python", machine.python + (f", but {'.'.join(map(str, MIN_PYTHON))} is needed" if python_is_old else "")
    yield "system", machine.system
    yield "cores", str(machine.cores)
    yield "memory", binary(machine.memory_bytes) if machine.memory_bytes else "not known"
    yield "yaml", "libyaml" if machine.fast_yaml else "in Python: recipes load slower without libyaml"
    for package, version in machine.packages.items():
        yield package, version or "not installed"
    yield "browser", machine.browser or "none"
    for i, card in enumerate(machine.cards):
        yield f"gpu {i}", f"{card.name}, {card.memory_mib} MiB"
    if not machine.cards:
        yield "gpus", f"none ({machine.cards_note})"


def _table(rows: Iterator[tuple[str, str]]) -> str:
    listed = list(rows)
    column = max(len(name) for name, _ in listed) + 2
    return "".join(f"{name:<{column}}{value}\n" for name, value in listed)
