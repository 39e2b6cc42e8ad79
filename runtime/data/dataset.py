"""Demonstrations and preference pairs from JSON lines, as conversations.

A line is an object, either

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}, ...]}

with roles `system`, `user`, `tool` and `assistant`, and optionally `score` (1.0), `success` (true), `environment`,
`task` and `difficulty`, which `data.keep` may use; or an episode as a run records it (schemas/episode.v2.json, and v1).
Assistant messages are trained on, except where a message has `"learn": false` or a recorded reply held no action.

A line of a file of pairs has a prompt and two continuations, each a reply or a list of messages:

    {"prompt": ..., "chosen": ..., "rejected": ...}

The prompt is a user's text or a list of messages, none of them trained on; without one, `chosen` and `rejected` are
whole conversations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..agents.messages import Message
from ..errors import RunError
from ..rollout.episode import Task
from ..storage.episode_log import EpisodePurpose
from ..storage.episode_reader import EPISODES, episode_files, read_chunks

__all__ = ["Conversation", "ConversationReply", "read_conversations", "read_episodes", "read_preferences"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationReply:
    """An assistant message and what followed it."""

    text: str
    observations: tuple[Message, ...] = ()
    trained: bool = True
    state: str = ""
    """Name of the state before it, where a run recorded one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A demonstration as text."""

    opening: tuple[Message, ...]
    replies: tuple[ConversationReply, ...]
    task: Task
    score: float = 1.0
    success: bool = True


def read_conversations(path: Path) -> list[Conversation]:
    """Read demonstrations: `source: file`."""
    return [_conversation(data, where) for where, data in _lines(path)]


def read_preferences(path: Path) -> list[tuple[Conversation, Conversation]]:
    """Read pairs of a better and a worse conversation: `source: file` of a preference stage."""
    return [_pair(data, where) for where, data in _lines(path)]


def read_episodes(folder: Path) -> list[Conversation]:
    """Read a run's episodes on training tasks, never those of its evaluations: `source: episodes`."""
    if not (folder / EPISODES).is_dir():
        raise RunError(f"data: '{folder}' is not a run folder: it has no 'episodes'")
    files = episode_files(folder / EPISODES)
    read = {".gz": _packed_lines}
    lines = [line for file in files for line in read.get(file.suffix, _lines)(file)]
    lines = [line for line in lines if line[1].get("purpose") == EpisodePurpose.TRAIN]
    found = [_conversation(data, where) for where, data in lines if data.get("turns")]
    if not found:
        raise RunError(f"data: '{folder}' has no episodes of training tasks: run it with 'checkpoint.episodes: all'")
    return found


def _lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"data: cannot read '{path}': {error}") from error
    yield from _parse_lines(path, text)


def _packed_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        chunks = list(read_chunks(path))
        text = b"".join(chunk.data for chunk in chunks).decode()
    except (OSError, ValueError) as error:
        raise RunError(f"data: cannot read '{path}': {error}") from error
    if problem := next((chunk.problem for chunk in chunks if chunk.problem), None):
        raise RunError(f"data: '{path}': {problem}")
    yield from _parse_lines(path, text)


def _parse_lines(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            data = json.loads(line)
        except ValueError as error:
            raise RunError(f"{where}: invalid JSON: {error}") from error
        if not isinstance(data, dict):
            raise RunError(f"{where}: expected an object, one per line")
        yield where, data


@contextmanager
def _locate_errors(where: str, expected: str) -> Iterator[None]:
    """Turn an error in a line into one that names the line."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        what = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else str(error)
        raise RunError(f"{where}: {what}; expected {expected}") from error


def _conversation(data: Mapping[str, Any], where: str) -> Conversation:
    with _locate_errors(where, "'messages', or an episode as a run records it"):
        return _from_record(data) if "turns" in data else _from_messages(data)


def _from_record(data: Mapping[str, Any]) -> Conversation:
    if len(data.get("segments", ())) > 1:
        raise ValueError("an episode of several segments is not one conversation")
    return Conversation(
        opening=tuple(Message(each["role"], each["content"]) for each in data["opening"]),
        replies=tuple(_recorded_replies(data["turns"])),
        task=Task(**data["task"]),
        score=float(data["score"]),
        success=bool(data["success"]),
    )


def _recorded_replies(turns: Sequence[Mapping[str, Any]]) -> Iterator[ConversationReply]:
    for first, *others in _group_by_reply(turns):
        observations = tuple(Message(turn.get("role", "user"), turn["observation"]) for turn in (first, *others))
        # what an environment did not understand is nothing to imitate
        trained = first["action"] is not None or first.get("purpose", "act") != "act"
        yield ConversationReply(
            text=first["reply"], observations=observations, trained=trained, state=first.get("state", "")
        )


def _group_by_reply(turns: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Group turns by reply: of several actions in one reply, the first turn holds its tokens."""
    starts = [at for at, turn in enumerate(turns) if turn.get("end", 1) > turn.get("start", 0)]
    for start, end in zip(starts, [*starts[1:], len(turns)], strict=True):
        yield list(turns[start:end])


def _from_messages(data: Mapping[str, Any]) -> Conversation:
    messages = [_message(each) for each in data["messages"]]
    starts = [at for at, (message, _) in enumerate(messages) if message.role == "assistant"]
    if not starts or starts[0] == 0:
        raise ValueError("expected an 'assistant' message after at least one other")
    return Conversation(
        opening=tuple(message for message, _ in messages[: starts[0]]),
        replies=tuple(_replies(messages, starts)),
        task=Task(
            environment=str(data.get("environment", "file")),
            id=str(data.get("task", "")),
            seed=0,
            difficulty=str(data.get("difficulty", "")),
        ),
        score=float(data.get("score", 1.0)),
        success=bool(data.get("success", True)),
    )


def _pair(data: Mapping[str, Any], where: str) -> tuple[Conversation, Conversation]:
    with _locate_errors(where, "'prompt', 'chosen' and 'rejected'"):
        if data["chosen"] == data["rejected"]:
            raise ValueError("'chosen' and 'rejected' are the same")
        before = [{**each, "learn": False} for each in _to_messages(data.get("prompt", []), "user")]
        better, worse = (
            _from_messages({"messages": before + _to_messages(data[key], "assistant")}) for key in _ANSWERS
        )
        if not all(any(reply.trained for reply in side.replies) for side in (better, worse)):
            raise ValueError("expected a message to train on in both 'chosen' and 'rejected'")
        return better, worse


_ANSWERS = ("chosen", "rejected")


def _to_messages(what: str | list[Mapping[str, Any]], role: str) -> list[Mapping[str, Any]]:
    return [{"role": role, "content": what}] if isinstance(what, str) else what


def _message(data: Mapping[str, Any]) -> tuple[Message, bool]:
    role, content = data["role"], data["content"]
    if role not in _ROLES or not isinstance(content, str):
        raise ValueError(f"expected a role of {', '.join(_ROLES)} and a text as content")
    return Message(role, content), bool(data.get("learn", True))


_ROLES = ("system", "user", "tool", "assistant")


def _replies(messages: Sequence[tuple[Message, bool]], starts: Sequence[int]) -> Iterator[ConversationReply]:
    for at, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        message, trained = messages[at]
        observations = tuple(other for other, _ in messages[at + 1 : end])
        if not observations and end < len(messages):
            raise ValueError("expected another role between two 'assistant' messages")
        yield ConversationReply(text=message.content, observations=observations, trained=trained)
