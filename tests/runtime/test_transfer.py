"""Weights on their way between processes: what crosses, in which buckets, and what a broken way comes to."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ray = pytest.importorskip("ray")

from agym.runtime.backends.checks.checksums import checksums  # noqa: E402
from agym.runtime.backends.transfer.buckets import fill_buckets  # noqa: E402
from agym.runtime.errors import LearnerLost  # noqa: E402
from agym.runtime.protocols import Probe, ProbeLimits, SyncError, WeightUpdate  # noqa: E402
from agym.runtime.workers.transfer import Shipment, hand_over, take_over  # noqa: E402
from agym.runtime.workers.weight_sync import pack_weights, unpack_weights  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")

PROBE = Probe(sequences=[(1, 2)], logprobs=[np.zeros(1, np.float32)], limits=ProbeLimits(floor=1e-4, ceiling=1e-4))


def crossed(parcel: Any) -> tuple[Any, list[Any]]:
    """As shared memory hands it on: buffers beside the pickle, read-only on the other side."""
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
