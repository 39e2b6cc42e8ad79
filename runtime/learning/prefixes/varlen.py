"""Attention over a prefix tree on a GPU: one call of the flash kernel for all squares, one more per depth of the tree.

The kernel takes sequences of different lengths one behind the other, as a row holds its nodes. Rectangles of nodes at
the same depth overlap nowhere, so they go together. Like the CPU's, the parts are joined by their log-sums, in fp32.

Shapes: T tokens of a row, H heads, E width of a head, N tokens that a call's queries, or keys, stand at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .tree import Node

__all__ = ["KernelCall", "attend_by_calls", "is_supported_on_gpu", "plan_calls"]

_WIDEST_HEAD = 256


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelCall:
    """Queries and keys of one call; each stretch of queries attends to the stretch of keys of the same number."""

    queries_N: Tensor
    """Places in the row."""
    keys_N: Tensor
    query_borders: Tensor
    """Where stretches begin and the last one ends, as the kernel wants them."""
    key_borders: Tensor
    longest_query: int
    longest_key: int
    is_causal: bool

    def attend(self, query_THE: Tensor, key_THE: Tensor, value_THE: Tensor, scaling: float) -> tuple[Tensor, ...]:
        """Return output, N x H x E, log-sums, H x N, and the kernel's own two tensors for its backward pass."""
        states = (query_THE[self.queries_N], key_THE[self.keys_N], value_THE[self.keys_N])
        return _forward(*states, *self._shape, 0.0, self.is_causal, False, scale=scaling)[:4]

    def backward(
        self, grad_THE: Tensor, query_THE: Tensor, key_THE: Tensor, value_THE: Tensor, out_THE: Tensor,
        logsum_HT: Tensor, own: Sequence[Tensor], scaling: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Return this call's share of the gradients, given the output and log-sums of all calls."""
        at_queries = (grad_THE[self.queries_N], query_THE[self.queries_N])
        at_keys = (key_THE[self.keys_N], value_THE[self.keys_N])
        joined = (out_THE[self.queries_N], logsum_HT[:, self.queries_N].contiguous())
        options = (0.0, self.is_causal, *own)
        return _backward(*at_queries, *at_keys, *joined, *self._shape, *options, scale=scaling)

    @property
    def _shape(self) -> tuple[Tensor, Tensor, int, int]:
        return self.query_borders, self.key_borders, self.longest_query, self.longest_key


def plan_calls(nodes: Sequence[Node], device: torch.device) -> tuple[KernelCall, ...]:
    """Plan the calls for a tree's nodes, which stand in the order of the row."""
    squares = [(node.start, node.end) for node in nodes]
    rectangles = [
        ([(node.end, node.stop) for node in level], [(node.start, node.end) for node in level])
        for level in _levels(nodes)
    ]
    return (
        _plan_call(squares, squares, device, is_causal=True),
        *(_plan_call(below, above, device, is_causal=False) for below, above in rectangles),
    )


def _levels(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Nodes with descendants by their depth."""
    levels, stops = list[list[Node]](), list[int]()
    for node in nodes:
        while stops and stops[-1] <= node.start:
            stops.pop()
        if node.stop > node.end:
            levels += [[]] if len(levels) == len(stops) else []
            levels[len(stops)].append(node)
            stops.append(node.stop)
    yield from levels


def _plan_call(
    queries: Sequence[tuple[int, int]], keys: Sequence[tuple[int, int]], device: torch.device, *, is_causal: bool
) -> KernelCall:
    return KernelCall(
        queries_N=torch.from_numpy(_places(queries)).to(device),
        keys_N=torch.from_numpy(_places(keys)).to(device),
        query_borders=torch.from_numpy(_borders(queries)).to(device),
        key_borders=torch.from_numpy(_borders(keys)).to(device),
        longest_query=max(end - start for start, end in queries),
        longest_key=max(end - start for start, end in keys),
        is_causal=is_causal,
    )


def _places(stretches: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.concatenate([np.arange(*stretch) for stretch in stretches])


def _borders(stretches: Sequence[tuple[int, int]]) -> NDArray[np.int32]:
    return np.cumsum([0, *(end - start for start, end in stretches)], dtype=np.int32)


# --- attention -----------------------------------------------------------------------------------------------------


def is_supported_on_gpu(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether the flash kernel takes these: half precision, on a device of NVIDIA's of 2020 or later."""
    width = query.shape[-1]
    return (
        query.device.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
        and query.dtype in (torch.bfloat16, torch.float16)
        and width == key.shape[-1] == value.shape[-1]
        and width % 8 == 0
        and width <= _WIDEST_HEAD
    )


def attend_by_calls(
    query_THE: Tensor, key_THE: Tensor, value_THE: Tensor, calls: Sequence[KernelCall], scaling: float
) -> Tensor:
    """Attend from each token to those of its path; the output is T x H x E."""
    attend: Callable[..., Tensor] = _TreeAttention.apply
    return attend(query_THE, key_THE, value_THE, calls, scaling)


_forward: Callable[..., tuple[Tensor, ...]] = torch.ops.aten._flash_attention_forward
_backward: Callable[..., tuple[Tensor, ...]] = torch.ops.aten._flash_attention_backward


class _TreeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query_THE: Tensor, key_THE: Tensor, value_THE: Tensor, calls: Sequence[KernelCall], scaling: float
    ) -> Tensor:
        states = (query_THE, key_THE, value_THE)
        squares, *levels = calls
        found, logsum_HT, *own = squares.attend(*states, scaling)
        # squares stand in the order of the row, and leave none of it out
        out_THE = found.float()
        for level in levels:
            found, sums_HN, *_ = level.attend(*states, scaling)
            there_NHE, there_HN = out_THE[level.queries_N], logsum_HT[:, level.queries_N]
            there_NHE.lerp_(found.float(), torch.sigmoid(sums_HN - there_HN).T[..., None])
            out_THE.index_copy_(0, level.queries_N, there_NHE)
            logsum_HT.index_copy_(1, level.queries_N, torch.logaddexp(there_HN, sums_HN))
        rounded_THE = out_THE.to(query_THE.dtype)
        ctx.save_for_backward(*states, rounded_THE, logsum_HT, *own)
        ctx.calls, ctx.scaling = calls, scaling
        return rounded_THE

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # read once: where activations are recomputed, each reading would do that again
        query_THE, key_THE, value_THE, out_THE, logsum_HT, *own = ctx.saved_tensors
        states = (query_THE, key_THE, value_THE)
        into = [torch.zeros_like(each, dtype=torch.float32) for each in states]
        for call in ctx.calls:
            found = call.backward(grads[0], *states, out_THE, logsum_HT, own, ctx.scaling)
            places = (call.queries_N, call.keys_N, call.keys_N)
            for total, part, at in zip(into, found, places, strict=True):
                # places differ, so that no order of additions is left to chance
                total.index_add_(0, at, part.float())
        return (*(total.to(each.dtype) for total, each in zip(into, states, strict=True)), None, None)
