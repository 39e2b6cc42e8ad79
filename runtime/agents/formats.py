"""Agent formats: the rules that an agent is given, and parsers that read actions from its replies.

A parser never guesses and never raises: what it cannot read it refuses, with the reason for the agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from ...dsl.model.recipe import Agent, Format, Parsing
from ...envs.protocol import EnvSpec, ToolSchema
from . import tool_calls
from .calls import DIALECTS, CallDialect
from .chat import Chat
from .lenient import Lenient
from .messages import Message, ParsedReply, accept, refuse
from .thoughts import end_of, strip_thoughts
from .toolbox import Toolbox, toolbox_for

__all__ = ["AgentFormat", "chat_and_format", "find_dialect", "format_for"]

StrictReader = Callable[[str], ParsedReply]


class Reader(Protocol):
    """Reads a reply; `listed` are the actions that the environment lists, where it does."""

    def __call__(self, reply: str, listed: Sequence[str] = ()) -> ParsedReply: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFormat:
    """A reply format: rules, parser and writer."""

    rules: str
    """Appended to the environment's own guide; empty where the guide is enough."""
    read: Reader
    write: Callable[[str], str]
    """Writes an action as a scripted expert would reply."""
    plan: Callable[[str, str], str] | None = None
    """Writes an action with a thought on what is done next, if anything; where a format has thoughts of its own."""
    unreadable: tuple[str, ...] = ("",)
    """One refused reply per reason."""
    observation_role: str = "user"
    """Role of the message that holds an observation."""
    guide: str = ""
    """Replaces the environment's own guide, where it gives tools to the chat template."""

    def opening(self, guide: str, observation: str, prompt: str | None = None) -> tuple[Message, ...]:
        """Compose the messages before the first reply; `prompt` replaces both rules and guide."""
        system = (
            prompt if prompt is not None else "\n\n".join(part for part in (self.guide or guide, self.rules) if part)
        )
        first = Message("user", observation)
        return (Message("system", system), first) if system else (first,)

    def write_step(self, action: str, then: str = "") -> str:
        """Write an expert's action; `then` is its next one, as far as it is known."""
        return self.write(action) if self.plan is None else self.plan(action, then)

    def observation(self, text: str) -> tuple[Message, ...]:
        return (Message(self.observation_role, text),)

    def correction(self, problem: str) -> tuple[Message, ...]:
        return (Message("user", problem),)


def _make_reader(
    strict: StrictReader, agent: Agent, box: Toolbox, hint: str, *, opened: bool, free_text: bool
) -> Reader:
    """Build a format's reader: thoughts aside, strictly or leniently."""
    lenient = Lenient(
        format=agent.format,
        thinking=agent.thinking,
        limit=agent.parallel_calls,
        box=box,
        strict=strict,
        hint=hint,
    )
    # where every text is a turn, all that follows the thoughts is the turn, and nothing in it is parsed as another form
    is_strict = agent.parsing is Parsing.STRICT or (free_text and agent.format is Format.PLAIN)

    # agents on the same tasks often say the same
    @lru_cache(maxsize=512)
    def read_once(reply: str, listed: tuple[str, ...]) -> ParsedReply:
        answer = strip_thoughts(reply, opened=opened) if agent.thinking else reply
        if answer is None:
            return refuse(f"Your thoughts do not end. Write '{end_of(reply)}', and your action after it.")
        return strict(answer) if is_strict else lenient.read(answer, listed)

    def read(reply: str, listed: Sequence[str] = ()) -> ParsedReply:
        return read_once(reply, tuple(listed))

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    """What is specific to a format."""

    rules: str
    read: StrictReader
    write: Callable[[str], str]
    plan: Callable[[str, str], str] | None = None
    unreadable: tuple[str, ...] = ("",)


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


_LONGEST_QUOTE = 80
"""Characters of an action that a thought repeats."""


def _write_react(action: str, then: str = "") -> str:
    """The thought says what the expert does now, and what next."""
    steps = [step for step in (action, then) if step]
    short = all(len(step) <= _LONGEST_QUOTE and "\n" not in step for step in steps)
    plan = f"I will {', and then '.join(steps)}" if short else "I will take the next step of my plan"
    return f"Thought: {plan}\nAction: {action}"


_REACT = _Style(
    rules=(
        "Answer each observation in this form, and write nothing after the action:\n"
        "Thought: what you know and what you will do next\n"
        "Action: one action"
    ),
    read=_read_react,
    write=_write_react,
    plan=_write_react,
    unreadable=("", "Action:", "Action: a\nAction: b", "Action: a\nb"),
)
_TERSE_REACT = _Style(
    rules="Answer each observation in this form, and write nothing else:\nAction: one action",
    read=_read_terse_react,
    write=lambda action: f"Action: {action}",
    unreadable=_REACT.unreadable,
)

# --- plain ---------------------------------------------------------------------------------------------------------


def _read_plain(reply: str) -> ParsedReply:
    action = reply.strip()
    return accept(action) if action else refuse("Your reply is empty. Write an action.")


_PLAIN = _Style(rules="", read=_read_plain, write=lambda action: action)

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


def _make_code_format(agent: Agent, call: tool_calls.CallForm) -> _Style:
    return _Style(
        rules="Act by one code block, and write nothing after it:\n```\nthe action\n```",
        read=lambda reply: _read_code(reply, agent.thinking),
        write=_write_code,
        unreadable=("", "```\n\n```", "```\na\n```\nb", *(() if agent.thinking else ("a\n```\nb\n```",))),
    )


# --- tools ---------------------------------------------------------------------------------------------------------


def _make_tool_format(agent: Agent, call: tool_calls.CallForm) -> _Style:
    allowed = "Make one call" if agent.parallel_calls == 1 else f"Make up to {agent.parallel_calls} calls"
    return _Style(
        rules=f"{call.rules}{allowed} in a reply, and write nothing after that.",
        read=lambda reply: tool_calls.parse_tool_calls(reply, call, agent.parallel_calls, thinking=agent.thinking),
        write=call.write,
        unreadable=tool_calls.unreadable_replies(agent.parallel_calls, thinking=agent.thinking),
    )


_STYLES: Mapping[Format, Callable[[Agent, tool_calls.CallForm], _Style]] = {
    Format.REACT: lambda agent, call: _REACT if agent.thinking else _TERSE_REACT,
    Format.PLAIN: lambda agent, call: _PLAIN,
    Format.CODE: _make_code_format,
    Format.TOOLS: _make_tool_format,
}


def format_for(
    agent: Agent,
    *,
    dialect: CallDialect | None = None,
    opened: bool = False,
    role: str = "user",
    tools: Sequence[ToolSchema] = (),
    guide: str = "",
    free_text: bool = False,
) -> AgentFormat:
    """The reply format by an agent's settings; `dialect` is that of the model's own template, where it renders tool
    calls, `opened` says whether it opens the thoughts of each reply, `role` is the role of messages with a call's
    result, `free_text` whether the environment takes every text as a turn."""
    box = toolbox_for(tools)
    call = tool_calls.templated(dialect, box) if dialect else tool_calls.TAGGED
    style = _STYLES[agent.format](agent, call)
    return AgentFormat(
        rules=style.rules,
        read=_make_reader(style.read, agent, box, call.hint, opened=opened, free_text=free_text),
        write=style.write,
        plan=style.plan,
        unreadable=style.unreadable,
        observation_role=role,
        guide=guide,
    )


def chat_and_format(agent: Agent, chat: Chat, env: EnvSpec | None = None) -> tuple[Chat, AgentFormat]:
    """Build the chat and the reply format of an agent, with the tools of an environment that has some."""
    tools, guide = (env.tools, env.tool_prompt) if env else ((), "")
    if agent.format is Format.TOOLS:
        box = toolbox_for(tools)
        shown = chat.with_style(thinking=agent.thinking, tools=box.shown, thoughts=agent.thoughts)
        if (dialect := find_dialect(shown, box)) is not None:
            return shown, format_for(
                agent, dialect=dialect, opened=shown.opens_thoughts, role=shown.result_role, tools=tools, guide=guide
            )
    plain = chat.with_style(thinking=agent.thinking, tools=(), thoughts=agent.thoughts)
    free_text = env is not None and env.free_text
    return plain, format_for(agent, opened=plain.opens_thoughts, tools=tools, free_text=free_text)


def find_dialect(chat: Chat, box: Toolbox) -> CallDialect | None:
    """Return the dialect in which the chat's template writes calls; None where it shows no tools."""
    call = box.example
    return next((each for each in DIALECTS if chat.writes_tool_call(call, each.write(call))), None)
