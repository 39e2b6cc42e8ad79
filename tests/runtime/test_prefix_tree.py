"""Prefix trees: every sequence is a path, every pair of tokens is computed once, and nothing but rounding changes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from agym.runtime.learning import packing
from agym.runtime.learning.packing import PackedRow, pack, packed_attention, scatter, unpack
from agym.runtime.learning.prefixes import varlen
from agym.runtime.learning.prefixes.attention import TreeLayout, build_tree_layout
from agym.runtime.learning.prefixes.tree import MIN_SHARED, Node, find_nodes, find_order, find_paths, plan_shared_rows
from agym.runtime.learning.prefixes.varlen import plan_calls
from agym.runtime.protocols import TrainSequence
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from .test_packing import CPU, OneLayer, plain, states

Ids = list[int]


@st.composite
def forests(draw: Any) -> list[Ids]:
    """Sequences that begin as earlier ones do, some of them equal to or a part of another."""
    numbers = np.random.Generator(np.random.PCG64(draw(st.integers(0, 1000))))
    made: list[Ids] = []
    for _ in range(draw(st.integers(1, 9))):
        trunk = made[int(numbers.integers(len(made)))] if made and numbers.random() < 0.8 else []
        begin = trunk[: int(numbers.integers(0, len(trunk) + 1))]
        own = numbers.integers(0, 3, int(numbers.integers(0, 30))).tolist()
        made.append([*begin, *own] if len(begin) + len(own) > 1 else [0, 0])
    return made


def arrays(sequences: list[Ids]) -> list[np.ndarray]:
    return [np.array(ids, np.int32) for ids in sequences]


def train(ids: Ids, trained: int = 1) -> TrainSequence:
    """A sequence of which the last tokens are trained."""
    mask = np.arange(len(ids)) >= max(1, len(ids) - trained)
    return TrainSequence(ids=np.array(ids, np.int32), loss_mask=mask, advantages=mask.astype(np.float32))


def group(prompt: int, size: int, after: int, seed: int = 0) -> list[Ids]:
    numbers = np.random.Generator(np.random.PCG64(seed))
    shared = numbers.integers(0, 1000, prompt).tolist()
    return [[*shared, *numbers.integers(0, 1000, after).tolist()] for _ in range(size)]


# --- the tree


@given(forests())
def test_every_sequence_is_a_path_through_the_tokens_of_the_row(sequences: list[Ids]):
    order = find_order(arrays(sequences))
    assert sorted(order.members) == list(range(len(sequences)))
    ordered = [sequences[member] for member in order.members]
    row = [token for ids, shared in zip(ordered, order.shared, strict=True) for token in ids[shared:]]
    paths = find_paths([len(ids) for ids in ordered], order.shared)
    assert [[row[at] for at in path] for path in paths] == ordered
    assert len(ordered[0]) == max(map(len, ordered))


@given(forests())
def test_squares_and_rectangles_hold_every_pair_of_a_path_once_and_no_other(sequences: list[Ids]):
    order = find_order(arrays(sequences))
    paths = find_paths([len(sequences[member]) for member in order.members], order.shared)
    tokens = 1 + max(int(path[-1]) for path in paths)
    expected, found = np.zeros((tokens, tokens), int), np.zeros((tokens, tokens), int)
    for path in paths:
        for at, place in enumerate(path):
            expected[place, path[: at + 1]] = 1
    for node in find_nodes(paths, order.shared):
        size = node.end - node.start
        found[node.start : node.end, node.start : node.end] += np.tri(size, dtype=int)
        found[node.end : node.stop, node.start : node.end] += 1
    assert (found == expected).all()


@given(forests())
def test_nodes_that_are_shared_have_the_least_length(sequences: list[Ids]):
    order = find_order(arrays(sequences))
    assert all(shared == 0 or shared >= MIN_SHARED for shared in order.shared)


def test_a_chain_of_a_thousand_views_is_ordered_without_recursion():
    whole = np.arange(9 * 1200)
    order = find_order([whole[: 9 * end] for end in range(1, 1201)])
    assert order.members[0] == 1199
    assert sum(order.shared) == sum(9 * end for end in range(1, 1200))


# --- rows


@given(forests(), st.integers(10, 80))
def test_rows_fit_with_shared_tokens_counted_once(sequences: list[Ids], capacity: int):
    rows = plan_shared_rows(arrays(sequences), [1] * len(sequences), capacity)
    if rows is None:
        assert not any(find_order(arrays(sequences)).shared)
        return
    assert sorted(member for row in rows for member in row.members) == list(range(len(sequences)))
    for row in rows:
        tokens = sum(len(sequences[member]) for member in row.members) - sum(row.shared)
        assert tokens <= capacity or len(row.members) == 1


def test_a_row_has_no_more_tokens_than_its_part_of_the_whole_tree():
    trunk = list(range(41))
    # of each sequence: tokens of the trunk, and its own. In the whole tree the first three share 27: a node of 9 after
    # one of 18. In a row with the fourth, which shares 21 with them, a node from 21 to 27 would be too short.
    branches = [(41, 0), (27, 8), (27, 1), (21, 17), (23, 10), (18, 7), (10, 3), (0, 16)]
    sequences = [[*trunk[:begin], *[100 + at] * own] for at, (begin, own) in enumerate(branches)]
    rows = plan_shared_rows(arrays(sequences), [1] * len(sequences), 70)
    assert rows is not None
    assert sorted(sum(len(sequences[at]) for at in row.members) - sum(row.shared) for row in rows) == [59, 70]


def test_a_group_that_fits_is_not_cut():
    sequences = [ids for seed in range(4) for ids in group(50, 4, 10, seed)]
    rows = pack([train(ids) for ids in sequences], 150, CPU, shares_prefixes=True)
    assert all(len({member // 4 for member in members}) == 1 for members in _members(rows))
    assert [len(row.ids_T) for row in rows] == [90] * 4


def _members(rows: list[PackedRow]) -> list[tuple[int, ...]]:
    return [row.members for row in rows]


def test_a_row_has_at_most_as_many_trained_tokens_as_tokens():
    """Eight equal replies are one path, of which each counts in the loss and needs logits."""
    sequences = [train(group(40, 1, 20)[0], trained=20) for _ in range(8)]
    rows = pack(sequences, 60, CPU, shares_prefixes=True)
    assert sorted((len(row.ids_T), len(row.targets_N)) for row in rows) == [(60, 40), (60, 60), (60, 60)]


def test_sequences_with_nothing_in_common_are_packed_as_ever():
    sequences = [train(group(0, 1, length, length)[0]) for length in (9, 30, 12, 13, 28)]
    one, other = (pack(sequences, 45, CPU, shares_prefixes=shares) for shares in (False, True))
    assert _members(one) == _members(other)
    assert all(torch.equal(a.ids_T, b.ids_T) and b.layout.tree is None for a, b in zip(one, other, strict=True))


def test_the_last_shared_token_predicts_the_first_of_each_continuation():
    sequences = [train(ids, trained=3) for ids in group(10, 3, 3)]
    (row,) = pack(sequences, 100, CPU, shares_prefixes=True)
    assert len(row.ids_T) == 19
    assert row.predict_N.tolist() == [9, 10, 11, 9, 13, 14, 9, 16, 17]
    assert row.positions_T.tolist() == [*range(13), 10, 11, 12, 10, 11, 12]
    assert row.targets_N.tolist() == [int(token) for at in row.members for token in sequences[at].ids[10:]]


def test_a_token_that_two_views_train_counts_in_both():
    shared = group(12, 2, 5)
    (row,) = pack([train(ids, trained=10) for ids in shared], 100, CPU, shares_prefixes=True)
    assert row.lengths_S.tolist() == [10, 10]
    assert row.predict_N.tolist()[:5] == row.predict_N.tolist()[10:15] == [6, 7, 8, 9, 10]


def test_values_come_back_to_every_sequence_that_shares_them():
    sequences = [train(ids, trained=4) for ids in [*group(10, 3, 4), *group(9, 2, 6, seed=1)]]
    rows = pack(sequences, 30, CPU, shares_prefixes=True)
    assert len(rows) > 1
    tokens = unpack(rows, [row.ids_T for row in rows], sequences)
    trained = scatter(rows, [row.targets_N for row in rows], sequences)
    for sequence, found, targets in zip(sequences, tokens, trained, strict=True):
        assert found.tolist() == sequence.ids.tolist()
        assert targets.tolist() == (sequence.ids * sequence.loss_mask).tolist()


# --- attention


def along_paths(
    sequences: list[Ids], heads: int, kv_heads: int, is_recomputed: bool = False, **arguments: Any
) -> tuple[torch.Tensor, ...]:
    """The output of a row, of its sequences alone, and the gradients of both."""
    dtype = arguments.pop("dtype", torch.float32)
    (row,) = pack([train(ids) for ids in sequences], 10_000, CPU, shares_prefixes=True)
    tokens = len(row.ids_T)
    inputs = [
        states(count, tokens, seed).to(dtype).requires_grad_() for seed, count in enumerate((heads, kv_heads, kv_heads))
    ]

    def attend(*states: torch.Tensor) -> torch.Tensor:
        return packed_attention(OneLayer(), *states, None, layout=row.layout, **arguments)[0]

    # as a layer does whose activations are computed again in the backward pass
    out = checkpoint(attend, *inputs, use_reentrant=False) if is_recomputed else attend(*inputs)
    pieces = [out[0, path] for path in row.layout.paths]
    alone = []
    for path in row.layout.paths:
        query, key, value = (each[:, :, path].float() for each in inputs)
        repeats = heads // kv_heads
        found = plain(query, key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1), **arguments)
        alone.append(found[0].transpose(0, 1))
    weights = [torch.sin(torch.arange(piece.numel()).float()).view(piece.shape) for piece in pieces]
    gradients = []
    for found in (pieces, alone):
        total = sum((piece.float() * weight).sum() for piece, weight in zip(found, weights, strict=True))
        gradients.append(torch.autograd.grad(total, inputs, retain_graph=True))
    return (
        torch.cat(pieces).detach(),
        torch.cat(alone).detach(),
        *(torch.cat([g.flatten() for g in each]) for each in gradients),
    )


@settings(max_examples=40, deadline=None)
@given(forests(), st.sampled_from([1, 2, 4]), st.booleans())
def test_attention_along_paths_is_that_over_each_sequence_alone(
    sequences: list[Ids], kv_heads: int, is_recomputed: bool
):
    found, alone, gradient, alone_gradient = along_paths(sequences, 4, kv_heads, is_recomputed)
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, alone_gradient, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    "arguments",
    [{"sliding_window": 5}, {"softcap": 1.5}, {"s_aux": torch.tensor([0.5, -1.0, 2.0, 0.0])}, {"scaling": 0.7}],
    ids=["window", "softcap", "sinks", "scaling"],
)
def test_every_argument_of_attention_acts_along_each_path(arguments: dict[str, Any]):
    sequences = [*group(30, 9, 4), *group(30, 2, 25, seed=1), *group(12, 1, 30, seed=2)]
    found, alone, gradient, alone_gradient = along_paths(sequences, 4, 4, **arguments)
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, alone_gradient, rtol=1e-4, atol=2e-5)


def test_half_precision_is_rounded_as_little_as_in_one_sequence():
    found, alone, gradient, alone_gradient = along_paths(group(40, 4, 9), 4, 2, dtype=torch.bfloat16)
    assert float((found.float() - alone).norm() / alone.norm()) < 4e-3
    assert float((gradient - alone_gradient).norm() / alone_gradient.norm()) < 6e-3


def test_what_a_part_lays_out_is_bounded_by_the_row():
    (row,) = pack([train(ids) for ids in group(100, 40, 3)], 1000, CPU, shares_prefixes=True)
    tokens = len(row.ids_T)
    assert tokens == 220
    assert len(row.layout.parts) == 10
    assert all(part.spread_SL.numel() <= 2 * tokens for part in row.layout.parts)
    assert sum(len(part.collect_T) for part in row.layout.parts) == tokens


def test_nodes_of_similar_length_are_computed_together():
    order = find_order(arrays([*group(40, 8, 10), *group(40, 4, 9, seed=1)]))
    paths = find_paths([50] * 8 + [49] * 4, order.shared)
    layout = build_tree_layout(find_nodes(paths, order.shared), CPU)
    assert [tuple(block.spread_BL.shape) for block in layout.blocks] == [(2, 40), (12, 10)]
    assert [(span.start, span.end, span.stop) for span in layout.spans] == [(0, 40, 120), (120, 160, 196)]
    assert all(one.stop <= other.start for one, other in pairwise(layout.spans))


# --- attention on a GPU, its kernel in plain words


def _stretches(borders: torch.Tensor) -> list[slice]:
    return [slice(int(start), int(end)) for start, end in pairwise(borders)]


def _plain_scores(query: torch.Tensor, key: torch.Tensor, is_causal: bool, scale: float) -> torch.Tensor:
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = torch.einsum("qhe,khe->hqk", query, key) * scale
    return scores.masked_fill(~torch.ones(scores.shape[1:]).tril().bool(), -torch.inf) if is_causal else scores


def plain_forward(query, key, value, at_q, at_k, _max_q, _max_k, _drop, is_causal, _debug, *, scale):  # type: ignore[no-untyped-def]
    out, logsum = torch.empty_like(query), query.new_empty(query.shape[1], len(query))
    for q, k in zip(_stretches(at_q), _stretches(at_k), strict=True):
        scores = _plain_scores(query[q], key[k], is_causal, scale)
        logsum[:, q] = scores.logsumexp(-1)
        wide = value[k].repeat_interleave(query.shape[1] // key.shape[1], 1)
        out[q] = torch.einsum("hqk,khe->qhe", scores.softmax(-1), wide)
    return out, logsum, torch.zeros(2), torch.zeros(0), None


def plain_backward(  # type: ignore[no-untyped-def]
    grad, query, key, value, out, logsum, at_q, at_k, _max_q, _max_k, _drop, is_causal, _rng, _unused, *, scale
):
    into = [torch.zeros_like(each) for each in (query, key, value)]
    repeats = query.shape[1] // key.shape[1]
    for q, k in zip(_stretches(at_q), _stretches(at_k), strict=True):
        shares = torch.exp(_plain_scores(query[q], key[k], is_causal, scale) - logsum[:, q, None])
        wide_key, wide_value = (each[k].repeat_interleave(repeats, 1) for each in (key, value))
        inner = torch.einsum("qhe,khe->hqk", grad[q], wide_value) - (grad[q] * out[q]).sum(-1).T[..., None]
        inner = shares * inner * scale
        into[0][q] += torch.einsum("hqk,khe->qhe", inner, wide_key)
        for total, found in (
            (into[1], torch.einsum("hqk,qhe->khe", inner, query[q])),
            (into[2], torch.einsum("hqk,qhe->khe", shares, grad[q])),
        ):
            total[k] += found.unflatten(1, (-1, repeats)).sum(2)
    return tuple(into)


def build_calls(nodes: list[Node], device: torch.device) -> TreeLayout:
    return TreeLayout(blocks=(), spans=(), calls=plan_calls(nodes, device))


@settings(max_examples=40, deadline=None)
@given(forests(), st.sampled_from([1, 2, 4]), st.booleans())
def test_calls_of_a_gpu_hold_what_each_sequence_alone_attends_to(
    sequences: list[Ids], kv_heads: int, is_recomputed: bool
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varlen, "_forward", plain_forward)
        patch.setattr(varlen, "_backward", plain_backward)
        patch.setattr(packing, "build_tree_layout", build_calls)
        found, alone, gradient, alone_gradient = along_paths(sequences, 4, kv_heads, is_recomputed)
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, alone_gradient, rtol=1e-4, atol=2e-5)
