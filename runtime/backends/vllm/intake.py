"""New weights in a worker of a vLLM engine: taken in by vLLM's weight-transfer API, and compared with what was sent.

With tensor parallelism a worker is a process of its own and holds a shard of the model, so `collective_rpc` calls the
functions of this module in every worker: `begin_update`, whatever brings the tensors, `finish_update`. Full weights
come through a backend of vLLM's weight transfer, ours (`take_weights`) or one of vLLM's, and on their way into the
model are seen by the checks; adapters are gathered and replaced together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from ....dsl.model.recipe import Lora
from ...protocols import Checksum, NamedTensors, Transfer
from ..checks.checksums import Receipt
from ..checks.held_weights import HeldWeights, Shard, lay_out_model
from .adapter import lay_out_adapter, replace_adapter

__all__ = ["Intake", "Outcome", "WorkerExtension", "begin_update", "finish_update", "take_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a worker found out about the weights of an update."""

    problems: list[str]
    compared: int
    unproven: frozenset[str]


class Intake:
    """What a worker knows about the weights it is sent, from update to update."""

    receipt: Receipt

    def __init__(self) -> None:
        self.held = HeldWeights()
        self.adapters: list[tuple[str, Any]] = []
        self._digests: Mapping[str, int] = {}
        """Of the last version that was taken in without a fault."""

    def begin(self, worker: Any, sent: Mapping[str, Checksum], lora: Lora | None) -> None:
        shard = Shard(get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size())
        model = worker.model_runner.get_model()
        self.held.begin(lay_out_adapter(worker, sent, lora, shard) if lora else lay_out_model(model, sent, shard))
        self.receipt, self.adapters = Receipt(sent, self._digests, self.held.watch), []

    def finish(self, sent: Mapping[str, Checksum]) -> Outcome:
        digests = {name: each.digest for name, each in sent.items()}
        problems = self.receipt.list_problems(digests) or self.held.list_problems()
        if not problems:
            self._digests = digests
        return Outcome(problems=problems, compared=len(self.held.proven), unproven=self.held.unproven)


def _intake(worker: Any) -> Intake:
    # the worker is the same object at every call, in a process that may hold others
    found: Intake = vars(worker).setdefault("agym_intake", Intake())
    return found


def begin_update(worker: Any, sent: Mapping[str, Checksum], lora: Lora | None) -> None:
    """Expect tensors of these names, dtypes and shapes; their digests need not be known yet."""
    intake = _intake(worker)
    intake.begin(worker, sent, lora)
    if lora is None:
        watched: Any = _WatchedModel(worker.model_runner.get_model(), intake.receipt)
        worker.weight_transfer_engine.set_weight_update_target(watched, worker.model_config)
        worker.start_weight_update()


def take_weights(worker: Any, tensors: NamedTensors, lora: Lora | None) -> None:
    """Take in some of the tensors."""
    if lora is None:
        worker.update_weights({"tensors": tensors})
    else:
        intake = _intake(worker)
        intake.adapters += intake.receipt.pass_on(tensors)


def finish_update(worker: Any, sent: Mapping[str, Checksum], lora: Lora | None) -> Outcome:
    """Put in place what was taken in, and compare it with what was sent."""
    intake = _intake(worker)
    if lora is None:
        worker.finish_weight_update()
    else:
        replace_adapter(worker, intake.adapters, lora)
        intake.adapters = []
    return intake.finish(sent)


class _WatchedModel:
    """A model, whose new weights pass a receipt before it loads them."""

    def __init__(self, model: nn.Module, receipt: Receipt) -> None:
        self._model, self._receipt = model, receipt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def load_weights(self, tensors: NamedTensors) -> Any:
        model: Any = self._model
        return model.load_weights(self._receipt.pass_on(tensors))


# --- our backend of vLLM's weight transfer -------------------------------------------------------------------------


@dataclass
class _Tensors(WeightTransferUpdateInfo):
    tensors: NamedTensors


class DirectEngine(WeightTransferEngine[WeightTransferInitInfo, _Tensors]):
    """Loads tensors that are arguments of the call that brings them."""

    init_info_cls, update_info_cls = WeightTransferInitInfo, _Tensors

    def init_transfer_engine(self, init_info: WeightTransferInitInfo) -> None:
        """Nothing to connect to."""

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        # the base class also waits for an accelerator, which a CPU does not have
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: _Tensors) -> None:
        model: Any = self.model
        model.load_weights(update_info.tensors)

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Nothing to release."""


class WorkerExtension:
    """Adds nothing to a worker: vLLM imports the module that defines it, in every process, before models are made."""


WeightTransferEngineFactory.register_engine(Transfer.DIRECT.value, DirectEngine)
