"""Workers as Ray actors: a process for each sampler, with its environments, and one for each rank of the learner.

The workers are those of an inline group, and with one of each the results are bit-identical. An actor is given a
function of its worker and its arguments, so no call is written twice. What a worker raises is raised here unchanged.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...dsl.model.plan import Plan, Role, Worker
from ...dsl.model.recipe import Layout
from ..backends.hf_models import ModelSource
from ..errors import LearnerLost, RunError, StepRefused
from ..protocols import SyncProof, Transfer
from ..rollout.env_connections import EnvConnector
from ..rollout.episode import Episode, Group
from ..rollout.groups import GroupRequest
from .build import weight_transfer
from .division import Share, divide, is_divided, join
from .learner_worker import LearnerWorker
from .ray_actors import LearnerActor, RolloutActor
from .ray_cluster import HEALTH, Cluster, join_cluster, list_workers, named_variables
from .ray_member import START_S, Member, WorkerLost, gather_all
from .ray_samplers import Samplers
from .rollout_worker import PlaySettings, RolloutWorker
from .transfer import Receivers, free_memory, hand_over, send_weights, take_over
from .worker_group import WorkerGroup

__all__ = ["RayWorkerGroup", "launch_ray"]

P = ParamSpec("P")
T = TypeVar("T")


class Ranks:
    """The learner's ranks, which make the same calls. If one of them is lost, all are."""

    def __init__(self, plan: Plan, create: Sequence[Callable[[], Awaitable[Member]]], survivors_s: float) -> None:
        """`create` makes the actor of each rank, without an engine; `survivors_s` is how long ranks may go on after
        another has failed."""
        self._plan, self._create, self._survivors_s = plan, create, survivors_s
        self._members: list[Member] = []
        self._lost: str | None = None
        self.num_replaced = 0

    async def prepare(self) -> None:
        """Start all processes; they import their engine while others make the model."""
        self._members = [await create() for create in self._create]
        for member in self._members:
            member.handle.import_engine.remote()

    async def start(self, model: ModelSource, addresses: Sequence[str]) -> None:
        members = self._members
        if len(members) > 1:
            store = await members[0].wait(members[0].handle.open_store.remote(addresses[0]), within=START_S)
            await gather_all(
                member.wait(member.handle.join.remote(rank, len(members), store, address), within=START_S)
                for rank, (member, address) in enumerate(zip(members, addresses, strict=True))
            )
        await gather_all(
            member.wait(member.handle.start.remote(self._plan, model), within=START_S) for member in members
        )
        for member in members:
            member.watch()
        self._lost = None

    async def call(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._lost is not None:
            raise LearnerLost(self._lost)
        if not is_divided(work):
            return (await self._call_all(work, [args] * len(self._members), kwargs))[0]
        sequences: Any = args[0]
        # ranks that divide rows between them have the same sequences, and the same answer
        size = self._plan.hardware.train.sequence_parallel
        rest, shares = args[1:], divide(sequences, len(self._members) // size)
        divided = [(Share(sequences[at] for at in share), *rest) for share in shares for _ in range(size)]
        joined: T = join(shares, (await self._call_all(work, divided, kwargs))[::size])
        return joined

    async def _call_all(
        self, work: Callable[..., T], args: Sequence[Sequence[Any]], kwargs: Mapping[str, Any]
    ) -> list[T]:
        loop = asyncio.get_running_loop()
        calls = [
            loop.create_task(member.ask(work, *each, **kwargs))
            for member, each in zip(self._members, args, strict=True)
        ]
        try:
            await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
            failed = [each for each in calls if each.done() and each.exception() is not None]
            if failed and not any(isinstance(each.exception(), WorkerLost) for each in failed):
                await asyncio.wait(calls, timeout=self._survivors_s)
            if failed:
                await self._raise(calls, failed[0])
            return [each.result() for each in calls]
        finally:
            for each in calls:
                each.cancel()

    async def _raise(self, calls: Sequence[Task[Any]], first: Task[Any]) -> None:
        """Raise what all ranks raised alike, or what one raised without leaving others waiting; else their state is
        unknown, and all are ended."""
        errors = {at: call.exception() for at, call in enumerate(calls) if call.done()}
        lost = next((error for error in errors.values() if isinstance(error, WorkerLost)), None)
        error = lost or first.exception()
        assert error is not None
        kinds = {type(each) for each in errors.values()}
        is_known = len(errors) == len(calls) and (None in errors.values() or len(kinds) == 1)
        if is_known and not isinstance(error, WorkerLost | LearnerLost):
            raise errors[0] or error
        rank = "" if lost else f"{self._members[calls.index(first)].worker.id}: "
        waited = (
            "" if len(errors) == len(calls) or lost else f"; others still waited for it {self._survivors_s:g} s later"
        )
        # if a play under way noticed it first, it has reported why
        self._lost = self._lost or f"{rank}{error}{waited}"
        await self.end()
        raise LearnerLost(self._lost) from error

    async def while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something that involves no rank; raise LearnerLost as soon as one is lost."""
        if self._lost is not None:
            work.close()
            raise LearnerLost(self._lost)
        task = asyncio.ensure_future(work)
        watching = [member.watching for member in self._members if member.watching is not None]
        try:
            await asyncio.wait([task, *watching], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._lost = self._lost or next(filter(None, (member.lost for member in self._members)))
                await self.end()
                raise LearnerLost(self._lost)
            return task.result()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def end(self) -> None:
        for member in self._members:
            await member.end()

    async def restart(self, model: ModelSource, addresses: Callable[[], Sequence[str]]) -> None:
        await self.end()
        self.num_replaced += len(self._members)
        try:
            await self.prepare()
            await self.start(model, addresses())
        except WorkerLost as error:
            self._lost = str(error)
            raise LearnerLost(self._lost) from error


class RayWorkerGroup(WorkerGroup):
    """Samplers and ranks, each in an actor of its own."""

    def __init__(self, plan: Plan, samplers: Samplers, ranks: Ranks, addresses: Callable[[], Sequence[str]]) -> None:
        """`addresses` are those of the ranks."""
        self._plan, self._samplers, self._ranks, self._addresses = plan, samplers, ranks, addresses
        self._shares_gpu = plan.hardware.gpus_per_node > 0 and plan.hardware.layout is Layout.COLOCATED
        self._transfer = weight_transfer(plan)
        self._model: ModelSource
        self.around = ExitStack()
        """What was started for the workers, and ends after them."""

    async def start(self, announce: Callable[[str], None]) -> None:
        """Model, environments and engines."""
        try:
            await gather_all((self._samplers.prepare(), self._ranks.prepare()))
            self._model = await self._samplers.make_model()
            announce("start: loading vLLM and building the learner")
            await gather_all((self._samplers.start(), self._ranks.start(self._model, self._addresses())))
        except WorkerLost as error:
            raise RunError(f"start: {error}") from error

    async def play(
        self, requests: Sequence[GroupRequest], settings: PlaySettings, on_episode: Callable[[Episode], None]
    ) -> list[Group]:
        return await self._ranks.while_alive(self._samplers.play(requests, settings, on_episode))

    async def rollout(
        self, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._samplers.call(work, *args, **kwargs)

    async def learner(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._ranks.call(work, *args, **kwargs)

    async def compute(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._shares_gpu:
            return await self.learner(work, *args, **kwargs)
        await self._samplers.sleep()
        done = await self.learner(work, *args, **kwargs)
        await self.learner(free_memory)
        return done

    async def sync(self, version: int) -> SyncProof:
        self._samplers.forget_weights()
        if self._transfer is Transfer.DIRECT:
            return await self._samplers.load(await self.compute(partial(hand_over, version=version)), take_over)
        if self._shares_gpu:
            await self._samplers.sleep()
        receivers = Receivers(actors=self._samplers.handles, gpus_each=self._plan.hardware.rollout.tensor_parallel)
        proof = await self.learner(send_weights, version, receivers, self._transfer)
        assert proof is not None, "the first rank returns one"
        self._samplers.restore_by(partial(self._restore, version))
        return proof

    async def _restore(self, version: int, member: Member) -> None:
        """Give one sampler the weights that GPUs sent to all, by the object store, while the learner still has them."""
        if self._plan.hardware.staleness:
            raise StepRefused(
                "sync: a sampler was lost, and the learner no longer has the weights that it sampled with; set "
                "'hardware.weight_transfer: object_store' to keep them, or resume"
            )
        await member.ask(take_over, await self.learner(hand_over, version))

    async def restart_learner(self) -> None:
        self._samplers.forget_weights()
        # if a node is lost, both are
        await gather_all((self._ranks.restart(self._model, self._addresses), self._samplers.renew()))

    def count_replaced(self) -> Mapping[str, int]:
        return {Role.ROLLOUT.value: self._samplers.num_replaced, Role.LEARNER.value: self._ranks.num_replaced}

    async def close(self) -> None:
        try:
            await self._samplers.close()
            await self._ranks.end()
        finally:
            self.around.close()


async def launch_ray(
    plan: Plan, root: Path, reach: EnvConnector, clock: Callable[[], float], announce: Callable[[str], None]
) -> RayWorkerGroup:
    """The workers of a plan as actors: on a running cluster, if the recipe or `RAY_ADDRESS` names one, else on this
    machine, in a Ray of our own that ends with the run."""
    with ExitStack() as around:
        announce("start: connecting to Ray")
        cluster = await join_cluster(plan, reach, around)
        announce("start: waiting for the workers")
        samplers, ranks = list_workers(plan, Role.ROLLOUT), list_workers(plan, Role.LEARNER)
        workers = RayWorkerGroup(
            plan,
            Samplers(
                [partial(_sampler, cluster, plan, root, reach, clock, each) for each in samplers],
                reach.note,
                reach.remark,
            ),
            Ranks(plan, [partial(_rank, cluster, root, each) for each in ranks], plan.hardware.heartbeat_s),
            lambda: [cluster.address_of(each) for each in ranks],
        )
        await workers.start(announce)
        workers.around = around.pop_all()
        return workers


async def _sampler(
    cluster: Cluster, plan: Plan, root: Path, reach: EnvConnector, clock: Callable[[], float], worker: Worker
) -> Member:
    # servers of environments have a log of the same name at each sampler
    logs = reach.logs / f"rollout-{worker.rank}" if worker.rank else reach.logs
    reaching = {"logs": logs, "environ": named_variables(plan, reach.environ), "deadlines": reach.deadlines}
    return await cluster.create(worker, RolloutActor, plan, root, reaching, clock, log=_log(root, worker))


async def _rank(cluster: Cluster, root: Path, worker: Worker) -> Member:
    return await cluster.create(worker, LearnerActor, log=_log(root, worker), health=HEALTH)


def _log(root: Path, worker: Worker) -> Path:
    return root / "logs/workers" / f"{worker.role.value}-{worker.rank}.log"
