"""Attention over the prefix tree of a row: each token attends to its own path, and no pair of tokens is computed twice.

A node's tokens attend to each other causally and to all tokens of the nodes above. So attention falls apart into causal
squares, one per node, and full rectangles: all descendants of a node, which stand together in the row, attend to all of
its tokens. Each part is a call of the fused kernel; parts are joined by their log-sums. Given the joined output and
log-sum, the kernel's backward pass yields each part's share of the gradients. This is a CPU's way; `varlen` is a GPU's.

The forward pass widens half precision, so that parts are rounded once, when they are joined. The backward pass computes
bf16 as it is where the CPU has instructions for it: that takes .65 to .8 of the time for nodes of 500 tokens and more,
and twice the time or more where it has none. Parts of the gradients are added up in fp32.

Shapes: T tokens of a row, H heads, E width of a head, B nodes of a block, L tokens of its longest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .tree import Node
from .varlen import KernelCall, attend_by_calls, is_supported_on_gpu, plan_calls

__all__ = ["TreeLayout", "attend_along_paths", "build_tree_layout", "is_supported"]

_FILLED = 0.8
"""Least length of a block's shortest node, as a share of its longest."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Block:
    """Nodes of similar length, whose squares are computed by one call."""

    spread_BL: Tensor
    """Place in the row of each token; any place where a node has ended."""
    inside_BL: Tensor | None
    """False where a node has ended; None if all are of one length."""
    places_N: Tensor
    """Places in the row of the tokens of all its nodes."""

    def spread(self, states_THE: Tensor, fill: float | None = None) -> Tensor:
        """Lay states out as the kernel reads them, B x H x L x E; `fill` is for places where a node has ended."""
        found_BLHE = states_THE.index_select(0, self.spread_BL.flatten()).view(
            *self.spread_BL.shape, *states_THE.shape[1:]
        )
        if fill is not None and self.inside_BL is not None:
            ended_BL = ~self.inside_BL
            found_BLHE[ended_BL] = fill
        return found_BLHE.transpose(1, 2)

    def collect(self, states_BHLE: Tensor) -> Tensor:
        states_BLHE = states_BHLE.transpose(1, 2)
        return states_BLHE.flatten(0, 1) if self.inside_BL is None else states_BLHE[self.inside_BL]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeLayout:
    """The tree of a row, for attention."""

    blocks: tuple[_Block, ...]
    spans: tuple[Node, ...]
    """Nodes with descendants."""
    calls: tuple[KernelCall, ...]
    """What a GPU does instead."""


def build_tree_layout(nodes: Sequence[Node], device: torch.device) -> TreeLayout:
    if device.type == "cuda":
        return TreeLayout(blocks=(), spans=(), calls=plan_calls(nodes, device))
    blocks: list[list[Node]] = []
    for node in sorted(nodes, key=lambda node: (node.start - node.end, node.start)):
        longest = blocks[-1][0] if blocks else node
        if not blocks or node.end - node.start < _FILLED * (longest.end - longest.start):
            blocks.append([])
        blocks[-1].append(node)
    return TreeLayout(
        blocks=tuple(_build_block(block, device) for block in blocks),
        spans=tuple(node for node in nodes if node.stop > node.end),
        calls=(),
    )


def _build_block(nodes: Sequence[Node], device: torch.device) -> _Block:
    lengths_B = np.array([node.end - node.start for node in nodes])
    starts_B = np.array([node.start for node in nodes])
    column_L = np.arange(lengths_B[0])
    inside_BL: NDArray[np.bool_] = column_L < lengths_B[:, None]
    spread_BL = np.where(inside_BL, starts_B[:, None] + column_L, 0)
    return _Block(
        spread_BL=torch.from_numpy(spread_BL).to(device),
        inside_BL=None if inside_BL.all() else torch.from_numpy(inside_BL).to(device),
        places_N=torch.from_numpy(spread_BL[inside_BL]).to(device),
    )


# --- attention -----------------------------------------------------------------------------------------------------


def is_supported(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether there is a kernel that gives the log-sums of parts."""
    on_cpu = query.device.type == "cpu" and query.shape[-1] == key.shape[-1] == value.shape[-1]
    return on_cpu or is_supported_on_gpu(query, key, value)


def attend_along_paths(query: Tensor, key: Tensor, value: Tensor, tree: TreeLayout, scaling: float) -> Tensor:
    """Attend from each token to those of its path; all are 1 x H x T x E, the output T x H x E."""
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    if tree.calls:
        return attend_by_calls(query, key, value, tree.calls, scaling)
    attend: Callable[..., Tensor] = _TreeAttention.apply
    return attend(query, key, value, tree, scaling)


_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class _TreeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query_THE: Tensor, key_THE: Tensor, value_THE: Tensor, tree: TreeLayout, scaling: float
    ) -> Tensor:
        query, key, value = (states.float() for states in (query_THE, key_THE, value_THE))
        out_THE, logsum_TH = torch.empty_like(query), query.new_empty(query.shape[:2])
        for block in tree.blocks:
            found, logsum = _forward(*map(block.spread, (query, key, value)), 0.0, True, scale=scaling)
            out_THE.index_copy_(0, block.places_N, block.collect(found))
            logsum_TH.index_copy_(0, block.places_N, block.collect(logsum[..., None])[..., 0])
        for node in tree.spans:
            above, below = slice(node.start, node.end), slice(node.end, node.stop)
            found, logsum = _forward(_head(query[below]), _head(key[above]), _head(value[above]), scale=scaling)
            _join(out_THE[below], logsum_TH[below], _token(found), logsum[0].T)
        rounded_THE = out_THE.to(query_THE.dtype)
        ctx.save_for_backward(query_THE, key_THE, value_THE, rounded_THE, logsum_TH)
        ctx.tree, ctx.scaling = tree, scaling
        return rounded_THE

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # read once: where activations are recomputed, each reading would do that again
        *saved, logsum_TH = ctx.saved_tensors
        dtype = torch.bfloat16 if saved[0].dtype is torch.bfloat16 and _multiplies_bf16() else torch.float32
        query, key, value, out = (states.to(dtype) for states in saved)
        grad, logsum = grads[0].to(dtype), logsum_TH[..., None]
        into = [torch.empty_like(states, dtype=torch.float32) for states in (query, key, value)]
        for block in ctx.tree.blocks:
            states = (block.spread(grad, 0.0), *map(block.spread, (query, key, value, out)))
            # after a node's end nothing is attended to: e^(score - infinity) is 0
            ends = block.spread(logsum, torch.inf)[..., 0]
            found = _backward(*states, ends, 0.0, True, scale=ctx.scaling)
            for total, part in zip(into, found, strict=True):
                total.index_copy_(0, block.places_N, block.collect(part).float())
        for node in ctx.tree.spans:
            above, below = slice(node.start, node.end), slice(node.end, node.stop)
            found = _backward(
                *(_head(states[place]) for states, place in ((grad, below), (query, below), (key, above))),
                *(_head(states[place]) for states, place in ((value, above), (out, below))),
                logsum_TH[below].T[None],
                0.0,
                False,
                scale=ctx.scaling,
            )
            for total, part, place in zip(into, found, (below, above, above), strict=True):
                total[place] += _token(part)
        return (*(total.to(saved[0].dtype) for total in into), None, None)


@cache
def _multiplies_bf16() -> bool:
    has = torch.cpu.get_capabilities()
    return any(has.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def _head(states_THE: Tensor) -> Tensor:
    """View as the kernel reads it, 1 x H x T x E."""
    return states_THE.transpose(0, 1)[None]


def _token(states_1HTE: Tensor) -> Tensor:
    return states_1HTE[0].transpose(0, 1)


def _join(out_THE: Tensor, logsum_TH: Tensor, other_THE: Tensor, other_TH: Tensor) -> None:
    """Join a further part of attention to what there is, in place: each weighs what its logits sum up to."""
    out_THE.lerp_(other_THE, torch.sigmoid(other_TH - logsum_TH)[..., None])
    torch.logaddexp(logsum_TH, other_TH, out=logsum_TH)
