"""How weights get from the learner's ranks to samplers in other processes: in buckets, through Ray's object store.

All ranks draw the weights in step, which under ZeRO-3 makes them whole one by one; the first rank puts them into the
store, with their checksums. A sampler takes in one bucket after the other, so what a process holds twice is a bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..backends.transfer.buckets import BUCKET_BYTES, fill_buckets
from ..errors import LearnerLost
from ..protocols import Checksum, NamedTensors, Probe, SyncError, SyncProof, WeightUpdate
from .learner_worker import LearnerWorker
from .rollout_worker import RolloutWorker
from .weight_sync import pack_weights, unpack_weights

__all__ = ["BUCKET_DEADLINE_S", "Shipment", "hand_over", "take_over"]

BUCKET_DEADLINE_S = 120.0
"""For a bucket to reach a sampler's node: 2 MB/s."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shipment:
    """Weights in the object store, for any number of samplers."""

    version: int
    buckets: Sequence[Any]
    """References, which keep the buckets in the store."""
    checksums: Mapping[str, Checksum]
    probe: Probe


def hand_over(worker: LearnerWorker, version: int, bucket_bytes: int = BUCKET_BYTES) -> Shipment:
    """Put the weights into the object store; on all ranks, of which the first holds the shipment."""
    import ray
    import torch.distributed

    from ..backends.checks.checksums import note_checksums

    probe, weights = worker.probe(), worker.learner.weights()
    checksums: dict[str, Checksum] = {}
    if torch.distributed.get_rank() == 0:
        weights = note_checksums(weights, checksums)
        buckets = [ray.put(pack_weights(bucket)) for bucket in fill_buckets(weights, bucket_bytes)]
    else:
        buckets = []
        for _ in weights:
            pass
    return Shipment(version=version, buckets=buckets, checksums=checksums, probe=probe)


async def take_over(worker: RolloutWorker, shipment: Shipment, deadline_s: float = BUCKET_DEADLINE_S) -> SyncProof:
    """Load a shipment into a sampler; whoever waits for other answers of the worker gets them between buckets."""
    return await worker.load(
        WeightUpdate(
            version=shipment.version,
            tensors=_unload(shipment, deadline_s),
            checksums=shipment.checksums,
            probe=shipment.probe,
        )
    )


async def _unload(shipment: Shipment, deadline_s: float) -> AsyncIterator[NamedTensors]:
    from ray.exceptions import RayError

    for at, bucket in enumerate(shipment.buckets, start=1):
        what = f"bucket {at} of {len(shipment.buckets)} of version {shipment.version} of the weights"
        try:
            async with asyncio.timeout(deadline_s):
                packed = await bucket
        except TimeoutError:
            raise SyncError(f"waited {deadline_s:g} s for {what}; check the network between the nodes") from None
        except RayError as error:
            raise LearnerLost(f"sync: {what} is gone, and so is the learner that held it") from error
        yield unpack_weights(packed)
