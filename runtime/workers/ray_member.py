"""One worker in an actor, as its caller sees it: its answers, what it raised, and whether it is still there."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, TypeVar

from ...dsl.model.plan import Worker
from ..errors import LearnerLost
from .ray_actors import Played, Said

__all__ = ["START_S", "Member", "NotStarted", "WorkerLost", "gather_all"]

T = TypeVar("T")

_CLOSING_S = 10.0
"""For what is under way to end by itself."""
START_S = 3600.0
"""For an engine to load its model, from a slow disk too."""
_PINGS = 4
"""In the time after which a silent worker counts as hung."""


class WorkerLost(Exception):
    """An actor is gone or does not answer: says which, where and why."""


class NotStarted(WorkerLost):
    """It did not start within its time limit."""


class Member:
    """An actor and the calls that it owes an answer to."""

    def __init__(self, worker: Worker, where: str, handle: Any, heartbeat_s: float, group: str | None = None) -> None:
        """`group` is the concurrency group in which pings are answered while the actor works."""
        self.worker = worker
        self.handle = handle
        self._name = f"{worker.id} on {where}"
        self._heartbeat_s = heartbeat_s
        self._group = group
        self._numbers = count()
        self._owed: dict[int, Future[str]] = {}
        """By the number of a call: why its answer will never come."""
        self._lost: str | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_silent = False
        self.also_kill: Callable[[], None] = lambda: None
        """Ends a process that is silent and reacts to nothing."""

    @property
    def loss(self) -> WorkerLost | None:
        return None if self._lost is None else WorkerLost(f"{self._name}: {self._lost}")

    def watch(self) -> None:
        """Ping it now and then; before this, it is loading an engine and cannot answer."""
        self._watching = asyncio.get_running_loop().create_task(self._watch(), name=f"watch {self._name}")

    @property
    def watching(self) -> asyncio.Task[None] | None:
        """Done when it is lost or was ended."""
        return self._watching

    @property
    def lost(self) -> str | None:
        """Why it is lost."""
        return None if self._lost is None else f"{self._name}: {self._lost}"

    async def ask(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Have it do something; raises what that raises, or WorkerLost."""
        number = self._next_number()
        return await self.wait(self.handle.do.remote(number, work, *args, **kwargs), number)

    async def listen(self, *words: Any) -> AsyncIterator[Said[Played]]:
        """Have it play, and yield its news meanwhile."""
        number = self._next_number()
        stream = self.handle.play.options(num_returns="streaming").remote(number, *words)
        try:
            while (news := await self.wait(anext(stream, None), number)) is not None:
                yield await self.wait(news, number)
        except asyncio.CancelledError:
            await _end(stream)
            raise

    def _next_number(self) -> int:
        # a lost one is sent nothing: if Ray itself is gone, that would end this process
        if self.loss is not None:
            raise self.loss
        return next(self._numbers)

    async def wait(self, answer: Awaitable[T], number: int | None = None, within: float | None = None) -> T:
        """Wait for an answer as long as the worker is there to give it, and at most `within` seconds."""
        call = asyncio.ensure_future(answer)
        number = next(self._numbers) if number is None else number
        lost = self._owed[number] = asyncio.get_running_loop().create_future()
        if self._lost is not None:
            lost.set_result(self._lost)
        try:
            done, _ = await asyncio.wait([call, lost], timeout=within, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                if not done:
                    raise NotStarted(f"{self._name}: it has not started within {within:g} s")
                raise WorkerLost(f"{self._name}: {lost.result()}")
            with self._translate():
                return call.result()
        finally:
            del self._owed[number]
            call.cancel()

    async def end(self) -> None:
        """End its process, whatever it is doing."""
        self.give_up("it was ended")
        if self._watching is not None:
            self._watching.cancel()
        self._kill()

    def _kill(self) -> None:
        import ray

        with suppress(ray.exceptions.RayError):
            ray.kill(self.handle)
            if self._is_silent:
                self.also_kill()

    async def _watch(self) -> None:
        absent: frozenset[int] = frozenset()
        while self._lost is None:
            await asyncio.sleep(self._heartbeat_s / _PINGS)
            owed, (under_way, problem) = frozenset(self._owed), await self._ping()
            if problem is not None:
                return self.give_up(problem)
            # twice, as an answer may be on its way
            for number in absent & owed - under_way & self._owed.keys():
                if not self._owed[number].done():
                    self._owed[number].set_result("an answer of it was lost on the way")
            absent = owed - under_way
        return None

    async def _ping(self) -> tuple[frozenset[int], str | None]:
        """The numbers of the calls under way, or why it is lost."""
        from ray.exceptions import RayError

        options = {} if self._group is None else {"concurrency_group": self._group}
        answer = asyncio.ensure_future(_resolve(self.handle.ping.options(**options).remote()))
        done, _ = await asyncio.wait([answer], timeout=self._heartbeat_s)
        if not done:
            answer.cancel()
            self._is_silent = True
            return frozenset(), f"it has not answered for {self._heartbeat_s:g} s ('hardware.heartbeat_s')"
        try:
            return answer.result(), None
        except RayError:
            return frozenset(), _GONE

    def give_up(self, reason: str) -> None:
        """End all waits for it."""
        self._lost = self._lost or reason
        for lost in self._owed.values():
            if not lost.done():
                lost.set_result(self._lost)

    @contextmanager
    def _translate(self) -> Iterator[None]:
        """What a worker raised, as it raised it."""
        from ray.exceptions import RayActorError, RayError, RayTaskError

        try:
            yield
        except RayTaskError as error:
            if isinstance(error.cause, RayError):
                raise LearnerLost(f"{self._name}: the weights that it was given are gone with the learner") from error
            if not isinstance(error.cause, Exception):
                raise
            raise error.cause from error
        except RayActorError as error:
            raise WorkerLost(f"{self._name}: {_GONE}") from error
        except RayError as error:
            raise WorkerLost(f"{self._name}: {str(error).splitlines()[0]}") from error


_GONE = "its process is gone, killed or out of memory"


async def _resolve(answer: Awaitable[T]) -> T:
    return await answer


async def _end(stream: Any) -> None:
    """Cancel a play that is no longer wanted; it has left the sampler when this returns."""
    import ray

    ray.cancel(stream)
    with suppress(ray.exceptions.RayError, TimeoutError):
        async with asyncio.timeout(_CLOSING_S):
            await stream.completed()


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do all at once; the first exception ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as troubles:
        raise troubles.exceptions[0] from None
    return [task.result() for task in tasks]
