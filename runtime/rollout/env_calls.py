"""Asking an environment: with patience that ends, through gates, and again after a fault.

Enters: an environment and a task. Leaves: a session, answers, or an episode that says what failed. Whatever goes wrong
on the environment's side (an exception of any kind, silence, an answer that makes no sense) is a fault: the episode is
played again from its start, with the same seed, and in the end left out; it is never a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Self, TypeVar

from ...envs.errors import EnvError, EnvFault, FaultKind
from ...envs.protocol import EnvClient, EnvSpec, Session, Step
from ..errors import StepRefused
from .episode import Ending, Episode, Task

__all__ = ["Gates", "Phases", "World", "asked", "opened", "persistently", "sound"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """How long to wait and how often to try again."""

    reset_timeout_s: float = 60.0
    step_timeout_s: float = 30.0
    episode_timeout_s: float = 1800.0
    retries: int = 2
    reset_limit: int | None = None
    """Episodes that start at the same time, at the most."""
    step_limit: int | None = None
    """Episodes that wait for an answer at the same time, at the most."""


@dataclass(frozen=True, slots=True)
class Gates:
    """What keeps no more than so many episodes in a phase; waiting at a gate is on nobody's time but the episode's."""

    reset: AbstractAsyncContextManager[Any]
    step: AbstractAsyncContextManager[Any]

    @classmethod
    def of(cls, phases: Phases) -> Self:
        return cls(_gate(phases.reset_limit), _gate(phases.step_limit))


def _gate(limit: int | None) -> AbstractAsyncContextManager[Any]:
    return nullcontext() if limit is None else asyncio.Semaphore(limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """An environment, ready to play, with what a recipe says about it."""

    name: str
    client: EnvClient
    spec: EnvSpec
    success_at: float = 1.0


async def persistently(
    once: Callable[[], Awaitable[Episode]],
    task: Task,
    index: int,
    horizon: int,
    retries: int,
    clock: Callable[[], float],
) -> Episode:
    """Tries again after a fault as often as allowed; a fault that stays is the episode's ending."""
    started, kinds, fault = clock(), tuple[str, ...](), ""
    while len(kinds) <= retries:
        try:
            episode = await once()
        except EnvFault as error:
            kinds, fault = (*kinds, error.kind.value), f"{error.kind}: {error}"
        else:
            return replace(episode, faults=kinds, retries=len(kinds), seconds=clock() - started)
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
        faults=kinds,
        retries=retries,
        seconds=clock() - started,
    )


async def asked(awaitable: Awaitable[T], seconds: float, what: str) -> T:
    """An environment's answer. The wait has an end and says what it was for; whatever goes wrong is a fault."""
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except TimeoutError:
        raise EnvFault(f"waited {seconds:g} s for {what}", kind=FaultKind.DEADLINE) from None
    except (EnvFault, StepRefused):
        raise
    except Exception as error:
        raise EnvFault(f"{type(error).__name__} while waiting for {what}: {error}") from error


@asynccontextmanager
async def opened(world: World, task: Task, phases: Phases, gates: Gates) -> AsyncIterator[Session]:
    """A session for one episode, given back whatever happens."""
    async with gates.reset:
        session = await asked(_open(world, task), phases.reset_timeout_s, f"{world.name} to start task '{task.id}'")
    try:
        if not isinstance(session.first.text, str):
            raise EnvFault(f"{world.name} showed nothing that can be read at the start", kind=FaultKind.GARBAGE)
        yield session
    finally:
        with suppress(EnvFault):  # what cannot be closed is of no use to anybody any more
            await asked(session.close(), phases.step_timeout_s, f"{world.name} to take a session back")


async def _open(world: World, task: Task) -> Session:
    try:
        return await world.client.open(task.id, task.seed)
    except EnvFault:
        raise
    except EnvError as error:
        # a task that it does not have, a token that it does not know: no retry mends these
        raise StepRefused(f"environment '{world.name}', task '{task.id}': {error}") from error


def sound(step: Step, name: str) -> Step:
    if not (isinstance(step, Step) and isinstance(step.observation.text, str) and isfinite(step.reward)):
        raise EnvFault(f"{name} gave an answer that makes no sense: {str(step)[:80]}", kind=FaultKind.GARBAGE)
    return step
