"""vLLM's way of sending weights, except for the wire: a learner's ranks on one side, an engine on the other."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from agym.runtime.protocols import SyncError, SyncProof, WeightUpdate

from .conftest import REAL
from .test_sampler import handover, shift

pytestmark = REAL


@pytest.fixture(scope="module")
def handed_over() -> type:
    """A backend that hands tensors to an engine in the same process, where the others have a GPU's memory or NCCL."""
    import agym.runtime.backends  # noqa: F401 - makes vLLM importable on a CPU
    from vllm.distributed.weight_transfer import TrainerWeightTransferEngine, WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.base import TrainerInitInfo

    @dataclasses.dataclass
    class HandedOver(TrainerInitInfo):
        backend: ClassVar[str] = "handed-over"

    class Engine(TrainerWeightTransferEngine):
        init_info_cls = HandedOver

        @classmethod
        def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any:
            client.init_weight_transfer_engine({})
            return cls(client=client, source=source, is_sender=init_info.is_sender)

        def send_weights(self) -> None:
            self.client.start_weight_update()
            for names, tensors in self.source.iter_groups():
                self.client.update_weights({"tensors": list(zip(names, tensors, strict=True))})
            self.client.finish_weight_update()

    WeightTransferTrainerFactory.register_engine(HandedOver.backend, Engine)
    return HandedOver


def test_what_vllms_engines_bring_is_proven_like_any_other_update(
    handed_over: type, sampler: Any, learner: Callable[..., Any]
) -> None:
    from agym.runtime.backends.vllm.sender import Sender

    engine, other = learner(), learner()
    shift(engine)
    sender = Sender(engine.weights, handed_over(rank=0), sampler.call_workers)
    assert sender.is_first
    assert {name: (each.dtype, each.shape) for name, each in sender.describe().items()} == {
        name: (each.dtype, each.shape) for name, each in engine.checksums().items()
    }

    async def send(version: int, fault: Callable[[dict[str, Any]], None]) -> SyncProof:
        update: WeightUpdate = dataclasses.replace(handover(engine, version), checksums=sender.describe())
        async with sampler.receive(update):
            sent = sender.send()
            fault(sent)
            update.checksums.update(sent)
        return await sampler.prove(update)

    async def scenario() -> None:
        proof = await send(1, lambda sent: None)
        assert (proof.compared, proof.unproven) == (len(engine.checksums()), ())
        name = "model.layers.1.mlp.up_proj.weight"
        with pytest.raises(
            SyncError, match=f"version 2 of the weights: '{name}' arrived with the values of the version before"
        ):
            await send(2, lambda sent: sent.update({name: other.checksums()[name]}))
        await send(3, lambda sent: None)

    asyncio.run(scenario())
    assert torch.distributed.get_world_size() == 1
