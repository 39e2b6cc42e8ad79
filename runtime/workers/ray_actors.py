"""What runs in an actor: a worker, and how it gets its calls. Nothing here knows Ray."""

from __future__ import annotations

import asyncio
import os
import platform
import time
import warnings
from asyncio import Semaphore
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from ...dsl.model.plan import Plan
from ..backends.hf_models import ModelSource
from ..errors import RunError
from ..rollout.env_connections import EnvConnector, OpenEnvs
from ..rollout.episode import Episode
from ..rollout.groups import GroupRequest
from .build import find_model, import_learner, learner_worker, prepare_model, rollout_worker
from .learner_worker import LearnerWorker
from .rollout_worker import PlaySettings, RolloutWorker

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

__all__ = ["LearnerActor", "Played", "RolloutActor", "Said"]

P = ParamSpec("P")
T = TypeVar("T")

_SHOWN_WITHIN_S = 10
_NEWS_EVERY_S = 0.1
"""Between two reports of a play, each of which takes both processes about a millisecond."""
_COLLECTIVE_S = 1800.0
"""For the slowest rank to arrive where all meet; a dead or hung one is noticed sooner, as it answers no ping."""


@dataclass(frozen=True, slots=True)
class Said(Generic[T]):
    """What an actor answers, and the notes since its last answer."""

    value: T
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """News of a play. Each episode is sent once; the last news say which of them make up each group."""

    episodes: Sequence[Episode] = ()
    groups: Sequence[Sequence[int]] = ()
    """Indices among all episodes yielded so far, in the order of yielding."""


class _Calls:
    """Numbers of the calls under way: a caller whose number is not among them knows that its answer was lost."""

    def __init__(self) -> None:
        self._numbers = set[int]()

    @contextmanager
    def note(self, number: int) -> Iterator[None]:
        self._numbers.add(number)
        try:
            yield
        finally:
            self._numbers.discard(number)

    def list(self) -> frozenset[int]:
        return frozenset(self._numbers.copy())


class RolloutActor:
    """The rollout worker. It is asynchronous like the worker: several calls may be under way."""

    def __init__(self, plan: Plan, root: Path, reach: Mapping[str, Any], clock: Callable[[], float]) -> None:
        # weights that came through shared memory are read and never written
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        self._plan, self._root, self._clock = plan, root, clock
        self._notes: list[str] = []
        self._envs = OpenEnvs(EnvConnector(note=self._notes.append, **reach), self._notes.append)
        self._calls = _Calls()
        self._turns: WeakValueDictionary[str, Semaphore] = WeakValueDictionary()

    async def prepare(self, log: Path, gpus: Sequence[int]) -> int:
        return _prepare(log, gpus)

    async def ping(self) -> frozenset[int]:
        return self._calls.list()

    async def model(self) -> Said[ModelSource]:
        return self._said(await prepare_model(self._plan, self._root, self._envs))

    async def start(self, model: ModelSource) -> None:
        self._worker = rollout_worker(self._plan, _here(self._plan, model), self._envs, self._clock)

    async def do(
        self,
        number: int,
        work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Said[T]:
        with self._calls.note(number):
            return self._said(await work(self._worker, *args, **kwargs))

    async def play(
        self, number: int, orders: Sequence[GroupRequest], style: PlaySettings, shared: str | None = None
    ) -> AsyncIterator[Said[Played]]:
        """Report episodes while play is under way: all that ended since the last report was taken.

        Calls with the same name in `shared` share the slots."""
        with self._calls.note(number):
            seen, told, news = list[Episode](), 0, asyncio.Event()

            def ended(episode: Episode) -> None:
                seen.append(episode)
                news.set()

            turn = None if shared is None else self._turns.setdefault(shared, Semaphore(style.slots))
            playing = asyncio.ensure_future(self._worker.play(orders, style, ended, turn))
            playing.add_done_callback(lambda _: news.set())
            try:
                while not playing.done() or told < len(seen):
                    await news.wait()
                    news.clear()
                    fresh, told = seen[told:], len(seen)
                    yield self._said(Played(episodes=fresh))
                    await asyncio.wait([playing], timeout=_NEWS_EVERY_S)
            finally:
                playing.cancel()
                await asyncio.wait([playing])
            places = {id(episode): at for at, episode in enumerate(seen)}
            groups = [[places[id(each)] for each in group.episodes] for group in playing.result()]
            yield self._said(Played(groups=groups))

    def _said(self, value: T) -> Said[T]:
        notes = tuple(self._notes)
        self._notes.clear()
        return Said(value, notes)


class LearnerActor:
    """A rank of the learner: one thing at a time, in the order asked for; a ping is answered meanwhile."""

    def __init__(self) -> None:
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        self._calls = _Calls()
        self._store: TCPStore | None = None
        """Kept while the ranks work, by the first."""

    def prepare(self, log: Path, gpus: Sequence[int]) -> int:
        return _prepare(log, gpus)

    def ping(self) -> frozenset[int]:
        return self._calls.list()

    def import_engine(self) -> None:
        import_learner()

    def open_store(self, address: str) -> tuple[str, int]:
        """Open the store at which the ranks find each other."""
        from ..backends.process_group import open_store

        self._store = open_store(address, _COLLECTIVE_S)
        return address, self._store.port

    def join(self, rank: int, ranks: int, store: tuple[str, int], address: str) -> None:
        from ..backends.process_group import join_ranks

        join_ranks(rank, ranks, store=store, address=address, timeout_s=_COLLECTIVE_S)

    def start(self, plan: Plan, model: ModelSource) -> None:
        self._worker = learner_worker(plan, _here(plan, model))

    def do(self, number: int, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._calls.note(number):
            return work(self._worker, *args, **kwargs)


def _prepare(log: Path, gpus: Sequence[int]) -> int:
    """Write all output of this process to a file, and see no GPUs but those of the plan; return the process's id."""
    _find_folder(log.parent)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        named = [visible[gpu] if gpu < len(visible) and visible[gpu] else str(gpu) for gpu in gpus]
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(named)
    return os.getpid()


def _find_folder(folder: Path) -> None:
    """Wait for a folder that another machine made, as long as a shared file system may take to show it."""
    for _ in range(_SHOWN_WITHIN_S):
        if folder.is_dir():
            return
        time.sleep(1)
    raise RunError(
        f"start: node {platform.node()} does not see the run's folder '{folder.parent.parent}': set 'output' to a "
        "folder that all nodes share"
    )


def _here(plan: Plan, model: ModelSource) -> ModelSource:
    """The model on this node: each node has its own copy of what is fetched from the hub."""
    return model if plan.model.init is not None else find_model(plan.model)
