"""Agent formats: the rules that an agent is given, and parsers that read actions from its replies.

A parser never guesses and never raises: what it cannot read it refuses, with the reason for the agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...dsl.model.recipe import Agent, Format
from . import tool_calls
from .chat import Chat
from .messages import END_OF_THOUGHTS, START_OF_THOUGHTS, Message, ParsedReply, accept, refuse

__all__ = ["AgentFormat", "chat_and_format", "format_for", "without_thoughts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFormat:
    """A reply format: rules, parser and writer."""

    rules: str
    """Appended to the environment's own guide; empty where the guide is enough."""
    read: Callable[[str], ParsedReply]
    write: Callable[[str], str]
    """Writes an action as a scripted expert would reply."""
    unreadable: tuple[str, ...] = ("",)
    """One refused reply per reason."""
    tools: tuple[tool_calls.Tool, ...] = ()
    """Tools for the model's own template."""

    def opening(self, guide: str, observation: str, prompt: str | None = None) -> tuple[Message, ...]:
        """Compose the messages before the first reply; `prompt` replaces both rules and guide."""
        system = prompt if prompt is not None else "\n\n".join(part for part in (guide, self.rules) if part)
        first = Message("user", observation)
        return (Message("system", system), first) if system else (first,)

    @property
    def observation_role(self) -> str:
        """Role of the message that holds an observation."""
        return "tool" if self.tools else "user"

    def observation(self, text: str) -> tuple[Message, ...]:
        return (Message(self.observation_role, text),)

    def correction(self, problem: str) -> tuple[Message, ...]:
        return (Message("user", problem),)


def without_thoughts(reply: str) -> str:
    """Return the reply after its thoughts, or all of it where no thoughts end."""
    return _strip_thoughts(reply).strip()


def _strip_thoughts(reply: str) -> str:
    before, end, after = reply.partition(END_OF_THOUGHTS)
    answer = after if end else before
    # thoughts may follow thoughts
    while _starts_thinking(answer) and END_OF_THOUGHTS in answer:
        answer = answer.partition(END_OF_THOUGHTS)[2]
    return answer


def _starts_thinking(answer: str) -> bool:
    return answer.lstrip().startswith(START_OF_THOUGHTS)


def _skip_thoughts(read: Callable[[str], ParsedReply]) -> Callable[[str], ParsedReply]:
    def after(reply: str) -> ParsedReply:
        answer = _strip_thoughts(reply)
        if _starts_thinking(answer):
            return refuse(f"Your thoughts do not end. Write '{END_OF_THOUGHTS}', and your action after it.")
        return read(answer)

    return after


# --- react ---------------------------------------------------------------------------------------------------------

_ACTION = re.compile(r"^[ \t]*Action:[ \t]*(.*)$", re.MULTILINE)


def _read_react(reply: str) -> ParsedReply:
    """Parse `Thought: ... Action: one line`; the action is the last line."""
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


def _make_code_format(agent: Agent, native: bool) -> AgentFormat:
    return AgentFormat(
        rules="Act by one code block, and write nothing after it:\n```\nthe action\n```",
        read=lambda reply: _read_code(reply, agent.thinking),
        write=_write_code,
        unreadable=("", "```\n\n```", "```\na\n```\nb", *(() if agent.thinking else ("a\n```\nb\n```",))),
    )


# --- tools ---------------------------------------------------------------------------------------------------------


def _make_tool_format(agent: Agent, native: bool) -> AgentFormat:
    style = tool_calls.TEMPLATED if native else tool_calls.TAGGED
    allowed = "Make one call" if agent.parallel_calls == 1 else f"Make up to {agent.parallel_calls} calls"
    return AgentFormat(
        rules=f"{style.rules}{allowed} in a reply, and write nothing after that.",
        read=lambda reply: tool_calls.parse_tool_calls(reply, style, agent.parallel_calls, thinking=agent.thinking),
        write=style.write,
        unreadable=tool_calls.unreadable_replies(agent.parallel_calls, thinking=agent.thinking),
        tools=(tool_calls.ACT,) if native else (),
    )


_FORMATS: Mapping[Format, Callable[[Agent, bool], AgentFormat]] = {
    Format.REACT: lambda agent, native: _REACT if agent.thinking else _TERSE_REACT,
    Format.PLAIN: lambda agent, native: _PLAIN,
    Format.CODE: _make_code_format,
    Format.TOOLS: _make_tool_format,
}


def format_for(agent: Agent, *, native: bool = False) -> AgentFormat:
    """The reply format by an agent's settings; `native` where the model's own template renders tool calls."""
    style = _FORMATS[agent.format](agent, native)
    return replace(style, read=_skip_thoughts(style.read)) if agent.thinking else style


def chat_and_format(agent: Agent, chat: Chat) -> tuple[Chat, AgentFormat]:
    """Build the chat and the reply format of an agent."""
    native = agent.format is Format.TOOLS and chat.writes_tool_calls(
        tool_calls.ACT, tool_calls.EXAMPLE, tool_calls.TEMPLATED.write("go north")
    )
    style = format_for(agent, native=native)
    return chat.with_style(thinking=agent.thinking, tools=style.tools), style
