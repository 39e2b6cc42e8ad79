"""Servers of our own, one or several of the same environment, behind one client.

A session goes to the server with the fewest; a server that dies is restarted, and what was under way on it is a fault.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import EnvFault
from ..protocol import Deadlines, EnvClient, EnvSpec, Observation, Reached, Session, Step, TaskInfo
from .client import HttpEnv
from .supervise import ServeCommand, ServerEvent, ServerProcess

__all__ = ["Replicas", "Served", "serve"]


async def serve(
    command: ServeCommand,
    count: int,
    log: Callable[[int], Path],
    report: Callable[[ServerEvent], None],
    deadlines: Deadlines | None = None,
) -> EnvClient:
    """Start `count` servers, or none."""
    served: list[Served] = []

    async def start(number: int) -> None:
        server = ServerProcess(command, log=log(number), report=report)
        served.append(Served(await server.__aenter__(), deadlines))

    try:
        for fault in await asyncio.gather(*map(start, range(count)), return_exceptions=True):
            if fault is not None:
                raise fault
    except BaseException:
        await asyncio.gather(*(each.close() for each in served))
        raise
    return served[0] if count == 1 else Replicas(served)


class ForwardingEnv(ABC):
    """A client that forwards to another one."""

    @property
    @abstractmethod
    def _target(self) -> EnvClient: ...

    async def spec(self) -> EnvSpec:
        return await self._target.spec()

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        return await self._target.tasks(split)

    async def open(self, task: str, seed: int) -> Session:
        return await self._target.open(task, seed)

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        return await self._target.expert(task, seed)

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        return await self._target.hindsight(task, seed, actions)

    async def corpus(self) -> tuple[str, ...]:
        return await self._target.corpus()


class Served(ForwardingEnv):
    """An environment on a server of our own, which ends with it."""

    def __init__(self, server: ServerProcess, deadlines: Deadlines | None = None) -> None:
        self._server = server
        self._client = HttpEnv(server.url, deadlines=deadlines)

    @property
    def given_up(self) -> bool:
        return self._server.given_up is not None

    @property
    def _target(self) -> HttpEnv:
        # anybody may hold the address of a server that was given up
        if self._server.given_up is not None:
            raise EnvFault(self._server.given_up)
        return self._client

    async def close(self) -> None:
        await self._client.close()
        await self._server.__aexit__(None, None, None)


class Replicas(ForwardingEnv):
    """The same environment on several servers."""

    def __init__(self, servers: Sequence[Served]) -> None:
        self._servers = servers
        self._busy = dict.fromkeys(servers, 0)

    @property
    def given_up(self) -> bool:
        return all(server.given_up for server in self._servers)

    async def open(self, task: str, seed: int) -> Session:
        server = self._target
        self._busy[server] += 1
        opened = False
        try:
            session = _Counted(await server.open(task, seed), lambda: self._leave(server))
            opened = True
            return session
        finally:
            if not opened:
                self._leave(server)

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))

    @property
    def _target(self) -> Served:
        """The server with the fewest sessions; one that was given up only where all were."""
        return min(self._servers, key=lambda server: (server.given_up, self._busy[server]))

    def _leave(self, server: Served) -> None:
        self._busy[server] -= 1


class _Counted:
    def __init__(self, session: Session, leave: Callable[[], None]) -> None:
        self._session = session
        self._leave: Callable[[], None] | None = leave

    @property
    def first(self) -> Observation:
        return self._session.first

    async def step(self, action: str) -> Step:
        return await self._session.step(action)

    async def advice(self) -> str | None:
        return await self._session.advice()

    async def noise_action(self, seed: int) -> str | None:
        return await self._session.noise_action(seed)

    async def close(self) -> None:
        leave, self._leave = self._leave, None
        try:
            await self._session.close()
        finally:
            if leave is not None:
                leave()


if TYPE_CHECKING:

    def _both_keep_the_protocol(one: Served, several: Replicas) -> tuple[EnvClient, EnvClient]:
        return one, several
