"""The log of episodes: whole attempts, token by token, by schemas/episode.v2.json.

Tokens are those that were sampled, with their log-probs: never a rendering of the text. Clock times are under `seconds`
only, here and in each turn, so that the rest of a resumed run's log equals that of one never stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...envs.pictures import is_picture
from ..learning.training_record import TrainingRecord
from ..protocols import Floats
from ..rollout.episode import Episode, HarnessReport, SeatReport, Segment, Turn
from .episode_reader import picture_name

__all__ = [
    "HARNESS_LOGS",
    "EpisodeEntry",
    "EpisodePurpose",
    "EpisodeTraining",
    "Mode",
    "episode_lines",
    "episode_pictures",
    "harness_logs",
]

HARNESS_LOGS = "logs/harness"
_VERSION = 2
_PLACES = 6
"""Decimal places of a log-prob or an advantage; float32 has no more."""


class EpisodePurpose(StrEnum):
    """What an episode was for."""

    TRAIN = "train"
    EVAL = "eval"
    DEMONSTRATION = "demonstration"


class Mode(StrEnum):
    """How an episode's tokens were chosen."""

    SAMPLED = "sampled"
    GREEDY = "greedy"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EpisodeTraining:
    """What an update made of an episode."""

    record: TrainingRecord
    learner_logprobs: Sequence[Floats | None]
    """Of each segment, where the learner computed its own before the update."""
    reference_logprobs: Sequence[Floats | None]
    """Of each segment, under the reference, where they were computed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EpisodeEntry:
    """An episode, and what the log says about it besides."""

    episode: Episode
    group: int
    """Number of its group among those of its step and purpose."""
    mode: Mode | None = Mode.SAMPLED
    """None for a demonstration."""
    training: EpisodeTraining | None = None
    """None for one that was not meant for training."""


def episode_lines(entries: Iterable[EpisodeEntry], *, purpose: EpisodePurpose, total_step: int, stage: str) -> bytes:
    """Encode entries, a line each."""
    head = {"version": _VERSION, "purpose": purpose.value, "total_step": total_step, "stage": stage}
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    return "".join(encode(_record(head, entry)) + "\n" for entry in entries).encode()


def episode_pictures(entries: Iterable[EpisodeEntry]) -> dict[str, bytes]:
    """Return the pictures that the lines of these entries name, each once, by their names."""
    shown = (picture for entry in entries for picture in _pictures(entry.episode) if is_picture(picture))
    return {picture_name(picture): picture for picture in shown}


def _pictures(episode: Episode) -> Iterator[bytes]:
    for picture in (episode.picture, *(turn.picture for turn in episode.turns)):
        if picture is not None:
            yield picture


def _picture(picture: bytes | None) -> dict[str, str]:
    return {} if picture is None or not is_picture(picture) else {"picture": picture_name(picture)}


def _record(head: Mapping[str, Any], entry: EpisodeEntry) -> dict[str, Any]:
    """A line; the tokens come last, so that a reader that does not use them need not parse them."""
    episode, task = entry.episode, entry.episode.task
    group = f"{head['purpose']}-{head['total_step']}-{entry.group}"
    if entry.mode is None:
        group = f"{head['purpose']}-{head['stage']}-{entry.group}"
    return {
        **head,
        "id": f"{group}-{episode.index}",
        "group": group,
        **({} if entry.mode is None else {"mode": entry.mode.value}),
        "task": {
            "environment": task.environment,
            "id": task.id,
            "seed": task.seed,
            "difficulty": task.difficulty,
        },
        "index": episode.index,
        "horizon": episode.horizon,
        "ending": episode.ending.value,
        "score": episode.score,
        "success": episode.success,
        "fault": episode.fault,
        "retries": episode.retries,
        "seconds": round(episode.seconds, 3),
        "sampled_tokens": episode.sampled_tokens,
        "total_tokens": episode.total_tokens,
        **_picture(episode.picture),
        **({"dropped_pictures": dropped} if (dropped := _count_dropped(episode)) else {}),
        **({"prompt": episode.prompt} if episode.prompt else {}),
        **({"judge": list(episode.judge_keys)} if episode.judge_keys else {}),
        **({} if episode.harness is None else {"harness": _harness(episode.harness, f"{group}-{episode.index}")}),
        **({"seats": [_seat(each) for each in episode.seats]} if episode.seats else {}),
        **({} if entry.training is None else {"training": _training(entry.training.record)}),
        "opening": [{"role": message.role, "content": message.content} for message in episode.opening],
        "turns": _turns(episode.turns, entry.training),
        "segments": _segments(episode.segments, entry.training),
    }


def _count_dropped(episode: Episode) -> int:
    return sum(not is_picture(picture) for picture in _pictures(episode))


def _seat(report: SeatReport) -> dict[str, Any]:
    return {
        "name": report.name,
        "model": report.model,
        "version": report.version,
        "tokens": report.tokens,
        "actions": list(report.actions),
    }


def _harness(report: HarnessReport, name: str) -> dict[str, Any]:
    return {
        "requests": report.requests,
        "prompt_tokens": report.prompt_tokens,
        "held_tokens": report.held_tokens,
        "completion_tokens": report.completion_tokens,
        "origins": list(report.origins),
        "parents": list(report.parents),
        **({"log": f"{HARNESS_LOGS}/{name}.log"} if report.log else {}),
    }


def harness_logs(entries: Iterable[EpisodeEntry], purpose: EpisodePurpose, total_step: int) -> dict[str, str]:
    """The logs of episodes that harnesses played, by their files below the run folder."""
    return {
        f"{HARNESS_LOGS}/{purpose.value}-{total_step}-{entry.group}-{entry.episode.index}.log": report.log
        for entry in entries
        if (report := entry.episode.harness) is not None and report.log
    }


def _training(record: TrainingRecord) -> dict[str, Any]:
    known = {} if record.kept is None else {"kept": record.kept, "reason": str(record.reason)}
    return {"reward": record.reward, **known}


def _turns(turns: Sequence[Turn], training: EpisodeTraining | None) -> list[dict[str, Any]]:
    written = [_turn(turn) for turn in turns]
    if training is None:
        return written
    for turn, trained in zip(written, training.record.turns, strict=False):
        turn["trained"] = trained
    if training.record.advantages is not None:
        numbers, at = _plain(training.record.advantages), 0
        for turn in written:
            own = numbers[at : at + turn["end"] - turn["start"]]
            at += len(own)
            if own:
                turn["advantage"] = own[0] if own.count(own[0]) == len(own) else own
    return written


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "segment": turn.segment,
        "start": turn.start,
        "end": turn.end,
        "reply": turn.reply,
        "action": turn.action,
        "observation": turn.observation,
        "reward": turn.reward,
        "state": turn.state,
        "purpose": turn.purpose.value,
        "role": turn.role,
        "seconds": {"sampling": round(turn.sampling_s, 4), "environment": round(turn.env_s, 4)},
        **_picture(turn.picture),
    }


def _segments(segments: Sequence[Segment], training: EpisodeTraining | None) -> list[dict[str, Any]]:
    written = [_segment(segment) for segment in segments]
    if training is not None:
        for one, learner, reference in zip(
            written, training.learner_logprobs, training.reference_logprobs, strict=True
        ):
            one |= {} if learner is None else {"learner_logprobs": _plain(learner)}
            one |= {} if reference is None else {"reference_logprobs": _plain(reference)}
    return written


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "ids": segment.ids.tolist(),
        "sampled": segment.sampled.astype(np.int8).tolist(),
        "logprobs": _plain(segment.logprobs),
        "versions": segment.versions.tolist(),
    }


def _plain(numbers: NDArray[Any]) -> list[float | None]:
    """Numbers for JSON, which has no NaN and no infinity."""
    rounded = np.round(numbers.astype(np.float64), _PLACES)
    plain: list[float | None] = rounded.tolist()
    if not np.isfinite(rounded).all():
        return [value if value is not None and abs(value) < float("inf") else None for value in plain]
    return plain
