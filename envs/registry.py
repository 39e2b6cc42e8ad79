"""Names to environments: the ones shipped here, and those that other packages offer under the entry point `agym.envs`.

A name leads to a function that takes the options and makes an instance; nothing is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import TypeAlias

from .errors import UnknownEnv
from .protocol import Env, EnvFactory, Json

__all__ = ["Create", "factory", "names"]

Create: TypeAlias = Callable[[Mapping[str, Json]], Env]

_SHIPPED = ("babyai", "counter", "sciworld", "textcraft")
_GROUP = "agym.envs"


def names() -> tuple[str, ...]:
    return tuple(sorted({*_SHIPPED, *(point.name for point in entry_points(group=_GROUP))}))


def factory(name: str, options: Mapping[str, Json] | None = None) -> EnvFactory:
    """What makes instances of a named environment with these options."""
    return partial(_create(name), dict(options or {}))


def _create(name: str) -> Create:
    if name in _SHIPPED:
        return _checked(name, import_module(f"{__package__}.{name}").create)
    for point in entry_points(group=_GROUP, name=name):
        return _checked(name, point.load())
    close = get_close_matches(name, names(), n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(names())}"
    raise UnknownEnv(f"no environment is called '{name[:40]}'; {hint}")


def _checked(name: str, create: object) -> Create:
    if not callable(create):
        raise UnknownEnv(f"environment '{name}' is registered with something that cannot be called")

    def checked(options: Mapping[str, Json]) -> Env:
        env = create(options)
        if not isinstance(env, Env):
            raise UnknownEnv(f"environment '{name}' is registered with something that makes no Env")
        return env

    return checked
