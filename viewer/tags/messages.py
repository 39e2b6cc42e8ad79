"""From a recorded episode to a conversation that a recipe's `sft` reads: `data: {source: file, path: ...}`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

__all__ = ["export_lines", "messages_of"]


def messages_of(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The conversation of an episode; None if it is not a single conversation, or nothing was said in it.

    A reply that held no action is marked as not to be imitated.
    """
    if len(record.get("segments", ())) > 1:
        return None
    messages = [{"role": each["role"], "content": each["content"]} for each in record["opening"]]
    replies = list(_by_reply(record["turns"]))
    if not messages or not replies:
        return None
    for first, *others in replies:
        is_understood = first["action"] is not None or first.get("purpose", "act") != "act"
        messages.append({"role": "assistant", "content": first["reply"], **({} if is_understood else {"learn": False})})
        messages += [{"role": each.get("role", "user"), "content": each["observation"]} for each in (first, *others)]
    task = record["task"]
    return {
        "messages": messages,
        "score": record["score"],
        "success": record["success"],
        "environment": task["environment"],
        "task": task["id"],
        "difficulty": task["difficulty"],
    }


def export_lines(records: Iterable[Mapping[str, Any]]) -> tuple[str, int, int]:
    """Write conversations, a line each; return them, how many they are, and how many episodes are not conversations."""
    found = [messages_of(record) for record in records]
    lines = [json.dumps(each, ensure_ascii=True, allow_nan=False) + "\n" for each in found if each is not None]
    return "".join(lines), len(lines), len(found) - len(lines)


def _by_reply(turns: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Group turns by reply: of several actions in one reply, the first turn holds its tokens."""
    starts = [at for at, turn in enumerate(turns) if turn["end"] > turn["start"]]
    for start, end in pairwise((*starts, len(turns))):
        yield list(turns[start:end])
