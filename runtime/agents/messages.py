"""Messages to the model, and parsed replies."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["END_OF_THOUGHTS", "START_OF_THOUGHTS", "Message", "ParsedReply", "accept", "refuse"]

START_OF_THOUGHTS, END_OF_THOUGHTS = "<think>", "</think>"
"""Tags around the thoughts of reasoning models."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: str
    """`system`, `user` or `tool`; `assistant` in the chat of an example."""
    content: str


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """Parsed actions, or the problem with the reply."""

    actions: tuple[str, ...]
    problem: str = ""

    @property
    def action(self) -> str | None:
        return self.actions[0] if self.actions else None


def accept(*actions: str) -> ParsedReply:
    return ParsedReply(actions)


def refuse(problem: str) -> ParsedReply:
    return ParsedReply((), problem)
