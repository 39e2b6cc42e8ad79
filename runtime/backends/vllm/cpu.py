"""What makes a vLLM engine faster on a CPU: norms in one call, seeds drawn ahead, one product for the adapter, and
matrix products that suit the model's size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

if TYPE_CHECKING:
    from vllm.v1.engine.core_client import InprocClient

__all__ = ["SeededSampler", "matrix_products", "normalise", "speed_up"]


def speed_up(core: InprocClient) -> None:
    """Replace the parts of vLLM that make many small calls of torch, in an engine's workers: norms, draws, the
    adapter's product."""
    core.collective_rpc(_replace_parts)


def _replace_parts(worker: Any) -> None:
    from vllm.model_executor.layers.layernorm import RMSNorm

    runner = worker.model_runner
    runner.sampler.topk_topp_sampler.forward = SeededSampler()
    # subclasses have norms of their own
    for norm in (each for each in runner.get_model().modules() if type(each) is RMSNorm):
        is_plain = norm.has_weight and norm.variance_size_override is None
        if is_plain and norm.weight.dtype == runner.model_config.dtype:
            norm._forward_method = partial(normalise, norm)
    if runner.lora_config is not None:
        _multiply_once(runner.lora_manager._adapter_manager)


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


def _multiply_once(manager: Any) -> None:
    """Use one product for all tokens: vLLM's own copies the adapter for each token."""
    product = _OneAdapter()
    manager.punica_wrapper_mapping = dict.fromkeys(manager.punica_wrapper_mapping, product)
    for module in manager.modules.values():
        module.set_mapping(product)


class _OneAdapter:
    """The adapter product that vLLM's layers call."""

    def update_metadata(self, *_: Any) -> None:
        """Ignore which token has which adapter: there is one."""

    def add_lora_linear(
        self,
        outputs_TD: Tensor,
        inputs_TD: Tensor,
        downs: tuple[Tensor, ...],
        ups: tuple[Tensor, ...],
        scale: float,
        widths: tuple[int, ...],
    ) -> None:
        """Add adapters to fused outputs; `downs` and `ups` belong to layers whose outputs lie side by side."""
        for output, down, up in zip(outputs_TD.split(widths, dim=-1), downs, ups, strict=True):
            output += scale * (inputs_TD @ down[0, 0].T) @ up[0, 0].T
