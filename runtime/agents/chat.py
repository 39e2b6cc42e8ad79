"""Chat rendering: messages to tokens, without touching a token that is already there.

The chat template is a function of the whole conversation, so it could rewrite the past. `Chat` checks, before the first
episode, that appending messages only appends text; otherwise, as for a template that drops the thoughts of earlier
turns, it renders the whole conversation before each reply. Only the template marks where turns begin and end: control
tokens spelled out by a page, a tool or a server are broken by a space, and read as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from ...dsl.model.recipe import Thoughts
from .calls import ToolCall
from .messages import Message
from .template import NO_THOUGHTS, Template, TemplateError, Tokenizer
from .thoughts import MARKS, strip_thoughts

__all__ = ["LEFT_OUT", "NO_THOUGHTS", "Chat", "Message", "TemplateError", "Tokenizer", "readable"]


LEFT_OUT = "\n[the middle is left out]\n"
_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Tags of our own formats, which some tokenizers count among their control tokens."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_REMEMBERED = 4096
_STYLES_REMEMBERED = 64
_SHORT = 500
_SHORT_TOKENS = 32
"""Sizes up to which observations (characters) and replies (tokens) are cached: short ones recur, long ones seldom
do."""
_OPENINGS_REMEMBERED = 64
"""Episodes of a group share their opening."""


def readable(text: str) -> str:
    """Replace each lone surrogate by a question mark: environments may send one, and no tokenizer encodes it."""
    return text.encode(errors="replace").decode()


def _break_marks(marks: Iterable[str]) -> Callable[[str], str]:
    """Build a function that breaks these marks by a space after the first character, also where they overlap."""
    if not (found := sorted({mark for mark in marks if len(mark) > 1})):
        return lambda text: text
    firsts = "".join(sorted({re.escape(mark[0]) for mark in found}))
    begin = re.compile(f"(?=[{firsts}])(?={'|'.join(map(re.escape, found))}).", re.DOTALL)
    return lambda text: begin.sub(r"\g<0> ", text)


class Chat:
    """Incremental renderer: encodes only what is new."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        thinking: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
        thoughts: Thoughts = Thoughts.KEEP,
    ) -> None:
        self._tokenizer = tokenizer
        self.thinking = thinking
        self._styles: dict[tuple[bool, str, Thoughts], Chat] = {_style_key(thinking, tools, thoughts): self}
        self._break_marks = _break_marks(mark for mark in tokenizer.marks if mark not in _TAGS)
        self.tools = tuple(tools)
        """Those that the template shows."""
        self._template = Template(tokenizer, thinking=thinking, tools=[self._clean_json(tool) for tool in tools])
        self.end_of_reply = self._template.end
        """Token that ends a reply; sampling stops at any of `ends`."""
        self.ends = tuple(dict.fromkeys((self.end_of_reply, tokenizer.end_of_reply)))
        self.end_text = tokenizer.decode([self.end_of_reply])
        self.opens_thoughts = self._template.opens_thoughts
        """Whether the prompt ends within thoughts, which each reply must end."""
        self.result_role = self._find_result_role() if tools else "user"
        """Role of the messages that hold the results of tool calls."""
        self.rewrites, self.strips = self._decide(thoughts)
        self.find_hidden = lru_cache(_OPENINGS_REMEMBERED)(self._find_hidden)
        """Finds what the template leaves out of messages in these roles, in an opening or after a reply."""
        self._begun = lru_cache(_OPENINGS_REMEMBERED)(self._begin)
        self._followed = lru_cache(_REMEMBERED)(self._follow)
        self._decoded = lru_cache(_REMEMBERED)(tokenizer.decode)

    def _decide(self, thoughts: Thoughts) -> tuple[tuple[str, ...], bool]:
        """Return the replies that the template would render differently once they are past, and whether earlier turns
        are rendered its way rather than as they were sampled."""
        try:
            rewrites = {role: self._template.find_rewrites(role) for role in sorted({"user", self.result_role})}
        except TemplateError as error:
            if thoughts is Thoughts.KEEP:
                hint = "write 'agent.thoughts: strip', or give another one as 'model.chat_template'"
                raise TemplateError(f"{error}; {hint}") from None
            return (), True
        # some templates drop thoughts before a user's message, and keep them before a tool's result
        drops = any(reply.startswith(marks.opening) for reply in rewrites[self.result_role] for marks in MARKS)
        strips = thoughts is Thoughts.STRIP or (thoughts is Thoughts.AUTO and drops)
        return tuple(dict.fromkeys(chain.from_iterable(rewrites.values()))), strips

    def _find_result_role(self) -> str:
        """A template may end a reply in another way where a tool's result follows; then a user's message holds it."""
        try:
            self._template.find_rewrites("tool")
        except Exception:  # each template has its own way to refuse a role
            return "user"
        return "tool"

    def with_style(self, *, thinking: bool, tools: Sequence[Mapping[str, Any]], thoughts: Thoughts) -> Chat:
        """Return a chat with the same tokenizer, without thoughts or with tools that the template shows."""
        key = _style_key(thinking, tools, thoughts)
        if key not in self._styles:
            if len(self._styles) >= _STYLES_REMEMBERED:  # the offered tools may differ each time
                del self._styles[next(iter(self._styles))]
            self._styles[key] = Chat(self._tokenizer, thinking=thinking, tools=tools, thoughts=thoughts)
        return self._styles[key]

    def writes_tool_call(self, call: ToolCall, written: str) -> bool:
        """Return whether the template shows the tools of this chat, and writes the call of one of them so."""
        return self._template.writes_tool_call(call, written)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode a reply without its end token."""
        ids = tuple(ids[:-1] if len(ids) and ids[-1] in self.ends else ids)
        return (self._decoded if len(ids) <= _SHORT_TOKENS else self._tokenizer.decode)(ids)

    def decode_token(self, token: int) -> str:
        """Decode one token alone; part of a letter is shown as such."""
        return self._decoded((token,))

    def encode(self, text: str) -> list[int]:
        """Encode a text that the model is to go on from."""
        return self._tokenizer.encode(text)

    def truncate(self, text: str, tokens: int | None) -> str:
        """Shorten a text to its first and last tokens, around a line that says so."""
        text = self._break_marks(readable(text))
        # no token is shorter than a byte, so most texts are known to be short without encoding them
        if tokens is None or len(text.encode()) <= tokens or len(ids := self._tokenizer.encode(text)) <= tokens:
            return text
        room = max(tokens - len(self._tokenizer.encode(LEFT_OUT)), 2)
        head, tail = self._tokenizer.decode(ids[: room - room // 2]), self._tokenizer.decode(ids[-(room // 2) :])
        # one character may be several tokens, and the cut may split it
        return head.rstrip(_REPLACEMENT) + LEFT_OUT + tail.lstrip(_REPLACEMENT)

    def begin(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Render the opening of a conversation, up to where the first reply begins."""
        return self._begun(tuple(messages))

    def _begin(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(self._template.render(self._clean(messages))))

    def _find_hidden(self, roles: tuple[str, ...], opens: bool) -> str | None:
        """Return the role of the first message that the template silently leaves out; None where all are shown."""
        probes = [Message(role, f"probe {at}.") for at, role in enumerate(roles)]
        text = (self._template.render if opens else self._template.render_after)(probes)
        return next((each.role for each in probes if each.content not in text), None)

    def write(self, text: str) -> str:
        """Return the text that the model would have sampled, had it given this answer."""
        return self._template.complete(text) if self.thinking else text

    def reply(self, text: str) -> list[int]:
        """Encode a reply that was not sampled."""
        return [*self._tokenizer.encode(self.write(text)), self.end_of_reply]

    def follow(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Render the tokens between a reply's end token and the next reply."""
        short = sum(len(message.content) for message in messages) <= _SHORT
        return (self._followed if short else self._follow)(tuple(messages))

    def _follow(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(self._template.render_after(self._clean(messages))))

    def render(
        self, ids: Sequence[int], opening: Sequence[Message], turns: Iterable[tuple[str, Sequence[Message]]]
    ) -> tuple[int, ...]:
        """Render a whole conversation, up to where the next reply begins: the replies without their thoughts, each with
        the messages after it. Where the text begins with that of `ids`, so do the tokens."""
        past: list[Message] = [*opening]
        for reply, messages in turns:
            answer = strip_thoughts(reply, opened=self.opens_thoughts)
            past += (Message("assistant", (answer or "").strip()), *messages)
        text = self._template.render(self._clean(past))
        shown = self._tokenizer.decode(ids) if ids else ""
        if not text.startswith(shown):
            return tuple(self._tokenizer.encode(text))
        return (*ids, *self._tokenizer.encode(text[len(shown) :]))

    def _clean_json(self, value: Any) -> Any:
        """Break marks in a tool's description, names included: it comes from a server."""
        if isinstance(value, Mapping):
            return {self._clean_json(key): self._clean_json(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean_json(each) for each in value]
        return self._break_marks(readable(value)) if isinstance(value, str) else value

    def _clean(self, messages: Iterable[Message]) -> list[Message]:
        return [Message(message.role, self._break_marks(message.content)) for message in messages]


def _style_key(thinking: bool, tools: Sequence[Mapping[str, Any]], thoughts: Thoughts) -> tuple[bool, str, Thoughts]:
    return thinking, json.dumps(tools, sort_keys=True), thoughts
