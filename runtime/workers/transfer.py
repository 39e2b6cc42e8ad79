"""How weights get from the learner's ranks to samplers in other processes, in buckets.

All ranks iterate over the weights in step, which under ZeRO-3 gathers them one by one. On CPUs, and with LoRA, the
first rank puts them into Ray's object store, with their checksums, and a sampler takes in one bucket after the other.
From GPU to GPU vLLM's own engines carry them. Either way, a process holds at most a bucket twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

from ..backends.buckets import BUCKET_BYTES, fill_buckets
from ..errors import LearnerLost, RunError, StepRefused
from ..protocols import Checksum, NamedTensors, Probe, SyncError, SyncProof, Transfer, WeightUpdate
from .learner_worker import LearnerWorker
from .rollout_worker import RolloutWorker
from .weight_sync import free_cache, pack_weights, unpack_weights

__all__ = ["BUCKET_DEADLINE_S", "Receivers", "Shipment", "free_memory", "hand_over", "send_weights", "take_over"]

BUCKET_DEADLINE_S = 120.0
"""For a bucket to reach a sampler's node: 2 MB/s."""
_NO_NUMBER = -1
"""Number of a call made by a rank, whose answer nobody else waits for."""
SAMPLERS_DEADLINE_S = 600.0
"""For all samplers to answer one call: one receives all weights."""


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
    """Load a shipment into a sampler; other calls of the worker are answered between buckets."""
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


def free_memory(worker: LearnerWorker) -> None:
    """Give back the GPU memory that the learner keeps for its next work, which a sampler is about to need."""
    free_cache()


# --- from GPU to GPU -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """The actors of all samplers, each with a worker on every one of its GPUs."""

    actors: Sequence[Any]
    gpus_each: int
    deadline_s: float = SAMPLERS_DEADLINE_S

    def ask(self, work: Callable[..., Any], *args: Sequence[Any]) -> list[Any]:
        """Call a function of all rollout workers at once; each argument has an entry for each of them."""
        import ray

        answers = [actor.do.remote(_NO_NUMBER, work, *own) for actor, *own in zip(self.actors, *args, strict=True)]
        try:
            return [said.value for said in ray.get(answers, timeout=self.deadline_s)]
        except ray.exceptions.GetTimeoutError:
            what = work.__name__.replace("_", " ")
            raise RunError(f"sync: waited {self.deadline_s:g} s for {len(answers)} samplers to {what}") from None
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SyncError):
                raise RunError(f"sync: {error.cause}") from error
            raise StepRefused(f"sampler: {error.cause}; resume to start it anew") from error
        except ray.exceptions.RayActorError as error:
            raise StepRefused("sampler: its process is gone, while weights were on their way to it") from error

    def call_engines(self, method: str, argument: Any) -> None:
        """Call a method of vLLM's workers in all samplers."""
        count = len(self.actors)
        arguments = [argument] * count
        if "rank_offset" in argument:  # the workers of all of them are ranks of one group
            first = argument["rank_offset"]
            arguments = [{**argument, "rank_offset": first + at * self.gpus_each} for at in range(count)]
        self.ask(call_engine, [method] * count, arguments)


class GpuTransfer:
    """One rank's side; made anew when the samplers change. All ranks call `send`: the first one tells the samplers what
    to expect, has vLLM's engine send it, and tells them what they must have received."""

    def __init__(self, worker: LearnerWorker, samplers: Receivers, transfer: Transfer) -> None:
        from ..backends.vllm.sender import Sender, ipc_settings, nccl_settings

        receivers = len(samplers.actors) * samplers.gpus_each
        settings = ipc_settings() if transfer is Transfer.IPC else nccl_settings(receivers)
        self.samplers = samplers
        self._worker = worker
        self._sender = Sender(worker.learner.weights, settings, samplers.call_engines)

    def send(self, version: int) -> SyncProof | None:
        """Send the weights; on the first rank, return the worst proof."""
        probe, expected = self._worker.probe(), self._sender.describe()
        free_cache()  # a sampler on the same GPU wakes when it is told what to expect
        if not self._sender.is_first:
            self._sender.send()
            return None
        update = WeightUpdate(version=version, tensors=(), checksums=expected, probe=probe)
        self.samplers.ask(expect_weights, [update] * len(self.samplers.actors))
        checksums = self._sender.send()
        proofs = self.samplers.ask(prove_weights, [checksums] * len(self.samplers.actors))
        worst: SyncProof = max(proofs, key=lambda proof: proof.difference)
        return worst

    def close(self) -> None:
        self._sender.close()


def send_weights(worker: LearnerWorker, version: int, samplers: Receivers, transfer: Transfer) -> SyncProof | None:
    """Send the weights of a learner's rank, over the last connection if the samplers are the same."""
    connection: GpuTransfer | None = worker.connection
    if connection is None or connection.samplers.actors != samplers.actors:
        if connection is not None:
            connection.close()
        worker.connection = connection = GpuTransfer(worker, samplers, transfer)
    return connection.send(version)


# --- in the actor of a sampler -------------------------------------------------------------------------------------


async def expect_weights(worker: RolloutWorker, update: WeightUpdate) -> None:
    sampler: Any = worker.sampler
    if worker.receiving is not None:  # a transfer that broke off; its error has been reported
        with suppress(SyncError):
            await worker.receiving[0].aclose()
    receiving = AsyncExitStack()
    await receiving.enter_async_context(sampler.receive(update))
    worker.receiving = receiving, update


async def call_engine(worker: RolloutWorker, method: str, argument: Any) -> None:
    # in a thread: it ends when the learner has sent, and the worker answers other calls meanwhile
    sampler: Any = worker.sampler
    await asyncio.to_thread(sampler.call_workers, method, argument)


async def prove_weights(worker: RolloutWorker, checksums: Mapping[str, Checksum]) -> SyncProof:
    sampler: Any = worker.sampler
    receiving, update = worker.receiving
    worker.receiving = None
    update.checksums.update(checksums)
    await receiving.aclose()
    proof: SyncProof = await sampler.prove(update)
    return proof
