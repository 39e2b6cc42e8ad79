"""Environments that a command line names, or that a recorded run played in, opened to be played."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...catalog import BadEnvironment, catalog, read_environment
from ...dsl.catalog import CODE_FILE, DATA_FILE, EnvironmentInfo
from ...dsl.rules.names import suggest_environment
from ...envs.registry import is_folder
from ...runtime.errors import RunError
from .shell import Shell, UsageError, WrongRecipe

if TYPE_CHECKING:
    from ...dsl.model.recipe import Environment
    from ...envs.protocol import EnvClient, Json

__all__ = ["find_info", "is_address", "open_recorded", "open_target", "read_target_options"]

_REACHES_OUT = ("mcp", "webarena")
"""Environments that contact other servers, even without an address among their options."""


def is_address(target: str) -> bool:
    return target.startswith(("http://", "https://"))


def find_info(name: str, known: Mapping[str, EnvironmentInfo]) -> EnvironmentInfo:
    """What is known about an environment that is registered, or is in a folder."""
    if is_folder(name):
        return _read_folder(name)
    if name in known:
        return known[name]
    place = Path(name)
    if (place / DATA_FILE).is_file() and not place.is_absolute():
        raise UsageError(f"no environment is called '{name[:40]}'; for the folder, write ./{name}")
    raise UsageError(f"no environment is called '{name[:40]}'; {suggest_environment(name, known)}")


def _read_folder(name: str) -> EnvironmentInfo:
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise UsageError(f"no folder '{name}'")
    inner = folder / folder.resolve().name.replace("-", "_")
    if not (folder / DATA_FILE).is_file() and (inner / DATA_FILE).is_file():
        raise UsageError(f"the folder '{name}' has no {DATA_FILE}, but a folder in it has: write ./{inner}")
    for file in (DATA_FILE, CODE_FILE):
        if not (folder / file).is_file():
            raise UsageError(f"the folder '{name}' has no {file}; 'agym envs new NAME' writes one that has")
    try:
        return read_environment(folder / DATA_FILE)
    except BadEnvironment as error:
        raise UsageError(str(error)) from error


async def open_target(arguments: argparse.Namespace, more: Mapping[str, Json] | None = None) -> EnvClient:
    """Open what a command line names; `more` are options that it sets in another way."""
    from ...envs.errors import EnvError

    try:
        if is_address(arguments.target):
            return _connect(arguments)
        find_info(arguments.target, catalog().environments)
        options = {**(more or {}), **read_target_options(arguments)}
        from ...envs.clients.client import InlineEnv
        from ...envs.protocol import START_S, Deadlines
        from ...envs.registry import factory

        return InlineEnv(factory(arguments.target, options), deadlines=Deadlines(open_s=START_S))
    except EnvError as error:
        raise UsageError(str(error)) from error


def _connect(arguments: argparse.Namespace) -> EnvClient:
    from ...dsl.model.recipe import Dialect, Environment
    from ...envs.protocol import Deadlines
    from ...runtime.rollout.env_connections import connect_to_server

    if arguments.dialect == "agentgym" and arguments.kind is None:
        raise UsageError("'--dialect agentgym' needs '--kind': its servers reply differently")
    where = Environment(url=arguments.target, dialect=Dialect(arguments.dialect), kind=arguments.kind)
    return connect_to_server(where, arguments.token, Deadlines())


def read_target_options(arguments: argparse.Namespace) -> Mapping[str, Json]:
    from ...envs.wire import WireError, options_from

    try:
        return options_from(arguments.options)
    except WireError as error:
        raise UsageError(f"--options: {error}") from error


# --- of a recorded run ---------------------------------------------------------------------------------------------


async def open_recorded(root: Path, name: str, stage: str, shell: Shell, *, typed: bool) -> EnvClient:
    """Open the environment of a run by its name; `typed` says that a person named the run and the episode.

    A run folder may come from a stranger: what would run code is not opened at all, and what contacts another server
    only if a person has typed the command.
    """
    settings = _find_settings(root, name, stage, shell)
    _refuse_danger(root, name, settings, typed=typed)
    from ...envs.clients.client import InlineEnv
    from ...envs.protocol import START_S, Deadlines
    from ...envs.registry import factory
    from ...runtime.rollout.env_connections import EnvConnector

    deadlines = Deadlines(open_s=START_S)
    if settings.url is not None:
        return await EnvConnector(root, shell.environ, lambda _: None, deadlines)(name, settings)
    assert settings.use is not None, "a verified plan names each environment"
    return InlineEnv(factory(settings.use, settings.options), deadlines=deadlines)


def _find_settings(root: Path, name: str, stage: str, shell: Shell) -> Environment:
    from ...dsl.check.paths import anchor_paths
    from ...dsl.model.recipe import Environment
    from ...runtime.storage.run_reader import RunReader, is_run
    from ...viewer.play.table import PLAYED
    from .compiling import build_compiler

    if not is_run(root) and stage == PLAYED and name in catalog().environments:
        return Environment(use=name)  # what a person has played; its options are not recorded
    if not is_run(root):
        raise RunError(f"'{root}' holds no recipe, which would say what environment '{name}' is")
    stored = RunReader(root)
    try:
        plan = anchor_paths(build_compiler(shell).recompile(str(root), stored), stored.folder)
    except WrongRecipe as error:
        raise RunError(f"the recipe in '{root}' is not one that this version understands") from error
    for each in sorted(plan.stages, key=lambda each: each.settings.stage != stage):
        if name in each.settings.environments:
            return each.settings.environments[name]
    raise RunError(f"the recipe in '{root}' has no environment '{name}'")


def _refuse_danger(root: Path, name: str, settings: Environment, *, typed: bool) -> None:
    from .stored_code import environment_code

    for key, _ in environment_code(settings):
        raise RunError(f"'environments.{name}.{key}' of the recipe in '{root}' runs code: no episode of it is replayed")
    if not typed and (settings.url is not None or settings.use in _REACHES_OUT or _has_address(settings.options)):
        raise RunError(
            f"environment '{name}' asks a server that the run's recipe names: replay it at the terminal, with "
            "'agym view RUN --replay ID'"
        )


def _has_address(value: object) -> bool:
    """Whether there is the address of a server somewhere in options."""
    if isinstance(value, Mapping):
        return any(map(_has_address, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_address, value))
    return isinstance(value, str) and "://" in value
