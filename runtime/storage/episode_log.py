"""Episodes as lines of a file: all of it, so that it can be shown, replayed and learnt from.

Enters: an Episode and where in the run it was played. Leaves: one line of JSON, as schemas/episode.v1.json says. What
is kept of the tokens is what was sampled, with its log-probs: never a rendering of the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..rollout.episode import Episode, Segment

__all__ = ["episode_lines"]

_PLACES = 6
"""Decimal places of a log-prob; float32 has no more to say."""


def episode_lines(episodes: Iterable[Episode], *, purpose: str, total_step: int, stage: str) -> list[str]:
    """`purpose` is `train` or `eval`."""
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
