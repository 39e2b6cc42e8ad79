"""What a client answers with, as verifiers has it."""

from dataclasses import dataclass

__all__ = ["Response", "ResponseMessage", "ToolCall"]


@dataclass
class ToolCall:
    id: str
    name: str
    arguments: str


@dataclass
class ResponseMessage:
    content: str
    finish_reason: str
    is_truncated: bool
    tool_calls: list | None = None


@dataclass
class Response:
    id: str
    created: int
    model: str
    message: ResponseMessage
