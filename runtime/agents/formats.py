"""Agent formats: what an agent is told, and how its actions are read out of its reply.

Enters: an environment's guide and observations, and replies. Leaves: messages, and actions or the reason why the reply
holds none. A parser never guesses and never raises: what it cannot read it refuses, and the reason is told to the
agent. What an expert writes is read as what it meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...dsl.model.recipe import Agent, Format
from . import tool_calls as calls
from .chat import Chat
from .messages import END_OF_THOUGHTS, START_OF_THOUGHTS, Message, ParsedReply, accept, refuse

__all__ = ["FORMATS", "AgentFormat", "ReplyRules", "agent_format", "chat_and_format", "format_for", "without_thoughts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRules:
    """What decides how replies are read, beside their format."""

    thinking: bool = True
    calls: int = 1
    """Actions in one reply, at the most."""
    native: bool = False
    """Whether the model's own template tells of tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFormat:
    """One agent format."""

    rules: str
    """Told to the agent after the environment's own guide; empty where the guide is enough."""
    read: Callable[[str], ParsedReply]
    write: Callable[[str], str]
    """The reply that a scripted expert would give for an action."""
    unreadable: tuple[str, ...] = ("",)
    """Replies that are refused, one for each reason."""
    tools: tuple[calls.Tool, ...] = ()
    """What the model's own template tells of."""

    def opening(self, guide: str, observation: str, prompt: str | None = None) -> tuple[Message, ...]:
        """The messages before the first reply; `prompt` replaces both rules and guide."""
        system = prompt if prompt is not None else "\n\n".join(part for part in (guide, self.rules) if part)
        first = Message("user", observation)
        return (Message("system", system), first) if system else (first,)

    @property
    def answers_as(self) -> str:
        """The role that tells what came of an action."""
        return "tool" if self.tools else "user"

    def observation(self, text: str) -> tuple[Message, ...]:
        return (Message(self.answers_as, text),)

    def correction(self, problem: str) -> tuple[Message, ...]:
        return (Message("user", problem),)


def without_thoughts(reply: str) -> str:
    """What is said after the thoughts, if there are any that have come to their end."""
    return _said(reply).strip()


def _said(reply: str) -> str:
    before, end, after = reply.partition(END_OF_THOUGHTS)
    said = after if end else before
    # thoughts may follow thoughts
    while _thinks(said) and END_OF_THOUGHTS in said:
        said = said.partition(END_OF_THOUGHTS)[2]
    return said


def _thinks(said: str) -> bool:
    return said.lstrip().startswith(START_OF_THOUGHTS)


def _after_thoughts(read: Callable[[str], ParsedReply]) -> Callable[[str], ParsedReply]:
    def after(reply: str) -> ParsedReply:
        said = _said(reply)
        if _thinks(said):
            return refuse(f"Your thoughts do not end. Write '{END_OF_THOUGHTS}', and your action after it.")
        return read(said)

    return after


# --- react ---------------------------------------------------------------------------------------------------------

_ACTION = re.compile(r"^[ \t]*Action:[ \t]*(.*)$", re.MULTILINE)


def _read_react(reply: str) -> ParsedReply:
    """`Thought: ... Action: one line`; the action is the last line."""
    found = list(_ACTION.finditer(reply))
    if not found:
        return refuse("Your reply has no line that starts with 'Action:'. Write one, and the action after it.")
    if len(found) > 1:
        return refuse(f"Your reply has {len(found)} lines that start with 'Action:'. Write one.")
    action = found[0].group(1).strip()
    rest = reply[found[0].end() :].strip()
    if not action:
        return refuse("The line 'Action:' is empty. Write the action on the same line.")
    if rest:
        return refuse("Text follows the action. End your reply after the line 'Action:'.")
    return accept(action)


def _read_terse_react(reply: str) -> ParsedReply:
    if reply.lstrip().startswith("Action:"):
        return _read_react(reply)
    return refuse("Your reply does not start with 'Action:'. Write that line alone, and the action on it.")


_REACT = AgentFormat(
    rules=(
        "Answer each observation in this form, and write nothing after the action:\n"
        "Thought: what you know and what you will do next\n"
        "Action: one action"
    ),
    read=_read_react,
    write=lambda action: f"Thought: the next step is clear\nAction: {action}",
    unreadable=("", "Action:", "Action: a\nAction: b", "Action: a\nb"),
)
_TERSE_REACT = AgentFormat(
    rules="Answer each observation in this form, and write nothing else:\nAction: one action",
    read=_read_terse_react,
    write=lambda action: f"Action: {action}",
    unreadable=_REACT.unreadable,
)

# --- plain ---------------------------------------------------------------------------------------------------------


def _read_plain(reply: str) -> ParsedReply:
    action = reply.strip()
    return accept(action) if action else refuse("Your reply is empty. Write an action.")


_PLAIN = AgentFormat(rules="", read=_read_plain, write=lambda action: action)

# --- code ----------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"^`{3,}", re.MULTILINE)
_BLOCK = re.compile(r"^(`{3,})[^`\n]*\n((?:.*\n)*?)\1`*[ \t]*$", re.MULTILINE)


def _read_code(reply: str, thinking: bool) -> ParsedReply:
    fence = _FENCE.search(reply)
    found = _BLOCK.match(reply, fence.start()) if fence else None
    if found is None:
        return refuse("Your reply has no whole code block. Write one between two lines of ```.")
    if reply[found.end() :].strip():
        return refuse("Text follows the code block. Write one block, and end your reply after it.")
    if not thinking and reply[: found.start()].strip():
        return refuse("Text stands before the code block. Write the block alone.")
    action = found.group(2).removesuffix("\n")
    return accept(action) if action.strip() else refuse("The code block is empty. Write the action in it.")


def _write_code(action: str) -> str:
    longest = max((len(fence) for fence in re.findall(r"^`+", action, re.MULTILINE)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{action}\n{fence}"


def _code(manner: ReplyRules) -> AgentFormat:
    return AgentFormat(
        rules="Act by one code block, and write nothing after it:\n```\nthe action\n```",
        read=lambda reply: _read_code(reply, manner.thinking),
        write=_write_code,
        unreadable=("", "```\n\n```", "```\na\n```\nb", *(() if manner.thinking else ("a\n```\nb\n```",))),
    )


# --- tools ---------------------------------------------------------------------------------------------------------


def _tools(manner: ReplyRules) -> AgentFormat:
    form = calls.TEMPLATED if manner.native else calls.TAGGED
    allowed = "Make one call" if manner.calls == 1 else f"Make up to {manner.calls} calls"
    return AgentFormat(
        rules=f"{form.rules}{allowed} in a reply, and write nothing after that.",
        read=lambda reply: calls.parse_tool_calls(reply, form, manner.calls, thinking=manner.thinking),
        write=form.write,
        unreadable=calls.unreadable_replies(manner.calls, thinking=manner.thinking),
        tools=(calls.ACT,) if manner.native else (),
    )


_FORMS: Mapping[Format, Callable[[ReplyRules], AgentFormat]] = {
    Format.REACT: lambda manner: _REACT if manner.thinking else _TERSE_REACT,
    Format.PLAIN: lambda manner: _PLAIN,
    Format.CODE: _code,
    Format.TOOLS: _tools,
}


def agent_format(name: Format, manner: ReplyRules | None = None) -> AgentFormat:
    manner = manner or ReplyRules()
    form = _FORMS[name](manner)
    return replace(form, read=_after_thoughts(form.read)) if manner.thinking else form


def format_for(agent: Agent, *, native: bool = False) -> AgentFormat:
    """The reply format by an agent's settings; `native` where the model's own template renders tool calls."""
    return agent_format(agent.format, ReplyRules(thinking=agent.thinking, calls=agent.parallel_calls, native=native))


FORMATS: Mapping[Format, AgentFormat] = {name: agent_format(name) for name in Format}
"""As they are with thoughts, and of a model whose template knows of no tools."""


def chat_and_format(agent: Agent, chat: Chat) -> tuple[Chat, AgentFormat]:
    """Chat template and reply format for an agent."""
    native = agent.format is Format.TOOLS and chat.calls_natively(
        calls.ACT, calls.EXAMPLE, calls.TEMPLATED.write("go north")
    )
    form = format_for(agent, native=native)
    return chat.styled(thinking=agent.thinking, tools=form.tools), form
