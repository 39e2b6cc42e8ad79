"""A vLLM engine's core in this process: settings, start and end, with generators and threads left alone; on a CPU with
faster norms and draws."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ...dsl.model.recipe import DType
from ..protocols import SamplerSettings
from .process_group import join_process_group
from .vllm_adapter import adapter_args, multiply_once

if TYPE_CHECKING:
    from vllm.v1.engine.core_client import InprocClient

__all__ = ["SeededSampler", "matrix_products", "normalise", "start_core", "stop_core"]

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
        core.collective_rpc(speed_up)
        if settings.lora is not None:
            core.collective_rpc(multiply_once)
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

    from .transfer.vllm_intake import WorkerExtension

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


def speed_up(worker: Any) -> None:
    """Replace two parts of vLLM that make many small calls of torch, in a worker on a CPU: its norms and its draws."""
    from vllm.model_executor.layers.layernorm import RMSNorm

    runner = worker.model_runner
    runner.sampler.topk_topp_sampler.forward = SeededSampler()
    # subclasses have norms of their own
    for norm in (each for each in runner.get_model().modules() if type(each) is RMSNorm):
        is_plain = norm.has_weight and norm.variance_size_override is None
        if is_plain and norm.weight.dtype == runner.model_config.dtype:
            norm._forward_method = partial(normalise, norm)


def normalise(norm: Any, inputs: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
    """Compute an RMS norm by vLLM's own kernel: one call in place of six or more, which vLLM leaves to a compiler."""
    # the kernel ignores strides
    inputs, weight, epsilon = inputs.contiguous(), norm.weight.data, norm.variance_epsilon
    if residual is not None:
        residual = residual.contiguous()
        torch.ops._C.fused_add_rms_norm(inputs, residual, weight, epsilon)
        return inputs, residual
    outputs = torch.empty_like(inputs)
    torch.ops._C.rms_norm(outputs, inputs, weight, epsilon)
    return outputs


_SEEDS = 16
"""Tokens whose seeds a request draws at once."""


class SeededSampler:
    """Samples the tokens that vLLM samples on a CPU, and returns the log-probs it samples from; vLLM draws the seed of
    each token by a call of its own."""

    def __init__(self) -> None:
        self._drawn = WeakKeyDictionary[torch.Generator, list[int]]()

    def __call__(
        self,
        logits_NV: Tensor,
        generators: Mapping[int, torch.Generator],
        top_k: Tensor | None,
        top_p: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

        logits_NV = apply_top_k_top_p(logits_NV, top_k, top_p).float()
        # rows without a generator are those of greedy requests
        seeds = [0] * len(logits_NV)
        for row, generator in generators.items():
            seeds[row] = self._next(generator)
        ids = torch.ops._C.fused_gumbel_argmax(logits_NV, torch.tensor(seeds))
        return ids, logits_NV.log_softmax(dim=-1)

    def _next(self, generator: torch.Generator) -> int:
        drawn = self._drawn.setdefault(generator, [])
        if not drawn:
            drawn += reversed(torch.randint(0, 2**31, (_SEEDS,), generator=generator).tolist())
        return drawn.pop()


_SMALL_HIDDEN = 128
"""Width up to which plain CPU products beat oneDNN, which prepares anew for each number of rows: with 64 a third more
tokens per second without it, with 256 a third fewer."""


@contextmanager
def matrix_products(hidden: int) -> Iterator[None]:
    """Lay weights out for plain products in small models, for oneDNN's packed ones in the others."""
    from vllm import _custom_ops

    packed = getattr(_custom_ops, "_supports_onednn", False)
    _custom_ops._supports_onednn = packed and hidden > _SMALL_HIDDEN
    try:
        yield
    finally:
        _custom_ops._supports_onednn = packed


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
