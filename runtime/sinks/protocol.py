"""The one seam to services that keep metrics: a Sink, and what a factory gets to open one.

A sink may raise whatever it likes from `write`, `note` and `close`: `fanout` switches it off and the run goes on. From
its factory a RunError means that the recipe or the machine must be mended first; anything else, that this sink is left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...dsl.model.plan import Plan
from ...dsl.model.recipe import Sink as Settings
from ..reporting import MetricsRow

__all__ = ["Factory", "MetricsSink", "Opening", "remember"]


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


def remember(opening: Opening, name: str, make: Callable[[], str]) -> str:
    """The name a service knows this run by: made once, found again when the run is resumed."""
    file = opening.folder / "logs" / name
    if file.exists():
        return file.read_text(encoding="utf-8").strip()
    file.parent.mkdir(parents=True, exist_ok=True)
    made = make()
    file.write_text(made + "\n", encoding="utf-8")
    return made
