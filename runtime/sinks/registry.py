"""Sinks by name: a row for each of this package, and those that plugins bring under the entry point group `agym.sinks`.

Reading the table imports neither a sink nor its library; the catalog, `agym doctor` and the rules on `logging` do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import yaml

from ...dsl.catalog import SinkInfo
from ..errors import RunError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .protocol import Factory, Opening

__all__ = ["GROUP", "SINKS", "check_settings", "factory_of", "flat_recipe", "import_library"]

GROUP = "agym.sinks"

_ROWS = (
    SinkInfo(
        name="mlflow",
        summary="an MLflow tracking server, or a folder",
        settings=("project", "uri", "offline"),
        extra="mlflow",
        packages=("mlflow", "mlflow-skinny"),
        factory="mlflow:MlflowSink",
    ),
    SinkInfo(
        name="tensorboard",
        summary="event files for TensorBoard",
        settings=(),
        extra="tensorboard",
        packages=("tensorboard",),
        factory="tensorboard:TensorBoardSink",
    ),
    SinkInfo(
        name="trackio",
        summary="Trackio, on this machine or a server",
        settings=("project", "uri", "options"),
        options={"group": {"type": "string", "description": "Group that the run belongs to."}},
        extra="trackio",
        packages=("trackio",),
        factory="trackio:TrackioSink",
    ),
    SinkInfo(
        name="wandb",
        summary="Weights & Biases, online or offline",
        settings=("project", "entity", "offline", "options"),
        options={
            "group": {"type": "string", "description": "Group that the run belongs to."},
            "job_type": {"type": "string", "description": "Type of the run within its group."},
            "notes": {"type": "string", "description": "Longer description of the run."},
        },
        variables=("WANDB_API_KEY",),
        extra="wandb",
        packages=("wandb",),
        factory="wandb:WandbSink",
    ),
)
SINKS: Mapping[str, SinkInfo] = {row.name: row for row in _ROWS}


def _installed() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # with its imports and the search, 50 ms

    return entry_points(group=GROUP)


def factory_of(name: str, plugins: Callable[[], Iterable[EntryPoint]] = _installed) -> Factory:
    """The function that opens a sink. This package's own names come first: no plugin can override one."""
    if name in SINKS:
        module, _, function = SINKS[name].factory.partition(":")
        return cast("Factory", getattr(import_module(f".{module}", __package__), function))
    point = next((point for point in plugins() if point.name == name), None)
    if point is None:
        raise RunError(f"logging: no sink is called '{name}' on this machine: install the plugin that brings it")
    try:
        found = point.load()
    # a plugin may fail in any way while it is imported
    except Exception as error:
        raise RunError(f"logging: the plugin of '{name}', {point.value}, cannot be loaded: {error!r}") from error
    if not callable(found):
        raise RunError(f"logging: the plugin of '{name}', {point.value}, is not a function that opens a sink")
    return cast("Factory", found)


# --- what the factories of this package share ----------------------------------------------------------------------


def check_settings(opening: Opening) -> Mapping[str, Any]:
    """The `options` of the recipe, each in the table; every environment variable that the sink needs is set."""
    settings, row = opening.settings, SINKS[opening.settings.use]
    unknown = sorted(set(settings.options) - set(row.options))
    if unknown:
        expected = ", ".join(sorted(row.options)) or "none"
        raise RunError(f"logging: '{row.name}' has no option '{unknown[0]}': expected {expected}")
    for variable in () if settings.offline else row.variables:
        if not opening.environ.get(variable):
            raise RunError(f"logging: '{row.name}' needs a key in {variable}; set it, or write 'offline: true'")
    return settings.options


def flat_recipe(opening: Opening) -> Mapping[str, str]:
    """The resolved recipe as keys with dots, for services that keep parameters."""
    return dict(_flat(yaml.safe_load(opening.recipe) or {}, ""))


def _flat(data: Any, prefix: str) -> Iterator[tuple[str, str]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    if not items:
        yield prefix, str(data)
    for key, value in items:
        name = value.get("stage", key) if isinstance(value, dict) and isinstance(data, list) else key
        yield from _flat(value, f"{prefix}.{name}" if prefix else str(name))


def import_library(module: str, sink: str) -> Any:
    """A library that only this sink needs."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = f"logging: '{sink}' needs a package that is not installed ({error})"
        raise RunError(f"{missing}: pip install 'agym-dsl[{SINKS[sink].extra}]'") from error
