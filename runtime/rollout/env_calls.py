"""Environment calls with deadlines, concurrency limits and retries.

A fault is never a failure: the episode is played again from its start, with the same seed, and finally left out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeGuard, TypeVar

from ...dsl.model.recipe import Rollout
from ...envs.errors import EnvError, EnvFault, FaultKind
from ...envs.protocol import LARGEST_REWARD, EnvClient, EnvSpec, Session, Step
from ..errors import StepRefused
from .episode import Ending, Episode, Task

__all__ = [
    "ConcurrencyLimits",
    "ConnectedEnv",
    "SessionLimit",
    "check_score",
    "limit_time",
    "measures_of",
    "open_session",
    "validated",
    "with_deadline",
    "with_retries",
]

T = TypeVar("T")

_TRIED_AFTER = 8
"""Times the sessions that a server takes have to end until one more is tried."""
_MOST_MEASURES = 40
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """Limits of resets and steps at a time; waiting for one's turn counts towards the episode's timeout alone."""

    _reset: AbstractAsyncContextManager[Any]
    _step: AbstractAsyncContextManager[Any]
    _expecting: Callable[[], AbstractContextManager[None]]

    @classmethod
    def of(cls, rollout: Rollout, expecting: Callable[[], AbstractContextManager[None]] = nullcontext) -> Self:
        """`expecting` is the sampler's, which the episode asks for a reply as soon as the environment has answered."""
        return cls(_make_semaphore(rollout.limits.reset), _make_semaphore(rollout.limits.step), expecting)

    @asynccontextmanager
    async def reset(self) -> AsyncIterator[None]:
        async with self._reset:
            with self._expecting():
                yield

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        async with self._step:
            with self._expecting():
                yield


def _make_semaphore(limit: int | None) -> AbstractAsyncContextManager[Any]:
    return nullcontext() if limit is None else asyncio.Semaphore(limit)


class SessionLimit:
    """Sessions open at once in one environment: as many as the recipe allows, or as its server has been found to take.

    Waiting for one has no time limit of its own: every session ends within that of its episode.
    """

    def __init__(self, remark: Callable[[str], None] = lambda text: None) -> None:
        self.allowed: int | None = None
        """By the recipe."""
        self._found: int | None = None
        """By what the server refused; one more is tried now and then, as other clients may have left."""
        self._told: int | None = None
        self._num_ended = 0
        """Since the limit that was found last changed."""
        self._remark = remark
        self._num_taken = 0
        """Places, of sessions that are open or being opened."""
        self._num_open = 0
        self._left = asyncio.Event()

    async def enter(self) -> None:
        while any(limit is not None and self._num_taken >= limit for limit in (self.allowed, self._found)):
            await self._left.wait()
        self._num_taken += 1

    def opened(self) -> None:
        self._num_open += 1

    def leave(self, *, opened: bool) -> None:
        self._num_taken -= 1
        if opened:
            self._num_open -= 1
            self._num_ended += 1
        if self._found is not None and self._num_ended >= _TRIED_AFTER * self._found:
            self._found, self._num_ended = self._found + 1, 0
        self._left.set()  # all wake up in the order in which they came, and look again
        self._left = asyncio.Event()

    def lower(self, env: str, refusal: EnvFault) -> bool:
        """After a refusal, allow no more than are open now; False if other clients fill the server."""
        if not self._num_open:
            return False
        if self._found is None or self._num_open < self._found:
            self._found, self._num_ended = self._num_open, 0
        if self._told is None or self._num_open < self._told:
            self._told = self._num_open
            count = f"{self._num_open} session{'s' if self._num_open > 1 else ''}"
            self._remark(
                f"environment '{env}': its server takes {count} at a time, so other episodes wait for their turn "
                f"({refusal}); write 'environments.{env}.sessions: {self._num_open}'"
            )
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedEnv:
    """An open environment, with a recipe's settings for it."""

    name: str
    client: EnvClient
    spec: EnvSpec
    success_at: float = 1.0
    sessions: SessionLimit = field(default_factory=SessionLimit)


async def with_retries(
    once: Callable[[], Awaitable[Episode]],
    task: Task,
    index: int,
    horizon: int,
    retries: int,
    clock: Callable[[], float],
) -> Episode:
    """Retry after a fault as often as allowed; a fault that stays is the episode's ending."""
    started, faults, fault = clock(), tuple[str, ...](), ""
    while len(faults) <= retries:
        try:
            episode = await once()
        except EnvFault as error:
            faults, fault = (*faults, error.kind.value), f"{error.kind}: {error}"
        else:
            return replace(episode, faults=faults, retries=len(faults), seconds=clock() - started)
    return Episode(
        task=task,
        index=index,
        segments=(),
        turns=(),
        ending=Ending.ENV_FAULT,
        horizon=horizon,
        score=0.0,
        success=False,
        fault=fault,
        faults=faults,
        retries=retries,
        seconds=clock() - started,
    )


@asynccontextmanager
async def limit_time(seconds: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise EnvFault(f"waited {seconds:g} s for {what}", kind=FaultKind.DEADLINE) from None


async def with_deadline(awaitable: Awaitable[T], seconds: float, what: str) -> T:
    """Await an environment's answer until a deadline; any exception becomes a fault that names the wait."""
    try:
        async with limit_time(seconds, what):
            return await awaitable
    except (EnvFault, StepRefused):
        raise
    except Exception as error:
        raise EnvFault(f"{type(error).__name__} while waiting for {what}: {error}") from error


@asynccontextmanager
async def open_session(
    env: ConnectedEnv, task: Task, timeouts: Rollout, concurrency: ConcurrencyLimits
) -> AsyncIterator[Session]:
    """Open a session for one episode, and close it in any case."""
    session = await _open_in_turn(env, task, timeouts, concurrency)
    try:
        if not isinstance(session.first.text, str):
            raise EnvFault(f"{env.name} returned no text at the start", kind=FaultKind.GARBAGE)
        yield session
    finally:
        try:
            with suppress(EnvFault):  # a session that cannot be closed is of no further use
                await with_deadline(session.close(), timeouts.step_timeout_s, f"{env.name} to close a session")
        finally:
            env.sessions.leave(opened=True)


async def _open_in_turn(env: ConnectedEnv, task: Task, timeouts: Rollout, concurrency: ConcurrencyLimits) -> Session:
    """Open a session as soon as there is room for one; a server that is full of ours is asked again when one ends."""
    while True:
        await env.sessions.enter()
        opened = False
        try:
            async with concurrency.reset():
                session = await with_deadline(
                    _open(env, task), timeouts.reset_timeout_s, f"{env.name} to start task '{task.id}'"
                )
            opened = True
            env.sessions.opened()
            return session
        except EnvFault as fault:
            refusal = fault
        finally:
            if not opened:
                env.sessions.leave(opened=False)
        if refusal.kind is not FaultKind.BUSY or not env.sessions.lower(env.name, refusal):
            raise refusal


async def _open(env: ConnectedEnv, task: Task) -> Session:
    try:
        return await env.client.open(task.id, task.seed)
    except EnvFault:
        raise
    except EnvError as error:
        # a task that it does not have, a token that it does not accept: no retry helps
        raise StepRefused(f"environment '{env.name}', task '{task.id}': {error}") from error


def validated(step: Step, name: str) -> Step:
    if not (isinstance(step, Step) and isinstance(step.observation.text, str) and _is_reward(step.reward)):
        raise EnvFault(f"{name} returned an invalid answer: {str(step)[:80]}", kind=FaultKind.GARBAGE)
    return step


def measures_of(step: Step) -> dict[str, float]:
    """The numbers of `metrics` in a step's `info`, by names that any sink takes; an environment may send anything."""
    found = step.info.get("metrics")
    pairs = found.items() if isinstance(found, Mapping) else ()
    known = sorted((name, float(value)) for name, value in pairs if isinstance(name, str) and _is_measure(value))
    return {_NOT_IN_A_NAME.sub("_", name)[:60]: value for name, value in known[:_MOST_MEASURES]}


def _is_measure(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and _is_reward(value)


def _is_reward(value: float) -> bool:
    try:
        # false of NaN; what is within the bound never overflows where it is summed or squared
        return abs(value) <= LARGEST_REWARD
    except TypeError:
        return False


def check_score(score: float, env: ConnectedEnv) -> None:
    """Treat a score outside the environment's declared range as its fault, up to rounding."""
    low, high = env.spec.score_range
    if not low - _rounding(low) <= score <= high + _rounding(high):
        message = f"{env.name} gave a score of {score:g}, outside its 'score_range' of {low:g} to {high:g}"
        raise EnvFault(message, kind=FaultKind.GARBAGE)


def _rounding(bound: float) -> float:
    return 1e-6 * max(1.0, abs(bound))
