"""Token buffer of an episode under way: every sampled token is trained on once, after the tokens it was sampled after.

Within a segment tokens are only ever appended; in a new one earlier replies are context and no longer trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..protocols import Sampled
from .episode import Segment

__all__ = ["TokenBuffer"]


@dataclass(slots=True)
class TokenBuffer:
    """Tokens, with log-probs and versions of the sampled ones."""

    ids: list[int] = field(default_factory=list)
    """All tokens of the current segment."""
    _sampled: list[bool] = field(default_factory=list)
    _logprobs: list[float] = field(default_factory=list)
    _versions: list[int] = field(default_factory=list)
    _finished: list[Segment] = field(default_factory=list)

    @property
    def segment(self) -> int:
        """Index of the current segment."""
        return len(self._finished)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return (*self._finished, self._current_segment())

    def append_context(self, ids: Sequence[int]) -> None:
        self.append(ids, [False] * len(ids))

    def extend_context(self, ids: Sequence[int]) -> None:
        """Append the tokens by which these extend the segment; start a new segment if they do not begin with it."""
        if list(ids[: len(self.ids)]) == self.ids:
            self.append_context(ids[len(self.ids) :])
        else:
            self.start_segment(ids)

    def append(self, ids: Sequence[int], sampled: Sequence[bool]) -> tuple[int, int]:
        """Append tokens that no weights sampled here; those marked as sampled are to be imitated."""
        return self._append(ids, sampled, [0.0] * len(ids), [-1] * len(ids))

    def append_sampled(self, reply: Sampled) -> tuple[int, int]:
        return self._append(reply.ids, [True] * len(reply.ids), reply.logprobs, reply.versions)

    def _append(
        self, ids: Sequence[int], sampled: Sequence[bool], logprobs: Sequence[float], versions: Sequence[int]
    ) -> tuple[int, int]:
        start = len(self.ids)
        self.ids += ids
        self._sampled += sampled
        self._logprobs += logprobs
        self._versions += versions
        return start, len(self.ids)

    def start_segment(self, ids: Sequence[int]) -> None:
        """Start another view; the current one becomes a segment, if it has tokens."""
        if self.ids:
            self._finished.append(self._current_segment())
        self.ids, self._sampled, self._logprobs, self._versions = [], [], [], []
        self.append_context(ids)

    def _current_segment(self) -> Segment:
        return Segment(
            ids=np.asarray(self.ids, np.int32),
            sampled=np.asarray(self._sampled, np.bool_),
            logprobs=np.asarray(self._logprobs, np.float32),
            versions=np.asarray(self._versions, np.int32),
        )
