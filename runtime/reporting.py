"""Reporter of a run; the sinks and the console are behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from .rollout.episode import Episode

__all__ = ["EventKind", "MetricsRow", "Reporter", "SilentReporter"]

MetricsRow = Mapping[str, float | int | str]
"""One object of `metrics.jsonl`."""


class EventKind(StrEnum):
    """What happens to a run besides its steps."""

    NOTE = "note"
    PROMPT = "prompt"
    GUARD = "guard"
    ROLL_BACK = "roll_back"
    RESUME = "resume"
    FAULT = "fault"
    WORKER_REPLACED = "worker_replaced"
    LEARNER_RESTARTED = "learner_restarted"
    END = "end"

    @property
    def is_shown(self) -> bool:
        """Whether a person sees it as a note; the rest shows in another way."""
        return self not in _UNSHOWN


_UNSHOWN = (EventKind.PROMPT, EventKind.RESUME, EventKind.FAULT, EventKind.WORKER_REPLACED, EventKind.END)


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

    def event(self, kind: EventKind, text: str, **facts: int | str) -> None:
        """Keep an event of the run, and note it if it is one to be shown."""
        ...


class SilentReporter:
    """Discards everything."""

    def phase(self, name: str) -> None: ...

    def episode(self, episode: Episode) -> None: ...

    def row(self, row: MetricsRow) -> None: ...

    def sample(self, name: str, total_step: int, episodes: Sequence[Episode]) -> None: ...

    def note(self, text: str) -> None: ...

    def event(self, kind: EventKind, text: str, **facts: int | str) -> None:
        if kind.is_shown:
            self.note(text)
