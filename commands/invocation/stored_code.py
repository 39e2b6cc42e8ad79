"""Keys of a stored recipe that run code, which take effect only where the command line repeats them.

A run folder may come from a stranger; what a person types does not.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from posixpath import join, normpath
from typing import Any

from ...dsl.model.hidden import conceal
from ...dsl.model.plan import Plan
from ...dsl.model.recipe import Environment
from ...envs.registry import is_folder
from ...runtime.errors import RunError

__all__ = ["code_refused", "environment_code", "refuse_stored_code", "resume_command", "resume_words"]

_RUNS_CODE: Mapping[tuple[str, str], Callable[[Any], bool]] = {
    ("mcp", "command"): bool,
    # 'module:id' imports the module
    ("gymnasium", "id"): lambda value: ":" in str(value),
}
"""Options of environments that start a program or import a module, by environment and name."""


def refuse_stored_code(plan: Plan, root: Path, settings: Iterable[str]) -> None:
    """Raise RunError where the recipe in a run folder would run code that `--set` does not repeat."""
    repeated = {setting.partition("=")[0] for setting in settings}
    for key, _ in _keys(plan):
        if key not in repeated:
            raise code_refused(key, root, f"--set {key}=...")


def code_refused(key: str, root: Path, repeat: str) -> RunError:
    return RunError(
        f"'{key}' of the recipe in '{root}' runs code, and counts only where the command line repeats it: add "
        f"{repeat} if you trust who made that folder"
    )


def resume_command(plan: Plan, root: Path, folder: str) -> str:
    """The command that resumes the run in a folder; paths in the plan are relative to `folder`."""
    return shlex.join(["agym", *resume_words(plan, root, folder)])


def resume_words(plan: Plan, root: Path, folder: str) -> list[str]:
    """agym's arguments that resume a run from anywhere; they repeat what takes effect only where it is repeated."""
    found = ((key, _from_anywhere(key, value, folder)) for key, value in dict(_keys(conceal(plan))).items())
    settings = (("--set", f"{key}={json.dumps(value)}") for key, value in found)
    return ["run", str(root), "--resume", *(word for pair in settings for word in pair)]


def _from_anywhere(key: str, value: Any, folder: str) -> Any:
    """A value for `--set`, whose paths are relative to where the command is given: a folder by its path from there."""
    if not key.endswith(".use") or not value.startswith("."):
        return value
    path = normpath(join(folder, value))
    return path if is_folder(path) else f"./{path}"


def _keys(plan: Plan) -> Iterator[tuple[str, Any]]:
    if plan.model.trust_remote_code:
        yield "model.trust_remote_code", True
    for stage in plan.stages:
        for name, environment in stage.settings.environments.items():
            for key, value in environment_code(environment):
                yield f"environments.{name}.{key}", value
        harness = stage.settings.agent.harness
        if harness is not None and harness.command:
            yield "agent.harness.command", list(harness.command)


def environment_code(environment: Environment) -> Iterator[tuple[str, Any]]:
    """Keys of an environment that start a program or import a module, with their values."""
    use = environment.use or ""
    if is_folder(use):
        yield "use", use
    for option, value in environment.options.items():
        if _RUNS_CODE.get((use, option), lambda _: False)(value):
            yield f"options.{option}", value
