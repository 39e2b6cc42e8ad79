"""Messages of a conversation as they are compared and rendered, without what clients drop or write in other ways.

Two messages are equal where they say the same: ids of calls, the space in their arguments, null for no text and text in
parts make no difference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ...envs.protocol import ToolSchema
from .api_errors import bad_request, unsupported

__all__ = [
    "CallMade",
    "ChatMessage",
    "Role",
    "canonical_arguments",
    "canonical_json",
    "join_parts",
    "read_chat_messages",
    "read_tool",
    "write_message",
]


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


_ROLES = {**{role.value: role for role in Role}, "developer": Role.SYSTEM}
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


@dataclass(frozen=True, slots=True)
class CallMade:
    """A call of a tool in a reply."""

    name: str
    arguments: str
    """As canonical JSON, or as written if it is not JSON."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: Role
    text: str
    calls: tuple[CallMade, ...] = ()


def canonical_json(text: str) -> str:
    """Write JSON in a canonical form, in which equal values are equal texts."""
    try:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text.strip()


def canonical_arguments(arguments: Mapping[str, Any]) -> str:
    """Write arguments of a call in that form."""
    return canonical_json(json.dumps(dict(arguments), ensure_ascii=False))


def write_message(text: str, calls: Sequence[CallMade]) -> str:
    """Write what a message says as one text, for people and judges."""
    written = [json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in calls]
    return "\n".join(part for part in (text, *written) if part)


def join_parts(content: Any, param: str) -> str:
    """Read a message's content: text, parts of text, or null."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad_request(f"expected text, or a list of parts, as '{param}'", param)
    return "\n".join(_read_part(part, f"{param}[{at}]") for at, part in enumerate(content))


def _read_part(part: Any, param: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in _TEXT_PARTS:
        raise unsupported(param, f"'{param}' is of type '{str(kind)[:40]}', and the policy reads text alone")
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise bad_request(f"expected text in '{param}'", param)
    return text


def read_chat_messages(given: Any) -> tuple[ChatMessage, ...]:
    """Read `messages` of a request for a chat completion."""
    if not isinstance(given, list) or not given:
        raise bad_request("expected 'messages' to be a list with at least one message", "messages")
    return tuple(_read_message(each, f"messages[{at}]") for at, each in enumerate(given))


def _read_message(given: Any, param: str) -> ChatMessage:
    role = _ROLES.get(str(given.get("role"))) if isinstance(given, Mapping) else None
    if role is None:
        raise bad_request(f"expected 'role' of '{param}' to be one of {', '.join(_ROLES)}", f"{param}.role")
    text = join_parts(given.get("content"), f"{param}.content")
    if role is not Role.ASSISTANT:
        return ChatMessage(role, text)
    if given.get("function_call"):
        raise unsupported(f"{param}.function_call", "'function_call' is the old form; write 'tool_calls'")
    calls = given.get("tool_calls") or []
    if not isinstance(calls, list):
        raise bad_request(f"expected a list as '{param}.tool_calls'", f"{param}.tool_calls")
    return ChatMessage(role, text.strip(), tuple(_read_call(call, f"{param}.tool_calls") for call in calls))


def _read_call(given: Any, param: str) -> CallMade:
    function = given.get("function") if isinstance(given, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str):
        raise bad_request(f"expected each of '{param}' to be a function with a name", param)
    arguments = function.get("arguments")
    return CallMade(name, canonical_json(arguments if isinstance(arguments, str) else json.dumps(arguments or {})))


def read_tool(function: Any, param: str) -> ToolSchema:
    """Read a function that a request offers: its name, description and parameters."""
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
        raise bad_request(f"expected '{param}' to be a function with a name", param)
    parameters = function.get("parameters")
    return ToolSchema(
        name=name,
        description=str(function.get("description") or ""),
        parameters=parameters if isinstance(parameters, Mapping) else {"type": "object", "properties": {}},
    )
