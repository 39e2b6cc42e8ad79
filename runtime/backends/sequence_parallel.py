"""Ulysses sequence parallelism: the ranks of a group have the same rows, and each computes its slice of their tokens.

Only attention needs more than a slice: there DeepSpeed exchanges tokens for heads, so that each rank attends from all
tokens of a row for its share of the heads. What ranks compute of a row is returned whole, with a gradient for the
rank's own part: the gradients of all ranks of a group add up to that of the row.

Shapes: T tokens of a row, L of a slice, N values of a row's tokens, M of them from this slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn import functional

from ..learning.packing import MaskPattern, RowLayout, UnsupportedAttention, packed_attention
from .checks.rows import DIVIDED_ATTENTION, register_attention
from .zero.start import prepare_deepspeed

if TYPE_CHECKING:
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

__all__ = ["SequenceGroup", "join_sequence_group"]


def join_sequence_group(size: int) -> SequenceGroup | None:
    """Return the group of `size` neighbouring ranks that this one is in; None where each rank has rows of its own.

    All ranks call it alike. DeepSpeed keeps the group for the next model of this process.
    """
    if size == 1:
        return None
    prepare_deepspeed().comm.init_distributed(dist_init_required=False)
    from deepspeed.runtime.sequence_parallel import parallel_state_sp as state

    if state._SEQUENCE_PARALLEL_GROUP is None:
        state.initialize_sequence_parallel(size)
    group = state.get_sequence_parallel_group()
    if torch.distributed.get_world_size(group) != size:
        raise ValueError(f"this process is in a group of {torch.distributed.get_world_size(group)} ranks, not {size}")
    return SequenceGroup(group)


class SequenceGroup:
    """Ranks that share the tokens of their rows."""

    def __init__(self, group: torch.distributed.ProcessGroup) -> None:
        self._group = group
        self.size = torch.distributed.get_world_size(group)
        self._rank = torch.distributed.get_rank(group)
        self._exchanges: dict[tuple[int, int, int], UlyssesSPAttentionHF] = {}
        """By heads, key-value heads and the width of a head, which may differ between layers."""
        register_attention(self.attend, DIVIDED_ATTENTION)

    # --- slices

    def slice(self, values_T: Tensor) -> Tensor:
        """Return this rank's slice; all are of one length, and zeros fill the last ones."""
        width = self._width(len(values_T))
        filled = functional.pad(values_T, (0, width * self.size - len(values_T)))
        return filled.narrow(0, self._rank * width, width)

    def find_own(self, places_N: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        """Return which of these places in a row of so many tokens are in this slice, and where there."""
        width = self._width(tokens)
        start = self._rank * width
        (own_M,) = torch.nonzero((places_N >= start) & (places_N < start + width), as_tuple=True)
        return own_M, places_N.index_select(0, own_M) - start

    def join(self, own_M: Tensor, values_M: Tensor, number: int) -> Tensor:
        """Return the values of all ranks, with a gradient for this rank's own."""
        whole_N = values_M.new_zeros(number, *values_M.shape[1:])
        whole_N.index_copy_(0, own_M, values_M.detach())
        # each value is that of one rank, and 0 at all others
        torch.distributed.all_reduce(whole_N, group=self._group)
        return whole_N.index_copy(0, own_M, values_M)

    def _width(self, tokens: int) -> int:
        return -(-tokens // self.size)

    # --- attention

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: MaskPattern | Tensor | None,
        *,
        layout: RowLayout,
        s_aux: Tensor | None = None,
        position_bias: Tensor | None = None,
        **more: Any,
    ) -> tuple[Tensor, None]:
        """Packed attention from a slice of a row; all are 1 x H x L x E."""
        name = type(module).__name__
        if position_bias is not None or isinstance(attention_mask, Tensor):
            raise UnsupportedAttention(f"'{name}' passes a mask or bias of its own for the tokens of a slice")
        if key.shape != value.shape or query.shape[3] != key.shape[3]:
            raise UnsupportedAttention(f"'{name}' has keys and values of different widths")
        # DeepSpeed gathers the positions of all tokens, and the layout says all of them already
        more["position_ids"] = layout.collect_T.new_zeros(1, 1)
        more["s_aux"] = None if s_aux is None else s_aux.reshape(-1).chunk(self.size)[self._rank]
        exchange = self._exchange(query.shape[1], key.shape[1], query.shape[3])
        with _keeping_groups(module):
            attended, _ = exchange(module, query, key, value, attention_mask, layout=layout, **more)
        return attended.unflatten(2, (query.shape[1], query.shape[3])), None

    def _exchange(self, heads: int, kv_heads: int, width: int) -> UlyssesSPAttentionHF:
        from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

        sizes = (heads, kv_heads, width)
        if sizes not in self._exchanges:
            self._exchanges[sizes] = UlyssesSPAttentionHF(
                attn=_attend_row,
                batch_size=1,
                attn_head_count=heads,
                attn_head_size=width,
                kv_head_count=kv_heads,
                num_hidden_layers=0,  # for a debugging mode that is off
                process_group=self._group,
                seq_length_is_variable=True,
            )
        return self._exchanges[sizes]


def _attend_row(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: MaskPattern | None,
    *,
    layout: RowLayout,
    **more: Any,
) -> tuple[Tensor, None]:
    """Packed attention from all tokens for some heads, without what fills the last slices."""
    tokens = len(layout.collect_T)
    filling = query.shape[2] - tokens
    query, key, value = (each[:, :, :tokens] for each in (query, key, value))
    attended, _ = packed_attention(module, query, key, value, attention_mask, layout=layout, **more)
    return functional.pad(attended, (0, 0, 0, 0, 0, filling)), None


@contextmanager
def _keeping_groups(module: nn.Module) -> Iterator[None]:
    """Undo what DeepSpeed sets where it copies key-value heads: the model's own attention reads it too."""
    groups = getattr(module, "num_key_value_groups", None)
    try:
        yield
    finally:
        if groups is not None:
            module.num_key_value_groups = groups
