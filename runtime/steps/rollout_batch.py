"""The groups of one step as they were played, and the files in a checkpoint that keep those not trained on yet."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RunError
from ..rollout.episode import Episode, Group, Segment
from ..rollout.task_sampler import TaskMixture
from ..typed_json import build_typed

__all__ = ["RolloutBatch", "read_batches", "write_batches"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RolloutBatch:
    """The groups of one step."""

    groups: tuple[Group, ...]
    rounds: int
    """Of further sampling, under `filter.resample`."""
    mixture: TaskMixture
    """How far tasks had been drawn once its own were."""
    staleness: int
    """Steps between the weights that played it and those that are trained on it."""
    seconds: Mapping[str, float]
    """Spent on each op that sampled it, by its id."""
    judged: Mapping[str, float] = field(default_factory=dict)
    """What a judge's verdicts cost, by metric."""


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
        for episode in _episodes(group)
        for segment in episode.segments
    ]
    text = {"version": _VERSION, "batches": batches, "lengths": [len(segment.ids) for segment in segments]}
    (folder / _TEXT).write_text(json.dumps(text, allow_nan=False, default=_plain))
    arrays = {
        name: np.concatenate([np.empty(0, kind), *(getattr(segment, name) for segment in segments)])
        for name, kind in _ARRAYS.items()
    }
    np.savez(folder / _TOKENS, **arrays)


def _plain(value: Any) -> dict[str, Any] | str:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return {} if isinstance(value, Segment) else {each.name: getattr(value, each.name) for each in fields(value)}


def read_batches(folder: Path, environments: Collection[str] | None = None) -> tuple[RolloutBatch, ...]:
    """What `write_batches` wrote there, of these environments; RunError if it is damaged."""
    if not (folder / _TEXT).exists():
        return ()
    try:
        return _read_batches(folder, environments)
    except RunError:
        raise
    except Exception as error:
        # files can hold anything, so reading them can fail in any way
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise RunError(f"'{folder / _TEXT}' or '{_TOKENS}' next to it is damaged: {reason}") from error


def _read_batches(folder: Path, environments: Collection[str] | None) -> tuple[RolloutBatch, ...]:
    text = json.loads((folder / _TEXT).read_text(encoding="utf-8"))
    if build_typed(int, text["version"], "version") != _VERSION:
        raise RunError(f"'{folder / _TEXT}' is of version {text['version']}; expected {_VERSION}")
    if not isinstance(text["batches"], list):
        raise ValueError("batches is no list")
    segments = _segments(folder / _TOKENS, build_typed(list[int], text["lengths"], "lengths"))
    batches = tuple(_batch(each, segments) for each in text["batches"])
    if any(segments):
        raise ValueError("there are more sequences than the episodes have")
    groups = [group for batch in batches for group in batch.groups]
    tasks = [each.task for group in groups for each in _episodes(group)] + [group.task for group in groups]
    names = {task.environment for task in tasks}
    if environments is not None and not names <= set(environments):
        raise ValueError(f"there are episodes of {', '.join(sorted(names - set(environments)))}")
    return batches


def _segments(file: Path, lengths: Sequence[int]) -> Iterator[Segment]:
    with np.load(file, allow_pickle=False) as kept:
        arrays = {name: kept[name] for name in _ARRAYS}
    for name, kind in _ARRAYS.items():
        if (arrays[name].dtype, arrays[name].shape) != (kind, (sum(lengths),)):
            raise ValueError(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}")
    if min(lengths, default=0) < 0 or (arrays["ids"] < 0).any():
        raise ValueError("a token or a length is negative")
    start = 0
    for length in lengths:
        yield Segment(**{name: array[start : start + length] for name, array in arrays.items()})
        start += length


def _batch(data: dict[str, Any], segments: Iterator[Segment]) -> RolloutBatch:
    for group in data["groups"]:
        for episode in filter(None, (*group["episodes"], group["greedy"])):
            own = list(islice(segments, len(episode["segments"])))
            if episode["segments"] != [{}] * len(own):
                raise ValueError("the episodes have more sequences than there are")
            episode["segments"] = own
            for drawn in (episode, *episode["turns"]):
                if drawn.get("picture") is not None:
                    drawn["picture"] = b64decode(drawn["picture"], validate=True)
    # version 0.1.0 kept one number for all
    seconds = data["seconds"] if isinstance(data["seconds"], dict) else {"rollout": data["seconds"]}
    batch = build_typed(RolloutBatch, {**data, "seconds": seconds})
    for group in batch.groups:
        if not group.episodes:
            raise ValueError("a group has no episodes")
        for episode in _episodes(group):
            _check_turns(episode)
    return batch


def _episodes(group: Group) -> tuple[Episode, ...]:
    """With the greedy one last."""
    return (*group.episodes, *filter(None, (group.greedy,)))


def _check_turns(episode: Episode) -> None:
    lengths = [len(segment.ids) for segment in episode.segments]
    for turn in episode.turns:
        if not (0 <= turn.segment < len(lengths) and 0 <= turn.start <= turn.end <= lengths[turn.segment]):
            raise ValueError(f"tokens {turn.start} to {turn.end} of sequence {turn.segment} are not there")
