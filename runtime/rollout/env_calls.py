"""Environment calls with deadlines, concurrency limits and retries.

A fault is never a failure: the episode is played again from its start, with the same seed, and finally left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from ...dsl.model.recipe import Rollout
from ...envs.errors import EnvError, EnvFault, FaultKind
from ...envs.protocol import LARGEST_REWARD, EnvClient, EnvSpec, Session, Step
from ..errors import StepRefused
from .episode import Ending, Episode, Task

__all__ = [
    "ConcurrencyLimits",
    "ConnectedEnv",
    "check_score",
    "limit_time",
    "open_session",
    "validated",
    "with_deadline",
    "with_retries",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """Semaphores of resets and steps; waiting for one counts towards the episode's timeout alone."""

    reset: AbstractAsyncContextManager[Any]
    step: AbstractAsyncContextManager[Any]

    @classmethod
    def of(cls, rollout: Rollout) -> Self:
        return cls(_make_semaphore(rollout.limits.reset), _make_semaphore(rollout.limits.step))


def _make_semaphore(limit: int | None) -> AbstractAsyncContextManager[Any]:
    return nullcontext() if limit is None else asyncio.Semaphore(limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedEnv:
    """An open environment, with a recipe's settings for it."""

    name: str
    client: EnvClient
    spec: EnvSpec
    success_at: float = 1.0


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
    async with concurrency.reset:
        session = await with_deadline(
            _open(env, task), timeouts.reset_timeout_s, f"{env.name} to start task '{task.id}'"
        )
    try:
        if not isinstance(session.first.text, str):
            raise EnvFault(f"{env.name} returned no text at the start", kind=FaultKind.GARBAGE)
        yield session
    finally:
        with suppress(EnvFault):  # what cannot be closed is of no use to anybody any more
            await with_deadline(session.close(), timeouts.step_timeout_s, f"{env.name} to close a session")


async def _open(env: ConnectedEnv, task: Task) -> Session:
    try:
        return await env.client.open(task.id, task.seed)
    except EnvFault:
        raise
    except EnvError as error:
        # a task that it does not have, a token that it does not know: no retry helps
        raise StepRefused(f"environment '{env.name}', task '{task.id}': {error}") from error


def validated(step: Step, name: str) -> Step:
    if not (isinstance(step, Step) and isinstance(step.observation.text, str) and _is_reward(step.reward)):
        raise EnvFault(f"{name} returned an invalid answer: {str(step)[:80]}", kind=FaultKind.GARBAGE)
    return step


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
