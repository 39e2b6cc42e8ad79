"""Names to environments: the ones shipped here, and those that other packages offer under the entry point `agym.envs`.

A name leads to a function that takes the options and makes an instance; nothing is imported before it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeAlias

from .errors import NotInstalled, UnknownEnv, suggest
from .protocol import Env, EnvFactory, Json

__all__ = ["Create", "factory", "list_names"]

Create: TypeAlias = Callable[[Mapping[str, Json]], Env]

_SHIPPED = (
    "babyai",
    "counter",
    "desk",
    "gymnasium",
    "mcp",
    "miniwob",
    "reasoning_gym",
    "sciworld",
    "search",
    "shell",
    "textarena",
    "textcraft",
    "textworld",
    "verifiers",
    "webarena",
    "websites",
)
_GROUP = "agym.envs"


def list_names() -> tuple[str, ...]:
    return tuple(sorted({*_SHIPPED, *(point.name for point in entry_points(group=_GROUP))}))


def factory(name: str, options: Mapping[str, Json] | None = None) -> EnvFactory:
    """Factory for instances of a named environment with these options."""
    return partial(_create(name), dict(options or {}))


def _create(name: str) -> Create:
    if name in _SHIPPED:
        return _check(name, _import_shipped(name))
    for point in entry_points(group=_GROUP, name=name):
        return _check(name, point.load())
    raise UnknownEnv(f"no environment is called '{name[:40]}'{suggest(name, list_names())}")


def _import_shipped(name: str) -> object:
    with _explain_missing(name):
        return import_module(f"{__package__}.{name}").create


@contextmanager
def _explain_missing(name: str) -> Iterator[None]:
    """Name a missing package and the line that installs it; a missing module of our own is a bug."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", __name__.partition(".")[0]):
            raise
        data = Path(__file__).parent / name / "env.json"
        extra = json.loads(data.read_text("utf-8"))["extra"] if data.is_file() else None
        line = f": pip install 'agym-dsl[{extra}]'" if extra else ""
        raise NotInstalled(f"environment '{name}' needs the package '{package}'{line}") from error


def _check(name: str, create: object) -> Create:
    if not callable(create):
        raise UnknownEnv(f"environment '{name}' is registered with something that cannot be called")

    def checked(options: Mapping[str, Json]) -> Env:
        with _explain_missing(name):
            env = create(options)
        if not isinstance(env, Env):
            raise UnknownEnv(f"environment '{name}' is registered with something that makes no Env")
        return env

    return checked
