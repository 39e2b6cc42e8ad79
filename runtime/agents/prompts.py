"""Texts that an agent is sent besides observations; all are listed, so that a vocabulary made from them holds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...dsl.model.recipe import Agent, MemoryKind
from .messages import Message

CUT = "Your reply was cut off because it was too long. Write a shorter one."
PLAN = "Do not act yet. First write a plan: the steps that lead to the goal."
REVISE = "Do not act yet. First update your plan to the current situation."
ACT = "Now act."
PLANNED = "Your plan:"
LEARN = "This attempt failed. Write down what to do differently in the next attempt at the same task."
LESSONS = "You have failed at this task before. Your notes from those attempts:"
REMEMBER = "Do not act yet. Write down what you need to remember: the earlier turns will no longer be visible."
REMEMBERED = "Your notes on earlier turns:"
FORGOTTEN = "[earlier turns are not shown]"
NEXT_TASK = "Here is your next task."
AVAILABLE = "Available actions:"

_MOST_ACTIONS = 60
"""Listed after an observation; a world with more of them would fill the context."""


def add_actions(text: str, actions: Sequence[str] | None) -> str:
    """An observation with the actions that are possible now."""
    if not actions:
        return text
    more = len(actions) - _MOST_ACTIONS
    listed = [*actions[:_MOST_ACTIONS], *([f"{more} more"] if more > 0 else [])]
    return f"{text}\n{AVAILABLE} {'; '.join(listed)}"


def prompt_version(opening: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
    """Digits that change with what an agent is sent before its task: guide, rules, tools."""
    said = [[[message.role, message.content] for message in opening], [dict(tool) for tool in tools]]
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:8]


def with_paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def begin_next_task(earlier: Sequence[Message], first: str) -> tuple[Message, ...]:
    """The chat of earlier tasks, and a task's first observation; two messages of one role in a row become one."""
    if not earlier or earlier[-1].role != "user":
        return (*earlier, Message("user", with_paragraphs(NEXT_TASK, first) if earlier else first))
    return (*earlier[:-1], Message("user", with_paragraphs(earlier[-1].content, NEXT_TASK, first)))


def prompt_texts(agent: Agent) -> Sequence[str]:
    """Return every text of this module that the agent may be sent."""
    return (
        CUT,
        *((PLAN, REVISE, ACT, PLANNED) if agent.planning else ()),
        *((LEARN, LESSONS) if agent.reflection else ()),
        *((REMEMBER, REMEMBERED) if agent.memory.kind is MemoryKind.SUMMARY else ()),
        *((FORGOTTEN,) if agent.memory.kind is not MemoryKind.FULL else ()),
        *((NEXT_TASK,) if agent.demonstrations else ()),
        *((f"{AVAILABLE} ;",) if agent.show_actions else ()),
    )
