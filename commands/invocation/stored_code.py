"""Keys of a stored recipe that run code, which count only where the command line repeats them.

A run folder may come from a stranger; what a person types does not.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...dsl.model.hidden import conceal
from ...dsl.model.plan import Plan
from ...dsl.model.recipe import Environment
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


def resume_command(plan: Plan, root: Path) -> str:
    """The command that resumes the run in a folder."""
    return shlex.join(["agym", *resume_words(plan, root)])


def resume_words(plan: Plan, root: Path) -> list[str]:
    """agym's arguments that resume a run; they repeat what counts only where it is repeated."""
    settings = (("--set", f"{key}={json.dumps(value)}") for key, value in dict(_keys(conceal(plan))).items())
    return ["run", str(root), "--resume", *(word for pair in settings for word in pair)]


def _keys(plan: Plan) -> Iterator[tuple[str, Any]]:
    if plan.model.trust_remote_code:
        yield "model.trust_remote_code", True
    for stage in plan.stages:
        for name, environment in stage.settings.environments.items():
            option = environment_code(environment)
            if option is not None:
                yield f"environments.{name}.options.{option}", environment.options[option]
        harness = stage.settings.agent.harness
        if harness is not None and harness.command:
            yield "agent.harness.command", list(harness.command)


def environment_code(environment: Environment) -> str | None:
    """The option of an environment that starts a program or imports a module; None where none does."""
    runs = (
        option
        for option, value in environment.options.items()
        if _RUNS_CODE.get((environment.use or "", option), lambda _: False)(value)
    )
    return next(runs, None)
