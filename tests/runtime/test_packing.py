"""Rows: nothing padded, nothing lost, nothing mixed up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from agym.dsl.model.algorithm import Level
from agym.runtime.learning.packing import (
    RowLayout,
    UnsupportedAttention,
    compute_normaliser,
    make_idle_row,
    pack,
    packed_attention,
    plan_rows,
    scatter,
)
from agym.runtime.protocols import Normaliser, TrainSequence
from hypothesis import given
from hypothesis import strategies as st

CPU = torch.device("cpu")


def sequence(length: int, trained: tuple[int, ...], start: int = 0, **more: object) -> TrainSequence:
    mask = np.zeros(length, np.bool_)
    mask[list(trained)] = True
    ids = np.arange(start, start + length, dtype=np.int32)
    return TrainSequence(**{"ids": ids, "loss_mask": mask, "advantages": ids.astype(np.float32), **more})


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 60))
def test_every_used_sequence_is_in_one_row_and_rows_fit(lengths: list[int], capacity: int):
    rows = plan_rows(lengths, capacity)
    assert sorted(at for row in rows for at in row) == [at for at, length in enumerate(lengths) if length]
    assert all(sum(lengths[at] for at in row) <= capacity or len(row) == 1 for row in rows)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(50, 200))
def test_rows_are_filled_before_another_is_begun(lengths: list[int], capacity: int):
    rows = plan_rows(lengths, capacity)
    sizes = [sum(lengths[at] for at in row) for row in rows]
    for size, following in zip(sizes, rows[1:], strict=False):
        assert size + lengths[following[0]] > capacity


def test_a_row_holds_tokens_positions_and_learnt_tokens_one_after_the_other():
    (row,) = pack([sequence(3, (2,)), sequence(4, (1, 3), start=10)], 100, CPU)
    assert row.members == (1, 0)
    assert row.ids_T.tolist() == [10, 11, 12, 13, 0, 1, 2]
    assert row.positions_T.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert row.predict_N.tolist() == [0, 2, 5]
    assert row.targets_N.tolist() == [11, 13, 2]
    assert row.advantages_N.tolist() == [11.0, 13.0, 2.0]
    assert row.sequence_N.tolist() == [0, 0, 1]
    assert row.lengths_S.tolist() == [2, 1]
    assert row.old_N is None


def test_tokens_that_share_a_ratio_are_those_of_a_turn_or_of_an_episode():
    (row,) = pack([sequence(4, (2, 3)), sequence(9, (1, 2, 4, 7, 8), start=10)], 100, CPU)
    assert row.units(Level.TOKEN) is None
    assert row.turn_N.tolist() == [0, 0, 1, 2, 2, 3, 3]
    assert row.units(Level.TURN) is row.turn_N
    assert row.units(Level.EPISODE) is row.sequence_N


def test_tokens_after_the_last_learnt_one_and_sequences_without_any_are_left_out():
    (row,) = pack([sequence(9, (2,)), sequence(5, ())], 100, CPU)
    assert row.members == (0,)
    assert row.ids_T.tolist() == [0, 1, 2]


def test_optional_values_travel_with_their_tokens():
    old = np.array([0.0, -1.0, -2.0], np.float32)
    (row,) = pack([sequence(3, (1, 2), old_logprobs=old, weights=old * 2)], 100, CPU)
    assert row.old_N is not None
    assert row.weights_N is not None
    assert (row.old_N.tolist(), row.weights_N.tolist()) == ([-1.0, -2.0], [-2.0, -4.0])


def test_values_come_back_to_the_sequences_they_belong_to():
    sequences = [sequence(3, (2,)), sequence(6, ()), sequence(4, (1, 3), start=10), sequence(2, (1,), start=20)]
    rows = pack(sequences, 5, CPU)
    assert len(rows) == 2
    back = scatter(rows, [row.targets_N for row in rows], sequences)
    assert [values.tolist() for values in back] == [[0, 0, 2], [0] * 6, [0, 11, 0, 13], [0, 21]]


def test_totals_count_learnt_tokens_and_the_sequences_that_have_some():
    assert compute_normaliser([sequence(3, (1, 2)), sequence(3, ()), sequence(2, (1,))]) == Normaliser(
        tokens=3, sequences=2
    )


def test_learning_the_first_token_is_refused():
    with pytest.raises(ValueError, match="sequence 1: nothing predicts the first token"):
        pack([sequence(2, (1,)), sequence(2, (0,))], 10, CPU)


def test_values_of_another_length_are_refused():
    with pytest.raises(ValueError, match="sequence 0: expected 3 values in 'old_logprobs', one per token; got 2"):
        pack([sequence(3, (1,), old_logprobs=np.zeros(2, np.float32))], 10, CPU)


def test_values_that_only_some_sequences_have_are_refused():
    with pytest.raises(ValueError, match="sequence 1: expected 'weights' in all sequences of an update or in none"):
        pack([sequence(2, (1,), weights=np.ones(2, np.float32)), sequence(2, (1,))], 10, CPU)


def test_nothing_to_learn_makes_no_row():
    assert pack([sequence(4, ())], 10, CPU) == []
    assert pack([], 10, CPU) == []


def test_idle_row_is_a_row():
    assert make_idle_row(CPU).advantages_N.tolist() == [0.0]


# --- attention


class OneLayer(torch.nn.Module):
    """What attention needs from the layer it is in: nothing."""


def states(heads: int, tokens: int, seed: int) -> torch.Tensor:
    return torch.randn(1, heads, tokens, 8, generator=torch.Generator().manual_seed(seed))


def layout(lengths: list[int]) -> RowLayout:
    return pack([sequence(length, (length - 1,)) for length in lengths], 1000, CPU)[0].layout


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_over_a_row_is_that_over_each_sequence_alone(kv_heads: int):
    lengths = [7, 4, 4, 2]
    query, key, value = states(4, 17, 0), states(kv_heads, 17, 1), states(kv_heads, 17, 2)
    out, _ = packed_attention(OneLayer(), query, key, value, None, layout=layout(lengths), scaling=0.3)
    alone = [
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)
        for q, k, v in zip(query.split(lengths, 2), key.split(lengths, 2), value.split(lengths, 2), strict=True)
    ]
    torch.testing.assert_close(out, torch.cat(alone, 2).transpose(1, 2), rtol=1e-6, atol=1e-6)


def plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **more: Any) -> torch.Tensor:
    """Attention over one sequence, written out."""
    scores = query @ key.transpose(2, 3) * more.get("scaling", 8**-0.5)
    if cap := more.get("softcap"):
        scores = cap * torch.tanh(scores / cap)
    behind = torch.arange(query.shape[2])[:, None] - torch.arange(query.shape[2])
    seen = (behind >= 0) & (behind < more.get("sliding_window", 1000))
    scores = scores.masked_fill(~seen, -torch.inf)
    if (sinks := more.get("s_aux")) is not None:
        scores = torch.cat([scores, sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    return scores.softmax(-1)[..., : query.shape[2]] @ value


ARGUMENTS = {
    "window": {"sliding_window": 3},
    "softcap": {"softcap": 1.5},
    "sinks": {"s_aux": torch.tensor([0.5, -1.0, 2.0, 0.0])},
    "scaling": {"scaling": 0.7},
    "all": {"sliding_window": 4, "softcap": 2.0, "s_aux": torch.ones(4), "scaling": 0.5},
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_every_argument_of_attention_acts_within_each_sequence(arguments: dict[str, Any]):
    lengths = [7, 4, 4, 2]
    query, key, value = (states(4, 17, seed) * 3 for seed in range(3))
    out, _ = packed_attention(OneLayer(), query, key, value, None, layout=layout(lengths), **arguments)
    pieces = zip(query.split(lengths, 2), key.split(lengths, 2), value.split(lengths, 2), strict=True)
    alone = torch.cat([plain(*piece, **arguments) for piece in pieces], 2).transpose(1, 2)
    torch.testing.assert_close(out, alone, rtol=1e-5, atol=1e-5)


def test_a_mask_and_a_bias_over_the_row_are_taken_for_the_pairs_within_each_sequence():
    lengths, generator = [5, 3], torch.Generator().manual_seed(3)
    query, key, value = (states(2, 8, seed) for seed in range(3))
    mask = torch.rand(1, 1, 8, 8, generator=generator).gt(0.3).logical_or(torch.eye(8, dtype=torch.bool)).tril()
    bias = torch.randn(1, 2, 8, 8, generator=generator)
    out, _ = packed_attention(OneLayer(), query, key, value, mask, layout=layout(lengths), position_bias=bias)
    for start, end in ((0, 5), (5, 8)):
        cut = (slice(None), slice(None), slice(start, end))
        scores = query[cut] @ key[cut].transpose(2, 3) * 8**-0.5 + bias[..., start:end, start:end]
        own = scores.masked_fill(~mask[..., start:end, start:end], -torch.inf).softmax(-1) @ value[cut]
        torch.testing.assert_close(out[:, start:end], own.transpose(1, 2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"block_indices": torch.zeros(1)}, "'OneLayer' passes 'block_indices'"),
        ({"alibi": True}, "'OneLayer' passes 'alibi'"),
        ({"is_causal": False}, "'OneLayer' passes 'is_causal: false'"),
        ({"position_bias": torch.zeros(1, 1, 1, 5)}, r"a mask or bias of the shape \(1, 1, 1, 5\)"),
    ],
)
def test_an_argument_that_packed_attention_lacks_is_refused_by_name(arguments: dict[str, Any], name: str):
    with pytest.raises(UnsupportedAttention, match=name):
        packed_attention(OneLayer(), *(states(1, 5, seed) for seed in range(3)), None, layout=layout([5]), **arguments)


def test_arguments_without_a_value_and_those_on_their_way_to_other_layers_are_taken():
    passed = {"indices": None, "output_attentions": False, "seq_idx": torch.zeros(1, 5), "use_cache": True}
    three = [states(1, 5, seed) for seed in range(3)]
    out, _ = packed_attention(OneLayer(), *three, None, layout=layout([5]), **passed)
    assert torch.equal(out, packed_attention(OneLayer(), *three, None, layout=layout([5]))[0])
