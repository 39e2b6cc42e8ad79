"""Any client as the pool of a server's sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import EpisodeOver
from ..protocol import EnvClient, EnvSpec, Observation, Reached, Session, Step, TaskInfo

if TYPE_CHECKING:
    from ..pool import Instances, Loan

__all__ = ["Distant"]


class Distant:
    """Instances behind a client, which is closed with it."""

    def __init__(self, client: EnvClient, spec: EnvSpec) -> None:
        self._client = client
        self.spec = spec
        self.stuck = 0

    async def describe(self) -> EnvSpec:
        return self.spec

    @property
    def hangs(self) -> bool:
        # only a client that starts servers of its own can give them up
        return bool(getattr(self._client, "given_up", False))

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        return await self._client.tasks(split)

    async def corpus(self) -> tuple[str, ...]:
        return await self._client.corpus()

    async def take(self) -> Loan:
        return _Loan(self._client)

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        return await self._client.expert(task, seed)

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        return await self._client.hindsight(task, seed, actions)

    async def close(self) -> None:
        await self._client.close()


class _Loan:
    def __init__(self, client: EnvClient) -> None:
        self._client = client
        self._session: Session | None = None

    async def reset(self, task: str, seed: int) -> Observation:
        await self.give_back()
        self._session = await self._client.open(task, seed)
        return self._session.first

    async def step(self, action: str) -> Step:
        return await self._under_way().step(action)

    async def advice(self) -> str | None:
        return await self._under_way().advice()

    async def noise_action(self, seed: int) -> str | None:
        return await self._under_way().noise_action(seed)

    async def give_back(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _under_way(self) -> Session:
        if self._session is None:
            raise EpisodeOver("no episode is under way: reset it first")
        return self._session


if TYPE_CHECKING:

    def _keeps_the_protocol(distant: Distant) -> Instances:
        return distant
