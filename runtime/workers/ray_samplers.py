"""The samplers of a run: groups are handed out to them, and a lost sampler is replaced.

With one sampler everything goes to it at once, in order, with the same bits as a sampler in this process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from ...dsl.model.recipe import Environment
from ..backends.hf_models import ModelSource
from ..errors import LearnerLost, RunError, SamplerLost, StepRefused
from ..protocols import SyncProof
from ..rollout.episode import Episode, Group
from ..rollout.group_queue import GroupQueue, TurnLengths
from ..rollout.groups import GroupRequest
from .division import deal, is_dealt, join
from .ray_actors import Said
from .ray_member import START_S, Member, WorkerLost, gather_all
from .rollout_worker import DemonstrationSettings, PlaySettings, RolloutWorker

__all__ = ["MOST_REPLACED", "Samplers"]

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", PlaySettings, DemonstrationSettings)

MOST_REPLACED = 3
"""Times that one sampler is replaced between two syncs; a fault that recurs more often recurs every time."""
_CLOSING_S = 10.0
_LOST = (WorkerLost, SamplerLost)

OnEpisode = Callable[[Episode], None]
TakeOver = Callable[[RolloutWorker, Any], Awaitable[SyncProof]]


class Samplers:
    """All rollout workers."""

    def __init__(
        self,
        create: Sequence[Callable[[], Awaitable[Member]]],
        note: Callable[[str], None],
        remark: Callable[[str], None],
    ) -> None:
        """`create` makes the actor of each, which has no engine yet; `note` gets the remarks of their environments, and
        `remark` what happens to the samplers themselves."""
        self._create = create
        self._note, self._remark = note, remark
        self.members: list[Member] = []
        self._renewing = [asyncio.Lock() for _ in create]
        self._model: ModelSource
        self._restore: Callable[[Member], Awaitable[Any]] | None = None
        """Gives one the weights of the last sync."""
        self.lengths = TurnLengths()
        self._replaced = Counter[int]()
        """Since the last sync."""
        self._plays = 0
        """Under way."""
        self.num_replaced = 0

    async def prepare(self) -> None:
        self.members = await gather_all(_await(create()) for create in self._create)

    async def make_model(self) -> ModelSource:
        self._model = self._hear(await self.members[0].wait(self.members[0].handle.model.remote(), within=START_S))
        return self._model

    async def start(self) -> None:
        await gather_all(self._start(member) for member in self.members)

    async def _start(self, member: Member) -> None:
        await member.wait(member.handle.start.remote(self._model), within=START_S)
        member.watch()

    # --- calls

    async def call(
        self, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of one of them, or of all if the work can be dealt out."""
        if len(self.members) > 1 and is_dealt(work):
            items, settings, *rest = args
            dealt: T = await self._deal(work, items, settings, *rest)
            return dealt
        return await self._call(0, work, *args, **kwargs)

    async def _deal(self, work: Callable[..., Awaitable[Any]], items: Any, settings: Any, *rest: Any) -> Any:
        number = min(len(self.members), len(items) or 1)
        shares = deal(len(items), number)
        results = await gather_all(
            self._call(at, work, [items[place] for place in share], _share(settings, at, number), *rest)
            for at, share in enumerate(shares)
        )
        return join(shares, results)

    async def call_all(
        self, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> list[T]:
        return await gather_all(self._call(at, work, *args, **kwargs) for at in range(len(self.members)))

    async def _call(
        self, at: int, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        while True:
            member = self.members[at]
            try:
                done: T = self._hear(await member.ask(work, *args, **kwargs))
                return done
            except _LOST as error:
                await self.replace_lost(at, member, error)

    @property
    def handles(self) -> list[Any]:
        return [member.handle for member in self.members]

    async def load(self, weights: Any, take_over: TakeOver) -> SyncProof:
        """Give all the weights; return the proof with the largest difference."""
        self._restore = lambda member: member.ask(take_over, weights)
        proofs = await self.call_all(take_over, weights)
        self._replaced.clear()
        return max(proofs, key=lambda proof: proof.difference)

    def forget_weights(self) -> None:
        """Release those of the last sync, so that there is room for the next; not while they may be needed."""
        if not self._plays:
            self._restore = None

    def restore_by(self, restore: Callable[[Member], Awaitable[Any]]) -> None:
        """Set how to give one sampler the weights that all have got by other means than `load`."""
        self._replaced.clear()
        self._restore = restore

    async def sleep(self) -> None:
        await self.call_all(RolloutWorker.sleep)

    async def close(self) -> None:
        """The environments end in good order, if they do so soon; the engines with their processes."""
        with suppress(RunError, WorkerLost, TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                await gather_all(member.ask(RolloutWorker.close) for member in self.members)
        for member in self.members:
            await member.end()

    def _hear(self, said: Said[T]) -> T:
        for text in said.notes:
            self._note(text)
        return said.value

    # --- play

    async def play(
        self, requests: Sequence[GroupRequest], settings: PlaySettings, on_episode: OnEpisode
    ) -> list[Group]:
        self._plays += 1
        try:
            if len(self.members) > 1:
                return await _Play(self, requests, settings, on_episode).run()
            while True:
                member = self.members[0]
                try:
                    return await self.play_at(member, requests, settings, on_episode)
                except _LOST as error:
                    await self.replace_lost(0, member, error)
        finally:
            self._plays -= 1

    async def play_at(
        self,
        member: Member,
        requests: Sequence[GroupRequest],
        settings: PlaySettings,
        on_episode: OnEpisode,
        shared: str | None = None,
    ) -> list[Group]:
        """Play groups at one sampler; those of other calls with the same name in `shared` share its slots."""
        told, groups = list[Episode](), list[Group]()
        async for said in member.listen(requests, settings, shared):
            news = self._hear(said)
            for episode in news.episodes:
                told.append(episode)
                on_episode(episode)
            for request, places in zip(requests, news.groups, strict=False):
                groups.append(Group(task=request.task, episodes=tuple(told[at] for at in places)))
        return groups

    # --- replacing

    async def replace_lost(self, at: int, lost: Member, error: Exception) -> None:
        """Replace a sampler, with the weights of the last sync; once, however many callers ask."""
        async with self._renewing[at]:
            if self.members[at] is not lost:
                return
            await lost.end()
            while True:
                if self._replaced[at] == MOST_REPLACED:
                    raise StepRefused(
                        f"{error}; it was replaced {MOST_REPLACED} times since the last sync: read its file in "
                        "'logs/workers', then resume"
                    ) from error
                self._replaced[at] += 1
                self.num_replaced += 1
                self._remark(f"{error}; another takes its place")
                try:
                    self.members[at] = await self._start_another(at)
                    return
                except _LOST as again:
                    error = again
                except LearnerLost:
                    raise
                except RunError as refused:
                    # the learner has all that was trained, so it is safe
                    raise StepRefused(str(refused)) from refused

    async def renew(self) -> None:
        """Replace all that are known to be lost, before anyone waits for them."""
        lost = [(at, member, member.loss) for at, member in enumerate(self.members)]
        await gather_all(self.replace_lost(at, member, loss) for at, member, loss in lost if loss is not None)

    async def _start_another(self, at: int) -> Member:
        member = await self._create[at]()
        try:
            await self._start(member)
            if self._restore is not None:
                await self._restore(member)
        except BaseException:
            await member.end()
            raise
        return member


class _Play:
    """One play over several samplers."""

    def __init__(
        self, samplers: Samplers, requests: Sequence[GroupRequest], settings: PlaySettings, on_episode: OnEpisode
    ) -> None:
        self._samplers, self._requests, self._on_episode = samplers, requests, on_episode
        number = len(samplers.members)
        self._settings = [_share(settings, at, number) for at in range(number)]
        self._queue = GroupQueue(requests, samplers.lengths, self._settings[0].slots)
        for at in range(number):
            self._queue.add_engine(at)
        self._groups: dict[int, Group] = {}
        self._news = asyncio.Event()
        self._name = uuid4().hex

    async def run(self) -> list[Group]:
        try:
            async with asyncio.TaskGroup() as tasks:
                while len(self._groups) < len(self._requests):
                    while (pair := self._queue.assign()) is not None:
                        tasks.create_task(self._play(*pair))
                    await self._news.wait()
                    self._news.clear()
        except BaseExceptionGroup as troubles:
            raise troubles.exceptions[0] from None
        return [self._groups[at] for at in range(len(self._requests))]

    async def _play(self, engine: int, at: int) -> None:
        """Play one group; if its engine is lost, the group waits for another like all others."""
        samplers, member = self._samplers, self._samplers.members[engine]

        def ended(episode: Episode) -> None:
            if samplers.members[engine] is member:
                self._queue.end_episode(engine)
            self._news.set()
            self._on_episode(episode)

        try:
            (group,) = await samplers.play_at(member, [self._requests[at]], self._settings[engine], ended, self._name)
        except _LOST as error:
            if samplers.members[engine] is member:
                self._queue.remove_engine(engine)
            self._queue.give_back(at)
            self._news.set()
            await samplers.replace_lost(engine, member, error)
            self._queue.add_engine(engine)
        else:
            self._groups[at] = group
            for episode in group.episodes:
                samplers.lengths.note(episode)
        self._news.set()


def _share(settings: S, at: int, number: int) -> S:
    """The share of the slots, and of what an environment has room for, that one of several engines has."""
    environments = {name: _share_sessions(each, at, number) for name, each in settings.environments.items()}
    return replace(settings, slots=-(-settings.slots // number), environments=environments)


def _share_sessions(environment: Environment, at: int, number: int) -> Environment:
    total = environment.sessions
    if total is None:
        return environment
    return replace(environment, sessions=max(1, total * (at + 1) // number - total * at // number))


async def _await(answer: Awaitable[T]) -> T:
    return await answer
