"""Sequence packing: rows without padding, and attention that keeps the sequences of a row apart.

Attention lays the sequences of a row below each other, and since they are causal and short ones end early, needs no
mask; rows hold sequences of similar length, so little is wasted. A row may hold what its sequences begin with in common
once: then their paths through it overlap, and attention has the row's prefix tree.

Shapes: T tokens of a row, S sequences in it, L tokens of its longest, N trained tokens, H heads, E width of a head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ...dsl.model.algorithm import Level
from ..protocols import Floats, Normaliser, TrainSequence
from .prefixes.attention import TreeLayout, attend_along_paths, build_tree_layout, is_supported
from .prefixes.tree import SharedOrder, find_nodes, find_paths, plan_shared_rows

__all__ = [
    "MaskPattern",
    "PackedRow",
    "RowLayout",
    "UnsupportedAttention",
    "compute_normaliser",
    "make_idle_row",
    "pack",
    "packed_attention",
    "plan_rows",
    "scatter",
    "unpack",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowLayout:
    """Layout of a row's tokens for attention, one sequence per line."""

    tokens: int
    """Of the whole row."""
    spread_SL: Tensor
    """Index in the row of each token; any index where a sequence has ended."""
    collect_T: Tensor
    """Index of each of the row's tokens in the flattened S x L; the first one where sequences share it."""
    lengths_S: tuple[int, ...]
    tree: TreeLayout | None
    """None where sequences share nothing."""
    parts: tuple[RowLayout, ...]
    """Layouts of some of the sequences each, to be laid out one after the other: all paths of a tree at the same time
    would take several times the row's memory."""

    @property
    def paths(self) -> list[Tensor]:
        """Indices in the row of the tokens of each sequence."""
        return [path_L[:length] for path_L, length in zip(self.spread_SL, self.lengths_S, strict=True)]


class UnsupportedAttention(ValueError):
    """A model asks for a kind of attention that packed rows cannot give."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MaskPattern:
    """The tokens that a layer attends to, besides being causal: the same for every sequence of a row."""

    limit: int | None
    """Length up to which the pattern is plainly causal; None: any."""
    draw: Callable[[int], Tensor]
    """The pattern of sequences of a length, L x L, true where a token attends."""
    _drawn: dict[int, Tensor] = field(default_factory=dict)

    def of(self, length: int) -> Tensor | None:
        """The pattern of sequences of this length; None where it is plainly causal."""
        if self.limit is None or length <= self.limit:
            return None
        # the layers of a pass share it
        if length not in self._drawn:
            self._drawn[length] = self.draw(length)
        return self._drawn[length]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedRow:
    """One micro-batch."""

    members: tuple[int, ...]
    """Indices of its sequences among those that were packed."""
    ids_T: Tensor
    positions_T: Tensor
    layout: RowLayout
    predict_N: Tensor
    """Index of the token whose hidden state predicts the trained one."""
    targets_N: Tensor
    sequence_N: Tensor
    """Index in `members`."""
    turn_N: Tensor
    """Number of the turn in the row: between two turns stands at least one token that was not sampled."""
    lengths_S: Tensor
    """Trained tokens of each sequence."""
    episode_lengths_S: Tensor
    """Trained tokens of the whole episode of each sequence."""
    advantages_N: Tensor
    old_N: Tensor | None
    reference_N: Tensor | None
    weights_N: Tensor | None
    sampled_N: Tensor | None
    shared_drift_N: Tensor | None
    shared_log_ratio_N: Tensor | None
    values_N: Tensor | None
    value_targets_N: Tensor | None

    def units(self, level: Level) -> Tensor | None:
        """Numbers that tokens of one ratio share; None where each has its own."""
        return {Level.TOKEN: None, Level.TURN: self.turn_N, Level.EPISODE: self.sequence_N}[level]


def compute_normaliser(sequences: Sequence[TrainSequence]) -> Normaliser:
    """Count the divisors of an update over these sequences."""
    counts = _count_by_episode(sequences).values()
    return Normaliser(tokens=sum(counts), sequences=sum(1 for count in counts if count))


def _count_by_episode(sequences: Sequence[TrainSequence]) -> Counter[tuple[bool, int]]:
    """Count the trained tokens of each episode."""
    counts = Counter[tuple[bool, int]]()
    for at, sequence in enumerate(sequences):
        counts[_episode_key(at, sequence)] += int(sequence.loss_mask.sum())
    return counts


def _episode_key(at: int, sequence: TrainSequence) -> tuple[bool, int]:
    return (True, at) if sequence.episode is None else (False, sequence.episode)


def pack(
    sequences: Sequence[TrainSequence], capacity: int, device: torch.device, *, shares_prefixes: bool = False
) -> list[PackedRow]:
    """Pack sequences into rows of at most `capacity` tokens, without untrained sequences and without what follows the
    last trained token. A longer sequence has a row of its own. `shares_prefixes` holds what sequences of a row begin
    with in common once."""
    for at, sequence in enumerate(sequences):
        _check_sequence(at, sequence, sequences[0])
    used = [
        int(np.flatnonzero(sequence.loss_mask)[-1]) + 1 if sequence.loss_mask.any() else 0 for sequence in sequences
    ]
    counts = _count_by_episode(sequences)
    episode_lengths = [counts[_episode_key(at, sequence)] for at, sequence in enumerate(sequences)]
    rows = _plan_shared_rows(sequences, used, capacity) if shares_prefixes else None
    if rows is None:
        rows = [SharedOrder(members=row, shared=(0,) * len(row)) for row in plan_rows(used, capacity)]
    return [_build_row(row, sequences, used, episode_lengths, device) for row in rows]


def _plan_shared_rows(
    sequences: Sequence[TrainSequence], used: Sequence[int], capacity: int
) -> list[SharedOrder] | None:
    known = [at for at, length in enumerate(used) if length]
    trained = [int(sequences[at].loss_mask.sum()) for at in known]
    rows = plan_shared_rows([sequences[at].ids[: used[at]] for at in known], trained, capacity)
    return rows and [replace(row, members=tuple(known[at] for at in row.members)) for row in rows]


def plan_rows(lengths: Sequence[int], capacity: int) -> list[tuple[int, ...]]:
    """Assign sequences to rows, longest first, so that those of a row are of similar length."""
    rows: list[tuple[int, ...]] = []
    row: list[int] = []
    room = capacity
    for at in sorted((at for at, length in enumerate(lengths) if length), key=lambda at: (-lengths[at], at)):
        if row and lengths[at] > room:
            rows.append(tuple(row))
            row, room = [], capacity
        row.append(at)
        room -= lengths[at]
    return [*rows, tuple(row)] if row else rows


def make_idle_row(device: torch.device) -> PackedRow:
    """Make a row without trained content, for a rank that has none left while others still have."""
    ids, loss_mask = np.zeros(2, np.int32), np.array([False, True])
    return pack([TrainSequence(ids=ids, loss_mask=loss_mask, advantages=np.zeros(2, np.float32))], 2, device)[0]


def scatter(rows: Sequence[PackedRow], values: Sequence[Tensor], sequences: Sequence[TrainSequence]) -> list[Floats]:
    """Return values of trained tokens to their sequences; 0 elsewhere."""
    out = [np.zeros(len(sequence.ids), np.float32) for sequence in sequences]
    for row, values_N in zip(rows, values, strict=True):
        pieces = torch.split(values_N.float().cpu(), row.lengths_S.tolist())
        for member, piece in zip(row.members, pieces, strict=True):
            out[member][sequences[member].loss_mask] = piece.numpy()
    return out


def unpack(rows: Sequence[PackedRow], values: Sequence[Tensor], sequences: Sequence[TrainSequence]) -> list[Floats]:
    """Return values of all tokens to their sequences; 0 where a sequence was left out."""
    out = [np.zeros(len(sequence.ids), np.float32) for sequence in sequences]
    for row, values_T in zip(rows, values, strict=True):
        for member, path in zip(row.members, row.layout.paths, strict=True):
            out[member][: len(path)] = values_T.float()[path].cpu().numpy()
    return out


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: MaskPattern | Tensor | None,
    *,
    layout: RowLayout,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each sequence of a row, with the signature that `transformers` calls. All are 1 x H x T x
    E; `s_aux` is a logit per head that takes part in the softmax and stands for no token."""
    name = type(module).__name__
    if unknown := [key for key in sorted(others.keys() - _PASSED_THROUGH) if not _is_off(others[key])]:
        raise UnsupportedAttention(f"'{name}' passes '{unknown[0]}', which packed attention does not have")
    if is_causal is False:
        raise UnsupportedAttention(f"'{name}' passes 'is_causal: false', and a row's attention is causal")
    if not query.shape[2] == key.shape[2] == value.shape[2] == len(layout.collect_T):
        raise UnsupportedAttention(f"'{name}' passes a 'key' for other tokens than those of the row")
    attend = _attend_fused if softcap is None and s_aux is None else _attend_plainly
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling

    def attend_part(part: RowLayout, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out_SHLE = attend(
            *(_unpack_states(states, part) for states in (query, key, value)),
            bias=_combine_masks(attention_mask, position_bias, sliding_window, part),
            scaling=scaling,
            dropout=dropout,
            softcap=softcap,
            sinks_H=s_aux,
        )
        return out_SHLE.transpose(1, 2).flatten(0, 1).index_select(0, part.collect_T)

    if layout.tree is None:
        return attend_part(layout, query, key, value)[None], None
    is_causal_alone = _combine_masks(attention_mask, position_bias, sliding_window, layout) is None
    if is_causal_alone and attend is _attend_fused and not dropout and is_supported(query, key, value):
        return attend_along_paths(query, key, value, layout.tree, scaling)[None], None
    # what a part lays out is made again in the backward pass instead of being kept
    parts = [checkpoint(attend_part, part, query, key, value, use_reentrant=False) for part in layout.parts]
    return torch.cat(parts)[None], None


_PASSED_THROUGH = {
    *("position_ids", "position_embeddings", "cache_position", "past_key_values", "use_cache", "return_dict"),
    *("output_hidden_states", "output_router_logits", "deterministic", "seq_idx", "cu_seq_lens_q", "cu_seq_lens_k"),
    *("max_length_q", "max_length_k"),
}
"""Arguments on their way to other layers, or that say in other words what the layout says."""


def _is_off(value: Any) -> bool:
    return value is None or value is False


def _attend_fused(
    query: Tensor, key: Tensor, value: Tensor, *, bias: Tensor | None, scaling: float, dropout: float, **_: Any
) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=bias,
        dropout_p=dropout,
        is_causal=bias is None,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def _attend_plainly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias: Tensor | None,
    scaling: float,
    dropout: float,
    softcap: float | None,
    sinks_H: Tensor | None,
) -> Tensor:
    """What no fused kernel offers: logits that are capped, and sinks."""
    repeats, longest = query.shape[1] // key.shape[1], query.shape[2]
    scores_SHLL = query @ key.repeat_interleave(repeats, 1).transpose(2, 3) * scaling
    if softcap is not None:
        scores_SHLL = softcap * torch.tanh(scores_SHLL / softcap)
    if bias is None:
        bias = _causal_pattern(longest, None, query.device)
    scores_SHLL = scores_SHLL.masked_fill(~bias, -torch.inf) if bias.dtype is torch.bool else scores_SHLL + bias
    if sinks_H is not None:
        sinks = sinks_H.reshape(1, -1, 1, 1).expand(len(query), -1, longest, 1)
        scores_SHLL = torch.cat([scores_SHLL, sinks.to(scores_SHLL.dtype)], -1)
    shares_SHLL = torch.softmax(scores_SHLL, -1, dtype=torch.float32)[..., :longest].to(value.dtype)
    shares_SHLL = torch.nn.functional.dropout(shares_SHLL, dropout)
    return shares_SHLL @ value.repeat_interleave(repeats, 1)


def _combine_masks(
    mask: MaskPattern | Tensor | None, position_bias: Tensor | None, window: int | None, layout: RowLayout
) -> Tensor | None:
    """Return what is masked or added within each sequence, to be broadcast to S x H x L x L; None where plainly
    causal."""
    longest, device = layout.spread_SL.shape[1], layout.spread_SL.device
    if isinstance(mask, MaskPattern):
        pattern = mask.of(longest)
    elif mask is not None:
        # what follows a short sequence is not part of it, so nothing may look ahead
        pattern = _restrict(_unpack_pairs(mask, layout), _causal_pattern(longest, None, device))
    else:
        pattern = _causal_pattern(longest, window, device) if window is not None and longest > window else None
    if position_bias is None:
        return pattern
    pattern = _causal_pattern(longest, None, device) if pattern is None else pattern
    return _restrict(_unpack_pairs(position_bias, layout), pattern)


def _restrict(values: Tensor, other: Tensor) -> Tensor:
    """Masks, of which either may be a bias, as one."""
    if other.dtype is not torch.bool:
        return _restrict(other, values) if values.dtype is torch.bool else values + other
    return values & other if values.dtype is torch.bool else values.masked_fill(~other, -torch.inf)


def _causal_pattern(longest: int, window: int | None, device: torch.device) -> Tensor:
    behind_LL = torch.arange(longest, device=device)[:, None] - torch.arange(longest, device=device)
    return (behind_LL >= 0) if window is None else (behind_LL >= 0) & (behind_LL < window)


def _unpack_pairs(pairs: Tensor, layout: RowLayout) -> Tensor:
    """Return a model's values for each pair of tokens of the row, for the pairs within a sequence."""
    if pairs.ndim != 4 or pairs.shape[0] != 1 or pairs.shape[2:] != (layout.tokens, layout.tokens):
        shape = tuple(pairs.shape)
        raise UnsupportedAttention(f"a mask or bias of the shape {shape} for a row of {layout.tokens} tokens")
    spread_SL = layout.spread_SL
    return pairs[0].transpose(0, 2)[spread_SL[:, None, :], spread_SL[:, :, None]].permute(0, 3, 1, 2)


def _unpack_states(states_1HTE: Tensor, layout: RowLayout) -> Tensor:
    states_THE = states_1HTE[0].transpose(0, 1)
    sequences, longest = layout.spread_SL.shape
    spread = states_THE.index_select(0, layout.spread_SL.flatten())
    return spread.view(sequences, longest, *states_THE.shape[1:]).transpose(1, 2)


def _check_sequence(at: int, sequence: TrainSequence, first: TrainSequence) -> None:
    length = len(sequence.ids)
    for name in _PER_TOKEN:
        values = getattr(sequence, name)
        if (values is None) != (getattr(first, name) is None):
            raise ValueError(f"sequence {at}: expected '{name}' in all sequences of an update or in none")
        if values is not None and len(values) != length:
            raise ValueError(f"sequence {at}: expected {length} values in '{name}', one per token; got {len(values)}")
    if length and sequence.loss_mask[0]:
        raise ValueError(f"sequence {at}: nothing predicts the first token, so it cannot be in the loss mask")


_PER_TOKEN = (
    "loss_mask",
    "advantages",
    "old_logprobs",
    "reference_logprobs",
    "weights",
    "sampled_logprobs",
    "shared_drift",
    "shared_log_ratio",
    "values",
    "value_targets",
)


def _build_row(
    order: SharedOrder,
    sequences: Sequence[TrainSequence],
    used: Sequence[int],
    episode_lengths: Sequence[int],
    device: torch.device,
) -> PackedRow:
    members, chosen = order.members, [sequences[member] for member in order.members]
    lengths = [used[member] for member in members]
    paths = find_paths(lengths, order.shared)
    own = [slice(common, length) for common, length in zip(order.shared, lengths, strict=True)]
    places = [np.flatnonzero(sequence.loss_mask) for sequence in chosen]

    def gather(name: str) -> Tensor | None:
        arrays = [getattr(sequence, name) for sequence in chosen]
        if all(array is None for array in arrays):
            return None
        return torch.from_numpy(np.concatenate([a[at] for a, at in zip(arrays, places, strict=True)])).to(device)

    def concatenate(parts: Sequence[NDArray[Any]]) -> Tensor:
        return torch.from_numpy(np.concatenate(parts).astype(np.int64)).to(device)

    targets, advantages = gather("ids"), gather("advantages")
    assert targets is not None
    assert advantages is not None
    counts = np.array([len(at) for at in places])
    return PackedRow(
        members=members,
        ids_T=concatenate([sequence.ids[part] for sequence, part in zip(chosen, own, strict=True)]),
        positions_T=concatenate([np.arange(part.start, part.stop) for part in own]),
        layout=_build_tree_layout(paths, order.shared, device) if any(order.shared) else _build_layout(paths, device),
        # the last token that sequences share predicts the next one of each
        predict_N=concatenate([path[at - 1] for at, path in zip(places, paths, strict=True)]),
        targets_N=targets.long(),
        sequence_N=torch.from_numpy(np.repeat(np.arange(len(members)), counts)).to(device),
        turn_N=torch.from_numpy(_number_turns(places)).to(device),
        lengths_S=torch.from_numpy(counts).to(device),
        episode_lengths_S=torch.tensor([episode_lengths[member] for member in members], device=device),
        advantages_N=advantages,
        old_N=gather("old_logprobs"),
        reference_N=gather("reference_logprobs"),
        weights_N=gather("weights"),
        sampled_N=gather("sampled_logprobs"),
        shared_drift_N=gather("shared_drift"),
        shared_log_ratio_N=gather("shared_log_ratio"),
        values_N=gather("values"),
        value_targets_N=gather("value_targets"),
    )


def _number_turns(places: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    begins = np.concatenate([np.diff(at, prepend=-2) > 1 for at in places])
    return np.cumsum(begins) - 1


_PART = 2
"""Tokens of a part of a tree's sequences, as a multiple of the row's."""


def _build_tree_layout(paths: Sequence[NDArray[np.int64]], shared: Sequence[int], device: torch.device) -> RowLayout:
    whole = _build_layout(paths, device, shared)
    parts, start = list[RowLayout](), 0
    for end in range(1, len(paths) + 1):
        longest = max(map(len, paths[start : end + 1]))
        if end == len(paths) or (end + 1 - start) * longest > _PART * whole.tokens:
            parts.append(_build_layout(paths[start:end], device, shared[start:end], whole.tokens))
            start = end
    return replace(whole, tree=build_tree_layout(find_nodes(paths, shared), device), parts=tuple(parts))


def _build_layout(
    paths: Sequence[NDArray[np.int64]],
    device: torch.device,
    shared: Sequence[int] | None = None,
    tokens: int | None = None,
) -> RowLayout:
    lengths_S, shared_S = np.array([len(path) for path in paths]), np.array(shared or [0] * len(paths))
    column_L = np.arange(lengths_S.max())
    inside_SL = column_L < lengths_S[:, None]
    spread_SL = np.zeros(inside_SL.shape, np.int64)
    spread_SL[inside_SL] = np.concatenate(paths)
    collect_T = np.flatnonzero(inside_SL & (column_L >= shared_S[:, None]))
    return RowLayout(
        tokens=len(collect_T) if tokens is None else tokens,
        spread_SL=torch.from_numpy(spread_SL).to(device),
        collect_T=torch.from_numpy(collect_T).to(device),
        lengths_S=tuple(lengths_S.tolist()),
        tree=None,
        parts=(),
    )
