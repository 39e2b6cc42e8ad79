"""From files of recorded episodes to rows: one for each episode, of every version, without its tokens.

A line is read up to its tokens, which come last in it; a line that is not an episode gives no row, and is counted.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jsonschema import Draft7Validator

from ..runtime.storage.episode_reader import EPISODES, Chunk, DamagedEpisode, episode_files, read_chunks, read_line
from ..schemas import load

__all__ = ["EpisodeRow", "Place", "ReadChunk", "find_runs", "list_files", "read_episode", "read_rows"]

_TOKENS = (b',"segments":[', b', "segments": [')
"""Before the tokens of a line, as versions 2 and 1 write it; within a text the quotes would be escaped."""
_FIRST_LINE = 80
"""Characters of an episode's first observation that a list shows."""
_MOST_TEXT = 20_000
"""Characters of an episode that a search finds."""
_VERSIONS = (1, 2)
_LARGEST = 2**62
"""No run counts up to numbers from here on."""


class Place(NamedTuple):
    """Where a line is: by its place in the file, or in the member that starts there."""

    start: int
    inner: int
    length: int


class EpisodeRow(NamedTuple):
    """An episode, as a list shows it and a filter finds it. None stands for what is not recorded."""

    id: str
    group: str
    purpose: str
    mode: str | None
    step: int
    stage: str
    environment: str
    task: str
    seed: int
    difficulty: float | None
    position: int
    """In its group."""
    horizon: int
    ending: str
    success: int
    score: float
    reward: float | None
    advantage: float | None
    kept: int | None
    turns: int
    invalid_turns: int
    sampled_tokens: int
    total_tokens: int | None
    seconds: float
    first_line: str
    text: str
    """What a search looks through: what the agent was told and what it said, without the system's prompt."""
    place: Place


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Rows that are next to each other in a file, and where to read on."""

    chunk: Chunk
    rows: list[EpisodeRow]
    num_damaged: int
    """Lines that are not episodes."""


def find_runs(path: Path) -> list[Path]:
    """Find what holds episodes: a run folder, one of `agym eval --episodes`, or the folders in a folder."""
    if (path / EPISODES).is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if (each / EPISODES).is_dir()) if path.is_dir() else []


def list_files(run: Path) -> list[Path]:
    return episode_files(run / EPISODES)


def read_rows(path: Path, start: int = 0) -> Iterator[ReadChunk]:
    """Read the episodes of a file from where an earlier chunk ended; a last line that is not whole is left."""
    for chunk in read_chunks(path, start):
        rows, damaged, inner = list[EpisodeRow](), 0, 0
        for line in chunk.data.split(b"\n")[:-1]:
            place = Place(chunk.start if chunk.is_member else chunk.start + inner, inner * chunk.is_member, len(line))
            inner += len(line) + 1
            row = _row(line, place) if line else None
            if row is not None:
                rows.append(row)
            elif line:
                damaged += 1
        yield ReadChunk(chunk, rows, damaged + bool(chunk.problem))


def read_episode(path: Path, place: Place) -> dict[str, Any]:
    """Read a whole episode, tokens included."""
    line = read_line(path, *place)
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedEpisode(f"'{path}' holds no episode at byte {place.start}: {error}") from error
    if problem := _find_problem(record):
        raise DamagedEpisode(f"'{path}' holds no episode at byte {place.start}: {problem}")
    return record  # type: ignore[no-any-return]


def _find_problem(record: Any) -> str | None:
    """What a page could not show. Tokens are not checked one by one: there may be very many."""
    version = record.get("version") if isinstance(record, dict) else None
    if version not in _VERSIONS:
        return f"expected an object of version {' or '.join(map(str, _VERSIONS))}, got version {str(version)[:20]}"
    error = next(_validator(version).iter_errors({**record, "segments": []}), None)
    if error is not None:
        return f"{error.json_path}: {error.message[:200]}"
    segments = record.get("segments")
    for segment in segments if isinstance(segments, list) else [None]:
        if not isinstance(segment, dict) or len({_length(each) for each in segment.values()} - {0}) > 1:
            return "its segments are no lists of the same length"
    return None


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


@cache
def _validator(version: int) -> Draft7Validator:
    return Draft7Validator(load(f"episode.v{version}"))


# --- a line --------------------------------------------------------------------------------------------------------


def _row(line: bytes, place: Place) -> EpisodeRow | None:
    try:
        return _make_row(_parse(line), place)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _parse(line: bytes) -> dict[str, Any]:
    """Parse a line up to its tokens."""
    for mark in _TOKENS:
        if (end := line.rfind(mark)) > 0 and line.endswith(b"]}"):
            return json.loads(line[:end] + b"}")  # type: ignore[no-any-return]
    return json.loads(line)  # type: ignore[no-any-return]


def _make_row(record: dict[str, Any], place: Place) -> EpisodeRow:
    task, turns = record["task"], record["turns"]
    acts = [turn for turn in turns if turn.get("purpose", "act") == "act"]
    training = record.get("training", {})
    kept = training.get("kept")
    id_, group = _names(record, place)
    told = record["opening"][-1]["content"] if record["opening"] else ""
    return EpisodeRow(
        id=_encodable(id_),
        group=_encodable(group),
        purpose=str(record["purpose"]),
        mode=record.get("mode"),
        step=_whole(record["total_step"]),
        stage=str(record["stage"]),
        environment=str(task["environment"]),
        task=str(task["id"]),
        seed=_whole(task["seed"]),
        difficulty=_parse_number(str(task["difficulty"])),
        position=_whole(record["index"]),
        horizon=_whole(record["horizon"]),
        ending=str(record["ending"]),
        success=int(record["success"]),
        score=_real(record["score"]),
        reward=None if "reward" not in training else _real(training["reward"]),
        advantage=_mean_advantage(turns),
        kept=None if kept is None else int(kept),
        turns=len(acts),
        invalid_turns=sum(turn["action"] is None for turn in acts),
        sampled_tokens=_whole(record.get("sampled_tokens", sum(turn["end"] - turn["start"] for turn in turns))),
        total_tokens=_whole(record["total_tokens"]) if "total_tokens" in record else None,
        seconds=_real(record["seconds"]),
        first_line=_encodable(" ".join(told[: 4 * _FIRST_LINE].split())[:_FIRST_LINE]),
        text=_encodable(_text(told, turns)),
        place=place,
    )


def _names(record: dict[str, Any], place: Place) -> tuple[str, str]:
    """The id and the group of an episode; version 1 has neither, and gets them from its other fields."""
    if "id" in record:
        return str(record["id"]), str(record["group"])
    told = f"{record['task']} {record['horizon']}".encode(errors="replace")
    group = f"{record['purpose']}-{record['total_step']}-{zlib.crc32(told):08x}"
    # sampled and greedy episodes of an evaluation differ in nothing else
    return f"{group}-{record['index']}.{place.start + place.inner}", group


def _text(told: str, turns: list[dict[str, Any]]) -> str:
    parts, left = [told[:_MOST_TEXT]], _MOST_TEXT - len(told)
    for turn in turns:
        if left <= 0:
            break
        said = f"{turn['reply']}\n{turn['observation']}"
        parts.append(said[:left])
        left -= len(said)
    return "\n".join(parts)


def _encodable(text: str) -> str:
    """Half of a surrogate pair, which JSON may hold, is not text to a database."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _mean_advantage(turns: list[dict[str, Any]]) -> float | None:
    """Mean over the sampled tokens."""
    total, tokens = 0.0, 0
    for turn in turns:
        value = turn.get("advantage")
        if isinstance(value, list):
            known = [each for each in value if each is not None]
            total, tokens = total + sum(known), tokens + len(known)
        elif value is not None:
            length = turn["end"] - turn["start"]
            total, tokens = total + value * length, tokens + length
    return total / tokens if tokens else None


def _whole(value: Any) -> int:
    if type(value) is not int or not -_LARGEST < value < _LARGEST:
        raise ValueError(value)
    return value


def _real(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(value)
    # a stranger's JSON may hold NaN and infinity; a database sorts neither
    return float(value) if abs(value) < _LARGEST else 0.0


def _parse_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < _LARGEST else None
