"""A vLLM engine's core in this process: settings, start and end, with generators and threads left alone."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ....dsl.model.recipe import DType
from ...protocols import SamplerSettings
from ..process_group import join_process_group
from .adapter import adapter_args
from .cpu import matrix_products, speed_up

if TYPE_CHECKING:
    from vllm.v1.engine.core_client import InprocClient

__all__ = ["start_core", "stop_core"]

_DTYPES = {DType.AUTO: "auto", DType.FP32: "float32", DType.BF16: "bfloat16", DType.FP16: "float16"}


def start_core(settings: SamplerSettings) -> InprocClient:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.core_client import InprocClient
    from vllm.v1.executor import Executor

    join_process_group()
    with _preserve_process_state(), matrix_products(_model_config(settings).hidden_size):
        config = EngineArgs(**_engine_args(settings)).create_engine_config()
        # the engine collects garbage several times while it starts, each time among all that was ever imported
        gc.freeze()
        with _name_shortage():
            core = InprocClient(config, Executor.get_class(config), log_stats=False)
    if current_platform.is_cpu():
        speed_up(core)
    return core


@contextmanager
def _name_shortage() -> Iterator[None]:
    """Turn the engine's refusal of a cache that the machine has no room for into a MemoryError."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if "vailable memory" in str(error) or "can't allocate memory" in str(error):
            raise MemoryError(str(error)) from error
        raise


def stop_core(core: InprocClient) -> None:
    """Stop an engine but keep the process group, which vLLM's own shutdown destroys and a learner in this process
    needs."""
    core._finalizer.detach()
    core.engine_core.model_executor.shutdown()
    core.engine_core.scheduler.shutdown()
    gc.unfreeze()


def _engine_args(settings: SamplerSettings) -> dict[str, Any]:
    from vllm.config import WeightTransferConfig

    from .intake import WorkerExtension

    all_follow = settings.weights_follow and settings.lora is None
    return {
        "model": str(settings.model),
        "dtype": _DTYPES[settings.dtype],
        "skip_tokenizer_init": True,
        "trust_remote_code": settings.trust_remote_code,
        "enforce_eager": settings.eager,
        "max_model_len": settings.context_tokens,
        "max_num_seqs": settings.slots,
        # a prompt in pieces would draw from its seed once for each piece, and on a CPU fails to
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(settings.context_tokens, _BATCHED_TOKENS),
        "block_size": settings.block_size,
        "enable_prefix_caching": True,
        "kv_cache_memory_bytes": _cache_bytes(settings),
        "gpu_memory_utilization": settings.memory_share,
        "enable_sleep_mode": settings.shares_gpu,
        "logprobs_mode": "processed_logprobs",
        "load_format": "dummy" if all_follow else "auto",
        # weights come with the output layer written out, and the engine has one of its own to put it in: of a tied one
        # a CPU engine keeps a copy, which outlives new embeddings unnoticed
        "hf_overrides": {"tie_word_embeddings": False} if all_follow else {},
        "weight_transfer_config": WeightTransferConfig(backend=settings.transfer.value),
        "worker_extension_cls": f"{WorkerExtension.__module__}.{WorkerExtension.__qualname__}",
        "tensor_parallel_size": settings.tensor_parallel,
        # an engine's workers are on one node; in an actor of Ray's vLLM would make actors of them
        "distributed_executor_backend": "mp" if settings.tensor_parallel > 1 else None,
        **(adapter_args(settings.lora) if settings.lora is not None else {}),
        "use_tqdm_on_load": False,
        "disable_log_stats": True,
        "async_scheduling": False,
        "seed": 0,
    }


_BATCHED_TOKENS = 8192


def _cache_bytes(settings: SamplerSettings) -> int | None:
    """Bytes of each worker: on a CPU by default for all slots at full length; None on a GPU for what is left."""
    from vllm.platforms import current_platform

    if settings.cache_bytes:
        return settings.cache_bytes // settings.tensor_parallel
    if not current_platform.is_cpu():
        return None
    config = _model_config(settings)
    heads, head_dim = max(1, config.num_key_value_heads // settings.tensor_parallel), config.head_dim
    bytes_per_token = 2 * config.num_hidden_layers * heads * head_dim * (4 if settings.dtype is DType.FP32 else 2)
    blocks_per_slot = -(-settings.context_tokens // settings.block_size) + 1
    return int(settings.slots * blocks_per_slot * settings.block_size * bytes_per_token)


def _model_config(settings: SamplerSettings) -> Any:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(settings.model, trust_remote_code=settings.trust_remote_code)
    if getattr(config, "head_dim", None) is None:
        config.head_dim = config.hidden_size // config.num_attention_heads
    return config


@contextmanager
def _preserve_process_state() -> Iterator[None]:
    """Restore the random generators that an engine seeds, and `torch.set_num_threads`, which it replaces."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    set_num_threads = torch.set_num_threads
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
