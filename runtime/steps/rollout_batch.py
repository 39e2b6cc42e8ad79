"""The groups of one step as they were played, and the files in a checkpoint that keep those not trained on yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..agents.messages import Message
from ..errors import RunError
from ..rollout.episode import Ending, Episode, Group, Purpose, Segment, Task, Turn
from ..rollout.task_sampler import TaskMixture

__all__ = ["RolloutBatch", "read_batches", "write_batches"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RolloutBatch:
    """The groups of one step."""

    groups: tuple[Group, ...]
    rounds: int
    """Of further sampling, under `filter.resample`."""
    mixture: TaskMixture
    """How far tasks had been drawn when the last of its own was."""
    staleness: int
    """Steps between the weights that played it and those that learn from it."""
    seconds: Mapping[str, float]
    """Spent on each op that sampled it, by its id."""
    judged: Mapping[str, float] = field(default_factory=dict)
    """What a judge's verdicts took, by metric."""


_VERSION = 1
_TEXT, _TOKENS = "batches.json", "batches.npz"
_ARRAYS = {"ids": np.int32, "sampled": np.bool_, "logprobs": np.float32, "versions": np.int32}


def write_batches(folder: Path, batches: Sequence[RolloutBatch]) -> None:
    """No file, where there are none."""
    if not batches:
        return
    segments = [
        segment
        for batch in batches
        for group in batch.groups
        for episode in (*group.episodes, *filter(None, (group.greedy,)))
        for segment in episode.segments
    ]
    text = {"version": _VERSION, "batches": batches, "lengths": [len(segment.ids) for segment in segments]}
    (folder / _TEXT).write_text(json.dumps(text, allow_nan=False, default=_plain))
    arrays = {
        name: np.concatenate([np.empty(0, kind), *(getattr(segment, name) for segment in segments)])
        for name, kind in _ARRAYS.items()
    }
    np.savez(folder / _TOKENS, **arrays)


def _plain(value: Any) -> dict[str, Any]:
    return {} if isinstance(value, Segment) else {each.name: getattr(value, each.name) for each in fields(value)}


def read_batches(folder: Path) -> tuple[RolloutBatch, ...]:
    """What `write_batches` wrote there; RunError where it is damaged."""
    if not (folder / _TEXT).exists():
        return ()
    try:
        return _read_batches(folder)
    except RunError:
        raise
    except Exception as error:
        # files can hold anything, and so can go wrong in any way
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise RunError(f"'{folder / _TEXT}' or '{_TOKENS}' beside it is damaged: {reason}") from error


def _read_batches(folder: Path) -> tuple[RolloutBatch, ...]:
    text = json.loads((folder / _TEXT).read_text(encoding="utf-8"))
    if text["version"] != _VERSION:
        raise RunError(f"'{folder / _TEXT}' is of version {text['version']}; expected {_VERSION}")
    segments = _segments(folder / _TOKENS, text["lengths"])
    return tuple(_batch(each, segments) for each in text["batches"])


def _segments(file: Path, lengths: Sequence[int]) -> Iterator[Segment]:
    with np.load(file, allow_pickle=False) as kept:
        arrays = {name: kept[name] for name in _ARRAYS}
    start = 0
    for length in lengths:
        yield Segment(**{name: array[start : start + length] for name, array in arrays.items()})
        start += length


def _batch(data: dict[str, Any], segments: Iterator[Segment]) -> RolloutBatch:
    groups = tuple(_group(each, segments) for each in data["groups"])
    # version 0.1.0 kept one number for all
    seconds = data["seconds"] if isinstance(data["seconds"], dict) else {"rollout": data["seconds"]}
    return RolloutBatch(**{**data, "groups": groups, "mixture": TaskMixture(**data["mixture"]), "seconds": seconds})


def _group(data: dict[str, Any], segments: Iterator[Segment]) -> Group:
    episodes = tuple(_episode(each, segments) for each in data["episodes"])
    greedy = None if data["greedy"] is None else _episode(data["greedy"], segments)
    return Group(task=Task(**data["task"]), episodes=episodes, greedy=greedy)


def _episode(data: dict[str, Any], segments: Iterator[Segment]) -> Episode:
    frozen = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    parts: dict[str, Any] = {
        "task": Task(**data["task"]),
        "segments": tuple(islice(segments, len(data["segments"]))),
        "turns": tuple(Turn(**{**each, "purpose": Purpose(each["purpose"])}) for each in data["turns"]),
        "ending": Ending(data["ending"]),
        "opening": tuple(Message(**each) for each in data["opening"]),
        "faults": tuple(data["faults"]),
    }
    return Episode(**{**frozen, **parts})
