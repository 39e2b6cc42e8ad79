"""Messages to tokens and sampled tokens to a message, under one set of tools.

Tools are shown by the model's own chat template where it has a place for them, and calls are read as that template
writes them. Elsewhere a paragraph of the system message shows them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ...dsl.model.recipe import Thoughts
from ...envs.protocol import ToolSchema
from ..agents.calls import DIALECTS, MalformedCall, ToolCall, find_calls
from ..agents.chat import Chat, Message
from ..agents.formats import find_dialect
from ..agents.prompts import with_paragraphs
from ..agents.thoughts import strip_thoughts
from ..agents.toolbox import Toolbox, toolbox_for
from .api_errors import bad_request
from .messages import CallMade, ChatMessage, Role, canonical_arguments

__all__ = ["ReadReply", "Voice"]

_HERMES = DIALECTS[0]
_TOLD = (
    "You can call these tools:\n{tools}\n"
    "To call one, write its name and arguments as JSON between tags, and end your reply after it:\n{example}"
)
_EXAMPLE = ToolCall("name", {"argument": "value"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReply:
    """What a reply says."""

    text: str
    reasoning: str
    calls: tuple[CallMade, ...]

    @property
    def message(self) -> ChatMessage:
        """The reply as a client gives it back."""
        return ChatMessage(Role.ASSISTANT, self.text.strip(), self.calls)


class Voice:
    """A chat with some tools, or without any."""

    def __init__(self, chat: Chat, tools: Sequence[ToolSchema], *, thinking: bool) -> None:
        self._box = toolbox_for(tools) if tools else None
        plain = chat.with_style(thinking=thinking, tools=(), thoughts=Thoughts.KEEP)
        self.chat, self._dialect, self._told = plain, _HERMES, ""
        if self._box is not None:
            shown = chat.with_style(thinking=thinking, tools=self._box.shown, thoughts=Thoughts.KEEP)
            dialect = find_dialect(shown, self._box)
            if dialect is not None:
                self.chat, self._dialect = shown, dialect
            else:
                self._told = _tell_tools(self._box)

    # --- messages to tokens

    def render(self, ids: Sequence[int], messages: Sequence[ChatMessage]) -> Sequence[int]:
        """Render what follows these tokens, or a conversation from its start where there are none, up to where the next
        reply begins."""
        try:
            return self._render(ids, messages)
        except Exception as error:  # each template has its own way to refuse an order of roles
            raise bad_request(f"the chat template cannot show these messages: {str(error)[:200]}", "messages") from None

    def _render(self, ids: Sequence[int], messages: Sequence[ChatMessage]) -> list[int]:
        found, is_past = list[int](), bool(ids)
        if is_past and ids[-1] not in self.chat.ends:
            found.append(self.chat.end_of_reply)
        groups = [(key, list(each)) for key, each in groupby(messages, lambda each: each.role is Role.ASSISTANT)]
        if not is_past:
            opening = groups.pop(0)[1] if groups and not groups[0][0] else []
            found += self.chat.begin(self.open(opening))
        elif not groups or groups[0][0]:
            groups.insert(0, (False, []))
        for is_reply, group in groups:
            if is_reply:
                found += self.chat.reply("\n".join(self._write(each) for each in group))
            else:
                found += self._follow([self.show(each) for each in group])
        if groups and groups[-1][0]:
            found += self.chat.follow(())
        return found

    def _follow(self, messages: Sequence[Message]) -> Sequence[int]:
        try:
            return self.chat.follow(messages)
        except Exception:  # many templates take a system message at the start alone
            if all(each.role != "system" for each in messages):
                raise
            return self.chat.follow([replace(each, role="user") for each in messages])

    def open(self, messages: Sequence[ChatMessage]) -> list[Message]:
        """Return an opening as the chat is given it: with the tools in words, where the template shows none."""
        # a greeting by the assistant is a reply to nothing, which most templates cannot show
        shown = [self.show(each) for each in messages] or [Message("user", "")]
        if not self._told:
            return shown
        if shown and shown[0].role == "system":
            return [replace(shown[0], content=with_paragraphs(shown[0].content, self._told)), *shown[1:]]
        return [Message("system", self._told), *shown]

    def show(self, message: ChatMessage) -> Message:
        """Return a message as the chat is given it: a tool's result in the role that the template has for it."""
        role = self.chat.result_role if message.role is Role.TOOL else message.role.value
        return Message(role, message.text)

    def _write(self, message: ChatMessage) -> str:
        """Write a reply that was not sampled here as the model would have."""
        # control tokens that a client spells out in a reply are text, as everywhere
        return self.join(self.chat.truncate(message.text, None), _to_tool_calls(message.calls))

    def write(self, text: str, calls: Sequence[CallMade]) -> str:
        """Write a reply as the model would, thoughts included where the template expects some."""
        return self.chat.write(self.join(text, _to_tool_calls(calls)))

    def join(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write calls after a text."""
        return "\n".join(part for part in (text, *map(self._dialect.write, calls)) if part)

    # --- tokens to a message

    def force_call(self, name: str | None) -> tuple[int, ...]:
        """Return the tokens that a reply begins with where it must call a tool: this one, or any."""
        write = self._dialect.write
        if name is None:
            start = _common_start(write(ToolCall("a", {})), write(ToolCall("b", {})))
        else:
            start = _common_start(write(ToolCall(name, {})), write(ToolCall(name, {"a": 1})))
        return tuple(self.chat.encode(self.chat.write(start)))

    def read(self, text: str, *, with_calls: bool, parallel: bool) -> ReadReply:
        """Read a reply: its thoughts, its text, and its calls where tools were offered."""
        answer = strip_thoughts(text, opened=self.chat.opens_thoughts)
        if answer is None:
            return ReadReply(text="", reasoning=text, calls=())
        reasoning = text[: len(text) - len(answer)] if text.endswith(answer) else ""
        calls, rest = self._find_calls(answer) if with_calls and self._box is not None else ((), answer)
        return ReadReply(
            text=rest.strip("\n") if reasoning or calls else rest,
            reasoning=reasoning,
            calls=calls if parallel else calls[:1],
        )

    def _find_calls(self, answer: str) -> tuple[tuple[CallMade, ...], str]:
        """Return the calls of an answer and the text around them; none where any of them cannot be read."""
        found = find_calls(answer)
        calls = [call for each in found for call in each.calls]
        assert self._box is not None, "only what offers tools has calls"
        names = {tool.name for tool in self._box.tools}
        if any(each.problem for each in found) or any(call.name not in names for call in calls):
            return (), answer
        rest = answer
        for each in reversed(found):
            rest = rest[: each.start] + rest[each.end :]
        return tuple(_make_call(self._box, call) for call in calls), rest.strip()


def _common_start(one: str, other: str) -> str:
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))]


def _tell_tools(box: Toolbox) -> str:
    lines = [json.dumps(tool["function"], ensure_ascii=False) for tool in box.shown]
    return _TOLD.format(tools="\n".join(lines), example=_HERMES.write(_EXAMPLE))


def _to_tool_calls(calls: Sequence[CallMade]) -> list[ToolCall]:
    return [ToolCall(call.name, _load_arguments(call)) for call in calls]


def _load_arguments(call: CallMade) -> dict[str, object]:
    try:
        loaded = json.loads(call.arguments)
    except ValueError:
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _make_call(box: Toolbox, call: ToolCall) -> CallMade:
    """Make a call of what was found: with the types of the tool's schema where it fits it, else as it was written, for
    the agent is to see its mistake."""
    try:
        arguments = json.loads(box.to_action(call))["arguments"]
    except MalformedCall:
        arguments = {
            name: value if not isinstance(value, str) else str(value) for name, value in call.arguments.items()
        }
    return CallMade(call.name, canonical_arguments(arguments))
