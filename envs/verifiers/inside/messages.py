"""Messages of a conversation, as mappings or as objects: their text, and the calls of tools in an action."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

__all__ = ["Refused", "field", "join_texts", "number_of", "parse_calls", "since_reply", "text_of"]


class Refused(Exception):
    """A mistake in the options, with the sentence that says so."""


def field(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


def text_of(message: Any) -> str:
    content = field(message, "content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(field(part, "text") or f"[{field(part, 'type')}]") for part in content)


def since_reply(messages: Sequence[Any]) -> Sequence[Any]:
    """The messages after the last reply; all of them where there is none."""
    spoken = [number for number, message in enumerate(messages) if field(message, "role") == "assistant"]
    return messages[spoken[-1] + 1 :] if spoken else messages


def join_texts(messages: Sequence[Any], system: str | None = None) -> str:
    """What they say, without the system prompt."""
    shown = [message for message in messages if not (field(message, "role") == "system" and text_of(message) == system)]
    return "\n\n".join(text_of(message) for message in shown)


def parse_calls(action: str, tools: Collection[str]) -> list[dict[str, Any]]:
    """Calls of tools, in an action that is one JSON object or a list of them."""
    try:
        found = json.loads(action) if tools else None
    except (ValueError, RecursionError):
        return []
    calls: list[Any] = found if isinstance(found, list) else [found]
    good = all(
        isinstance(call, dict) and call.get("name") in tools and isinstance(call.get("arguments"), dict)
        for call in calls
    )
    return calls if good else []


def number_of(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
