"""Instances of one environment, lent out one per episode, and every call into them made safe to await.

A call runs where `spec.runs` says. What the environment raises on purpose passes through; anything else becomes an
`EnvFault`, and the instance that raised it is never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from .errors import EnvError, EnvFault, FaultKind
from .protocol import Deadlines, Env, EnvFactory, EnvSpec, Observation, Reached, Runs, Step, TaskInfo

__all__ = ["EnvPool", "Held", "Instances", "Loan"]

P = ParamSpec("P")
T = TypeVar("T")


class Loan(Protocol):
    """An instance for one episode after another, until it is given back."""

    async def reset(self, task: str, seed: int) -> Observation: ...

    async def step(self, action: str) -> Step: ...

    async def advice(self) -> str | None: ...

    async def noise_action(self, seed: int) -> str | None: ...

    async def give_back(self) -> None:
        """End the loan; never raises, and may be called more than once."""


class Instances(Protocol):
    """Where a server's sessions get what they play on."""

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def hangs(self) -> bool:
        """Whether nothing more can be asked: every thread waits for a call that does not come back."""

    @property
    def stuck(self) -> int:
        """Calls given up that have not come back."""

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]: ...

    async def corpus(self) -> tuple[str, ...]: ...

    async def take(self) -> Loan: ...

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None: ...

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None: ...

    async def close(self) -> None: ...


class _Crowd:
    """How many were lent at the same time, of late: in this span and the last, each of four such crowds' loans."""

    def __init__(self) -> None:
        self.lent = 0
        self._loans = 0
        self._most = (0, 0)

    @property
    def most(self) -> int:
        return max(self._most)

    def lend(self) -> None:
        self.lent += 1
        self._loans += 1
        before, now = self._most
        self._most = (before, max(now, self.lent))
        if self._loans > 4 * self.most:
            self._loans, self._most = 0, (self._most[1], self.lent)


class EnvPool:
    """Makes instances as they are needed and keeps as many as were lately lent at once, or `keep`."""

    def __init__(
        self, factory: EnvFactory, *, deadlines: Deadlines | None = None, threads: int = 8, keep: int = 64
    ) -> None:
        self._factory = factory
        self._keep = keep
        # never played: it answers what is asked about tasks; made at once, so that wrong options show at once
        self._desk = factory()
        self._idle: list[tuple[Env, Executor | None]] = []
        self._crowd = _Crowd()
        self._closed = False
        self._threads = ThreadPoolExecutor(threads, "env") if self.spec.runs is Runs.POOL else None
        self.deadlines = deadlines or Deadlines()
        self._num_threads = threads
        self.stuck = 0
        """Calls given up that have not come back; each holds a thread."""

    @property
    def spec(self) -> EnvSpec:
        return self._desk.spec

    @property
    def hangs(self) -> bool:
        return self.stuck >= self._num_threads

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        desk = self._desk
        return tuple(TaskInfo(id=task, difficulty=desk.difficulty(task)) for task in desk.tasks(split))

    async def corpus(self) -> tuple[str, ...]:
        return tuple(self._desk.corpus())

    async def take(self) -> Held:
        """An instance for one episode; it must be given back."""
        if self._idle:
            return self._lend(*self._idle.pop())
        executor = self._executor()
        try:
            env = await _Calls(self, executor).run(self.deadlines.open_s, self._factory)
        except EnvError:
            self._shut_own_thread(executor)
            raise
        return self._lend(env, executor)

    def _lend(self, env: Env, executor: Executor | None) -> Held:
        self._crowd.lend()
        return Held(self, env, executor)

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        held = await self.take()
        try:
            return await held.expert(task, seed)
        finally:
            await held.give_back()

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        held = await self.take()
        try:
            return await held.hindsight(task, seed, actions)
        finally:
            await held.give_back()

    async def close(self) -> None:
        self._closed, idle = True, self._idle
        self._idle = []
        for env, executor in idle:
            await Held(self, env, executor).throw_away()
        self._desk.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _take_in(self, env: Env, executor: Executor | None) -> bool:
        """Whether the instance is kept for another episode."""
        if self._closed or len(self._idle) >= max(self._keep, self._crowd.most - self._crowd.lent):
            return False
        self._idle.append((env, executor))
        return True

    def _executor(self) -> Executor | None:
        return ThreadPoolExecutor(1, "env") if self.spec.runs is Runs.THREAD else self._threads

    def _shut_own_thread(self, executor: Executor | None) -> None:
        if executor is not None and self.spec.runs is Runs.THREAD:
            executor.shutdown(wait=False, cancel_futures=True)


class Held:
    """An instance on loan."""

    def __init__(self, pool: EnvPool, env: Env, executor: Executor | None) -> None:
        self._pool = pool
        self._env = env
        self._executor = executor
        self._calls = _Calls(pool, executor)
        self._returned = False

    async def reset(self, task: str, seed: int) -> Observation:
        return await self._calls.run(self._pool.deadlines.open_s, self._env.reset, task, seed)

    async def step(self, action: str) -> Step:
        return await self._calls.run(self._pool.deadlines.step_s, self._env.step, action)

    async def advice(self) -> str | None:
        return await self._calls.run(self._pool.deadlines.step_s, self._env.advice)

    async def noise_action(self, seed: int) -> str | None:
        return await self._calls.run(self._pool.deadlines.step_s, self._env.noise_action, Random(seed))

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        return await self._calls.run(self._pool.deadlines.open_s, self._env.expert, task, seed)

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        return await self._calls.run(self._pool.deadlines.open_s, self._env.hindsight, task, seed, actions)

    async def give_back(self) -> None:
        """End the loan; never raises, and may be called more than once."""
        if self._returned:
            return
        self._returned = True
        self._pool._crowd.lent -= 1
        try:
            if not (self._calls.broken or self._calls.lost):
                with suppress(EnvError):
                    await self._calls.run(self._pool.deadlines.close_s, self._env.end)
            if not self._calls.lost and (self._calls.broken or not self._pool._take_in(self._env, self._executor)):
                await self.throw_away()
        finally:
            if self._calls.lost is not None:
                self._calls.lost.add_done_callback(self._clean_up_late)

    async def throw_away(self) -> None:
        with suppress(EnvError):  # trouble with what is thrown away is nobody's trouble
            await self._calls.run(self._pool.deadlines.close_s, self._env.close)
        self._pool._shut_own_thread(self._executor)

    def _clean_up_late(self, lost: asyncio.Future[Any]) -> None:
        with suppress(RuntimeError):  # the executor may be gone by now
            if self._executor is not None:
                self._executor.submit(self._env.close)
        self._pool._shut_own_thread(self._executor)


class _Calls:
    """Calls into one instance, with their deadlines."""

    def __init__(self, pool: EnvPool, executor: Executor | None) -> None:
        self._pool = pool
        self._executor = executor
        self.broken = False
        """It raised what it should not have."""
        self.lost: asyncio.Future[Any] | None = None
        """A call that was given up: until it comes back no other may be made."""

    async def run(self, timeout_s: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            if self._executor is None:
                return function(*args, **kwargs)
            return await self._in_thread(self._executor, timeout_s, partial(function, *args, **kwargs))
        except EnvFault:
            self.broken = True
            raise
        except EnvError:
            raise
        except Exception as error:
            self.broken = True
            raise EnvFault(f"{self._doing(function)} raised {type(error).__name__}: {error}") from error

    async def _in_thread(self, executor: Executor, timeout_s: float, function: partial[T]) -> T:
        if self.lost is not None:
            raise EnvFault(f"{self._doing(function.func)} waits for a call that hangs", kind=FaultKind.DEADLINE)
        future = asyncio.get_running_loop().run_in_executor(executor, function)
        try:
            done, _ = await asyncio.wait([future], timeout=timeout_s)
        except asyncio.CancelledError:
            self._give_up(future)
            raise
        if not done:
            self._give_up(future)
            message = f"{self._doing(function.func)} did not come back within {timeout_s:g} s"
            raise EnvFault(message, kind=FaultKind.DEADLINE)
        return future.result()

    def _doing(self, function: Callable[..., object]) -> str:
        return f"{self._pool.spec.name}: {getattr(function, '__name__', 'make')}"

    def _give_up(self, future: asyncio.Future[T]) -> None:
        # a thread cannot be stopped, and asyncio's cancel would only make us forget it
        self.lost = future
        self._pool.stuck += 1
        future.add_done_callback(self._came_back)

    def _came_back(self, future: asyncio.Future[T]) -> None:
        self._pool.stuck -= 1
        if not future.cancelled():
            future.exception()  # looked at, so that it is not reported as never retrieved


if TYPE_CHECKING:

    def _keeps_the_protocol(pool: EnvPool) -> Instances:
        return pool
