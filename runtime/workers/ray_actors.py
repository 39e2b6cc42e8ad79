"""What lives in a Ray actor: a worker, and a way to be told to do something. Knows nothing of Ray.

Enters: functions of the worker, and what to call them with. Leaves: what they gave, with what there was to note.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from ...dsl.model.plan import Plan
from ..backends.hf_models import ModelSource
from ..rollout.env_connections import EnvConnector, OpenEnvs
from ..rollout.episode import Episode
from ..rollout.groups import GroupRequest
from .build import learner_worker, prepare_model, rollout_worker
from .learner_worker import LearnerWorker
from .rollout_worker import PlaySettings, RolloutWorker

__all__ = ["LearnerActor", "Played", "RolloutActor", "Said"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Said(Generic[T]):
    """What an actor answers, and what there was to note since it last did."""

    value: T
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """News of a play. Each episode crosses once; the last news say which of them make up each group."""

    episodes: Sequence[Episode] = ()
    groups: Sequence[Sequence[int]] = ()
    """Places among all episodes told of, in the order that they were told of."""


class RolloutActor:
    """The rollout worker. It waits as the worker does: several calls may be under way."""

    def __init__(self, plan: Plan, root: Path, reach: Mapping[str, Any], clock: Callable[[], float]) -> None:
        # weights that came through shared memory are read and never written
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        self._plan, self._root, self._clock = plan, root, clock
        self._notes: list[str] = []
        self._envs = OpenEnvs(EnvConnector(note=self._notes.append, **reach))

    async def model(self) -> Said[ModelSource]:
        return self._said(await prepare_model(self._plan, self._root, self._envs))

    async def start(self, model: ModelSource) -> None:
        self._worker = rollout_worker(self._plan, model, self._envs, self._clock)

    async def do(
        self, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Said[T]:
        return self._said(await work(self._worker, *args, **kwargs))

    async def play(self, orders: Sequence[GroupRequest], style: PlaySettings) -> AsyncIterator[Said[Played]]:
        """Tells of episodes while play is under way: of all that ended since it was last listened to."""
        seen, told, news = list[Episode](), 0, asyncio.Event()

        def ended(episode: Episode) -> None:
            seen.append(episode)
            news.set()

        playing = asyncio.ensure_future(self._worker.play(orders, style, ended))
        playing.add_done_callback(lambda _: news.set())
        try:
            while not playing.done() or told < len(seen):
                await news.wait()
                news.clear()
                fresh, told = seen[told:], len(seen)
                yield self._said(Played(episodes=fresh))
        finally:
            playing.cancel()
            await asyncio.wait([playing])
        places = {id(episode): at for at, episode in enumerate(seen)}
        yield self._said(Played(groups=[[places[id(each)] for each in group.episodes] for group in playing.result()]))

    def _said(self, value: T) -> Said[T]:
        notes = tuple(self._notes)
        self._notes.clear()
        return Said(value, notes)


class LearnerActor:
    """The learner: one thing at a time, in the order asked for."""

    def start(self, plan: Plan, model: ModelSource) -> None:
        self._worker = learner_worker(plan, model)

    def do(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(self._worker, *args, **kwargs)
