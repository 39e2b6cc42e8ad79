"""Chat rendering: messages to tokens, without touching a token that is already there.

The chat template is a function of the whole conversation, so it could rewrite the past. `Chat` proves, before the first
episode, that appending messages only appends text. Only the template marks where turns begin and end: control tokens
spelled out by a page, a tool or a server are broken by a space, and read as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from ..errors import RunError
from .messages import Message

__all__ = ["LEFT_OUT", "NO_THOUGHTS", "Chat", "Message", "TemplateError", "Tokenizer", "readable"]


class TemplateError(RunError):
    """The chat template changes what was already rendered: the run would not train on what was sampled."""


class Tokenizer(Protocol):
    """The tokenizer methods that `Chat` needs."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        reply: bool,
        thinking: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Render the template's text; with `reply`, up to where the model's reply begins."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    @property
    def end_of_reply(self) -> int:
        """The token with which the model ends a reply."""
        ...

    @property
    def marks(self) -> Sequence[str]:
        """Texts that encode to control tokens: where a turn begins or ends, and the like."""
        ...


LEFT_OUT = "\n[the middle is left out]\n"
NO_THOUGHTS = "<think>\n\n</think>\n\n"
"""Put before a reply without thoughts where the template has no way of its own to switch them off."""
_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Tags of our own formats, which some tokenizers count among their control tokens."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_NEUTRAL = "ok"
_REMEMBERED = 4096
_SHORT = 500
_SHORT_TOKENS = 32
"""Sizes up to which observations (characters) and replies (tokens) are cached: short ones recur, long ones seldom
do."""
_OPENINGS_REMEMBERED = 64
"""Episodes of a group share their opening."""
_PROBES = ("Thought: x\nAction: y", "<think>\nfirst\n</think>\n\nAction: y", "  spaced \n")
"""Replies that templates are known to rewrite: thoughts, surrounding space."""
_OPENINGS = (
    (Message("system", "s"), Message("user", "u")),
    (Message("user", "u"),),
)


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

    def __init__(self, tokenizer: Tokenizer, *, thinking: bool = True, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self._tokenizer = tokenizer
        self._options: dict[str, Any] = {} if thinking else {"thinking": False}
        self._options |= {"tools": tools} if tools else {}
        self._roles = ("user", "tool") if tools else ("user",)
        self._styles: dict[tuple[bool, bool], Chat] = {(thinking, bool(tools)): self}
        self._break_marks = _break_marks(mark for mark in tokenizer.marks if mark not in _TAGS)
        self.end_of_reply = tokenizer.end_of_reply
        self.end_text = tokenizer.decode([self.end_of_reply])
        # put at the start of each reply in the model's place: by the template, or else by us
        self._closing = "" if thinking else self._find_closed_thoughts()
        self._lead = "" if thinking else self._closing or NO_THOUGHTS
        self.rewrites = self._find_rewrites()
        """Replies that the template would show differently once they are past; here they stay as sampled."""
        self._before = self._render_opened(_OPENINGS[0])
        self._begun = lru_cache(_OPENINGS_REMEMBERED)(self._begin)
        self._followed = lru_cache(_REMEMBERED)(self._follow)
        self._decoded = lru_cache(_REMEMBERED)(tokenizer.decode)

    def with_style(self, *, thinking: bool, tools: Sequence[Mapping[str, Any]]) -> Chat:
        """Return a chat with the same tokenizer, without thoughts or with tools that the template shows."""
        key = (thinking, bool(tools))
        if key not in self._styles:
            self._styles[key] = Chat(self._tokenizer, thinking=thinking, tools=tools)
        return self._styles[key]

    def writes_tool_calls(self, tool: Mapping[str, Any], arguments: Mapping[str, Any], written: str) -> bool:
        """Return whether the template shows tools and writes a call of this tool exactly so."""
        call = {"type": "function", "function": {"name": tool["function"]["name"], "arguments": arguments}}
        dicts: list[Mapping[str, Any]] = [*_to_dicts(_OPENINGS[0])]
        dicts.append({"role": "assistant", "content": "", "tool_calls": [call]})
        try:
            text = self._tokenizer.render(dicts, reply=False, tools=(tool,))
            without = self._tokenizer.render(dicts, reply=False)
        except Exception:  # each template has its own way to say what it does not know
            return False
        return text != without and written in text

    def decode(self, ids: Sequence[int]) -> str:
        """Decode a reply without its end token."""
        ids = tuple(ids[:-1] if len(ids) and ids[-1] == self.end_of_reply else ids)
        return (self._decoded if len(ids) <= _SHORT_TOKENS else self._tokenizer.decode)(ids)

    def truncate(self, text: str, tokens: int | None) -> str:
        """Shorten a text to its first and last tokens, around a line that says so."""
        text = self._break_marks(readable(text))
        # no token is less than a byte, so that most texts need not be read to be known as short
        if tokens is None or len(text.encode()) <= tokens or len(ids := self._tokenizer.encode(text)) <= tokens:
            return text
        room = max(tokens - len(self._tokenizer.encode(LEFT_OUT)), 2)
        head, tail = self._tokenizer.decode(ids[: room - room // 2]), self._tokenizer.decode(ids[-(room // 2) :])
        # a letter may be several tokens, and the cut may go through one
        return head.rstrip(_REPLACEMENT) + LEFT_OUT + tail.lstrip(_REPLACEMENT)

    def begin(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Render the opening of a conversation, up to where the first reply begins."""
        return self._begun(tuple(messages))

    def _begin(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(self._render_prompt(messages) + self._lead))

    def reply(self, text: str) -> list[int]:
        """Encode a reply that was not sampled."""
        return [*self._tokenizer.encode(text), self.end_of_reply]

    def follow(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Render the tokens between a reply's end token and the next reply."""
        short = sum(len(message.content) for message in messages) <= _SHORT
        return (self._followed if short else self._follow)(tuple(messages))

    def _follow(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(self._render_between(_OPENINGS[0], self._before, messages) + self._lead))

    def _render_opened(self, opening: Sequence[Message]) -> str:
        """Render up to the end of a first reply."""
        return self._render_prompt(opening) + _NEUTRAL + self.end_text

    def _render_between(self, opening: Sequence[Message], before: str, messages: Sequence[Message]) -> str:
        after = self._render_after(opening, _NEUTRAL, messages)
        if not after.startswith(before):
            at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(after))
            raise TemplateError(
                "the chat template rewrites earlier messages once another one follows: expected "
                f"{before[max(0, at - 20) : at + 20]!r}, got {after[max(0, at - 20) : at + 20]!r}"
            )
        return after[len(before) :]

    def _render_after(self, opening: Sequence[Message], reply: str, messages: Sequence[Message]) -> str:
        return self._render_prompt((*opening, Message("assistant", reply), *messages))

    def _render_prompt(self, messages: Sequence[Message]) -> str:
        """Render up to where a reply begins, without what the template itself puts in the model's place."""
        dicts = _to_dicts(Message(message.role, self._break_marks(message.content)) for message in messages)
        return self._tokenizer.render(dicts, reply=True, **self._options).removesuffix(self._closing)

    def _find_closed_thoughts(self) -> str:
        """Find what the template puts before a new reply without thoughts, but before no past one."""
        self._closing = ""
        opening = _OPENINGS[0]
        start = len(self._tokenizer.render(_to_dicts(opening), reply=False, **self._options))
        after = self._render_after(opening, _NEUTRAL, (Message("user", "m"),))
        header = after[start : after.index(_NEUTRAL + self.end_text, start)]
        dicts = self._render_prompt(opening)[start:]
        return dicts[len(header) :] if dicts.startswith(header) else ""

    def _find_rewrites(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reply for role in self._roles for reply in self._prove_role(role)))

    def _prove_role(self, role: str) -> list[str]:
        """Return the replies that are rewritten once a message of this role follows them."""
        message = (Message(role, "m"),)
        expected = self._render_between(_OPENINGS[0], self._render_opened(_OPENINGS[0]), message)
        rewrites = []
        for opening in _OPENINGS:
            if (between := self._render_between(opening, self._render_opened(opening), message)) != expected:
                raise TemplateError(
                    f"the chat template renders a message as {between!r} or as {expected!r}, by what precedes it"
                )
            before = self._render_prompt(opening)
            for reply in _PROBES:
                after = self._render_after(opening, reply, message)
                if not (after.startswith(before) and after.endswith(expected)):
                    raise TemplateError(f"the chat template changes the text around the reply {reply!r}: got {after!r}")
                if after != before + reply + self.end_text + expected:
                    rewrites.append(reply)
        end = self._tokenizer.encode(self.end_text)
        if end != [self._tokenizer.end_of_reply]:
            raise TemplateError(f"the end token {self.end_text!r} is encoded as {end}, not as itself")
        return rewrites


def _to_dicts(messages: Iterable[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]
