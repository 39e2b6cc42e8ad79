"""Prompt formats: what an agent is told, and how its action is read out of its reply.

Enters: an environment's guide and observations, and replies. Leaves: messages, and an action or the reason why the
reply holds none. A parser never guesses: what it cannot read it refuses, and the reason is told to the agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...dsl.recipe import Format
from ..episode import Message

__all__ = ["FORMATS", "AgentFormat", "Reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """An action, or why there is none."""

    action: str | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFormat:
    """One prompt format."""

    rules: str
    """Told to the agent before the environment's own guide; empty where the guide is enough."""
    read: Callable[[str], Reading]
    write: Callable[[str], str]
    """The reply that a scripted expert would give for an action."""

    def opening(self, guide: str, observation: str, prompt: str | None = None) -> tuple[Message, ...]:
        """The messages before the first reply; `prompt` replaces both rules and guide."""
        system = prompt if prompt is not None else "\n\n".join(part for part in (guide, self.rules) if part)
        first = Message("user", observation)
        return (Message("system", system), first) if system else (first,)

    def observation(self, text: str) -> tuple[Message, ...]:
        return (Message("user", text),)

    def correction(self, problem: str) -> tuple[Message, ...]:
        return (Message("user", problem),)


_ACTION = re.compile(r"^[ \t]*Action:[ \t]*(.*)$", re.MULTILINE)


def _read_react(reply: str) -> Reading:
    """`Thought: ... Action: one line`; the action is the last line."""
    found = list(_ACTION.finditer(reply))
    if not found:
        return Reading(None, "Your reply has no line that starts with 'Action:'. Write one, and the action after it.")
    if len(found) > 1:
        return Reading(None, f"Your reply has {len(found)} lines that start with 'Action:'. Write one.")
    action = found[0].group(1).strip()
    rest = reply[found[0].end() :].strip()
    if not action:
        return Reading(None, "The line 'Action:' is empty. Write the action on the same line.")
    if rest:
        return Reading(None, "Text follows the action. End your reply after the line 'Action:'.")
    return Reading(action)


def _read_plain(reply: str) -> Reading:
    action = reply.strip()
    return Reading(action) if action else Reading(None, "Your reply is empty. Write an action.")


_REACT_RULES = (
    "Answer each observation in this form, and write nothing after the action:\n"
    "Thought: what you know and what you will do next\n"
    "Action: one action"
)

FORMATS: Mapping[Format, AgentFormat] = {
    Format.REACT: AgentFormat(
        rules=_REACT_RULES,
        read=_read_react,
        write=lambda action: f"Thought: the next step is clear\nAction: {action}",
    ),
    Format.PLAIN: AgentFormat(rules="", read=_read_plain, write=lambda action: action),
}
