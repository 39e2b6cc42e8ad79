"""Demonstrations and preference pairs from JSON lines, as conversations.

A line is an object, either

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}, ...]}

with roles `system`, `user`, `tool` and `assistant`, and optionally `score` (1.0), `success` (true), `environment`,
`task` and `difficulty`, which `data.keep` may use; or an episode as a run records it (schemas/episode.v2.json, and v1).
Assistant messages are trained on, except where a message has `"learn": false` or `"weight": 0`, or a recorded reply
held no action. They may have `tool_calls` where the line has `tools`, both as in a request for a chat completion.

A line of a file of pairs has a prompt and two continuations, each a reply or a list of messages:

    {"prompt": ..., "chosen": ..., "rejected": ...}

The prompt is a user's text or a list of messages, none of them trained on; without one, `chosen` and `rejected` are
whole conversations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...envs.protocol import ToolSchema
from ..agents.calls import ToolCall, load_call
from ..agents.chat import readable
from ..agents.messages import Message
from ..errors import RunError
from ..policy_endpoint.api_errors import ApiError
from ..policy_endpoint.chat_completions import read_tools
from ..rollout.episode import Task
from ..storage.episode_log import EpisodePurpose
from ..storage.episode_reader import EPISODES, episode_files, read_chunks
from ..typed_json import build_typed

__all__ = ["Conversation", "ConversationReply", "read_conversations", "read_episodes", "read_preferences"]

_LONGEST_LINE = 1 << 26
"""Bytes; more tokens than these fit no context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationReply:
    """An assistant message and what followed it."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    """Calls of the conversation's tools, after the text."""
    observations: tuple[Message, ...] = ()
    trained: bool = True
    state: str = ""
    """Name of the state before it, where a run recorded one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A demonstration as text."""

    origin: str
    """Its file and line."""
    opening: tuple[Message, ...]
    replies: tuple[ConversationReply, ...]
    task: Task
    score: float = 1.0
    success: bool = True
    tools: tuple[ToolSchema, ...] = ()


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
        with path.open("rb") as file:
            yield from _parse_lines(path, iter(partial(file.readline, _LONGEST_LINE + 1), b""))
    except OSError as error:
        raise RunError(f"data: cannot read '{path}': {error}") from error


def _packed_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        chunks = list(read_chunks(path))
    except (OSError, ValueError) as error:
        raise RunError(f"data: cannot read '{path}': {error}") from error
    if problem := next((chunk.problem for chunk in chunks if chunk.problem), None):
        raise RunError(f"data: '{path}': {problem}")
    yield from _parse_lines(path, (line for chunk in chunks for line in chunk.data.splitlines()))


def _parse_lines(path: Path, lines: Iterable[bytes]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        if len(line) > _LONGEST_LINE:
            raise RunError(f"{where}: a line of more than {_LONGEST_LINE:,} bytes; expected one conversation per line")
        if not line.strip():
            continue
        try:
            data = json.loads(line.decode())
        except UnicodeDecodeError as error:
            raise RunError(f"{where}: not UTF-8: {error}; save the file as UTF-8") from error
        except (ValueError, RecursionError) as error:
            raise RunError(f"{where}: invalid JSON: {error}") from error
        if not isinstance(data, dict):
            raise RunError(f"{where}: expected an object, one per line")
        yield where, data


@contextmanager
def _locate_errors(where: str, expected: str) -> Iterator[None]:
    """Turn an error in a line into one that names the line."""
    try:
        yield
    except (KeyError, TypeError) as error:
        what = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else str(error)
        raise RunError(f"{where}: {what}; expected {expected}") from error
    except (ValueError, RecursionError, ApiError) as error:
        raise RunError(f"{where}: {error}") from error


def _conversation(data: Mapping[str, Any], where: str) -> Conversation:
    with _locate_errors(where, "'messages', or an episode as a run records it"):
        return (_from_record if "turns" in data else _from_messages)(data, where)


def _from_record(data: Mapping[str, Any], where: str) -> Conversation:
    if len(data.get("segments", ())) > 1:
        raise ValueError("an episode of several segments is not one conversation")
    opening = _objects(data["opening"], "opening")
    return Conversation(
        origin=where,
        opening=tuple(Message(_text(each["role"], "role"), _text(each["content"], "content")) for each in opening),
        replies=tuple(_recorded_replies(_objects(data["turns"], "turns"))),
        task=build_typed(Task, data["task"], "task"),
        score=build_typed(float, data["score"], "score"),
        success=build_typed(bool, data["success"], "success"),
    )


def _objects(value: Any, place: str) -> list[dict[str, Any]]:
    return [build_typed(dict, each, f"{place}[{at}]") for at, each in enumerate(build_typed(list, value, place))]


def _text(value: Any, place: str) -> str:
    return readable(build_typed(str, value, place))


def _given(data: Mapping[str, Any], key: str, default: Any) -> Any:
    """Return what a key holds; tables written as JSON have null where a row has nothing."""
    value = data.get(key)
    return default if value is None else value


def _recorded_replies(turns: Sequence[Mapping[str, Any]]) -> Iterator[ConversationReply]:
    for first, *others in _group_by_reply(turns):
        observations = tuple(
            Message(_text(turn.get("role", "user"), "role"), _text(turn["observation"], "observation"))
            for turn in (first, *others)
        )
        # what an environment did not understand is not to be imitated
        trained = first["action"] is not None or first.get("purpose", "act") != "act"
        yield ConversationReply(
            text=_text(first["reply"], "reply"),
            observations=observations,
            trained=trained,
            state=first.get("state", ""),
        )


def _group_by_reply(turns: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Group turns by reply: of several actions in one reply, the first turn holds its tokens."""
    starts = [at for at, turn in enumerate(turns) if turn.get("end", 1) > turn.get("start", 0)]
    for start, end in zip(starts, [*starts[1:], len(turns)], strict=True):
        yield list(turns[start:end])


def _from_messages(data: Mapping[str, Any], where: str) -> Conversation:
    if unread := [key for key in _UNREAD if data.get(key)]:
        raise ValueError(f"'{unread[0]}' is not read: write it into 'messages' or 'tools', and remove it")
    tools = read_tools(data.get("tools"))
    messages = [_message(each, f"messages[{at}]") for at, each in enumerate(_objects(data["messages"], "messages"))]
    if not tools and any(reply.calls for _, reply in messages):
        raise ValueError("'tool_calls' without 'tools': give the line the tools that the model is shown")
    starts = [at for at, (message, _) in enumerate(messages) if message.role == "assistant"]
    if not starts or starts[0] == 0:
        raise ValueError("expected an 'assistant' message after at least one other")
    return Conversation(
        origin=where,
        opening=tuple(message for message, _ in messages[: starts[0]]),
        replies=tuple(_replies(messages, starts)),
        task=Task(
            environment=str(_given(data, "environment", "file")),
            id=str(_given(data, "task", "")),
            seed=0,
            difficulty=str(_given(data, "difficulty", "")),
        ),
        score=build_typed(float, _given(data, "score", 1.0), "score"),
        success=build_typed(bool, _given(data, "success", True), "success"),
        tools=tools,
    )


_UNREAD = ("functions", "system", "documents", "chat_template_kwargs")
"""Keys of other programs that change what the model is shown; further keys next to `messages` are the user's own."""


def _pair(data: Mapping[str, Any], where: str) -> tuple[Conversation, Conversation]:
    with _locate_errors(where, "'prompt', 'chosen' and 'rejected'"):
        if data["chosen"] == data["rejected"]:
            raise ValueError("'chosen' and 'rejected' are the same")
        before = [{**each, "learn": False} for each in _to_messages(data.get("prompt", []), "user")]
        better, worse = (
            _from_messages({**data, "messages": before + _to_messages(data[key], "assistant")}, where)
            for key in _ANSWERS
        )
        if not all(any(reply.trained for reply in side.replies) for side in (better, worse)):
            raise ValueError("expected a message to train on in both 'chosen' and 'rejected'")
        return better, worse


_ANSWERS = ("chosen", "rejected")


def _to_messages(what: str | list[Mapping[str, Any]], role: str) -> list[Mapping[str, Any]]:
    return [{"role": role, "content": what}] if isinstance(what, str) else what


_Said = tuple[Message, ConversationReply]
"""A message, and its content as a reply, if it is one."""


def _message(data: Mapping[str, Any], place: str) -> _Said:
    role = data["role"]
    if role not in _ROLES:
        raise ValueError(f"{place}: expected a role of {', '.join(_ROLES)}")
    for key, value in data.items():
        if key not in (*_KEYS, *_ROLES[role]) and value not in (None, False, "", [], {}):
            raise ValueError(f"{place}: '{key}' is not read with the role '{role}': {_INSTEAD.get(key, 'remove it')}")
    calls = build_typed(list, _given(data, "tool_calls", []), f"{place}.tool_calls")
    if data.get("content") is None and not calls:
        raise ValueError(f"{place}: 'content' is missing; expected a text, or 'tool_calls' of an assistant")
    if (weight := _given(data, "weight", 1)) not in (0, 1):
        raise ValueError(f"{place}.weight is {str(weight)[:40]}, expected 1, or 0 for a reply that is not trained on")
    text = _text(_given(data, "content", ""), f"{place}.content")
    trained = build_typed(bool, _given(data, "learn", True), f"{place}.learn") and bool(weight)
    return Message(role, text), ConversationReply(text=text, calls=tuple(map(load_call, calls)), trained=trained)


_KEYS = ("role", "content", "learn", "weight")
_ROLES: Mapping[str, tuple[str, ...]] = {
    "system": (),
    "user": (),
    "tool": ("tool_call_id", "name"),
    "assistant": ("tool_calls",),
}
"""Roles, and what their messages may have besides; templates show a result of a tool under no name."""
_INSTEAD = {
    "reasoning_content": "write thoughts into 'content', as the model does: '<think>...</think>' before the answer",
    "function_call": "write 'tool_calls'",
}


def _replies(messages: Sequence[_Said], starts: Sequence[int]) -> Iterator[ConversationReply]:
    for at, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        observations = tuple(other for other, _ in messages[at + 1 : end])
        if not observations and end < len(messages):
            raise ValueError("expected another role between two 'assistant' messages")
        yield replace(messages[at][1], observations=observations)
