"""Messages to the model, and what its replies were read as."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["END_OF_THOUGHTS", "START_OF_THOUGHTS", "Message", "ParsedReply", "accept", "refuse"]

START_OF_THOUGHTS, END_OF_THOUGHTS = "<think>", "</think>"
"""Around the thoughts of models that have learnt to think before they speak."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is said to the model."""

    role: str
    """`system`, `user` or `tool`."""
    content: str


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """Actions, or why there is none."""

    actions: tuple[str, ...]
    problem: str = ""

    @property
    def action(self) -> str | None:
        """The first."""
        return self.actions[0] if self.actions else None


def accept(*actions: str) -> ParsedReply:
    return ParsedReply(actions)


def refuse(problem: str) -> ParsedReply:
    return ParsedReply((), problem)
