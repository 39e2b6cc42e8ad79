"""What requests of both APIs have in common: numbers, tools, choices of tools, and text in pieces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...envs.protocol import ToolSchema
from .api_errors import bad_request, unsupported

__all__ = ["check_neutral", "read_choice", "read_number", "read_stop", "read_whole", "split_text"]


def check_neutral(data: Mapping[str, Any], neutral: Mapping[str, Sequence[Any]]) -> None:
    """Refuse the first key that asks for what the endpoint cannot do."""
    for name, values in neutral.items():
        if data.get(name) is not None and data[name] not in values:
            raise unsupported(name, f"'{name}: {str(data[name])[:60]}' is not supported; leave it out")


def read_number(data: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise bad_request(f"expected '{name}' to be a number from {low:g} to {high:g}", name)
    return float(value)


def read_whole(data: Mapping[str, Any], name: str, low: int) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise bad_request(f"expected '{name}' to be a whole number from {low}", name)
    return value


def read_stop(data: Mapping[str, Any]) -> tuple[str, ...]:
    stop = data.get("stop")
    texts = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise bad_request("expected 'stop' to be a text or a list of texts, none of them empty", "stop")
    return tuple(texts)


def read_choice(choice: Any, tools: Sequence[ToolSchema]) -> tuple[bool, str | None]:
    """Read `tool_choice`: whether calls are read, and which tool must be called, empty for any."""
    if choice in (None, "auto"):
        return bool(tools), None
    if choice == "none":
        return False, None
    if choice == "required":
        name = ""
    elif isinstance(choice, Mapping) and choice.get("type") == "function":
        name = str(choice.get("name") or (choice.get("function") or {}).get("name"))
    else:
        raise unsupported("tool_choice", "expected 'tool_choice' to be auto, none, required or a function")
    if not tools or (name and name not in {tool.name for tool in tools}):
        raise bad_request(
            f"'tool_choice' asks for a call of '{name[:60]}', which is not among the tools", "tool_choice"
        )
    return True, name


def split_text(text: str) -> list[str]:
    """Split a text into pieces to stream, word by word."""
    return re.findall(r"\s*\S+|\s+\Z", text)
