"""What the engine tells of itself while it runs. The sinks and the console are behind this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from .rollout.episode import Episode

__all__ = ["MetricsRow", "Reporter", "SilentReporter"]

MetricsRow = Mapping[str, float | int | str]
"""One object of `metrics.jsonl`."""


class Reporter(Protocol):
    """Hears everything, decides nothing."""

    def phase(self, name: str) -> None:
        """What is being done now."""
        ...

    def episode(self, episode: Episode) -> None: ...

    def row(self, row: MetricsRow) -> None: ...

    def note(self, text: str) -> None:
        """Something a person should know."""
        ...


class SilentReporter:
    """Tells nobody."""

    def phase(self, name: str) -> None: ...

    def episode(self, episode: Episode) -> None: ...

    def row(self, row: MetricsRow) -> None: ...

    def note(self, text: str) -> None: ...
