"""The learner's side of vLLM's weight transfer: its weights as a source, and vLLM's engines that send them from GPUs.

CUDA IPC shows a bucket at a time to engines on the same GPUs; NCCL broadcasts buckets to engines on others. Both are
vLLM's own. Ours is the order of things: every rank iterates over the weights in step, the first one computes checksums
as they pass, and an engine is told beforehand what to expect, and afterwards what it must have received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed
from torch import Tensor
from vllm.distributed.weight_transfer import WeightTransferTrainerFactory
from vllm.distributed.weight_transfer.base import ParamMeta, TrainerInitInfo, WeightSource
from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
from vllm.utils.network_utils import get_ip, get_open_port

from ...protocols import Checksum, NamedTensors
from ..buckets import BUCKET_BYTES
from ..checks.checksums import note_checksums

__all__ = ["Call", "Sender", "ipc_settings", "nccl_settings"]

Call = Callable[[str, Any], None]
"""Call a method of vLLM's workers in all samplers: its name and its argument."""


def ipc_settings() -> TrainerInitInfo:
    rank = torch.distributed.get_rank()
    return IPCTrainerInitInfo(rank=rank, packed=True, packed_buffer_size_bytes=BUCKET_BYTES)


def nccl_settings(receivers: int) -> TrainerInitInfo:
    """`receivers` are the workers of all samplers."""
    return NCCLTrainerInitInfo(
        rank=torch.distributed.get_rank(),
        master_address=get_ip(),
        master_port=get_open_port(),
        world_size=1 + receivers,
        packed_buffer_size_bytes=BUCKET_BYTES,
    )


class Sender:
    """Sends a learner's weights, on each of its ranks; connects to the samplers when it is made."""

    def __init__(self, weights: Callable[[], NamedTensors], settings: TrainerInitInfo, call: Call) -> None:
        self._source = _Source(weights)
        self._engine = WeightTransferTrainerFactory.trainer_init(settings, client=_Client(call), source=self._source)

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that talks to the samplers."""
        return self._engine.is_sender

    def describe(self) -> dict[str, Checksum]:
        """Return what will be sent, without digests."""
        return {
            each.name: Checksum(dtype=str(each.dtype).removeprefix("torch."), shape=each.shape, digest=0)
            for each in self._source.metadata()
        }

    def send(self) -> dict[str, Checksum]:
        """Send all weights; return their checksums, on the first rank."""
        self._engine.send_weights()
        return self._source.sent

    def close(self) -> None:
        self._engine.shutdown()


class _Source(WeightSource):
    """Weights that are gathered one by one, by all ranks in step."""

    def __init__(self, weights: Callable[[], NamedTensors]) -> None:
        self._weights = weights
        self._metadata: list[ParamMeta] = []
        self.sent: dict[str, Checksum] = {}
        """Checksums of the last pass."""

    def metadata(self) -> list[ParamMeta]:
        # names and shapes stay the same; only the first call iterates over the weights for them
        if not self._metadata:
            self._metadata = [ParamMeta(name, each.dtype, tuple(each.shape)) for name, each in self._weights()]
        return self._metadata

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        self.sent = {}
        return iter(self._weights() if torch.distributed.get_rank() else note_checksums(self._weights(), self.sent))


class _Client:
    """What vLLM's engine of the first rank calls on the samplers; they begin and end an update by themselves."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._call("init_weight_transfer_engine", init_info)

    def start_weight_update(self) -> None:
        """Done by `begin_update`."""

    def update_weights(self, update_info: Any) -> None:
        self._call("update_weights", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Done by `finish_update`."""
