"""What a chat template does to a conversation, found by rendering: where replies begin and end, and what it rewrites.

Templates differ in what they put before a reply (an opened thought, an empty one), in the token that ends it, in the
roles that they know, and in how they show a reply once it is past. None of that is declared, so each renders a few
small conversations, and the outputs are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Protocol

from ..errors import RunError
from .calls import ToolCall
from .messages import Message
from .thoughts import MARKS, ThoughtMarks

__all__ = ["NO_THOUGHTS", "Template", "TemplateError", "Tokenizer"]


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
        """The tokenizer's own end token; the template may end replies with another one."""
        ...

    @property
    def marks(self) -> Sequence[str]:
        """Texts that encode to control tokens: where a turn begins or ends, and the like."""
        ...


NO_THOUGHTS = "<think>\n\n</think>\n\n"
"""Put before a reply without thoughts where the template has no way of its own to switch them off."""
_NEUTRAL = "so be it"
_PROBES = ("Thought: x\nAction: y", "<think>\nfirst\n</think>\n\nAction: y", "  spaced \n")
"""Replies that templates are known to rewrite: thoughts, surrounding space."""
_OPENINGS = (
    (Message("system", "s"), Message("user", "u")),
    (Message("user", "u"),),
)
_OPENING = _OPENINGS[0]
_OTHER = "give another one as 'model.chat_template'"


class Template:
    """A template and what is known about it."""

    def __init__(self, tokenizer: Tokenizer, *, thinking: bool = True, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self._tokenizer = tokenizer
        self._options: dict[str, Any] = {} if thinking else {"thinking": False}
        self._options |= {"tools": tools} if tools else {}
        self._own_end = tokenizer.decode([tokenizer.end_of_reply])
        self._marks = tuple(sorted({*tokenizer.marks, self._own_end} - {""}))
        self._merges_users = self._merges_system = False
        self._merges_system = not self._takes(_OPENING)
        self._merges_users = not self._takes((Message("user", "u"), Message("user", "v")))
        self._find_reply()
        self._put = "" if thinking else self._close_thoughts()
        self.end = self._find_end()

    # --- rendering

    def render(self, messages: Sequence[Message]) -> str:
        """Render up to where the model's reply begins."""
        return self._render(messages) + self._put

    def render_after(self, messages: Sequence[Message]) -> str:
        """Render from the end token of a past reply to where the next reply begins."""
        after = self._render((*_OPENING, Message("assistant", _NEUTRAL), *messages))
        if not after.startswith(self._before):
            raise _rewritten(self._before, after)
        return after[len(self._before) :] + self._put

    def complete(self, answer: str) -> str:
        """Put before an answer what the model would have sampled before it: the end of an opened thought, an empty one,
        a channel."""
        if any(marks.closing in answer for marks in MARKS):
            opened = self._opened
            return answer.lstrip().removeprefix(opened.opening).lstrip("\n") if opened else answer
        return (f"\n{self._opened.closing}\n\n" if self._opened else self._header) + answer

    @property
    def opens_thoughts(self) -> bool:
        """Whether the prompt ends within thoughts."""
        return self._opened is not None and not self._put

    def _render(self, messages: Sequence[Message], *, reply: bool = True) -> str:
        return self._tokenizer.render(self._to_dicts(messages), reply=reply, **self._options)

    def _to_dicts(self, messages: Iterable[Message]) -> list[dict[str, str]]:
        merged: list[dict[str, str]] = []
        for message in messages:
            last = merged[-1]["role"] if merged else ""
            system = self._merges_system and last == "system"
            if system or (self._merges_users and last == message.role == "user"):
                merged[-1] = {"role": message.role, "content": f"{merged[-1]['content']}\n\n{message.content}"}
            else:
                merged.append({"role": message.role, "content": message.content})
        return merged

    def _takes(self, messages: Sequence[Message]) -> bool:
        try:
            self._render(messages)
        except Exception:  # each template has its own way to refuse
            return False
        return True

    def writes_tool_call(self, call: ToolCall, written: str) -> bool:
        """Return whether the template shows these tools, and writes the call of one of them so."""
        shown = self._options.get("tools", ())
        dicts = self._to_dicts(_OPENING)
        for content, arguments in product(("", None), (dict(call.arguments), json.dumps(call.arguments))):
            function = {"name": call.name, "arguments": arguments}
            past = {"role": "assistant", "content": content, "tool_calls": [{"type": "function", "function": function}]}
            try:
                text = self._tokenizer.render([*dicts, past], reply=False, tools=shown)
                without = self._tokenizer.render([*dicts, past], reply=False)
            except Exception:  # each template has its own way to say what it does not know
                continue
            if text != without and written in text:
                return True
        return False

    # --- where replies begin and end

    def _find_reply(self) -> None:
        """Find what comes before a new reply and not before a past one, and the reverse."""
        try:
            prompt = self._render(_OPENING)
            after = self._render((*_OPENING, Message("assistant", _NEUTRAL), Message("user", "m")))
        except Exception as error:  # each template has its own way to refuse
            raise TemplateError(f"the chat template cannot show a conversation of texts: {error}; {_OTHER}") from error
        start = _common_length(prompt, after)
        begin = after.find(_NEUTRAL, start)
        if begin < 0:
            raise TemplateError(
                f"the chat template does not show the text of a past reply, as those of many vision models: {_OTHER}"
            )
        self._lead, self._header = prompt[start:], after[start:begin]
        self._opened = _find_mark(prompt, lambda marks: marks.opening)
        self._closed = _find_mark(prompt, lambda marks: marks.closing) is not None
        end = begin + len(_NEUTRAL)
        mark = self._first_mark(after[end:])
        if mark is None:
            raise TemplateError(f"the chat template puts no control token after a reply, which has no end; {_OTHER}")
        self._before = after[: after.index(mark, end) + len(mark)]
        self._past_end = self._before[end:]

    def _close_thoughts(self) -> str:
        """Find what keeps a reply from having thoughts, where the template itself did not put it."""
        if self._opened is not None:
            return f"\n{self._opened.closing}\n\n"
        if self._closed or self._lead:
            return self._header if self._closed else ""
        return self._header or NO_THOUGHTS

    def _find_end(self) -> int:
        """Find the token that ends a reply: as the template ends a last one, or else a past one."""
        final = self._render((*_OPENING, Message("assistant", _NEUTRAL)), reply=False)
        mark = self._first_mark(final[final.rfind(_NEUTRAL) + len(_NEUTRAL) :]) or self._first_mark(self._past_end)
        assert mark is not None, "a past reply has an end"
        ids = self._tokenizer.encode(mark)
        if len(ids) != 1:
            raise TemplateError(f"the end token {mark!r} is encoded as {ids}, not as itself")
        return ids[0]

    def _first_mark(self, text: str) -> str | None:
        found = ((at, -len(mark), mark) for mark in self._marks if (at := text.find(mark)) >= 0)
        return min(found, default=(0, 0, None))[2]

    # --- what happens to the past

    def find_rewrites(self, role: str) -> list[str]:
        """Return the replies that are shown differently once a message of this role follows them; raise where more than
        that changes."""
        message = (Message(role, "m"),)
        expected = self.render_after(message).removesuffix(self._put)
        return [
            reply
            for opening in _OPENINGS
            for reply in (_NEUTRAL, *_PROBES, *self._channel_probes())
            if self._is_rewritten(opening, reply, message, expected)
        ]

    def _channel_probes(self) -> list[str]:
        """Replies with thoughts between control tokens, for templates that know those tokens."""
        known = (marks for marks in MARKS[1:] if any(mark in marks.opening for mark in self._marks))
        return [f"{marks.opening}\nfirst{marks.closing}Action: y" for marks in known]

    def _is_rewritten(self, opening: Sequence[Message], reply: str, message: Sequence[Message], expected: str) -> bool:
        start = self._render(opening).removesuffix(self._lead)
        try:
            after = self._render((*opening, Message("assistant", reply), *message))
        except Exception:  # gpt-oss refuses channels in past messages
            if reply in (_NEUTRAL, *_PROBES):
                raise
            return True
        if not after.startswith(start):
            raise _rewritten(start, after)
        if not after.endswith(expected):
            if reply != _NEUTRAL:
                raise TemplateError(f"the chat template changes the text around the reply {reply!r}: got {after!r}")
            raise TemplateError(
                f"the chat template renders a message as {after[len(start) :]!r}, which should end with {expected!r}: "
                "it depends on what precedes it"
            )
        whole = start + self._header + reply + self._past_end + expected
        if reply == _NEUTRAL and after != whole:
            raise TemplateError(f"the chat template renders {after!r} where {whole!r} was expected")
        return after != whole


def _find_mark(prompt: str, text: Callable[[ThoughtMarks], str]) -> ThoughtMarks | None:
    return next((marks for marks in MARKS if prompt.rstrip().endswith(text(marks))), None)


def _common_length(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _rewritten(before: str, after: str) -> TemplateError:
    at = _common_length(before, after)
    return TemplateError(
        "the chat template rewrites earlier messages once another one follows: expected "
        f"{before[max(0, at - 20) : at + 20]!r}, got {after[max(0, at - 20) : at + 20]!r}"
    )
