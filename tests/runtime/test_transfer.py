"""Weights on their way between processes: what crosses, in which buckets, and what happens when the way is broken."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ray = pytest.importorskip("ray")

from agym.runtime.backends.buckets import fill_buckets  # noqa: E402
from agym.runtime.backends.checks.checksums import checksums  # noqa: E402
from agym.runtime.errors import LearnerLost, RunError, StepRefused  # noqa: E402
from agym.runtime.protocols import (  # noqa: E402
    Checksum,
    Probe,
    ProbeLimits,
    SamplerError,
    SyncError,
    SyncProof,
    Transfer,
    WeightUpdate,
)
from agym.runtime.workers.transfer import Receivers, Shipment, hand_over, send_weights, take_over  # noqa: E402
from agym.runtime.workers.weight_sync import pack_weights, unpack_weights  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")

PROBE = Probe(sequences=[(1, 2)], logprobs=[np.zeros(1, np.float32)], limits=ProbeLimits(floor=1e-4, ceiling=1e-4))


def crossed(parcel: Any) -> tuple[Any, list[Any]]:
    """As shared memory hands it on: buffers next to the pickle, read-only on the other side."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(parcel, protocol=5, buffer_callback=buffers.append)
    views = [memoryview(bytes(buffer.raw())) for buffer in buffers]
    return pickle.loads(data, buffers=views), buffers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_of_any_precision_and_shape_arrive_bit_for_bit(dtype: Any) -> None:
    tensors = [
        ("matrix", torch.randn(3, 4).to(dtype)),
        ("turned", torch.randn(4, 3).to(dtype).T),
        ("one", torch.ones(())),
    ]
    arrived, _ = crossed(pack_weights(tensors))
    for (name, sent), (other, got) in zip(tensors, unpack_weights(arrived), strict=True):
        assert (name, sent.dtype, sent.shape) == (other, got.dtype, got.shape)
        assert torch.equal(sent, got)


def test_weights_are_not_copied_before_they_are_in_shared_memory() -> None:
    weight = torch.zeros(8)
    _, buffers = crossed(pack_weights([("w", weight)]))
    weight += 1
    assert buffers[0].raw().tobytes() == weight.numpy().tobytes()


def test_a_bucket_is_as_full_as_it_may_be_and_a_large_tensor_has_its_own() -> None:
    sizes = {"a": 2, "b": 2, "c": 9, "d": 1, "e": 3}
    tensors = [(name, torch.zeros(size)) for name, size in sizes.items()]
    assert [[name for name, _ in bucket] for bucket in fill_buckets(tensors, 16)] == [["a", "b"], ["c"], ["d", "e"]]
    assert list(fill_buckets([], 16)) == []


# --- through the store ---------------------------------------------------------------------------------------------


class Learner:
    """Weights that say when they were drawn, for a rank of several."""

    def __init__(self) -> None:
        self.drawn: list[str] = []
        self.tensors = [(name, torch.full((4,), float(at))) for at, name in enumerate("abc")]

    def weights(self) -> Iterator[tuple[str, Any]]:
        for name, tensor in self.tensors:
            self.drawn.append(name)
            yield name, tensor


class Loading:
    """A rollout worker that keeps what it is given."""

    async def load(self, update: WeightUpdate) -> list[list[str]]:
        return [[name for name, _ in bucket] async for bucket in update.tensors]


def learner_worker() -> Any:
    return SimpleNamespace(learner=Learner(), probe=lambda: PROBE)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was put into Ray's object store."""
    put: list[Any] = []
    monkeypatch.setattr(ray, "put", lambda value: put.append(value) or len(put) - 1)
    return put


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)


def test_the_first_rank_puts_each_bucket_into_the_store_with_checksums_of_one_pass(
    monkeypatch: pytest.MonkeyPatch, store: list[Any]
) -> None:
    as_rank(monkeypatch, 0)
    worker = learner_worker()
    shipment = hand_over(worker, 7, 32)
    assert worker.learner.drawn == ["a", "b", "c"]
    assert [[name for name, *_ in bucket] for bucket in store] == [["a", "b"], ["c"]]
    assert shipment.checksums == checksums(worker.learner.tensors)
    assert (shipment.version, shipment.buckets, shipment.probe) == (7, [0, 1], PROBE)


def test_the_other_ranks_draw_the_weights_in_step_and_keep_none(
    monkeypatch: pytest.MonkeyPatch, store: list[Any]
) -> None:
    as_rank(monkeypatch, 1)
    worker = learner_worker()
    assert hand_over(worker, 7, 32).buckets == []
    assert worker.learner.drawn == ["a", "b", "c"]
    assert store == []


def ended(result: Any) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    future.set_exception(result) if isinstance(result, Exception) else future.set_result(result)
    return future


def taken(*buckets: Any, deadline_s: float = 60.0) -> list[list[str]]:
    async def take() -> Any:
        references = [asyncio.Future() if bucket is None else ended(bucket) for bucket in buckets]
        shipment = Shipment(version=3, buckets=references, checksums={}, probe=PROBE)
        return await take_over(Loading(), shipment, deadline_s)

    return asyncio.run(take())


def test_a_sampler_is_given_one_bucket_after_the_other() -> None:
    first, second = pack_weights([("a", torch.ones(2))]), pack_weights([("b", torch.ones(2)), ("c", torch.ones(1))])
    assert taken(first, second) == [["a"], ["b", "c"]]


def test_a_bucket_that_does_not_come_is_said_by_its_number_and_version() -> None:
    with pytest.raises(SyncError, match=r"waited 0\.01 s for bucket 2 of 2 of version 3 of the weights"):
        taken(pack_weights([("a", torch.ones(2))]), None, deadline_s=0.01)


def test_a_bucket_that_went_with_its_learner_is_a_lost_learner() -> None:
    with pytest.raises(LearnerLost, match="sync: bucket 1 of 1 of version 3 of the weights is gone"):
        taken(ray.exceptions.OwnerDiedError("0" * 56, None, ""))


# --- from GPU to GPU -----------------------------------------------------------------------------------------------

Said = SimpleNamespace
Make = Callable[..., "Receiving"]


class Receiving:
    """A sampler that notes what it is asked, in an actor."""

    def __init__(self, difference: float) -> None:
        self.log: list[Any] = []
        self.receiving: Any = None
        self.sampler, self.difference = self, difference
        self._loop = asyncio.new_event_loop()
        self.do = SimpleNamespace(remote=lambda number, work, *args: Said(value=self._run(work(self, *args))))

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    @asynccontextmanager
    async def receive(self, update: WeightUpdate) -> AsyncIterator[None]:
        self.log.append(("expects", sorted(update.checksums)))
        yield
        self.log.append(("has", {name: each.digest for name, each in update.checksums.items()}))

    def call_workers(self, method: str, argument: Any) -> None:
        self.log.append((method, argument))

    async def prove(self, update: WeightUpdate) -> SyncProof:
        return SyncProof(compared=1, unproven=(), difference=self.difference)


class Sends:
    """vLLM's side of a rank."""

    def __init__(self, weights: Any, settings: str, call: Any) -> None:
        self.is_first, self.settings, self._call = torch.distributed.get_rank() == 0, settings, call
        if self.is_first:
            call("init_weight_transfer_engine", {"rank_offset": 1, "settings": settings})

    def describe(self) -> dict[str, Any]:
        return {"a": Checksum(dtype="float32", shape=(2,), digest=0)}

    def send(self) -> dict[str, Any]:
        if self.is_first:
            self._call("update_weights", {"names": ["a"]})
        return {"a": Checksum(dtype="float32", shape=(2,), digest=5)}

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(
        Sender=Sends, ipc_settings=lambda: "ipc", nccl_settings=lambda receivers: f"nccl {receivers}"
    )
    monkeypatch.setitem(sys.modules, "agym.runtime.backends.vllm.sender", fake)
    monkeypatch.setattr(ray, "get", lambda answers, timeout: answers)


@pytest.fixture
def receiving() -> Iterator[Make]:
    """`receiving(0.1)`: an actor whose proof has that difference."""
    made: list[Receiving] = []

    def make(difference: float = 0.0) -> Receiving:
        made.append(Receiving(difference))
        return made[-1]

    yield make
    for each in made:
        each.close()


def sent(worker: Any, samplers: list[Receiving], transfer: Transfer = Transfer.NCCL) -> SyncProof | None:
    return send_weights(worker, 4, Receivers(actors=list(samplers), gpus_each=2), transfer)


def sending_worker() -> Any:
    return SimpleNamespace(learner=Learner(), probe=lambda: PROBE, connection=None)


def test_gpus_of_all_samplers_are_ranks_of_one_group_and_the_worst_proof_counts(
    monkeypatch: pytest.MonkeyPatch, gpus: None, receiving: Make
) -> None:
    as_rank(monkeypatch, 0)
    worker, samplers = sending_worker(), [receiving(0.1), receiving(0.3), receiving(0.2)]
    proof = sent(worker, samplers)
    assert proof is not None
    assert proof.difference == 0.3
    for at, sampler in enumerate(samplers):
        assert sampler.log == [
            ("init_weight_transfer_engine", {"rank_offset": 1 + 2 * at, "settings": "nccl 6"}),
            ("expects", ["a"]),
            ("update_weights", {"names": ["a"]}),
            ("has", {"a": 5}),
        ]


def test_samplers_are_met_again_only_where_one_was_replaced(
    monkeypatch: pytest.MonkeyPatch, gpus: None, receiving: Make
) -> None:
    as_rank(monkeypatch, 0)
    worker, first, second, third = sending_worker(), receiving(), receiving(), receiving()
    for pair in ([first, second], [first, second], [first, third]):
        sent(worker, pair, Transfer.IPC)
    met = [[word for word, _ in each.log].count("init_weight_transfer_engine") for each in (first, second, third)]
    assert met == [2, 1, 1]


def test_other_ranks_send_along_and_ask_nobody(monkeypatch: pytest.MonkeyPatch, gpus: None, receiving: Make) -> None:
    as_rank(monkeypatch, 1)
    sampler = receiving()
    assert sent(sending_worker(), [sampler]) is None
    assert sampler.log == []


@pytest.mark.parametrize(
    ("trouble", "kind", "words"),
    [
        (ray.exceptions.GetTimeoutError(), RunError, "sync: waited 600 s for 2 samplers to call engine"),
        (ray.exceptions.RayTaskError("f", "", SyncError("'a' differs")), RunError, "sync: 'a' differs"),
        (ray.exceptions.RayTaskError("f", "", SamplerError("it failed")), StepRefused, "sampler: it failed; resume"),
        (ray.exceptions.RayActorError(), StepRefused, "sampler: its process is gone"),
    ],
)
def test_what_goes_wrong_with_a_sampler_has_a_name(
    monkeypatch: pytest.MonkeyPatch, gpus: None, receiving: Make, trouble: Exception, kind: type[RunError], words: str
) -> None:
    def fail(answers: Any, timeout: float) -> Any:
        raise trouble

    as_rank(monkeypatch, 0)
    monkeypatch.setattr(ray, "get", fail)
    with pytest.raises(kind, match=words):
        sent(sending_worker(), [receiving(), receiving()])
