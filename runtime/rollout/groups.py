"""Groups of episodes, played concurrently and without a barrier between turns: one episode is one coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from ..agents.messages import Message
from ..seeds import derive
from .env_calls import ConnectedEnv, limit_time, open_session, with_retries
from .episode import Episode, Group, Task
from .episode_runner import EpisodeRunner
from .player import EpisodeLimits, Player

__all__ = ["GroupRequest", "PlayOne", "play_episode", "play_groups", "run_in_slots"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """A group to play."""

    task: Task
    size: int
    limits: EpisodeLimits
    seed: int
    examples: Sequence[Message] = ()
    """Demonstrations before the task."""


class PlayOne(Protocol):
    """Plays one episode, as `play_episode` does."""

    async def __call__(
        self,
        player: Player,
        env: ConnectedEnv,
        task: Task,
        index: int,
        limits: EpisodeLimits,
        seed: int,
        examples: Sequence[Message] = (),
        /,
    ) -> Episode: ...


async def play_groups(
    player: Player,
    envs: Mapping[str, ConnectedEnv],
    requests: Sequence[GroupRequest],
    slots: int,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    turn: AbstractAsyncContextManager[object] | None = None,
    play_one: PlayOne | None = None,
) -> list[Group]:
    """Play all episodes of all groups, at most `slots` at a time and each within `turn`, where given; groups come back
    in the order of the requests. `play_one` plays each where our own agent does not."""
    play_own: PlayOne = play_one or play_episode

    async def play(request: GroupRequest, index: int) -> Episode:
        env, seed = envs[request.task.environment], derive(request.seed, "episode", index)
        async with turn or nullcontext():
            episode = await play_own(player, env, request.task, index, request.limits, seed, request.examples)
        on_episode(episode)
        return episode

    played = iter(
        await run_in_slots(
            [partial(play, request, index) for request in requests for index in range(request.size)], slots
        )
    )
    return [Group(task=request.task, episodes=tuple(next(played) for _ in range(request.size))) for request in requests]


async def play_episode(
    player: Player,
    env: ConnectedEnv,
    task: Task,
    index: int,
    limits: EpisodeLimits,
    seed: int,
    examples: Sequence[Message] = (),
) -> Episode:
    """Play an episode, retried after faults; a fault that stays is its ending."""
    player, timeouts = player.for_env(env.spec), player.timeouts

    async def once() -> Episode:
        runner = EpisodeRunner(
            player=player, env=env, task=task, index=index, limits=limits, seed=seed, examples=examples
        )
        while True:
            async with (
                open_session(env, task, timeouts, player.concurrency) as session,
                limit_time(timeouts.episode_timeout_s, f"the episode of task '{task.id}' in {env.name} to end"),
            ):
                await runner.run_attempt(session)
            if not await runner.reflect():
                return runner.build_episode()

    return await with_retries(once, task, index, limits.horizon, timeouts.retries, player.clock)


async def run_in_slots(jobs: Sequence[Callable[[], Awaitable[T]]], slots: int) -> list[T]:
    """Run jobs, which start and return in their order, as slots get free. The first exception ends them all."""
    results: dict[int, T] = {}
    upcoming = iter(enumerate(jobs))

    async def slot() -> None:
        for at, job in upcoming:
            results[at] = await job()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(slots, len(jobs))):
                group.create_task(slot())
    except BaseExceptionGroup as troubles:
        raise troubles.exceptions[0] from None
    return [results[at] for at in range(len(jobs))]
