"""What `agym eval` shows while it plays, and what it has when it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from ...runtime.rollout.episode import Episode
from ...runtime.steps.evaluate import Play, gather_play
from ...runtime.storage.episode_log import Mode

if TYPE_CHECKING:
    from ...runtime.reporting import EventKind, MetricsRow

__all__ = ["EvalProgress"]

_PAUSE_S = 10.0
"""Between two lines about one play, where lines cannot be redrawn."""


@dataclass(slots=True)
class _PlayUnderWay:
    environment: str
    horizon: int
    mode: Mode
    expected: int
    episodes: list[Episode] = field(default_factory=list)

    def __str__(self) -> str:
        won = sum(each.success for each in self.episodes)
        lost = sum(not each.ending.trainable for each in self.episodes)
        faults = f", {lost} lost to faults" if lost else ""
        how = f"{self.environment}, {self.horizon} turns, {self.mode}"
        return f"{how}: {len(self.episodes)} of {self.expected} episodes, {won} succeeded{faults}"


class EvalProgress:
    """Reporter and observer of an evaluation: counts its episodes, on a terminal in one line that is redrawn."""

    def __init__(self, err: TextIO, clock: Callable[[], float]) -> None:
        self._err = err
        self._clock = clock
        self._is_live = err.isatty()
        self._plays: list[_PlayUnderWay] = []
        self._shown_at = clock()
        self._width = 0

    @property
    def plays(self) -> tuple[Play, ...]:
        """What was played so far; a play that was interrupted has fewer episodes."""
        return tuple(
            gather_play(each.environment, each.horizon, each.mode, each.episodes)
            for each in self._plays
            if each.episodes
        )

    @property
    def missing(self) -> int:
        """Episodes of plays that were started and not finished."""
        return sum(each.expected - len(each.episodes) for each in self._plays)

    def begin(self, environment: str, horizon: int, mode: Mode, episodes: int) -> None:
        self._plays.append(_PlayUnderWay(environment, horizon, mode, episodes))

    def episode(self, episode: Episode) -> None:
        if not self._plays:
            return
        play = self._plays[-1]
        play.episodes.append(episode)
        is_whole = len(play.episodes) == play.expected
        if self._is_live or is_whole or self._clock() - self._shown_at >= _PAUSE_S:
            self._show(str(play), is_last=is_whole)

    def note(self, text: str) -> None:
        self.close()
        self._err.write(f"agym eval: {text}\n")

    def event(self, kind: EventKind, text: str, **facts: int | str) -> None:
        self.note(text)

    def close(self) -> None:
        """End a line that is being redrawn."""
        if self._width:
            self._err.write("\n")
            self._width = 0

    def phase(self, name: str) -> None: ...

    def row(self, row: MetricsRow) -> None: ...

    def sample(self, name: str, total_step: int, episodes: Sequence[Episode]) -> None: ...

    def _show(self, text: str, *, is_last: bool) -> None:
        self._shown_at = self._clock()
        if not self._is_live:
            self._err.write(f"agym eval: {text}\n")
            self._err.flush()
            return
        # spaces over what a longer text has left
        self._err.write(f"\r{text:{self._width}}")
        self._width = len(text)
        if is_last:
            self.close()
        self._err.flush()
