"""The self-test of a model: packed, padded and alone agree, or rows hold one sequence, or the model is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import packing as bench
import pytest
import torch
from agym.dsl.model.recipe import DType
from agym.runtime.backends.checks.packing_check import choose_rows
from agym.runtime.backends.checks.rows import RowKind, RowNetwork, RowReader, register_attention
from agym.runtime.backends.critic import build_network
from agym.runtime.backends.policy import FrozenPolicy, Policy
from agym.runtime.errors import RunError
from agym.runtime.learning.packing import PackedRow, packed_attention
from agym.runtime.protocols import LearnerSettings

pytestmark = pytest.mark.filterwarnings("ignore")
PACKED, ALONE, REFUSED = bench.PACKED, bench.ALONE, bench.REFUSED

KINDS: dict[str, tuple[str, str]] = {
    # attention
    "llama": (PACKED, ""),
    "qwen3": (PACKED, ""),
    "gpt2": (PACKED, ""),
    "phi": (PACKED, ""),
    "opt": (PACKED, ""),
    "cohere2": (PACKED, ""),
    "granite": (PACKED, ""),
    "gemma2": (PACKED, ""),
    "gpt_oss": (PACKED, ""),
    "deepseek_v3": (PACKED, ""),
    "llama4_text": (PACKED, ""),
    "diffllama": (PACKED, ""),
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
