"""Conversations of one episode: which tokens a request goes on from, and the segments that they become.

A line is one growing sequence of tokens, with the messages that it shows. A request whose messages begin with all of a
line goes on at its end. One that shares no more than its beginning, or comes while the line is being continued, starts
a line of its own: the tokens up to the last reply that they share are context there, so that a sampled token is marked
as sampled in one line only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from ..protocols import Sampled
from ..rollout.episode import Segment
from ..rollout.token_buffer import TokenBuffer
from .messages import ChatMessage, Role

__all__ = ["Conversations", "Line", "Origin", "Place"]

Render = Callable[[Sequence[int], Sequence[ChatMessage]], Sequence[int]]
"""Renders messages that follow these tokens, or begin a conversation where there are none, up to the next reply."""


class Origin(StrEnum):
    """Why a segment begins."""

    START = "start"
    """A conversation that shares nothing with an earlier one."""
    BRANCH = "branch"
    """Another continuation of messages that were answered before."""
    REWRITE = "rewrite"
    """The client's messages hold replies that differ from those sampled, or follow other messages than they did."""


@dataclass(slots=True, eq=False)
class Line:
    """A sequence of tokens and the messages that it shows."""

    number: int
    """Of the request that began it."""
    tools: str
    origin: Origin
    parent: Line | None
    buffer: TokenBuffer = field(default_factory=TokenBuffer)
    messages: list[ChatMessage] = field(default_factory=list)
    replies: list[tuple[int, int]] = field(default_factory=list)
    """After each sampled reply, how many messages and tokens there are."""
    is_busy: bool = False

    def shared_with(self, messages: Sequence[ChatMessage]) -> int:
        """Count the messages that both begin with."""
        pairs = enumerate(zip(self.messages, messages, strict=False))
        return next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(self.messages), len(messages)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a request goes on, reserved until its reply is there."""

    line: Line
    messages: tuple[ChatMessage, ...]
    """All of the request."""
    known: int
    """How many of them are in the line, or in its parent up to where it goes on."""
    context: tuple[int, ...]
    """Tokens to append before the reply."""
    held: int
    """Tokens before them that the engine has seen."""

    @property
    def prompt(self) -> tuple[int, ...]:
        return (*self.line.buffer.ids, *self.context)


class Conversations:
    """All lines of one episode."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._num_requests = 0

    @property
    def lines(self) -> list[Line]:
        """Lines with a reply, in the order of the requests that began them."""
        return sorted(self._lines, key=lambda line: line.number)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(line.buffer.segments[-1] for line in self.lines)

    @contextmanager
    def reserve(self, messages: Sequence[ChatMessage], tools: str, render: Render) -> Iterator[Place]:
        """Find where a request goes on; what is not committed within the context leaves no trace."""
        place = self._find_place(tuple(messages), tools, render)
        place.line.is_busy = True
        try:
            yield place
        finally:
            place.line.is_busy = False

    def _find_place(self, messages: tuple[ChatMessage, ...], tools: str, render: Render) -> Place:
        number, self._num_requests = self._num_requests, self._num_requests + 1
        line, shared, (known, held) = self._find_line(messages, tools)
        if line is not None and known and known == len(line.messages) and not line.is_busy:
            return Place(
                line=line,
                messages=messages,
                known=known,
                context=tuple(render(line.buffer.ids, messages[known:])),
                held=held,
            )
        before = tuple(line.buffer.ids[:held]) if line is not None else ()
        context = (*before, *render(before, messages[known:]))
        is_rewritten = any(each.role is Role.ASSISTANT for each in messages[known:])
        origin = Origin.REWRITE if is_rewritten else Origin.BRANCH if shared else Origin.START
        new = Line(number=number, tools=tools, origin=origin, parent=line if shared else None)
        return Place(line=new, messages=messages, known=known, context=context, held=held)

    def _find_line(self, messages: Sequence[ChatMessage], tools: str) -> tuple[Line | None, bool, tuple[int, int]]:
        """Return the line that shares most replies with the messages, whether it shares more than a system message, and
        how many messages and tokens there are up to the last shared reply."""
        found: tuple[Line | None, int, tuple[int, int]] = (None, 0, (0, 0))
        best = (0, 0, 0)
        for line in self._lines:
            if line.tools != tools:
                continue
            shared = line.shared_with(messages)
            known, held = max((each for each in line.replies if each[0] <= shared), default=(0, 0))
            # of two with the same content, the one that has not been continued yet
            rank = (known, int(known == len(line.messages) and not line.is_busy), shared)
            if rank > best:
                best, found = rank, (line, shared, (known, held))
        nearest, shared, at = found
        is_more = any(each.role is not Role.SYSTEM for each in messages[:shared])
        return nearest, is_more, at

    def commit(
        self, place: Place, forced: Sequence[int], reply: Sampled, message: ChatMessage
    ) -> tuple[Line, int, int]:
        """Append a reply to its line, after tokens that it was made to begin with; return where its tokens stand."""
        line = place.line
        if not line.replies:
            self._lines.append(line)
        line.buffer.append_context((*place.context, *forced))
        start, end = line.buffer.append_sampled(reply)
        line.messages[:] = [*place.messages, message]
        line.replies.append((len(line.messages), end))
        return line, start, end
