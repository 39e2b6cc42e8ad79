"""How weights get from the learner's ranks to the samplers: through Ray's object store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..protocols import SyncProof
from .learner_worker import LearnerWorker
from .rollout_worker import RolloutWorker
from .weight_sync import free_cache, pack_weights, unpack_weights

__all__ = ["free_memory", "hand_over", "take_over"]


def hand_over(worker: LearnerWorker, version: int) -> list[Any]:
    """Put the weights into the object store, copied once; only their address, which a list keeps one, is returned.

    All ranks of the learner draw the weights in step, and only the first keeps them.
    """
    import ray
    import torch.distributed

    update = worker.handover(version)
    if torch.distributed.is_initialized() and torch.distributed.get_rank() > 0:
        for _ in update.tensors:
            pass
        return []
    return [ray.put(pack_weights(update))]


async def take_over(worker: RolloutWorker, addresses: Sequence[Any]) -> SyncProof:
    """Load the weights that are at an address. Who waits for them goes on answering."""
    (address,) = addresses
    return await worker.load(unpack_weights(await address))


def free_memory(worker: LearnerWorker) -> None:
    """Give back the GPU memory that the learner keeps for its next work, which a sampler is about to need."""
    free_cache()
