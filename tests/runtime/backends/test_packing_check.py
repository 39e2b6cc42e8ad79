"""The self-test of a model: packed, padded and alone agree, or rows hold one sequence, or the model is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import packing as bench
import pytest
import torch
from agym.dsl.model.recipe import DType, Lora
from agym.runtime.backends.checks.packing_check import choose_rows
from agym.runtime.backends.checks.rows import RowKind, RowNetwork, RowReader, find_dropout, register_attention
from agym.runtime.backends.critic import build_network
from agym.runtime.backends.policy import FrozenPolicy, Policy
from agym.runtime.errors import RunError
from agym.runtime.learning.packing import PackedRow, RowLayout, packed_attention, scatter
from agym.runtime.protocols import LearnerSettings
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore")
TREE, PACKED, ALONE, REFUSED = bench.TREE, bench.PACKED, bench.ALONE, bench.REFUSED

KINDS: dict[str, tuple[str, str]] = {
    # attention
    "llama": (TREE, ""),
    "qwen3": (TREE, ""),
    "gpt2": (PACKED, "'Dropout' drops at random"),
    "phi": (TREE, ""),
    "opt": (PACKED, "'OPTDecoder' drops at random"),
    "cohere2": (TREE, ""),
    "granite": (TREE, ""),
    "gemma2": (TREE, ""),
    "gpt_oss": (TREE, ""),
    "deepseek_v3": (TREE, ""),
    "llama4_text": (TREE, ""),
    "diffllama": (TREE, ""),
    "bloom": (ALONE, "the model's own attention"),
    "deepseek_v32": (ALONE, "the model's own attention"),
    "deepseek_v4": (REFUSED, "'DeepseekV4Attention' passes a 'key'"),
    "bart": (REFUSED, "'BartConfig' asks for attention that is not causal"),
    "bert": (REFUSED, "output layer"),
    # recurrent, linear and convolutional layers
    "mamba": (ALONE, "'MambaMixer' would mix several"),
    "mamba2": (ALONE, "'Mamba2Mixer' would mix several"),
    "qwen3_next": (ALONE, "'Qwen3NextGatedDeltaNet' would mix several"),
    "granitemoehybrid": (ALONE, "'GraniteMoeHybridMambaLayer' would mix several"),
    "lfm2_moe": (ALONE, "'Lfm2MoeShortConv' would mix several"),
    "recurrent_gemma": (ALONE, "'RecurrentGemmaRecurrentBlock' would mix several"),
    "minimax": (ALONE, "'MiniMaxLightningAttention' would mix several"),
    "rwkv": (ALONE, "'RwkvSelfAttention' would mix several"),
    "zaya": (ALONE, "'ZayaAttention' would mix several"),
}
"""An architecture of each kind, what becomes of it, and a part of what is said."""


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_layer_keeps_its_log_probs_or_is_refused_by_name(name: str) -> None:
    torch.set_num_threads(1)
    outcome, said = KINDS[name]
    found = bench.measure(name)
    assert (found["outcome"], said in found["note"]) == (outcome, True), found


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """A folder with a tiny model of an architecture."""

    def make(name: str, **values: Any) -> Path:
        bench.make_tiny_model(name, **values).save_pretrained(tmp_path / name)
        return tmp_path / name

    return make


def checked(network: RowNetwork) -> list[str]:
    return network.check(lambda work: work())


def test_positions_that_depend_on_the_longest_sequence_get_rows_of_one(folder: Callable[..., Path]) -> None:
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    model = folder("phi3", rope_parameters=rope | {"original_max_position_embeddings": 20})
    policy = Policy(LearnerSettings(model=model)).eval()
    assert "one sequence each" in checked(policy)[0]
    assert bench.measure_folder(model)["outcome"] == ALONE


@pytest.mark.parametrize("name", ["dropout", "hidden_dropout", "resid_pdrop", "attn_dropout_p", "router_jitter_noise"])
def test_a_layer_that_draws_is_found_whatever_it_calls_its_share(name: str) -> None:
    layer = nn.Sequential(nn.Linear(1, 1))
    assert find_dropout(layer) is None
    setattr(layer[0], name, 0.1)
    assert find_dropout(layer) == "Linear"
    setattr(layer[0], name, 0.0)
    assert find_dropout(layer) is None


def test_rows_that_mix_what_branches_off_a_shared_prefix_hold_each_prefix_again(folder: Callable[..., Path]) -> None:
    def blind(*inputs: Any, layout: RowLayout, **more: Any) -> Any:
        """Attention that takes a tree for one sequence."""
        tokens = torch.arange(layout.tokens)
        one = replace(layout, tree=None, spread_SL=tokens[None], collect_T=tokens)
        return packed_attention(*inputs, layout=layout if layout.tree is None else one, **more)

    policy = Policy(LearnerSettings(model=folder("llama")))
    register_attention(blind)
    try:
        notes = checked(policy)
    finally:
        register_attention()
    assert policy.rows.kind is RowKind.PACKED
    (note,) = notes
    assert "each sequence computes its own prefix, because 'LlamaAttention' differs from itself alone" in note


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({}, RowKind.TREE, ""),
        ({"share_prefixes": False}, RowKind.PACKED, ""),
        ({"lora": Lora(rank=2)}, RowKind.TREE, ""),
        ({"lora": Lora(rank=2, dropout=0.1)}, RowKind.PACKED, "'AdaptedLinear' drops at random"),
    ],
    ids=["default", "off", "lora", "dropout"],
)
def test_prefixes_are_shared_unless_a_key_or_dropout_forbids_it(
    folder: Callable[..., Path], settings: dict[str, Any], kind: RowKind, said: str
) -> None:
    model = folder("llama")
    policy, critic = (
        Policy(LearnerSettings(model=model, **settings)),
        build_network(LearnerSettings(model=model, **settings), None),
    )
    for network in (policy, critic):
        notes = checked(network)
        assert network.rows.kind is kind
        assert (said in notes[0]) if said else notes == []


@pytest.mark.parametrize("dtype", [DType.FP32, DType.BF16])
def test_shared_prefixes_change_log_probs_and_gradients_by_rounding_alone(
    folder: Callable[..., Path], dtype: DType
) -> None:
    policy = Policy(LearnerSettings(model=folder("qwen3"), dtype=dtype))
    checked(policy)
    sequences = list(bench._make_sequences(policy.vocab))
    found = []
    for kind in (RowKind.PACKED, RowKind.TREE):
        policy.rows.use(kind)
        policy.zero_grad()
        rows = policy.rows.pack(sequences, 120, torch.device("cpu"))
        logprobs = [policy(row, 1.0)[0] for row in rows]
        sum(each.sum() for each in logprobs).backward()
        gradients = torch.cat([each.grad.float().flatten() for each in policy.parameters() if each.grad is not None])
        tokens = sum(len(row.ids_T) for row in rows)
        found.append(
            (np.concatenate(scatter(rows, [each.detach() for each in logprobs], sequences)), gradients, tokens)
        )
    (plain, plain_gradients, whole), (tree, gradients, shared) = found
    bound, gradient_bound = {DType.FP32: (1e-5, 1e-5), DType.BF16: (0.3, 0.03)}[dtype]
    assert shared < whole
    assert np.abs(plain - tree).max() < bound
    assert float((plain_gradients - gradients).norm() / plain_gradients.norm()) < gradient_bound


@pytest.mark.parametrize("fault", ["softcap", "scaling"])
def test_attention_that_differs_from_the_models_own_is_refused_by_the_name_of_its_layer(
    folder: Callable[..., Path], fault: str
) -> None:
    def faulty(*inputs: Any, **arguments: Any) -> Any:
        wrong = {"softcap": 0.1, "scaling": 2.0}
        return packed_attention(*inputs, **{**arguments, fault: wrong[fault]})

    policy = Policy(LearnerSettings(model=folder("llama")))
    register_attention(faulty)
    try:
        with pytest.raises(RunError, match="packed attention differs from its own in 'LlamaAttention'"):
            checked(policy)
    finally:
        register_attention()


def test_attention_that_mixes_sequences_is_refused(folder: Callable[..., Path]) -> None:
    def mixing(module: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2), None

    policy = Policy(LearnerSettings(model=folder("qwen3")))
    register_attention(mixing)
    try:
        with pytest.raises(RunError, match="'Qwen3Attention'"):
            checked(policy)
    finally:
        register_attention()


def test_the_check_leaves_modes_gradients_and_random_generators_as_they_were(folder: Callable[..., Path]) -> None:
    policy = Policy(LearnerSettings(model=folder("qwen3_next")))
    policy.train()
    policy.causal.base_model.embed_tokens.eval()
    modes, state = [module.training for module in policy.modules()], torch.get_rng_state()
    checked(policy)
    assert [module.training for module in policy.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in policy.parameters())


@pytest.mark.parametrize("dtype", [DType.FP32, DType.BF16])
def test_reference_and_critic_are_checked_as_the_policy_is(folder: Callable[..., Path], dtype: DType) -> None:
    settings = LearnerSettings(model=folder("lfm2"), dtype=dtype)
    (note,) = FrozenPolicy(settings, torch.device("cpu")).notes
    assert "'Lfm2ShortConv'" in note
    critic = build_network(settings, None)
    assert checked(critic) == [note]
    assert critic.rows.kind is RowKind.ALONE


# --- borders, which the installed CPU kernels do not take


class Recurrent(torch.nn.Module):
    """A backbone whose state runs through a row, and starts anew at the borders it is given."""

    def __init__(self, *, takes_borders: bool) -> None:
        super().__init__()
        text = SimpleNamespace(vocab_size=50, pad_token_id=0)
        self.config = SimpleNamespace(get_text_config=lambda: text)
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.embedding = torch.nn.Embedding(50, 8)
        self._takes_borders = takes_borders

    def forward(self, input_ids: torch.Tensor, seq_idx: torch.Tensor | None = None, **_: Any) -> Any:
        inputs = self.embedding(input_ids)
        places = torch.arange(input_ids.shape[1])
        seen = places[:, None] >= places
        if seq_idx is not None and self._takes_borders:
            seen = seen & (seq_idx[0][:, None] == seq_idx[0])
        return SimpleNamespace(last_hidden_state=seen.float() @ inputs)


class Network(RowNetwork):
    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone, self.rows = backbone, RowReader(backbone)

    def compute(self, row: PackedRow, *_: Any) -> Any:
        return self.rows.hidden_states(row)

    def check(self, run: Any) -> list[str]:
        return [note for note in [choose_rows(self, run)] if note]


@pytest.mark.parametrize(("takes_borders", "kind"), [(True, RowKind.BORDERED), (False, RowKind.ALONE)])
def test_borders_are_passed_where_they_are_proven_to_be_enough(takes_borders: bool, kind: RowKind) -> None:
    network = Network(Recurrent(takes_borders=takes_borders))
    checked(network)
    assert network.rows.kind is kind


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
