"""Sinks by name: this package's, and those that plugins bring under the entry point group `agym.sinks`.

Enters: a name of a recipe's `logging`. Leaves: a factory. No sink's library is imported before its factory is
called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from ..errors import RunError
from .mlflow import open_mlflow
from .protocol import Factory
from .tensorboard import open_tensorboard
from .wandb import open_wandb

__all__ = ["GROUP", "SINKS", "factory_of"]

GROUP = "agym.sinks"

SINKS: Mapping[str, Factory] = {"mlflow": open_mlflow, "tensorboard": open_tensorboard, "wandb": open_wandb}


def _installed() -> Iterable[EntryPoint]:
    return entry_points(group=GROUP)


def factory_of(name: str, plugins: Callable[[], Iterable[EntryPoint]] = _installed) -> Factory:
    """This package's own names come first: no plugin takes one over."""
    if name in SINKS:
        return SINKS[name]
    point = next((point for point in plugins() if point.name == name), None)
    if point is None:
        raise RunError(f"logging: no sink is called '{name}' on this machine: install the plugin that brings it")
    try:
        found = point.load()
    # a plugin may fail in any way while it is imported
    except Exception as error:
        raise RunError(f"logging: the plugin of '{name}', {point.value}, cannot be loaded: {error!r}") from error
    if not callable(found):
        raise RunError(f"logging: the plugin of '{name}', {point.value}, is no function that opens a sink")
    return cast(Factory, found)
