"""Protocol of a sink for metrics, and what its factory gets.

`write`, `note` and `close` may raise anything: the sink is then switched off, and the run goes on. From the factory a
RunError stops the run before it starts; any other exception leaves the sink out.
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
    """Keeps rows of metrics. Called from one thread, in the order of the run.

    A sink that also has `table(table: EpisodeTable)` is given a few episodes of each evaluation and of each step that
    is saved.
    """

    def write(self, row: MetricsRow) -> None: ...

    def note(self, text: str) -> None:
        """Something a person should know, such as a roll-back."""
        ...

    def close(self, *, failed: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Argument of a factory."""

    settings: Settings
    """The sink's entry in the recipe."""
    plan: Plan
    folder: Path
    """The run's folder; a sink that writes files makes a folder of its own in `logs/`."""
    environ: Mapping[str, str]
    """Environment variables, the only place for keys."""
    wall_clock: Callable[[], float]
    """Seconds since 1970."""
    recipe: str = ""
    """The resolved recipe as YAML, with `${env:NAME}` in place of values from the environment."""


Factory = Callable[[Opening], MetricsSink]


def remember(opening: Opening, name: str, make: Callable[[], str]) -> str:
    """Return the id by which a service knows this run: made once, found again when the run is resumed."""
    file = opening.folder / "logs" / name
    if file.exists():
        return file.read_text(encoding="utf-8").strip()
    file.parent.mkdir(parents=True, exist_ok=True)
    made = make()
    file.write_text(made + "\n", encoding="utf-8")
    return made
