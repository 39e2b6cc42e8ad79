"""Texts that an agent is sent besides observations; all are listed, so that a vocabulary made from them holds them."""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.model.recipe import Agent, MemoryKind

CUT = "Your reply does not end. Write a shorter one."
PLAN = "Do not act yet. Write a plan first: the steps that lead to the goal."
REVISE = "Do not act yet. Write your plan anew, as things stand now."
ACT = "Now act."
PLANNED = "Your plan:"
LEARN = "This attempt has failed. Write what the next attempt at the same task must do otherwise."
LESSONS = "You have failed at this task before. What you learnt then:"
REMEMBER = "Do not act yet. Write down what you must remember: what is written above will soon be out of your sight."
REMEMBERED = "What you remember of your earlier turns:"
FORGOTTEN = "[earlier turns are left out]"
SHOWN = "Another task, and how it was solved:"


def with_paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def prompt_texts(agent: Agent) -> Sequence[str]:
    """Return every text of this module that the agent may be sent."""
    return (
        CUT,
        *((PLAN, REVISE, ACT, PLANNED) if agent.planning else ()),
        *((LEARN, LESSONS) if agent.reflection else ()),
        *((REMEMBER, REMEMBERED) if agent.memory.kind is MemoryKind.SUMMARY else ()),
        *((FORGOTTEN,) if agent.memory.kind is not MemoryKind.FULL else ()),
        *((SHOWN,) if agent.demonstrations else ()),
    )
