"""Starting DeepSpeed. Nothing is compiled at run time: the optimiser is PyTorch's AdamW, and collectives on a CPU go
over gloo."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import Tensor, nn

from ....dsl.model.recipe import DType, Offload
from ...protocols import LearnerSettings, OptimizerSettings
from ..checkpoint.zero_state import whole_shape
from ..process_group import extend_timeout, join_process_group

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

__all__ = ["make_config", "prepare_deepspeed", "start_engine"]


def start_engine(
    network: nn.Module, settings: LearnerSettings, outside: Sequence[Tensor]
) -> tuple[DeepSpeedEngine, torch.optim.Optimizer]:
    deepspeed = prepare_deepspeed()
    for parameter in outside if settings.zero == 3 else ():
        deepspeed.zero.register_external_parameter(network, parameter)
    trainable = _trainable(network)
    optimizer = (
        torch.optim.AdamW(
            _parameter_groups(trainable, settings.optimizer),
            lr=0.0,
            betas=settings.optimizer.betas,
            eps=settings.optimizer.eps,
            fused=True,
        )
        if trainable
        else None
    )
    engine, wrapped, _, _ = deepspeed.initialize(
        model=network,
        optimizer=optimizer,
        config=make_config(settings, sum(whole_shape(parameter).numel() for parameter in trainable)),
        dist_init_required=False,
    )
    if torch.distributed.get_world_size() > 1:
        extend_timeout()
    return engine, wrapped


def prepare_deepspeed() -> Any:
    """Return the module, imported without log output, in a process that has its group."""
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    import deepspeed
    import deepspeed.ops

    # nothing is "compatible": all that DeepSpeed would compile for this machine is left out, and not even probed for
    deepspeed.ops.__compatible_ops__ = {}
    join_process_group()
    return deepspeed


def _trainable(network: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def _parameter_groups(parameters: list[nn.Parameter], settings: OptimizerSettings) -> list[dict[str, Any]]:
    if settings.weight_decay == 0.0:
        return [{"params": parameters, "weight_decay": 0.0}]
    matrices = [parameter for parameter in parameters if len(whole_shape(parameter)) > 1]
    vectors = [parameter for parameter in parameters if len(whole_shape(parameter)) <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    # adapters are matrices all
    return [group for group in groups if group["params"]]


def make_config(settings: LearnerSettings, learning: int) -> dict[str, Any]:
    bucket = min(500_000_000, max(1, learning))
    return {
        # DeepSpeed's own accounting of batches is not used: `gather` says where each begins and ends
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,
        "steps_per_print": 1 << 60,
        "zero_optimization": {
            # stage 1 in bf16 is another optimiser of DeepSpeed's, which cannot report the gradient's norm before it
            # takes a step; stage 2 takes the same steps and keeps less
            "stage": max(settings.zero, 2) if settings.dtype is DType.BF16 else settings.zero,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
            **_OFFLOAD[settings.offload],
        },
        "zero_force_ds_cpu_optimizer": False,
        **_PRECISION[settings.dtype],
    }


_OFFLOAD: Mapping[Offload, dict[str, Any]] = {
    Offload.NONE: {},
    Offload.OPTIMIZER: {"offload_optimizer": {"device": "cpu"}},
    Offload.ALL: {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
}
_PRECISION: Mapping[DType, dict[str, Any]] = {
    DType.FP32: {},
    DType.BF16: {"bf16": {"enabled": True, "check_grad_overflow": True}, "data_types": {"grad_accum_dtype": "fp32"}},
}
