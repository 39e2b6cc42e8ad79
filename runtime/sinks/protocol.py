"""The one seam to services that keep metrics: a Sink, and what a factory gets to open one.

A sink may raise whatever it likes from `write`, `note` and `close`: `fanout` switches it off and the run goes on. From
its factory a RunError means that the recipe or the machine must be mended first; anything else, that this sink is left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ...dsl.model.plan import Plan
from ...dsl.model.recipe import Sink as Settings
from ..errors import RunError
from ..reporting import MetricsRow

__all__ = ["Factory", "MetricsSink", "Opening", "import_library", "known_options", "remember"]


class MetricsSink(Protocol):
    """Keeps rows somewhere. Called from one thread, never two at once, in the order of the run."""

    def write(self, row: MetricsRow) -> None: ...

    def note(self, text: str) -> None:
        """Something a person should know: a guard that spoke, a roll-back."""
        ...

    def close(self, *, failed: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a factory gets."""

    settings: Settings
    """What the recipe says of this sink."""
    plan: Plan
    folder: Path
    """Of the run; a sink that writes files makes a folder of its own in `logs/`."""
    environ: Mapping[str, str]
    """Where keys are, and the only place where they may be."""
    wall_clock: Callable[[], float]
    """Seconds since 1970."""


Factory = Callable[[Opening], MetricsSink]


def import_library(module: str, sink: str) -> Any:
    """A library that only this sink needs."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = f"logging: '{sink}' needs a package that is not here ({error})"
        raise RunError(f"{missing}: pip install 'agym[{sink}]'") from error


def known_options(opening: Opening, known: Collection[str]) -> Mapping[str, Any]:
    """`options` of the recipe, all of them understood."""
    options = opening.settings.options
    unknown = sorted(set(options) - set(known))
    if unknown:
        expected = ", ".join(sorted(known)) or "none"
        raise RunError(f"logging: '{opening.settings.use}' has no option '{unknown[0]}': expected {expected}")
    return options


def remember(opening: Opening, name: str, make: Callable[[], str]) -> str:
    """The name a service knows this run by: made once, found again when the run is resumed."""
    file = opening.folder / "logs" / name
    if file.exists():
        return file.read_text(encoding="utf-8").strip()
    file.parent.mkdir(parents=True, exist_ok=True)
    made = make()
    file.write_text(made + "\n", encoding="utf-8")
    return made
