"""The policy's LoRA adapter in a vLLM engine, replaced with each version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from torch.nn import functional

from ....dsl.model.recipe import Lora
from ...protocols import Checksum, NamedTensors
from ..checks.held_weights import Shard, WeightLayout, WeightPlace
from ..lora import peft_name

if TYPE_CHECKING:
    from torch import Tensor
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.request import LoRARequest

__all__ = ["adapter_args", "adapter_request", "lay_out_adapter", "replace_adapter"]

_ADAPTER = 1
"""The engine's number for the only adapter."""


def adapter_args(lora: Lora) -> dict[str, Any]:
    return {
        "enable_lora": True,
        "max_loras": 1,
        "max_lora_rank": next(rank for rank in _RANKS if rank >= lora.rank),
        "lora_target_modules": list(lora.targets),
    }


_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that the engine supports; an adapter of another rank is padded with zeros."""


@lru_cache(maxsize=1)
def adapter_request() -> LoRARequest:
    from vllm.lora.request import LoRARequest

    # nothing is read from its path: no request enters before an adapter has come
    return LoRARequest(lora_name="policy", lora_int_id=_ADAPTER, lora_path="by hand")


def replace_adapter(worker: Any, tensors: NamedTensors, lora: Lora) -> None:
    """Replace the adapter, in a worker of the engine."""
    manager = worker.model_runner.lora_manager._adapter_manager
    adapter = _adapter(manager, tensors, lora)
    packed = {part for parts in manager.packed_modules.values() for part in parts}
    if unknown := adapter.loras.keys() - manager.modules.keys() - packed:
        raise ValueError(f"the engine has no layer '{min(unknown)}', but the adapter does")
    # the engine cannot use half an adapter; that it did not arrive whole is for the sync to report
    adapter.loras = {name: each for name, each in adapter.loras.items() if None not in (each.lora_a, each.lora_b)}
    manager.remove_adapter(_ADAPTER)
    manager.add_adapter(adapter)
    manager.activate_adapter(_ADAPTER)


def _adapter(manager: Any, tensors: NamedTensors, lora: Lora) -> LoRAModel:
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
    return LoRAModel.from_lora_tensors(
        _ADAPTER,
        # copies: the engine multiplies the scale into B in place
        {peft_name(name): tensor.to("cpu", copy=True) for name, tensor in tensors},
        # only divided by the rank: it need not be an integer
        PEFTHelper(r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.targets)),  # type: ignore[arg-type]
        device="cpu",
        dtype=manager.lora_config.lora_dtype,
        weights_mapper=mapper and mapper.get_rename_mapper(),
    )


def lay_out_adapter(worker: Any, sent: Mapping[str, Checksum], lora: Lora, shard: Shard) -> WeightLayout:
    """Find each matrix in the stacks of a worker's layers, where B is scaled and both are padded with zeros."""
    from vllm.lora.utils import parse_fine_tuned_lora_name

    manager = worker.model_runner.lora_manager._adapter_manager
    mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
    rename = mapper and mapper.get_rename_mapper()
    stacks = {(layer, is_down): stack for layer, is_down, stack in _stacks(manager, lora)}
    keys = {name: parse_fine_tuned_lora_name(peft_name(name), rename) for name in sent}
    cuts = {
        name: shard.cut(sent[name].shape[key[1]], stacks[key].shape[key[1]])
        for name, key in keys.items()
        if key in stacks
    }
    places = {
        name: _place(stacks[keys[name]], lora, cut, is_down=keys[name][1])
        for name, cut in cuts.items()
        if cut is not None
    }
    missing = stacks.keys() - set(keys.values())
    return WeightLayout(
        places=places,
        unplaced=[name for name in sent if name not in places],
        unsent=sorted(f"{layer}.lora_{'A' if is_down else 'B'}" for layer, is_down in missing),
    )


def _stacks(manager: Any, lora: Lora) -> Iterator[tuple[str, bool, Tensor]]:
    """Yield the matrices of each adapted layer; the parts of a fused one have one each."""
    for name, module in manager.modules.items():
        parts = manager.packed_modules.get(name, [name])
        for part, down, up in zip(parts, module.lora_a_stacked, module.lora_b_stacked, strict=False):
            if part.rpartition(".")[2] in lora.targets:
                yield part, True, down[0, 0]
                yield part, False, up[0, 0]


def _place(stack: Tensor, lora: Lora, cut: slice, *, is_down: bool) -> WeightPlace:
    def convert(tensor: Tensor) -> Tensor:
        cast = (tensor[:, cut] if is_down else tensor[cut]).to(stack.dtype)
        scaled = cast if is_down or lora.alpha == lora.rank else cast * (lora.alpha / lora.rank)
        padding = (0, 0, 0, len(stack) - lora.rank) if is_down else (0, stack.shape[1] - lora.rank)
        return functional.pad(scaled, padding) if any(padding) else scaled

    return WeightPlace(read=lambda: stack, convert=convert)
