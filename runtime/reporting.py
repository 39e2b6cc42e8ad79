"""Reporter of a run; the sinks and the console are behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .rollout.episode import Episode

__all__ = ["MetricsRow", "Reporter", "SilentReporter"]

MetricsRow = Mapping[str, float | int | str]
"""One object of `metrics.jsonl`."""


class Reporter(Protocol):
    """Receives everything, decides nothing."""

    def phase(self, name: str) -> None:
        """Announce the current phase."""
        ...

    def episode(self, episode: Episode) -> None: ...

    def row(self, row: MetricsRow) -> None: ...

    def sample(self, name: str, total_step: int, episodes: Sequence[Episode]) -> None:
        """Keep a few episodes of an evaluation (`eval`), or of a step that is saved (`train`)."""
        ...

    def note(self, text: str) -> None:
        """Report something to a person."""
        ...


class SilentReporter:
    """Discards everything."""

    def phase(self, name: str) -> None: ...

    def episode(self, episode: Episode) -> None: ...

    def row(self, row: MetricsRow) -> None: ...

    def sample(self, name: str, total_step: int, episodes: Sequence[Episode]) -> None: ...

    def note(self, text: str) -> None: ...
