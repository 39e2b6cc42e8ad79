"""Claim: for every causal language model of the installed transformers, as a tiny random model, rows of packed
sequences give the log-probs that each sequence has alone and padded, or the learner refuses the model by name. None is
accepted with other log-probs than its own (limit 1e-3 nats in fp32).

Each architecture gets one layer of every kind that its configuration knows, weights that leave no layer inactive, and
nine sequences of 4 to 40 tokens, longer than its attention windows, which are 8; five of them begin alike, in a tree.
What could not be built is listed with the reason. With `--dtype bf16` the difference that rounding alone makes is
measured, which `ROUNDING` allows for.

"prefixes once" are those whose rows hold a prefix that sequences share once, and are right that way as well.

    python bench/packing.py --out FOLDER [--seconds 120] [--only NAME ...] [--dtype bf16]

Each result is a file in FOLDER; the command continues where it was when its time was over.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from agym.dsl.model.recipe import DType
from agym.runtime.errors import RunError
from agym.runtime.protocols import LearnerSettings, TrainSequence

if TYPE_CHECKING:
    from agym.runtime.backends.policy import Policy
    from transformers import PreTrainedModel

LIMIT = 1e-3
TREE, PACKED, ALONE = "prefixes once", "packed", "one per row"
REFUSED, NOT_BUILT, WRONG = "refused", "not built", "WRONG"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--dtype", type=DType, default=DType.FP32)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    end, wanted = time.monotonic() + arguments.seconds, arguments.only or list_architectures()
    for name in wanted:
        file = arguments.out / f"{name}.json"
        if not file.exists() and time.monotonic() < end:
            file.write_text(json.dumps(measure(name, arguments.dtype)))
    found = {name: json.loads(file.read_text()) for name in wanted if (file := arguments.out / f"{name}.json").exists()}
    for name, result in found.items():
        print(f"{name:24} {result['outcome']:12} {result['error']:.1e}  {result['note']}")
    counts = Counter(result["outcome"] for result in found.values())
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()), f"of {len(wanted)}")
    return 1 if counts[WRONG] else 0


def list_architectures() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def measure(name: str, dtype: DType = DType.FP32, **values: Any) -> dict[str, Any]:
    """The outcome of one architecture: how its rows are packed, and how far its log-probs are from its own."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = make_tiny_model(name, **values)
            model(input_ids=torch.arange(5, 15)[None])
            model.save_pretrained(folder)
        except Exception as error:
            return _result(NOT_BUILT, note=f"{type(error).__name__}: {str(error)[:150]}")
        return measure_folder(Path(folder), dtype)


def measure_folder(folder: Path, dtype: DType = DType.FP32) -> dict[str, Any]:
    from agym.runtime.backends.policy import Policy

    try:
        policy = Policy(LearnerSettings(model=folder, dtype=dtype)).eval()
        notes = policy.check(lambda work: work())
    except RunError as error:
        return _result(REFUSED, note=str(error))
    outcome = ALONE if policy.rows.kind.is_alone else _PACKED.get(policy.rows.kind.name, PACKED)
    error = _compare(policy)
    is_right = error <= LIMIT or dtype is not DType.FP32
    return _result(outcome if is_right else WRONG, error, " ".join(notes))


_PACKED = {"TREE": TREE}


def _result(outcome: str, error: float = 0.0, note: str = "") -> dict[str, Any]:
    return {"outcome": outcome, "error": error, "note": note}


# --- log-probs, packed, padded and alone ---------------------------------------------------------------------------


def _compare(policy: Policy) -> float:
    """The largest difference of a log-prob from the model's own, of each sequence alone and of all of them padded."""
    from agym.runtime.backends.checks.rows import OWN_ATTENTION
    from agym.runtime.learning.packing import scatter

    sequences = list(_make_sequences(policy.vocab))
    kind = policy.rows.kind
    with torch.no_grad():
        rows = policy.rows.pack(sequences, 200, torch.device("cpu"))
        found = scatter(rows, [policy(row, 1.0)[0] for row in rows], sequences)
        policy.causal.set_attn_implementation(OWN_ATTENTION)
        policy.rows.use(type(kind).OWN)
        alone = [_own_logprobs(policy.causal, torch.from_numpy(each.ids).long()[None])[0] for each in sequences]
        ids = [torch.from_numpy(each.ids).long() for each in sequences]
        padded = _own_logprobs(
            policy.causal,
            torch.nn.utils.rnn.pad_sequence(ids, batch_first=True),
            attention_mask=torch.nn.utils.rnn.pad_sequence([torch.ones_like(each) for each in ids], batch_first=True),
        )
    ours = [torch.from_numpy(each)[1:] for each in found]
    apart = [(mine - own).abs().max() for mine, own in zip(ours, alone, strict=True)]
    if not kind.is_alone:
        apart += [(mine - own[: len(mine)]).abs().max() for mine, own in zip(ours, padded, strict=True)]
    return float(torch.stack(apart).nan_to_num(nan=torch.inf).max())


def _own_logprobs(causal: PreTrainedModel, ids_BL: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
    logp_BLV = causal(input_ids=ids_BL, **more).logits.float().log_softmax(-1)
    return logp_BLV[:, :-1].gather(2, ids_BL[:, 1:, None])[..., 0]


def _make_sequences(vocab: int) -> Iterator[TrainSequence]:
    draws = np.random.Generator(np.random.PCG64(1))
    first = draws.integers(5, min(vocab, VOCAB), 40)
    for length, common in ((40, 40), (31, 0), (17, 0), (9, 0), (4, 0), (38, 30), (36, 12), (30, 14), (20, 20)):
        mask = np.arange(length) > 0
        ids = np.concatenate([first[:common], draws.integers(5, min(vocab, VOCAB), length - common)]).astype(np.int32)
        yield TrainSequence(ids=ids, loss_mask=mask, advantages=mask.astype(np.float32))


# --- tiny models ---------------------------------------------------------------------------------------------------

VOCAB = 99
_SIZES: Mapping[int, str] = {
    VOCAB: "vocab_size vocab_size_per_layer_input",
    32: "hidden_size n_embd d_model dim embedding_size word_embed_proj_dim lru_width hidden_dim q_lora_rank "
    "n_inner chunk_size mamba_chunk_size",
    64: "intermediate_size ffn_dim ffn_hidden_size shared_expert_intermediate_size block_ff_dim "
    "attention_hidden_size moe_shared_expert_intermediate_size shared_intermediate_size d_ff "
    "intermediate_size_mlp dim_feedforward prefix_dense_intermediate_size dense_intermediate_size",
    16: "moe_intermediate_size kv_lora_rank state_size mamba_d_state ssm_state_size "
    "hidden_size_per_layer_input mamba_d_head mamba_head_dim o_lora_rank dim_model_base n_groups_dim",
    8: "head_dim sliding_window attention_window_size attention_chunk_size qk_nope_head_dim qk_rope_head_dim "
    "v_head_dim linear_key_head_dim linear_value_head_dim global_head_dim window_size kv_channels "
    "mamba_num_heads mamba_n_heads v_head_size swa_head_dim index_head_dim qk_head_dim",
    4: "num_attention_heads n_head num_heads num_local_experts n_routed_experts num_experts moe_num_experts "
    "linear_num_value_heads time_step_rank mamba_dt_rank swa_num_attention_heads num_swa_attention_heads "
    "attention_heads decoder_attention_heads index_n_heads rotary_dim",
    2: "num_key_value_heads num_experts_per_tok moe_topk moe_k num_experts_per_token linear_num_key_heads "
    "n_shared_experts num_global_key_value_heads swa_num_key_value_heads num_swa_key_value_heads top_k "
    "moe_top_k attention_kv_heads num_kv_heads n_head_kv",
    1: "n_group topk_group n_groups mamba_n_groups first_k_dense_replace pretraining_tp num_codebooks "
    "num_nextn_predict_layers",
    512: "max_position_embeddings n_positions n_ctx seq_length max_seq_len",
}
_LAYERS = ("decoder_layers", "num_hidden_layers", "n_layer", "num_layers", "n_layers")
_OFTEN_UNSET = ("head_dim", "num_key_value_heads", "num_experts_per_tok")
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_OF_ONE: Mapping[str, Mapping[str, Any]] = {
    "deepseek_v2": {"n_routed_experts": 4, "num_experts_per_tok": 2},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "num_hidden_layers": 2, "attn_layer_indices": [1]},
    "cohere_compass_text": {
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            kind: {**_ROPE, "mrope_section": [1, 1, 2]} for kind in ("sliding_attention", "full_attention")
        },
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "falcon_h1": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_ssm": 64},
    "falcon_mamba": {"intermediate_size": 64},
    "gemma3n_text": {
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "num_kv_shared_layers": 1,
        "intermediate_size": 64,
        "activation_sparsity_pattern": [0.0, 0.0, 0.0],
    },
    "granitemoehybrid": {
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
        "num_hidden_layers": 2,
        "layer_types": ["mamba", "attention"],
    },
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 2},
    **{key: {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2} for key in ("lfm2", "lfm2_moe")},
    "longcat_flash": {"head_dim": 8, "qk_head_dim": 16},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    "phi3": {"rope_parameters": _ROPE},
    "prophetnet": {"num_encoder_layers": 2, "num_decoder_layers": 2},
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    "reformer": {"axial_pos_embds": False, "is_decoder": True},
    "rwkv": {"attention_hidden_size": 32},
    "xlstm": {"qk_dim_factor": 1.0, "hidden_size": 64},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"]},
    "zaya": {"num_experts_per_tok": 1},
}
"""Values that an architecture needs to be this small."""


def make_tiny_model(name: str, **values: Any) -> PreTrainedModel:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = _make_config(lambda **known: AutoConfig.for_model(name, **known), {**_OF_ONE.get(name, {}), **values})
    if hasattr(config, "is_decoder"):
        config.is_decoder = True
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0.0, parameter.shape[-1] ** -0.5)
                else:
                    parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def _make_config(make: Any, values: Mapping[str, Any]) -> Any:
    """A configuration with small sizes and one layer of each kind."""
    whole = make()
    sizes = {name: size for size, names in _SIZES.items() for name in names.split()}
    fields = whole.to_dict()
    known = [name for name in sizes if not isinstance(getattr(type(whole), name, None), property)]
    small = {name: sizes[name] for name in known if isinstance(fields.get(name), int)}
    small |= {name: sizes[name] for name in _OFTEN_UNSET if name in fields and fields[name] is None}
    tokens = {f"{which}_token_id": at for at, which in enumerate(("pad", "bos", "eos"))}
    small |= {name: token for name, token in tokens.items() if name in fields}
    small |= _choose_layers(whole)
    for key in getattr(whole, "sub_configs", {}):
        part = getattr(whole, key, None)
        if part is not None:
            small[key] = _make_config(lambda part=part, **known: type(part)(**known), {}).to_dict()
    if "kv_lora_rank" in fields:
        # the latent attention of DeepSeek's has as many heads of keys as of queries
        small |= {"num_key_value_heads": small.get("num_attention_heads", 4)}
    return make(**{**small, **values})


def _choose_layers(whole: Any) -> dict[str, Any]:
    """Of the layers that a configuration lists, the first of each kind; two where it lists none."""
    settable = (name for name in _LAYERS if not isinstance(getattr(type(whole), name, None), property))
    key = next((name for name in settable if isinstance(getattr(whole, name, None), int)), None)
    if key is None:
        return {}
    if "encoder_layers" in whole.to_dict():
        return {"encoder_layers": 2, "decoder_layers": 2}
    count = getattr(whole, key)
    lists = {name: value for name, value in vars(whole).items() if isinstance(value, list) and len(value) == count > 3}
    kinds = list(zip(*(map(str, value) for value in lists.values()), strict=True))
    chosen = [at for at, kind in enumerate(kinds) if kind not in kinds[:at]]
    if not 0 < len(chosen) <= 8:
        return {key: 2}
    chosen = chosen if len(chosen) > 1 else [0, 1]
    return {key: len(chosen), **{name: [value[at] for at in chosen] for name, value in lists.items()}}


if __name__ == "__main__":
    sys.exit(main())
