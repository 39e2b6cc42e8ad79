"""Workers as Ray actors: what crosses, what an actor tells while it plays, and real runs in which things are killed."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ray")

from agym.dsl.model.plan import Role, Worker  # noqa: E402
from agym.dsl.model.recipe import Agent, Rollout  # noqa: E402
from agym.envs.protocol import Deadlines  # noqa: E402
from agym.runtime.errors import LearnerLost, RunError, SamplerLost, StepRefused  # noqa: E402
from agym.runtime.protocols import (  # noqa: E402
    SamplingSettings,
    SyncProof,
    TrainSequence,
)
from agym.runtime.rollout.env_connections import EnvConnector  # noqa: E402
from agym.runtime.rollout.episode import Ending, Episode, Group, Segment, Task  # noqa: E402
from agym.runtime.rollout.group_queue import GroupQueue, TurnLengths  # noqa: E402
from agym.runtime.rollout.groups import GroupRequest  # noqa: E402
from agym.runtime.rollout.player import EpisodeLimits  # noqa: E402
from agym.runtime.workers.division import deals_work, divides_sequences, is_dealt  # noqa: E402
from agym.runtime.workers.ray import Ranks, RayWorkerGroup, launch_ray  # noqa: E402
from agym.runtime.workers.ray_actors import RolloutActor, Said  # noqa: E402
from agym.runtime.workers.ray_cluster import (  # noqa: E402
    Cluster,
    Node,
    actor_variables,
    choose_nodes,
    explain_shortage,
    list_workers,
    resource_claims,
    watch_raylet,
)
from agym.runtime.workers.ray_member import Member, WorkerLost  # noqa: E402
from agym.runtime.workers.ray_samplers import Samplers  # noqa: E402
from agym.runtime.workers.rollout_worker import PlaySettings, RolloutWorker  # noqa: E402
from ray.exceptions import ActorDiedError  # noqa: E402

from .conftest import RECIPE, plan_of  # noqa: E402

# --- placement -----------------------------------------------------------------------------------------------------


def test_on_a_cpu_each_actor_claims_a_core() -> None:
    core = {"CPU": 1, "GPU": 0}
    assert resource_claims(plan_of(RECIPE)) == {"rollout/0": core, "learner/0": core}
    claims = resource_claims(plan_of(RECIPE, "hardware.workers_per_node=2"))
    assert claims == dict.fromkeys(["rollout/0", "rollout/1", "learner/0", "learner/1"], core)


def test_actors_that_take_turns_on_a_gpu_share_it() -> None:
    shared = resource_claims(plan_of(RECIPE, "hardware={gpus_per_node: 2, gpu: h100}"))
    assert {name: share["GPU"] for name, share in shared.items()} == dict.fromkeys(shared, 0.5)
    assert len(shared) == 4


def node(name: str, **offers: float) -> Node:
    return Node(name, f"10.0.0.{name}", offers)


NEEDS = [{"CPU": 2.0, "GPU": 2.0}] * 2


def test_nodes_are_chosen_in_order_and_those_without_room_left_out() -> None:
    nodes = [node("1", CPU=8, GPU=2), node("2", CPU=8, GPU=1), node("3", CPU=8, GPU=4)]
    assert choose_nodes(nodes, NEEDS) == [nodes[0], nodes[2]]
    assert choose_nodes(nodes[:2], NEEDS) is None


def test_a_node_that_is_gone_is_replaced_where_it_stood_and_the_others_stay() -> None:
    first, second, spare = (node(name, CPU=8, GPU=4) for name in "123")
    assert choose_nodes([second, spare], NEEDS, [first, second]) == [spare, second]
    # no machine is left over: another has room for both
    assert choose_nodes([second], NEEDS, [first, second]) == [second, second]
    small = node("2", CPU=8, GPU=2)
    assert choose_nodes([small], NEEDS, [first, small]) is None


def test_a_shortage_says_what_is_missing_on_which_node() -> None:
    nodes = [node("1", CPU=8, GPU=2), node("2", CPU=8, GPU=1)]
    assert explain_shortage(NEEDS, nodes, "auto") == (
        "the plan needs 2 nodes with 2 CPUs and 2 GPUs each, and the Ray cluster at 'auto' lacks room: node 10.0.0.1 "
        "offers 2 of 2 CPUs and 2 of 2 GPUs; node 10.0.0.2 offers 2 of 2 CPUs and 1 of 2 GPUs; run 'ray start "
        "--address=HOST:6379' on another machine, or change 'hardware'"
    )


def test_several_nodes_without_a_cluster_are_refused_with_how_to_start_one(tmp_path: Path) -> None:
    connector = EnvConnector(tmp_path, {}, print, Deadlines())
    with pytest.raises(RunError, match=r"2 nodes with 2 CPUs each.*'ray start --head.*'hardware.ray_address: auto'"):
        asyncio.run(launch_ray(plan_of(RECIPE, "hardware.nodes=2"), tmp_path, connector, time.perf_counter, print))


def test_an_actor_finds_in_its_environment_what_an_engine_in_this_process_would() -> None:
    plan = plan_of(RECIPE)
    found = actor_variables(plan, {"OMP_NUM_THREADS": "7", "SECRET": "x"})
    assert found["OMP_NUM_THREADS"] == "7"
    assert found["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert "SECRET" not in found


# --- playing -------------------------------------------------------------------------------------------------------

STYLE = PlaySettings(agent=Agent(), environments={}, sampling=SamplingSettings(), timeouts=Rollout(), slots=2)
BUDGETS = EpisodeLimits(horizon=1, tokens_per_turn=1, context_tokens=8)


def order(name: str) -> GroupRequest:
    return GroupRequest(task=Task(environment="e", id=name, seed=0), size=2, limits=BUDGETS, seed=0)


def episode(task: Task, index: int) -> Episode:
    return Episode(
        task=task, index=index, segments=(), turns=(), ending=Ending.DONE, horizon=1, score=0.0, success=False
    )


class Playing:
    """A worker that ends episodes one by one, in another order than they are asked for."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble = trouble
        self.played: list[str] = []
        self.turns: list[object] = []
        self.name = ""
        self.cancelled = False

    async def play(
        self, orders: list[GroupRequest], style: PlaySettings, seen: Callable[[Episode], None], turn: object = None
    ) -> list[Group]:
        self.played += [each.task.id for each in orders]
        self.turns.append(turn)
        groups = [
            Group(task=each.task, episodes=tuple(episode(each.task, at) for at in range(each.size))) for each in orders
        ]
        try:
            for each in [one for group in groups for one in group.episodes][::-1]:
                await asyncio.sleep(0)
                seen(each)
                if self.trouble is not None:
                    raise self.trouble
            return groups
        except asyncio.CancelledError:
            self.cancelled = True
            raise


def actor(worker: Playing) -> RolloutActor:
    made = RolloutActor(
        plan_of(RECIPE), Path(), {"logs": Path(), "environ": {}, "deadlines": Deadlines()}, time.perf_counter
    )
    made._worker = cast(Any, worker)
    return made


class Here:
    """An actor's handle, with the actor in this process. It is gone after this many answers."""

    def __init__(self, made: Any, answers: int = 1000) -> None:
        self._made, self._answers = made, answers
        self.play = self.do = self

    def options(self, **_: object) -> Here:
        return self

    def remote(self, number: int, *words: Any, **more: Any) -> Any:
        if callable(words[0]):
            return self._do(number, *words, **more)
        return self._play(number, *pickle.loads(pickle.dumps(words)))

    async def _do(self, number: int, *words: Any, **more: Any) -> Any:
        self._count()
        # a rank works in another thread, as others wait for it
        made = self._made.do(number, *words, **more)
        return await made if asyncio.iscoroutine(made) else made

    async def _play(self, *words: Any) -> Any:
        async for said in self._made.play(*words):
            self._count()
            yield ready(pickle.loads(pickle.dumps(said)))

    def _count(self) -> None:
        self._answers -= 1
        if self._answers < 0:
            raise ActorDiedError


def ready(value: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


class Starting(Samplers):
    """Samplers whose actors need no start."""

    async def _start(self, member: Member) -> None:
        return None


def member(handle: Any, rank: int = 0) -> Member:
    worker = Worker(id=f"rollout/{rank}", role=Role.ROLLOUT, rank=rank, node=0, gpus=())
    made = Member(worker, "10.0.0.1", handle, heartbeat_s=60)
    cast(Any, made)._kill = lambda: None
    return made


async def samplers(notes: list[str], *handles: list[Here]) -> Samplers:
    """As many as there are lists: the first actor of each, and those that take its place."""

    def create(rank: int, spare: Iterator[Here]) -> Callable[[], Awaitable[Member]]:
        async def next_one() -> Member:
            return member(next(spare), rank)

        return next_one

    made = Starting([create(rank, iter(each)) for rank, each in enumerate(handles)], notes.append, notes.append)
    await made.prepare()
    return made


def play(
    requests: Sequence[GroupRequest], heard: Callable[[Episode], None], *handles: list[Here], notes: Any = None
) -> list[Group]:
    async def run() -> list[Group]:
        made = await samplers([] if notes is None else notes, *handles)
        return await made.play(requests, STYLE, heard)

    return asyncio.run(run())


def names(groups: Sequence[Group]) -> list[list[tuple[str, int]]]:
    return [[(each.task.id, each.index) for each in group.episodes] for group in groups]


def test_episodes_are_reported_as_they_end_and_come_back_in_their_groups() -> None:
    heard: list[Episode] = []
    groups = play([order("a"), order("b")], heard.append, [Here(actor(Playing()))])
    assert [(each.task.id, each.index) for each in heard] == [("b", 1), ("b", 0), ("a", 1), ("a", 0)]
    assert names(groups) == [[("a", 0), ("a", 1)], [("b", 0), ("b", 1)]]


def test_what_an_environment_has_to_say_comes_with_the_next_news() -> None:
    notes: list[str] = []
    made = actor(Playing())
    made._notes.append("its server died")
    play([order("a")], lambda _: None, [Here(made)], notes=notes)
    assert notes == ["its server died"]


def test_a_play_that_nobody_listens_to_any_more_is_ended() -> None:
    async def leave() -> Playing:
        worker = Playing()
        news = actor(worker).play(0, [order("a"), order("b")], STYLE)
        assert isinstance(await anext(news), Said)
        await cast(Any, news).aclose()
        return worker

    assert asyncio.run(leave()).cancelled


def test_trouble_in_a_play_is_raised_after_what_was_seen_before_it() -> None:
    heard: list[Episode] = []
    with pytest.raises(StepRefused, match="no sampler"):
        play([order("a")], heard.append, [Here(actor(Playing(StepRefused("no sampler"))))])
    assert len(heard) == 1


# --- several samplers ----------------------------------------------------------------------------------------------

REQUESTS = [order(name) for name in "abcdefg"]
WHOLE = [[(name, 0), (name, 1)] for name in "abcdefg"]


def test_groups_are_handed_out_to_all_and_come_back_in_the_order_of_the_requests() -> None:
    first, second = Playing(), Playing()
    assert names(play(REQUESTS, lambda _: None, [Here(actor(first))], [Here(actor(second))])) == WHOLE
    assert sorted(first.played + second.played) == list("abcdefg")
    assert min(len(first.played), len(second.played)) >= 3


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("answers", [0, 1, 2])
def test_what_a_sampler_played_when_it_was_lost_is_played_again_and_another_takes_its_place(
    number: int, answers: int
) -> None:
    notes: list[str] = []
    others = [[Here(actor(Playing()))] for _ in range(number - 1)]
    lost = [Here(actor(Playing()), answers), Here(actor(Playing()))]
    assert names(play(REQUESTS, lambda _: None, lost, *others, notes=notes)) == WHOLE
    assert notes == ["rollout/0 on 10.0.0.1: its process is gone, killed or out of memory; another takes its place"]


@deals_work
async def note_share(worker: Any, items: Sequence[int], settings: PlaySettings) -> list[int]:
    worker.played += items
    worker.turns.append(settings.slots)
    await asyncio.sleep(0)
    return [item * item for item in items]


def deal_out(items: Sequence[int], *handles: list[Here]) -> list[int]:
    async def run() -> list[int]:
        made = await samplers([], *handles)
        return await made.call(note_share, items, replace(STYLE, slots=4))

    return asyncio.run(run())


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_work_is_dealt_out_to_all_and_comes_back_in_order_whatever_their_number(number: int, count: int) -> None:
    workers = [Playing() for _ in range(number)]
    items = list(range(count))
    assert deal_out(items, *([Here(actor(worker))] for worker in workers)) == [item * item for item in items]
    shares = [len(worker.played) for worker in workers]
    assert sum(shares) == count
    assert max(shares) - min(shares) <= 1
    busy = [worker for worker in workers if worker.turns]
    assert {tuple(worker.turns) for worker in busy} == {(-(-4 // len(busy)),)}


def test_of_work_dealt_out_the_share_of_a_lost_sampler_is_done_by_the_one_that_takes_its_place() -> None:
    first, second, spare = Playing(), Playing(), Playing()
    found = deal_out(range(5), [Here(actor(first), 0), Here(actor(spare))], [Here(actor(second))])
    assert found == [0, 1, 4, 9, 16]
    assert (first.played, spare.played, second.played) == ([], [0, 2, 4], [1, 3])


@pytest.mark.parametrize("name", ["demonstrate", "relabel", "render", "openings", "sample_replies"])
def test_what_needs_no_group_is_dealt_out(name: str) -> None:
    assert is_dealt(getattr(RolloutWorker, name))


def test_episodes_that_end_close_to_each_other_are_reported_together() -> None:
    async def listen() -> list[int]:
        return [len(said.value.episodes) async for said in actor(Playing()).play(0, REQUESTS, STYLE)]

    assert asyncio.run(listen()) == [1, 13, 0]


def test_plays_that_share_a_word_share_the_slots_of_their_engine() -> None:
    worker = Playing()
    made = actor(worker)

    async def listen(name: str, shared: str | None) -> None:
        async for _ in made.play(0, [order(name)], STYLE, shared):
            pass

    async def both() -> None:
        await asyncio.gather(listen("a", "x"), listen("b", "x"), listen("c", "y"))
        await listen("d", None)

    asyncio.run(both())
    first, second, third, alone = worker.turns
    assert isinstance(first, asyncio.Semaphore)
    assert first is second is not third
    assert alone is None


def test_an_engine_that_fails_in_a_living_process_is_replaced_too() -> None:
    failing = Here(actor(Playing(SamplerLost("sampler: broken"))))
    assert names(play(REQUESTS, lambda _: None, [failing, Here(actor(Playing()))])) == WHOLE


def test_a_sampler_that_is_lost_again_and_again_ends_the_step() -> None:
    with pytest.raises(StepRefused, match=r"it was replaced 3 times since the last sync: read its file in 'logs/work"):
        play(REQUESTS, lambda _: None, [Here(actor(Playing()), 0) for _ in range(4)])


def test_samplers_that_are_known_to_be_lost_are_replaced_while_ranks_restart() -> None:
    class Restarting:
        restarted = False

        async def restart(self, *_: object) -> None:
            self.restarted = True

    async def run() -> None:
        made = await samplers([], [Here(None), Here(None)], [Here(None)])
        lost, kept = made.members
        lost.give_up("its node is gone")
        ranks = Restarting()
        workers = RayWorkerGroup(plan_of(RECIPE), made, cast(Ranks, ranks), list)
        workers._model = cast(Any, None)
        await workers.restart_learner()
        assert ranks.restarted
        assert [lost in made.members, kept in made.members, made.num_replaced] == [False, True, 1]

    asyncio.run(run())


def test_one_that_takes_a_place_gets_the_weights_of_the_last_sync_first() -> None:
    given: list[str] = []

    async def note(worker: Any, address: str) -> SyncProof:
        given.append(f"{worker.name} {address}")
        return SyncProof(compared=1, unproven=(), difference=float(worker.name == "second"))

    async def run() -> SyncProof:
        first, second, spare = Playing(), Playing(), Playing()
        first.name, second.name, spare.name = "first", "second", "spare"
        made = await samplers([], [Here(actor(first), 1), Here(actor(spare))], [Here(actor(second))])
        proof = await made.load("v1", note)
        await made.play(REQUESTS, STYLE, lambda _: None)
        assert made.num_replaced == 1
        return proof

    assert asyncio.run(run()).difference == 1.0
    assert given == ["first v1", "second v1", "spare v1"]


def test_the_longest_groups_come_first_and_no_engine_with_room_waits() -> None:
    def long(name: str, horizon: int) -> GroupRequest:
        return replace(order(name), limits=replace(BUDGETS, horizon=horizon))

    queue = GroupQueue([long("a", 1), long("b", 3), long("c", 2), long("d", 3)], TurnLengths(), slots=3)
    queue.add_engine(0)
    queue.add_engine(1)
    # two episodes each: a second group starts where a slot is left
    assert [queue.assign() for _ in range(5)] == [(0, 1), (1, 3), (0, 2), (1, 0), None]


def test_a_group_s_length_is_judged_by_the_episodes_so_far_of_its_environment() -> None:
    lengths, request = TurnLengths(), order("a")
    assert lengths.expect(request) == 1.0
    ids = np.zeros(30, np.int32)
    segment = Segment(ids=ids, sampled=ids > 0, logprobs=ids.astype(np.float32), versions=ids)
    turn = cast(Any, object())
    lengths.note(replace(episode(request.task, 0), segments=(segment,), turns=(turn,) * 3))
    assert lengths.expect(replace(request, limits=replace(BUDGETS, horizon=5))) == 50.0


# --- several ranks -------------------------------------------------------------------------------------------------


def sequence(*ids: int) -> TrainSequence:
    return TrainSequence(ids=np.array(ids), loss_mask=np.ones(len(ids), bool), advantages=np.zeros(len(ids)))


class Rank:
    """A rank's worker: says what it was given."""

    def __init__(self, troubles: Sequence[Exception | None] = ()) -> None:
        self._troubles = list(troubles)
        self.asked = 0

    def do(self, number: int, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        if self._troubles and (trouble := self._troubles.pop(0)) is not None:
            raise trouble
        return work(self, *args, **kwargs)


@divides_sequences
def lengths_of(worker: Any, sequences: Sequence[TrainSequence]) -> list[int]:
    return [len(each.ids) for each in sequences]


@divides_sequences
def number_of(worker: Any, sequences: Sequence[TrainSequence], more: int) -> int:
    return len(sequences) + more


def whole(worker: Any) -> str:
    return "done"


async def ranks(*handles: Here, settings: Sequence[str] = ()) -> Ranks:
    made = Ranks(plan_of(RECIPE, *settings), [], survivors_s=0.2)
    made._members = [member(each, rank) for rank, each in enumerate(handles)]
    return made


def ask(handles: Sequence[Here], *words: Any, settings: Sequence[str] = ()) -> Any:
    async def run() -> Any:
        return await (await ranks(*handles, settings=settings)).call(*words)

    return asyncio.run(run())


def test_sequences_are_divided_over_the_ranks_and_what_comes_back_is_joined() -> None:
    sequences = [sequence(*range(size)) for size in (5, 1, 3, 2)]
    both = [Here(Rank()), Here(Rank())]
    assert ask(both, lengths_of, sequences) == [5, 1, 3, 2]
    assert ask(both, number_of, sequences, 10) == 12
    assert ask(both, whole) == "done"


def test_ranks_that_divide_rows_are_given_the_same_sequences() -> None:
    given: list[list[int]] = []

    @divides_sequences
    def note(worker: Any, sequences: Sequence[TrainSequence]) -> list[int]:
        given.append([len(each.ids) for each in sequences])
        return given[-1]

    sequences = [sequence(*range(size)) for size in (5, 1, 3, 2)]
    settings = ("hardware.workers_per_node=4", "hardware.train.sequence_parallel=2")
    assert ask([Here(Rank()) for _ in range(4)], note, sequences, settings=settings) == [5, 1, 3, 2]
    assert given == [[5, 1], [5, 1], [3, 2], [3, 2]]


def test_what_all_ranks_raise_alike_is_raised() -> None:
    with pytest.raises(StepRefused, match="no room"):
        ask([Here(Rank([StepRefused("no room")])) for _ in range(2)], whole)


def test_what_one_rank_raises_while_the_others_finish_is_raised() -> None:
    with pytest.raises(OSError, match="no space"):
        ask([Here(Rank()), Here(Rank([OSError("no space")]))], whole)


class Waiting(Rank):
    """A rank that waits for another forever."""

    async def do(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()


def test_a_rank_that_fails_while_others_wait_for_it_ends_them_all() -> None:
    with pytest.raises(LearnerLost, match=r"rollout/1: no room; others still waited for it 0.2 s later"):
        ask([Here(Waiting()), Here(Rank([RunError("no room")]))], whole)


def test_a_rank_that_is_gone_is_named_even_if_another_noticed_it_first() -> None:
    class Late(Waiting):
        async def do(self, *_: Any, **__: Any) -> Any:
            await asyncio.sleep(0.01)
            raise ActorDiedError

    with pytest.raises(LearnerLost, match=r"^rollout/1 on 10.0.0.1: its process is gone"):
        ask([Here(Rank([LearnerLost("a collective without a rank")])), Here(Late())], whole)


def test_a_rank_that_is_gone_ends_the_call_and_every_later_one() -> None:
    async def run() -> None:
        made = await ranks(Here(Waiting()), Here(Rank(), 0))
        for _ in range(2):
            with pytest.raises(LearnerLost, match=r"rollout/1 on 10.0.0.1: its process is gone"):
                await made.call(whole)

    asyncio.run(run())


# --- whether they are still there ----------------------------------------------------------------------------------


class Pinged:
    """A handle that answers pings with the numbers of the calls under way, or not at all; a call it never answers."""

    def __init__(self, under_way: frozenset[int] | None) -> None:
        self._under_way = under_way
        self.do = self.ping = self

    def options(self, **_: object) -> Pinged:
        return self

    async def remote(self, *words: Any) -> Any:
        if words or self._under_way is None:
            await asyncio.Event().wait()
        return self._under_way


@pytest.mark.parametrize(
    ("under_way", "reason"),
    [(None, "it has not answered for 0.1 s"), (frozenset(), "an answer of it was lost on the way")],
)
def test_one_that_is_hung_or_whose_answer_was_lost_is_waited_for_no_longer(
    under_way: frozenset[int] | None, reason: str
) -> None:
    async def run() -> None:
        worker = Worker(id="rollout/0", role=Role.ROLLOUT, rank=0, node=0, gpus=())
        made = Member(worker, "10.0.0.1", Pinged(under_way), heartbeat_s=0.1)
        made.watch()
        with pytest.raises(WorkerLost, match=f"rollout/0 on 10.0.0.1: {reason}"):
            await made.ask(whole)

    asyncio.run(run())


def test_a_rank_that_is_lost_while_samplers_play_ends_the_play() -> None:
    ended: list[str] = []

    async def play() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("play")

    async def run() -> None:
        made = await ranks(Here(Rank()))
        assert await made.while_alive(asyncio.sleep(0, "groups")) == "groups"
        worker = Worker(id="learner/0", role=Role.LEARNER, rank=0, node=0, gpus=())
        made._members = [Member(worker, "10.0.0.1", Pinged(None), heartbeat_s=0.1)]
        cast(Any, made._members[0])._kill = lambda: None
        made._members[0].watch()
        for _ in range(2):
            with pytest.raises(LearnerLost, match=r"learner/0 on 10.0.0.1: it has not answered for 0.1 s"):
                await made.while_alive(play())

    asyncio.run(run())
    # the second began no more
    assert ended == ["play"]


def test_one_that_was_given_up_is_sent_nothing_more() -> None:
    async def run() -> None:
        made = member(None)
        made.give_up("Ray has ended")
        with pytest.raises(WorkerLost, match="Ray has ended"):
            await made.ask(whole)
        with pytest.raises(WorkerLost, match="Ray has ended"):
            await anext(made.listen())

    asyncio.run(run())


def test_the_end_of_the_driver_s_own_raylet_is_seen_at_once() -> None:
    async def run() -> None:
        ended = asyncio.Event()
        # the path of a socket may have a hundred letters
        with ExitStack() as stack, TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as raylet:
            raylet.bind(f"{folder}/raylet")
            raylet.listen()
            watch_raylet(f"{folder}/raylet", ended.set, stack)
            connection, _ = raylet.accept()
            await asyncio.sleep(0)
            assert not ended.is_set()
            connection.close()
            await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(run())


def test_a_driver_without_a_raylet_waits_for_no_machine() -> None:
    cluster = Cluster(plan_of(RECIPE), {}, "auto")
    cluster.end()
    with pytest.raises(RunError, match=r"Ray has ended on the driver's machine: resume the run"):
        asyncio.run(cluster.find_nodes())


class ReadyCluster(Cluster):
    """One machine with room."""

    async def find_nodes(self) -> None:
        self._nodes = [Node(id="0" * 56, address="127.0.0.1", offers={"CPU": 2.0, "GPU": 0.0})]


class NeverThere:
    """What `ray.remote` makes of an actor's class, and its handle: its process waits for room."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.asked = asyncio.Event()
        self.prepare = self

    def __call__(self, *_: Any, **__: Any) -> NeverThere:
        return self

    def options(self, **_: Any) -> NeverThere:
        return self

    def remote(self, *arguments: Any) -> Any:
        if not arguments:
            return self
        self.asked.set()
        return asyncio.get_running_loop().create_future()


def test_an_actor_whose_start_is_called_off_takes_no_room_of_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import ray

    killed: list[Any] = []

    async def run() -> NeverThere:
        never = NeverThere()
        monkeypatch.setattr(ray, "remote", never)
        monkeypatch.setattr(ray, "kill", killed.append)
        cluster, (worker,) = ReadyCluster(plan_of(RECIPE), {}, "auto"), list_workers(plan_of(RECIPE), Role.LEARNER)
        starting = asyncio.create_task(cluster.create(worker, Told, log=tmp_path / "log"))
        async with asyncio.timeout(10):
            await never.asked.wait()
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        return never

    assert killed == [asyncio.run(run())]


# --- taking turns on a GPU -----------------------------------------------------------------------------------------


class Told:
    """Samplers and ranks that note what is asked of them."""

    def __init__(self) -> None:
        self.order: list[str] = []

    async def sleep(self) -> None:
        self.order.append("samplers sleep")

    async def call(self, work: Any, *_: Any, **__: Any) -> list[str]:
        self.order.append(getattr(work, "func", work).__name__)
        return ["address"]

    async def load(self, addresses: Any, work: Any) -> SyncProof:
        self.order.append("samplers load")
        return SyncProof(compared=1, unproven=(), difference=0.0)

    def forget_weights(self) -> None:
        self.order.append("samplers forget")


def test_on_a_shared_gpu_samplers_sleep_while_the_learner_works_and_it_gives_back_memory_before_they_wake() -> None:
    told: Any = Told()
    plan = plan_of(RECIPE, "hardware={gpus_per_node: 1, gpu: h100, launcher: ray, weight_transfer: object_store}")
    workers = RayWorkerGroup(plan, told, told, list)
    asyncio.run(workers.compute(whole))
    asyncio.run(workers.sync(3))
    turn = ["samplers sleep", "whole", "free_memory"]
    assert told.order == [*turn, "samplers forget", "samplers sleep", "hand_over", "free_memory", "samplers load"]


# --- real runs -----------------------------------------------------------------------------------------------------

REAL = """
agym: 1
name: small
model: {init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 320}}}
environments: {textcraft: {use: textcraft, options: {world: small, terse: true}}}
agent: {format: plain, tokens_per_turn: 8, context_tokens: 192}
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, groups_per_update: 2, lr: 1e-3, kl: {coef: 0.01}}
reward: score - 0.1 * invalid_turns
schedule:
  - {stage: imitate, until: step >= 2, algorithm: {use: sft, batch_size: 16, lr: 1e-2, data: {limit: 60}}}
  - {stage: exploit, turns: 3, until: step >= 8}
eval: {every: 4, at_start: false, limit: 8, turns: 3}
checkpoint: {every: 2}
"""


class Driver:
    """A run in a process, and a session, of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "recipe.yaml").write_text(REAL)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agym", "run", "recipe.yaml", *words],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def rows(self) -> list[dict[str, Any]]:
        file = self.folder / "runs/small/metrics.jsonl"
        read = (
            [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")] if file.exists() else []
        )
        return [
            {key: row[key] for key in row if not key.startswith(("time", "timing_s/", "perf/", "workers/"))}
            for row in read
        ]

    def wait_for_rows(self, count: int) -> None:
        deadline = time.monotonic() + 300
        while len(self.rows()) < count:
            assert self.process.poll() is None, self.process.communicate()[0][-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def actor(self, name: str) -> int:
        return min(pid for pid, line in self.members() if line.startswith(f"ray::{name}"))

    def members(self) -> Iterator[tuple[int, str]]:
        """Living processes of the run's session."""
        for folder in Path("/proc").iterdir():
            try:
                state, *_, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    yield int(folder.name), (folder / "cmdline").read_text().replace("\0", " ")
            except (OSError, ValueError):
                continue

    def ended(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=300)
        # a process that was told to end may take a while, on a busy machine seconds
        self.nothing_within(30)
        return self.process.returncode, out

    def nothing_within(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while left := list(self.members()):
            assert time.monotonic() < deadline, left
            time.sleep(0.1)


ON_RAY = ("--set", "hardware.launcher=ray")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """A run whose driver is gone. The last of Ray's own processes tries for a minute to tell it: meanwhile other tests
    run."""
    driver = Driver(tmp_path_factory.mktemp("killed"), *ON_RAY)
    driver.wait_for_rows(3)
    driver.process.kill()
    driver.process.communicate()
    return driver


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory, killed: Driver) -> list[dict[str, Any]]:
    """The rows of the run with every worker in its process."""
    driver = Driver(tmp_path_factory.mktemp("inline"))
    code, out = driver.ended()
    assert code == 0, out[-3000:]
    rows = driver.rows()
    assert [row["total_step"] for row in rows] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 10]
    return rows


@pytest.mark.heavy
def test_the_same_rows_as_with_workers_in_one_process(tmp_path: Path, inline: list[dict[str, Any]]) -> None:
    driver = Driver(tmp_path / "run", *ON_RAY)
    code, out = driver.ended()
    assert code == 0, out[-3000:]
    assert driver.rows() == inline
    assert list(tmp_path.glob("run/runs/small/logs/ray/session_*/logs/raylet.out"))


@pytest.mark.heavy
def test_a_learner_that_is_killed_is_started_anew_and_not_a_bit_of_the_run_differs(
    tmp_path: Path, inline: list[dict[str, Any]]
) -> None:
    driver = Driver(tmp_path / "run", *ON_RAY)
    driver.wait_for_rows(3)
    os.kill(driver.actor("LearnerActor"), signal.SIGKILL)
    code, out = driver.ended()
    assert code == 0, out[-3000:]
    assert "learner/0 on 127.0.0.1: its process is gone, killed or out of memory; restarting the learner" in out
    assert "Traceback" not in out
    assert "raylet" not in out
    assert driver.rows() == inline


@pytest.mark.heavy
def test_a_sampler_that_is_killed_is_replaced_and_not_a_bit_of_the_run_differs(
    tmp_path: Path, inline: list[dict[str, Any]]
) -> None:
    driver = Driver(tmp_path / "run", *ON_RAY)
    driver.wait_for_rows(3)
    os.kill(driver.actor("RolloutActor"), signal.SIGKILL)
    code, out = driver.ended()
    assert code == 0, out[-3000:]
    assert _LOST_SAMPLER in out
    assert driver.rows() == inline


_LOST_SAMPLER = "note: rollout/0 on 127.0.0.1: its process is gone, killed or out of memory; another takes its place"
TWO = ("--set", "hardware.workers_per_node=2")
COUNTED = ("total_step", "stage", "rollout/tokens", "rollout/episodes", "train/tokens")


def same_start(rows: list[dict[str, Any]], inline: list[dict[str, Any]], steps: int) -> None:
    """The same tokens, and the same losses except for the order of sums."""
    for mine, theirs in list(zip(rows, inline, strict=False))[:steps]:
        assert {key: mine.get(key) for key in COUNTED} == {key: theirs.get(key) for key in COUNTED}
        assert mine.get("train/loss", 0) == pytest.approx(theirs.get("train/loss", 0), abs=1e-5)
    assert [row["total_step"] for row in rows] == [row["total_step"] for row in inline]


@pytest.mark.heavy
@pytest.mark.parametrize("train", ["{zero: 2}", "{zero: 3}", "{zero: 3, sequence_parallel: 2}"])
def test_two_engines_and_two_ranks_begin_as_one_of_each_and_learn_to_the_end(
    tmp_path: Path, inline: list[dict[str, Any]], train: str
) -> None:
    driver = Driver(tmp_path / "run", *TWO, "--set", f"hardware.train={train}")
    code, out = driver.ended()
    assert code == 0, out[-3000:]
    same_start(driver.rows(), inline, steps=4)
    logs = tmp_path / "run/runs/small/logs/workers"
    assert sorted(file.name for file in logs.iterdir()) == [
        f"{role}-{rank}.log" for role in ("learner", "rollout") for rank in (0, 1)
    ]


@pytest.mark.heavy
def test_of_two_samplers_one_that_is_killed_is_replaced_and_each_group_learned_from_once(
    tmp_path: Path, inline: list[dict[str, Any]]
) -> None:
    driver = Driver(tmp_path / "run", *TWO)
    driver.wait_for_rows(3)
    os.kill(driver.actor("RolloutActor"), signal.SIGKILL)
    code, out = driver.ended()
    assert code == 0, out[-3000:]
    assert "another takes its place" in out
    rows = driver.rows()
    same_start(rows, inline, steps=3)
    assert [row.get("rollout/episodes") for row in rows] == [row.get("rollout/episodes") for row in inline]


@pytest.mark.heavy
def test_a_sampler_that_hangs_is_replaced(tmp_path: Path, inline: list[dict[str, Any]]) -> None:
    driver = Driver(tmp_path / "run", *ON_RAY, "--set", "hardware.heartbeat_s=4")
    driver.wait_for_rows(3)
    os.kill(driver.actor("RolloutActor"), signal.SIGSTOP)
    code, out = driver.ended()
    assert code == 0, out[-3000:]
    assert "it has not answered for 4 s ('hardware.heartbeat_s'); another takes its place" in out
    assert driver.rows() == inline


@pytest.mark.heavy
def test_an_interrupt_from_the_terminal_finishes_the_step_and_saves(
    tmp_path: Path, inline: list[dict[str, Any]]
) -> None:
    driver = Driver(tmp_path / "run", *ON_RAY)
    driver.wait_for_rows(3)
    # a terminal sends it to the whole group
    os.killpg(driver.process.pid, signal.SIGINT)
    code, out = driver.ended()
    assert code == 130, out[-3000:]
    rows = driver.rows()
    assert rows == inline[: len(rows)]
    assert (tmp_path / f"run/runs/small/checkpoints/step-{rows[-1]['total_step']}").is_dir()


@pytest.mark.heavy
def test_nothing_outlives_a_driver_that_is_killed(killed: Driver) -> None:
    killed.nothing_within(180)
