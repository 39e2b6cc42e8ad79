"""Workers as Ray actors: one process for the rollout worker, with its environments beside it, one for the learner.

The workers are those of an inline group, and so are the bits. An actor is given a function of its worker and its
arguments, so no call is written twice. What a worker raises is raised here as it was raised there.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from ...dsl.model.plan import Plan, Role
from ...dsl.publish.plan_json import dump_json
from ..backends.engine_variables import missing_variables
from ..backends.hf_models import ModelSource
from ..errors import RunError, StepRefused
from ..protocols import SyncProof, Transfer
from ..rollout.env_connections import EnvConnector, OpenEnvs
from ..rollout.episode import Episode, Group
from ..rollout.groups import GroupRequest
from .build import import_learner, learner_worker, prepare_model, rollout_worker, weight_transfer
from .learner_worker import LearnerWorker
from .rollout_worker import PlaySettings, RolloutWorker
from .transfer import Samplers, hand_over, send_weights, take_over
from .worker_group import WorkerGroup

__all__ = ["LearnerActor", "RayWorkerGroup", "RolloutActor", "Said", "launch_ray"]

P = ParamSpec("P")
T = TypeVar("T")

_ROLES = (Role.ROLLOUT, Role.LEARNER)
_ROOM_S = 120.0
"""For a cluster to have room for the workers."""
_CLOSING_S = 10.0
"""For what is under way to end by itself."""


# --- in an actor: a worker, and how it is told to do something; nothing here knows Ray ------------------------------


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
    """Indices among all episodes yielded so far, in the order of yielding."""


class RolloutActor:
    """The rollout worker. It waits as the worker does: several calls may be under way."""

    def __init__(self, plan: Plan, root: Path, reach: Mapping[str, Any], clock: Callable[[], float]) -> None:
        # weights that came through shared memory are read and never written
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        self._plan, self._root, self._clock = plan, root, clock
        self._notes: list[str] = []
        self._envs = OpenEnvs(EnvConnector(note=self._notes.append, **reach), self._notes.append)

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

    def import_engine(self) -> None:
        import_learner()

    def start(self, plan: Plan, model: ModelSource) -> None:
        self._worker = learner_worker(plan, model)

    def do(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(self._worker, *args, **kwargs)


# --- the crew ------------------------------------------------------------------------------------------------------


class RayWorkerGroup(WorkerGroup):
    """One actor of each kind."""

    def __init__(self, rollout: Any, learner: Any, note: Callable[[str], None]) -> None:
        self._rollout = rollout
        self._learner = learner
        self._note = note
        self._transfer = Transfer.DIRECT
        self.around = ExitStack()
        """What was started for the workers, and is ended after them."""

    async def start(self, plan: Plan, announce: Callable[[str], None]) -> None:
        """Model, environments and engines."""
        self._transfer = weight_transfer(plan)
        self._samplers = Samplers(actors=[self._rollout], gpus_each=plan.hardware.rollout.tensor_parallel)
        # while the other makes the model; what goes wrong with it `start` says
        self._learner.import_engine.remote()
        with _words_of("start: the rollout worker"):
            model = self._heard(await self._rollout.model.remote())
        announce("start: loading vLLM and building the learner")
        with _words_of("start"):
            await asyncio.gather(self._rollout.start.remote(model), self._learner.start.remote(plan, model))

    async def play(
        self, orders: Sequence[GroupRequest], style: PlaySettings, seen: Callable[[Episode], None]
    ) -> list[Group]:
        told, groups = list[Episode](), list[Group]()
        stream = self._rollout.play.options(num_returns="streaming").remote(orders, style)
        try:
            with _words_of("the rollout worker", StepRefused):
                async for said in stream:
                    news: Played = self._heard(await said)
                    for episode in news.episodes:
                        told.append(episode)
                        seen(episode)
                    for order, places in zip(orders, news.groups, strict=False):
                        groups.append(Group(task=order.task, episodes=tuple(told[at] for at in places)))
        except asyncio.CancelledError:
            await _ended(stream)
            raise
        return groups

    async def sync(self, version: int) -> SyncProof:
        if self._transfer is not Transfer.DIRECT:
            proof = await self.learner(send_weights, version, self._samplers, self._transfer)
            assert proof is not None, "the first rank returns one"
            return proof
        shipment = await self.learner(hand_over, version)
        return await self.rollout(take_over, shipment)

    async def close(self) -> None:
        """The environments end in good order, if they do so soon; the engines with their processes."""
        try:
            with suppress(RunError, TimeoutError):
                async with asyncio.timeout(_CLOSING_S):
                    await self.rollout(RolloutWorker.close)
        finally:
            self.around.close()

    async def rollout(
        self, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with _words_of("the rollout worker", StepRefused):
            said: Said[T] = await self._rollout.do.remote(work, *args, **kwargs)
        return self._heard(said)

    async def learner(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with _words_of("the learner"):
            done: T = await self._learner.do.remote(work, *args, **kwargs)
        return done

    def _heard(self, said: Said[T]) -> T:
        for text in said.notes:
            self._note(text)
        return said.value


async def _ended(stream: Any) -> None:
    """A play that is no longer wanted has left the sampler when this returns."""
    import ray

    ray.cancel(stream)
    with suppress(ray.exceptions.RayError, TimeoutError):
        async with asyncio.timeout(_CLOSING_S):
            await stream.completed()


@contextmanager
def _words_of(worker: str, lost: type[RunError] = RunError) -> Iterator[None]:
    """What a worker raised, as it raised it. `lost` is what the loss of the worker itself comes to: without a sampler
    the learner still has all that was learnt, and can be saved."""
    from ray.exceptions import RayActorError, RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        if not isinstance(error.cause, Exception):
            raise
        raise error.cause from error
    except RayActorError as error:
        raise lost(f"{worker}: its process is gone, killed or out of memory; resume to start it anew") from error
    except RayError as error:
        raise lost(f"{worker}: {str(error).splitlines()[0]}") from error


# --- where they live -----------------------------------------------------------------------------------------------


async def launch_ray(
    plan: Plan, root: Path, reach: EnvConnector, clock: Callable[[], float], announce: Callable[[str], None]
) -> RayWorkerGroup:
    """The workers of a plan as actors: on a cluster that runs, if the recipe or `RAY_ADDRESS` names one, else on this
    machine, in a Ray that is ours and ends with the run."""
    more = [worker.id for worker in plan.placement.workers if worker.rank and worker.role is not Role.ENVIRONMENT]
    if more:
        raise RunError(f"start: this version places one worker of each kind, and the plan has also {', '.join(more)}")
    with ExitStack() as around:
        announce("start: connecting to Ray")
        _join(plan, reach, around)
        announce("start: waiting for the workers")
        rollout, learner = await _actors(plan, reach.environ)
        reaching = {"logs": reach.logs, "environ": _named(plan, reach.environ), "deadlines": reach.deadlines}
        workers = RayWorkerGroup(rollout.remote(plan, root, reaching, clock), learner.remote(), reach.note)
        await workers.start(plan, announce)
        workers.around = around.pop_all()
        return workers


async def _actors(plan: Plan, environ: Mapping[str, str]) -> list[Any]:
    """The classes of the actors, with what each of them gets of the machine."""
    import ray

    shares = resource_claims(plan)
    settings: dict[str, Any] = {
        "scheduling_strategy": await _room(shares),
        "runtime_env": {"env_vars": actor_variables(plan, environ)},
    }
    return [
        ray.remote(actor).options(num_cpus=shares[role]["CPU"], num_gpus=shares[role]["GPU"], **settings)
        for role, actor in zip(_ROLES, (RolloutActor, LearnerActor), strict=True)
    ]


def resource_claims(plan: Plan) -> dict[Role, dict[str, float]]:
    """What each actor asks of its machine: a CPU, and its share of the cards that it is placed on."""
    everything = tuple(range(plan.hardware.gpus_per_node))
    placed = {worker.role: worker.gpus for worker in plan.placement.workers}
    cards = {role: placed.get(role, everything) for role in _ROLES}
    users = Counter(card for each in cards.values() for card in each)
    return {role: {"CPU": 1.0, "GPU": sum(1 / users[card] for card in each)} for role, each in cards.items()}


def _total(shares: Mapping[Role, Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(share[name] for share in shares.values()) for name in ("CPU", "GPU")}


async def _room(shares: Mapping[Role, Mapping[str, float]]) -> Any:
    """A place on one machine for both."""
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    wanted = {name: amount for name, amount in _total(shares).items() if amount}
    group = placement_group([wanted], strategy="STRICT_PACK")
    if not await asyncio.to_thread(group.wait, _ROOM_S):
        raise RunError(f"start: waited {_ROOM_S:g} s for the Ray cluster to have room for {wanted} on one machine")
    return PlacementGroupSchedulingStrategy(group)


def actor_variables(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """What the engines read when their process starts, as it is for engines in this process."""
    hardware = plan.hardware
    wanted = missing_variables({}, threads=hardware.threads or 1, cpu=hardware.gpus_per_node == 0)
    return {name: environ.get(name, value) for name, value in wanted.items()}


def _named(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """Of our variables those that the plan names, and no other: they leave this process."""
    return {name: environ[name] for name in re.findall(r"\$\{env:(\w+)", dump_json(plan)) if name in environ}


def _join(plan: Plan, reach: EnvConnector, stack: ExitStack) -> None:
    address = plan.hardware.ray_address or reach.environ.get("RAY_ADDRESS") or "local"
    settings: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    os.environ.update(_QUIET)
    if address == "local":
        settings |= _own_ray(plan, reach.logs, stack)
    try:
        import ray
    except ImportError as error:
        raise RunError("start: 'hardware.launcher: ray' needs Ray: pip install 'agym-dsl[ray]'") from error
    stack.callback(ray.shutdown)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**settings)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise RunError(f"start: Ray at '{address}': {str(error).strip().splitlines()[0]}") from error
    finally:
        # Ray takes the signal for itself, and would end the run without a save
        signal.signal(signal.SIGTERM, handler)


# what happens to an actor is told once, by us
_QUIET = {"RAY_DEDUP_LOGS_SKIP_REGEX": "."}
_ALONE = {
    # what Ray itself does on systems where it would have to ask for open ports: it listens on the loopback alone
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # processes made in advance lack the variables of our actors, for which others are then started
    "RAY_prestart_worker_first_driver": "0",
}


def _own_ray(plan: Plan, logs: Path, stack: ExitStack) -> dict[str, Any]:
    """The settings of a Ray that is ours alone: no dashboard, no open port, nothing outside the run's folder."""
    os.environ.update(_ALONE)
    # else Ray leaves one in the home folder
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    folder = logs / "ray"
    folder.mkdir(parents=True, exist_ok=True)
    stack.callback(_tidy, folder)
    # the path of a socket may have a hundred letters, and a run's folder any number
    short = Path(stack.enter_context(TemporaryDirectory(prefix="agym-", dir="/tmp"))) / "ray"
    short.symlink_to(folder.resolve(), target_is_directory=True)
    total = _total(resource_claims(plan))
    return {
        "num_cpus": int(total["CPU"]),
        "num_gpus": int(total["GPU"]),
        "object_store_memory": _store_bytes(plan),
        "include_dashboard": False,
        "_temp_dir": str(short),
    }


def _tidy(folder: Path) -> None:
    """Leaves logs, and nothing that a copy of the run's folder would stumble over."""
    for each in folder.glob("session_*"):
        if each.is_symlink():
            each.unlink()
        else:
            shutil.rmtree(each / "sockets", ignore_errors=True)


def _store_bytes(plan: Plan) -> int | None:
    """Room for the weights, in full precision and with the output layer written out, and for episodes; Ray's own choice
    where the model's sizes are not known."""
    parameters = plan.budget.parameters
    return None if parameters is None else 5 * parameters + 2**29
