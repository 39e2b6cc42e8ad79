"""Episode log: whole episodes as JSON lines (schemas/episode.v1.json), to be shown, replayed and trained on.

Tokens are those that were sampled, with their log-probs: never a rendering of the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..rollout.episode import Episode, Segment

__all__ = ["episode_lines"]

_PLACES = 6
"""Decimal places of a log-prob; float32 has no more."""


def episode_lines(episodes: Iterable[Episode], *, purpose: str, total_step: int, stage: str) -> list[str]:
    """Encode episodes; `purpose` is `train` or `eval`."""
    head = {"version": 1, "purpose": purpose, "total_step": total_step, "stage": stage}
    return [json.dumps({**head, **_record(episode)}, ensure_ascii=False, allow_nan=False) for episode in episodes]


def _record(episode: Episode) -> dict[str, Any]:
    return {
        "task": asdict(episode.task),
        "index": episode.index,
        "horizon": episode.horizon,
        "ending": episode.ending.value,
        "score": episode.score,
        "success": episode.success,
        "fault": episode.fault,
        "retries": episode.retries,
        "seconds": round(episode.seconds, 3),
        "opening": [asdict(message) for message in episode.opening],
        "turns": [asdict(turn) for turn in episode.turns],
        "segments": [_segment(segment) for segment in episode.segments],
    }


def _segment(segment: Segment) -> dict[str, list[Any]]:
    return {
        "ids": segment.ids.tolist(),
        "sampled": segment.sampled.astype(int).tolist(),
        "logprobs": [round(value, _PLACES) for value in segment.logprobs.tolist()],
        "versions": segment.versions.tolist(),
    }
