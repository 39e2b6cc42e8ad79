"""An agent's settings, and the words of the model that is to be it.

Enters: settings of a recipe, a chat. Leaves: the chat and the format that the agent speaks in.
"""

from __future__ import annotations

from ...dsl.model.recipe import Agent, Format
from . import tool_calls as calls
from .chat import Chat
from .formats import AgentFormat, Manner, agent_format

__all__ = ["dressed"]


def dressed(agent: Agent, chat: Chat) -> tuple[Chat, AgentFormat]:
    native = agent.format is Format.TOOLS and chat.calls_natively(
        calls.ACT, calls.EXAMPLE, calls.TEMPLATED.write("go north")
    )
    form = agent_format(agent.format, Manner(thinking=agent.thinking, calls=agent.parallel_calls, native=native))
    return chat.styled(thinking=agent.thinking, tools=form.tools), form
