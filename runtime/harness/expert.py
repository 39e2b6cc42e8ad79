"""An expert that plays through a harness: it answers the requests, so that demonstrations have the agent's own form.

Each request is answered by the expert's action in the present state: by calls where the request offers the
environment's tools, else in words. Until the agent has acted on it, the same answer is given again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...dsl.model.algorithm import LossOn
from ...envs.protocol import Session
from ..agents.calls import MalformedCall
from ..policy_endpoint.messages import CallMade, canonical_arguments
from ..policy_endpoint.policy import ExpertReply, PolicyEpisode, PolicyRequest
from ..rollout.env_calls import ConnectedEnv
from ..rollout.episode import Segment, Task
from .session import HarnessSession

__all__ = ["ExpertSource", "HarnessExpert", "mark_imitated"]

Steps = AsyncIterator[tuple[str, bool, str]]
"""Actions, whether each is noise, and the one after it as far as it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSource:
    """Where an expert's actions come from, how it writes them, and what of them is imitated."""

    choose_actions: Callable[[ConnectedEnv, Session, Task, int, int], Steps]
    """By the horizon and a seed; raises where the task has no solution."""
    write_step: Callable[[str, str], str]
    """Writes an action, and what follows it, as a reply without calls."""
    encode: Callable[[str], Sequence[int]]
    loss_on: LossOn


@dataclass(slots=True, kw_only=True)
class HarnessExpert:
    """The expert of one episode."""

    source: ExpertSource
    steps: Steps
    shown: HarnessSession
    _next: tuple[str, bool, str] | None = None
    _moving: asyncio.Future[None] | None = None
    """Chooses the one after it, also where the request that waits for it is given up."""
    _num_seen: int = 0
    """Steps that the agent had taken when the next one was chosen."""
    _num_due: int = 1
    """Steps that it takes: one for each of its calls, where the agent gets them one at a time."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def prepare(self) -> None:
        """Choose the first action; raise where the task has no solution."""
        self._next = await anext(self.steps, None)

    async def reply(self, request: PolicyRequest) -> ExpertReply | None:
        async with self._lock:
            await self.shown.settle()
            while self._moving is not None or (self._next is not None and self._num_taken >= self._num_due):
                self._moving = self._moving or asyncio.ensure_future(self._move_on())
                await asyncio.shield(self._moving)
                self._moving = None
        if self._next is None or self.shown.ended:
            return None
        action, is_noise, then = self._next
        calls = self._find_calls(action, request)
        text = "" if calls else self.source.write_step(action, then)
        return ExpertReply(text=text, calls=calls, is_noise=is_noise)

    async def _move_on(self) -> None:
        taken = len(self.shown.steps)
        self._next = None if self.shown.ended else await anext(self.steps, None)
        self._num_seen, self._num_due = taken, 1

    @property
    def _num_taken(self) -> int:
        return len(self.shown.steps) - self._num_seen

    async def close(self) -> None:
        """Abandon a choice that is still under way."""
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.gather(self._moving, return_exceptions=True)

    def _find_calls(self, action: str, request: PolicyRequest) -> tuple[CallMade, ...]:
        """Find the calls that an action is; none where the request offers other tools than it needs."""
        offered = {tool.name for tool in request.tools} if request.calls else set()
        try:
            calls = self.shown.to_calls(action)
        except MalformedCall:
            return ()
        if not all(call.name in offered for call in calls):
            return ()
        made = tuple(CallMade(call.name, canonical_arguments(call.arguments)) for call in calls)
        if request.parallel:
            return made[self._num_taken :]
        self._num_due = max(len(made), 1)
        return made[self._num_taken :][:1]

    def encode(self, text: str) -> Sequence[int]:
        return self.source.encode(text)


def mark_imitated(episode: PolicyEpisode, loss_on: LossOn) -> tuple[Segment, ...]:
    """Return a demonstration's segments with the tokens marked that are to be imitated: the expert's replies, under
    `expert` without its noise, under `all` prompts and observations too, each where it stands first."""
    lines = episode.conversations.lines
    marked = [replace(each, sampled=each.sampled.copy()) for each in episode.conversations.segments]
    for exchange in episode.exchanges:
        if exchange.is_noise and loss_on is LossOn.EXPERT:
            marked[lines.index(exchange.line)].sampled[exchange.start : exchange.end] = False
    if loss_on is LossOn.ALL:
        for line, segment in zip(lines, marked, strict=True):
            before = None if line.parent is None else marked[lines.index(line.parent)].ids
            segment.sampled[_count_shared(segment.ids, before) :] = True
    for segment in marked:
        segment.sampled[:1] = False  # nothing predicts the first token
    return tuple(marked)


def _count_shared(ids: np.ndarray, before: np.ndarray | None) -> int:
    if before is None:
        return 0
    size = min(len(ids), len(before))
    differs = np.nonzero(ids[:size] != before[:size])[0]
    return int(differs[0]) if len(differs) else size
