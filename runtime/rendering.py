"""Messages to tokens, without ever touching a token that is already there.

Enters: a tokenizer with a chat template. Leaves: the ids that open a conversation, and the ids that stand between a
reply and the next. A reply's own ids are never rendered: they are those that were sampled.

The chat template is a function of the whole conversation, so it could rewrite the past (drop thoughts, move the system
prompt). `Chat` therefore proves, before the first episode, that appending messages only appends text, and refuses a
template for which that is not so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from .episode import Message
from .errors import RunError

__all__ = ["LEFT_OUT", "Chat", "Message", "TemplateError", "Tokenizer"]


class TemplateError(RunError):
    """The chat template changes what was already rendered; training on it would not be training on what was sampled."""


class Tokenizer(Protocol):
    """What is needed of a tokenizer."""

    def render(self, messages: Sequence[dict[str, str]], *, reply: bool) -> str:
        """The template's text; with `reply`, up to where the model's next words begin."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    @property
    def end_of_reply(self) -> int:
        """The token with which the model ends a reply."""
        ...


LEFT_OUT = "\n[the middle is left out]\n"
_HALF = "\N{REPLACEMENT CHARACTER}"
_NEUTRAL = "ok"
_REMEMBERED = 4096
_SHORT = 500
_SHORT_TOKENS = 32
"""Observations of so many letters and replies of so many tokens are rendered and read once, however often they come:
short ones are said again and again, long ones seldom twice."""
_OPENINGS_REMEMBERED = 64
"""The episodes of a group begin alike."""
_PROBES = ("Thought: x\nAction: y", "<think>\nfirst\n</think>\n\nAction: y", "  spaced \n")
"""Replies that templates are known to rewrite: thoughts, surrounding space."""
_OPENINGS = (
    (Message("system", "s"), Message("user", "u")),
    (Message("user", "u"),),
)


class Chat:
    """Renders what is new, and only that."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.end_of_reply = tokenizer.end_of_reply
        self._end = tokenizer.decode([self.end_of_reply])
        self.rewrites = self._prove()
        """Replies that the template would show differently once they are past; here they stay as they were sampled."""
        self._before = self._opened(_OPENINGS[0])
        self._begun = lru_cache(_OPENINGS_REMEMBERED)(self._begin)
        self._followed = lru_cache(_REMEMBERED)(self._follow)
        self._decoded = lru_cache(_REMEMBERED)(tokenizer.decode)

    def decode(self, ids: Sequence[int]) -> str:
        """The reply's text without its end token."""
        ids = tuple(ids[:-1] if len(ids) and ids[-1] == self.end_of_reply else ids)
        return (self._decoded if len(ids) <= _SHORT_TOKENS else self._tokenizer.decode)(ids)

    def cut(self, text: str, tokens: int | None) -> str:
        """The text, or, where it is longer, its first and last tokens around a line that says so."""
        # no token is less than a byte, so that most texts need not be read to be known as short
        if tokens is None or len(text.encode()) <= tokens or len(ids := self._tokenizer.encode(text)) <= tokens:
            return text
        room = max(tokens - len(self._tokenizer.encode(LEFT_OUT)), 2)
        head, tail = self._tokenizer.decode(ids[: room - room // 2]), self._tokenizer.decode(ids[-(room // 2) :])
        # a letter may be several tokens, and the cut may go through one
        return head.rstrip(_HALF) + LEFT_OUT + tail.lstrip(_HALF)

    def begin(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Opens a conversation, up to where the first reply begins."""
        return self._begun(tuple(messages))

    def _begin(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(self._tokenizer.render(_plain(messages), reply=True)))

    def reply(self, text: str) -> list[int]:
        """A reply that nobody sampled."""
        return [*self._tokenizer.encode(text), self.end_of_reply]

    def follow(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """What stands between a reply's end token and the next reply."""
        short = sum(len(message.content) for message in messages) <= _SHORT
        return (self._followed if short else self._follow)(tuple(messages))

    def _follow(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(self._between(_OPENINGS[0], self._before, messages)))

    def _opened(self, opening: Sequence[Message]) -> str:
        """Up to the end of a first reply."""
        return self._tokenizer.render(_plain(opening), reply=True) + _NEUTRAL + self._end

    def _between(self, opening: Sequence[Message], before: str, messages: Sequence[Message]) -> str:
        after = self._after(opening, _NEUTRAL, messages)
        if not after.startswith(before):
            at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(after))
            raise TemplateError(
                "the chat template rewrites what was already said once another message follows: expected "
                f"{before[max(0, at - 20) : at + 20]!r}, got {after[max(0, at - 20) : at + 20]!r}"
            )
        return after[len(before) :]

    def _after(self, opening: Sequence[Message], reply: str, messages: Sequence[Message]) -> str:
        said = [*_plain(opening), {"role": "assistant", "content": reply}, *_plain(messages)]
        return self._tokenizer.render(said, reply=True)

    def _prove(self) -> tuple[str, ...]:
        message = (Message("user", "m"),)
        expected = self._between(_OPENINGS[0], self._opened(_OPENINGS[0]), message)
        rewrites = []
        for opening in _OPENINGS:
            if (between := self._between(opening, self._opened(opening), message)) != expected:
                raise TemplateError(
                    f"the chat template renders a message as {between!r} or as {expected!r}, by what was said before"
                )
            before = self._tokenizer.render(_plain(opening), reply=True)
            for reply in _PROBES:
                after = self._after(opening, reply, message)
                if not (after.startswith(before) and after.endswith(expected)):
                    raise TemplateError(
                        f"the chat template changes what stands around the reply {reply!r}: got {after!r}"
                    )
                if after != before + reply + self._end + expected:
                    rewrites.append(reply)
        end = self._tokenizer.encode(self._end)
        if end != [self._tokenizer.end_of_reply]:
            raise TemplateError(f"the end token {self._end!r} is read back as {end}, not as itself")
        return tuple(dict.fromkeys(rewrites))


def _plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]
