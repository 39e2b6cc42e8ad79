"""Instances of one environment, lent out one per episode, and every call into them made safe to await.

A call runs where `spec.runs` says. What the environment raises on purpose passes through; anything else becomes an
`EnvFault`, and the instance that raised it is never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from random import Random
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from .errors import EnvError, EnvFault, FaultKind
from .limits import check_first, check_step
from .protocol import Deadlines, Env, EnvFactory, EnvSpec, Observation, Reached, Runs, Step, TaskInfo

__all__ = ["EnvPool", "Held", "Instances", "Loan", "side_by_side"]

P = ParamSpec("P")
T = TypeVar("T")

_ENDING = 16
"""Instances closed at the same time; what they started, such as servers, may take seconds to end."""
_OWN_THREADS = 8
"""Factor on the threads of a pool that may hang where each instance has its own."""


class Loan(Protocol):
    """An instance for one episode after another, until it is given back."""

    async def reset(self, task: str, seed: int) -> Observation: ...

    async def step(self, action: str) -> Step: ...

    async def advice(self) -> str | None: ...

    async def noise_action(self, seed: int) -> str | None: ...

    async def give_back(self) -> None:
        """End the loan; never raises, and may be called more than once."""


class Instances(Protocol):
    """Source of the instances that a server's sessions play on."""

    @property
    def spec(self) -> EnvSpec: ...

    async def describe(self) -> EnvSpec:
        """The spec, with what takes long to know."""

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
    """Recent peak of concurrent loans, over two windows of four times that many loans."""

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
    """Makes instances as needed; keeps as many as were recently lent at once, or `keep`."""

    def __init__(
        self, factory: EnvFactory, *, deadlines: Deadlines | None = None, threads: int = 8, keep: int = 64
    ) -> None:
        self._factory = factory
        self._keep = keep
        # never played, only asked about tasks, in a thread of its own; made at once, so that wrong options show at once
        thread = ThreadPoolExecutor(1, "desk")
        try:
            self._desk = thread.submit(factory).result()
        except BaseException:
            thread.shutdown()
            raise
        self._desk_thread = None if self.spec.runs is Runs.INLINE else thread
        if self._desk_thread is None:
            thread.shutdown()
        self._described: EnvSpec | None = None
        self._idle: list[tuple[Env, Executor | None]] = []
        self._crowd = _Crowd()
        self._closed = False
        self._threads = ThreadPoolExecutor(threads, "env") if self.spec.runs is Runs.POOL else None
        self.deadlines = deadlines or Deadlines()
        self._num_threads = threads
        self._showing = asyncio.Semaphore(threads)
        """Instances that show a solution are nobody's sessions: no more of them than there are threads."""
        self.stuck = 0
        """Calls given up that have not come back; each holds a thread."""

    @property
    def spec(self) -> EnvSpec:
        return self._desk.spec

    @property
    def hangs(self) -> bool:
        # where each instance has a thread of its own, others can still be asked
        return self.stuck >= self._num_threads * (_OWN_THREADS if self.spec.runs is Runs.THREAD else 1)

    async def describe(self) -> EnvSpec:
        if self._described is None:
            self._described = await self._at_desk(self._desk.describe)
        return self._described

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        return await self._at_desk(_tasks, self._desk, split)

    async def corpus(self) -> tuple[str, ...]:
        return await self._at_desk(_corpus, self._desk)

    async def _at_desk(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask the desk, without a deadline: games may be made for it, or a server started."""
        return await _Calls(self, self._desk_thread).run(None, function, *args, **kwargs)

    async def take(self) -> Held:
        """An instance for one episode; it must be given back."""
        if self._idle:
            return self._lend(*self._idle.pop())
        executor = self._executor()
        calls = _Calls(self, executor)
        try:
            env = await calls.run(self.deadlines.open_s, self._factory)
        except BaseException:
            if calls.lost is not None:
                calls.lost.add_done_callback(partial(self._made_late, executor))
            else:
                self._shut_own_thread(executor)
            raise
        return self._lend(env, executor)

    def _made_late(self, executor: Executor | None, future: asyncio.Future[Env]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._close_late(future.result(), executor)
        else:
            self._shut_own_thread(executor)

    def _close_late(self, env: Env, executor: Executor | None) -> None:
        """Close the instance, then end its thread."""
        with suppress(RuntimeError):  # the executor may be gone by now
            if executor is not None:
                executor.submit(env.close)
        self._shut_own_thread(executor)

    def _lend(self, env: Env, executor: Executor | None) -> Held:
        self._crowd.lend()
        return Held(self, env, executor)

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        async with self._showing:
            held = await self.take()
            try:
                return await held.expert(task, seed)
            finally:
                await held.give_back()

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        async with self._showing:
            held = await self.take()
            try:
                return await held.hindsight(task, seed, actions)
            finally:
                await held.give_back()

    async def close(self) -> None:
        self._closed, idle = True, self._idle
        self._idle = []
        await side_by_side([Held(self, env, executor).throw_away for env, executor in idle])
        with suppress(EnvError):
            await _Calls(self, self._desk_thread).run(self.deadlines.close_s, self._desk.close)
        if self._desk_thread is not None:
            self._desk_thread.shutdown(wait=False, cancel_futures=True)
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
            executor.shutdown(wait=False)


class Held:
    """An instance on loan."""

    def __init__(self, pool: EnvPool, env: Env, executor: Executor | None) -> None:
        self._pool = pool
        self._env = env
        self._executor = executor
        self._calls = _Calls(pool, executor)
        self._returned = False

    async def reset(self, task: str, seed: int) -> Observation:
        return await self._calls.run(self._pool.deadlines.open_s, _reset, self._env, task, seed)

    async def step(self, action: str) -> Step:
        return await self._calls.run(self._pool.deadlines.step_s, _step, self._env, action)

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
        with suppress(EnvError):  # trouble with what is thrown away concerns nobody
            await self._calls.run(self._pool.deadlines.close_s, self._env.close)
        self._pool._shut_own_thread(self._executor)

    def _clean_up_late(self, lost: asyncio.Future[Any]) -> None:
        self._pool._close_late(self._env, self._executor)


async def side_by_side(ends: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run them all, a limited number at a time."""
    room = asyncio.Semaphore(_ENDING)

    async def one(end: Callable[[], Awaitable[None]]) -> None:
        async with room:
            await end()

    await asyncio.gather(*map(one, ends))


def _reset(env: Env, task: str, seed: int) -> Observation:
    return check_first(env.reset(task, seed), env.spec.name)


def _step(env: Env, action: str) -> Step:
    return check_step(env.step(action), env.spec.name)


def _tasks(desk: Env, split: str) -> tuple[TaskInfo, ...]:
    return tuple(
        TaskInfo(id=task, difficulty=desk.difficulty(task), trivial=desk.trivial(task), judged=desk.judged(task))
        for task in desk.tasks(split)
    )


def _corpus(desk: Env) -> tuple[str, ...]:
    return tuple(desk.corpus())


class _Calls:
    """Calls into one instance, with their deadlines."""

    def __init__(self, pool: EnvPool, executor: Executor | None) -> None:
        self._pool = pool
        self._executor = executor
        self.broken = False
        """It raised what it should not have."""
        self.lost: asyncio.Future[Any] | None = None
        """A call that was given up: until it comes back no other may be made."""

    async def run(self, timeout_s: float | None, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        doing = f"{self._pool.spec.name}: {getattr(function, '__name__', 'make').strip('_')}"
        call = partial(_contain, doing, partial(function, *args, **kwargs))
        try:
            return call() if self._executor is None else await self._in_thread(self._executor, timeout_s, doing, call)
        except EnvFault:
            self.broken = True
            raise

    async def _in_thread(self, executor: Executor, timeout_s: float | None, doing: str, call: Callable[[], T]) -> T:
        if self.lost is not None:
            raise EnvFault(f"{doing} waits for a call that hangs", kind=FaultKind.DEADLINE)
        begun = executor.submit(call)
        future = asyncio.wrap_future(begun)
        try:
            done, _ = await asyncio.wait([future], timeout=timeout_s)
        except asyncio.CancelledError:
            self._give_up(begun, future)
            raise
        if not done:
            self._give_up(begun, future)
            raise EnvFault(f"{doing} did not come back within {timeout_s:g} s", kind=FaultKind.DEADLINE)
        if future.cancelled():
            raise EnvFault(f"{doing} was not begun: its environment is being closed")
        return future.result()

    def _give_up(self, begun: Future[T], future: asyncio.Future[T]) -> None:
        if begun.cancel():
            return  # it had not started yet
        # a thread cannot be stopped, and asyncio's cancel would only make us forget it
        self.lost = future
        self._pool.stuck += 1
        future.add_done_callback(self._note_return)

    def _note_return(self, future: asyncio.Future[T]) -> None:
        self._pool.stuck -= 1
        if not future.cancelled():
            future.exception()  # retrieved, so that it is not reported as never retrieved


def _contain(doing: str, call: Callable[[], T]) -> T:
    """Turn every exception into a fault, even one that would end the thread or the process, such as `SystemExit`."""
    try:
        return call()
    except EnvError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
            raise
        raise EnvFault(f"{doing} raised {type(error).__name__}: {error}") from error


if TYPE_CHECKING:

    def _keeps_the_protocol(pool: EnvPool) -> Instances:
        return pool
