"""The sessions of a server: opened, stepped, closed, and reclaimed when nobody asks for them any longer.

Knows nothing of HTTP. A repeated request is answered, not carried out again: a step carries its number, and an opening
may bring its own key, so that a client that lost the answer can simply ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

from ..errors import BadRequest, EnvFault, EpisodeOver, FaultKind, OutOfStep, UnknownSession
from ..pool import Instances, Loan, side_by_side
from ..protocol import Observation, Step

__all__ = ["Opened", "Sessions"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    session: str
    observation: Observation


@dataclass(slots=True, kw_only=True)
class _Entry:
    task: str
    seed: int
    lease_until: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One call at a time; a repeated request waits for the one it repeats."""
    held: Loan | None = None
    first: Observation | None = None
    last: Step | None = None
    num_steps: int = 0


class Sessions:
    """All episodes under way in this process."""

    def __init__(self, pool: Instances, *, limit: int, lease_s: float, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._limit = limit
        self._lease_s = lease_s
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._draining = False
        self.num_expired = 0
        self.num_episodes = 0
        self.num_steps = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, session: object) -> bool:
        return session in self._entries

    async def open(self, task: str, seed: int, key: str | None = None) -> Opened:
        session = key if key is not None else token_hex(16)
        while True:
            entry = self._entries.get(session) or self._enter(session, task, seed)
            if (entry.task, entry.seed) != (task, seed):
                raise BadRequest(f"session '{session[:40]}' was opened for another task or seed")
            async with entry.lock:
                if not self._is_there(session, entry):
                    continue  # the request that it repeats has failed meanwhile
                if entry.first is None:
                    await self._begin(session, entry)
                assert entry.first is not None
                self._renew(entry)
                return Opened(session=session, observation=entry.first)

    def reserve(self) -> str:
        """Reserve a session whose first episode is yet to come."""
        session = token_hex(16)
        self._enter(session, "", 0)
        return session

    def _enter(self, session: str, task: str, seed: int) -> _Entry:
        if self._draining:
            raise EnvFault("the server is stopping and opens no more sessions", kind=FaultKind.BUSY)
        if len(self._entries) >= self._limit:
            raise EnvFault(f"all {self._limit} sessions are taken", kind=FaultKind.BUSY)
        entry = _Entry(task=task, seed=seed, lease_until=self._clock() + self._lease_s)
        self._entries[session] = entry
        return entry

    async def _begin(self, session: str, entry: _Entry) -> None:
        held = None
        try:
            held = await self._pool.take()
            first = await held.reset(entry.task, entry.seed)
            self._require_open(session, entry)
            entry.held, entry.first = held, first
            self.num_episodes += 1
        finally:
            if entry.first is None:
                await self._drop(session, entry)
                if held is not None:
                    await held.give_back()

    async def step(self, session: str, action: str, number: int | None = None) -> Step:
        """Act; `number` counts the session's steps from 0, and a number just answered gets the same answer again."""
        entry = self._entry(session)
        async with entry.lock:
            held = self._require_loan(session, entry)
            if number == entry.num_steps - 1 and entry.last is not None:
                return entry.last
            if number not in (None, entry.num_steps):
                raise OutOfStep(f"expected step {entry.num_steps} of session '{session[:40]}', not {number}")
            step = await self._guard(session, entry, held.step(action))
            entry.last, entry.num_steps = step, entry.num_steps + 1
            self.num_steps += 1
            return step

    async def reset(self, session: str, task: str, seed: int) -> Observation:
        """Begin another episode in the same session."""
        entry = self._entry(session)
        async with entry.lock:
            if entry.held is None:
                self._require_open(session, entry)
                entry.held = await self._guard(session, entry, self._pool.take())
            observation = await self._guard(session, entry, entry.held.reset(task, seed))
            self.num_episodes += 1
            entry.task, entry.seed = task, seed
            entry.first, entry.last, entry.num_steps = observation, None, 0
            return observation

    async def advice(self, session: str) -> str | None:
        entry = self._entry(session)
        async with entry.lock:
            return await self._guard(session, entry, self._require_loan(session, entry).advice())

    async def noise_action(self, session: str, seed: int) -> str | None:
        entry = self._entry(session)
        async with entry.lock:
            return await self._guard(session, entry, self._require_loan(session, entry).noise_action(seed))

    async def close(self, session: str) -> None:
        entry = self._entry(session)
        async with entry.lock:
            await self._drop(session, entry)

    async def expire(self) -> int:
        """Close sessions unused for their lease; one in the middle of a call is in use."""
        expired = 0
        for session, entry in list(self._entries.items()):
            # looked at one by one: while another is dropped, this one may be asked for again
            if self._is_there(session, entry) and entry.lease_until < self._clock() and not entry.lock.locked():
                async with entry.lock:
                    await self._drop(session, entry)
                expired += 1
        self.num_expired += expired
        return expired

    def refuse_new(self) -> None:
        self._draining = True

    async def close_all(self) -> None:
        self.refuse_new()
        await side_by_side([partial(self._drop, session, entry) for session, entry in self._entries.items()])
        await self._pool.close()

    def _entry(self, session: str) -> _Entry:
        entry = self._entries.get(session)
        if entry is None:
            raise UnknownSession(f"no session '{session[:40]}': closed, expired, or lost when the server was restarted")
        self._renew(entry)
        return entry

    def _renew(self, entry: _Entry) -> None:
        entry.lease_until = self._clock() + self._lease_s

    def _require_loan(self, session: str, entry: _Entry) -> Loan:
        if entry.held is None:
            self._require_open(session, entry)
            raise EpisodeOver("no episode is under way: reset it first")
        return entry.held

    def _require_open(self, session: str, entry: _Entry) -> None:
        if not self._is_there(session, entry):
            raise UnknownSession(f"session '{session[:40]}' was closed while this request waited for its turn")

    def _is_there(self, session: str, entry: _Entry) -> bool:
        return self._entries.get(session) is entry

    async def _guard(self, session: str, entry: _Entry, call: Coroutine[Any, Any, T]) -> T:
        """Drop a session whose environment fails; renew the lease of one whose call took long."""
        try:
            answer = await call
        except (EnvFault, asyncio.CancelledError):
            await self._drop(session, entry)
            raise
        self._renew(entry)
        return answer

    async def _drop(self, session: str, entry: _Entry) -> None:
        if self._is_there(session, entry):
            del self._entries[session]
        if entry.held is not None:
            held, entry.held = entry.held, None
            await held.give_back()
