"""Policy model: rows of packed sequences in, log-probs of trained tokens out.

The model is that of `transformers`, with attention that keeps packed sequences apart; the output layer is applied only
where its result is used. `FrozenPolicy`, the KL reference, is the same without gradients or optimiser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...dsl.model.recipe import DType
from ..learning.loss import compute_logprobs
from ..learning.packing import PackedRow, pack, packed_attention, scatter
from ..protocols import Floats, LearnerSettings, NamedTensors, TrainSequence
from .hf_models import ModelSource, load_causal_model
from .lora import add_adapters, named_adapters

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "ATTENTION",
    "TORCH_DTYPES",
    "FrozenPolicy",
    "Policy",
    "copy_weights",
    "hidden_states",
    "load_causal",
    "named_hub_parameters",
]

ATTENTION = "agym_packed"
OUTPUT_LAYER = "lm_head.weight"
TORCH_DTYPES = {DType.FP32: torch.float32, DType.BF16: torch.bfloat16, DType.FP16: torch.float16}


class Policy(nn.Module):
    """Log-probs and entropies of the trained tokens of a row, by the model of a folder."""

    def __init__(self, settings: LearnerSettings) -> None:
        super().__init__()
        self.causal = load_causal(settings)
        self._logit_elements = settings.logit_elements

    def forward(self, row: PackedRow, temperature: float) -> tuple[Tensor, Tensor]:
        hidden_ND = hidden_states(self.causal.base_model, row).index_select(0, row.predict_N)
        return compute_logprobs(hidden_ND, self.output_layer, row.targets_N, temperature, self._logit_elements)

    @property
    def vocab(self) -> int:
        return int(self.causal.config.vocab_size)

    @property
    def output_layer(self) -> Tensor:
        weight = self.causal.get_output_embeddings().weight
        assert isinstance(weight, Tensor)
        return weight


class FrozenPolicy:
    """A policy that is not trained."""

    def __init__(self, settings: LearnerSettings, device: torch.device) -> None:
        self._policy = Policy(settings).to(device).eval().requires_grad_(False)
        self._capacity = settings.tokens_per_micro_batch
        self._device = device

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        rows = pack(sequences, self._capacity, self._device)
        with torch.no_grad():
            return scatter(rows, [self._policy(row, temperature)[0] for row in rows], sequences)


def hidden_states(backbone: nn.Module, row: PackedRow) -> Tensor:
    """Return the hidden state of each token of a row."""
    hidden_1TD: Tensor = backbone(
        input_ids=row.ids_T[None],
        position_ids=row.positions_T[None],
        attention_mask=None,
        use_cache=False,
        layout=row.layout,
    ).last_hidden_state
    return hidden_1TD[0]


def copy_weights(parameters: Iterable[tuple[str, nn.Parameter]], weights: NamedTensors) -> None:
    """Copy a learner's weights, by name, into the parameters of a model of the same shape."""
    own = dict(parameters)
    with torch.no_grad():
        for name, tensor in weights:
            if name in own:
                own.pop(name).copy_(tensor)
    if own:
        raise ValueError(f"missing weights: {', '.join(sorted(own))}")


def load_causal(settings: LearnerSettings) -> PreTrainedModel:
    """Load the model of a folder, in training precision, for packed rows; with adapters where LoRA is set."""
    from transformers import AttentionInterface

    # registering the same function under the same name again changes nothing
    AttentionInterface.register(ATTENTION, packed_attention)
    source = ModelSource(path=str(settings.model), trust_remote_code=settings.trust_remote_code)
    causal = load_causal_model(source, str(TORCH_DTYPES[settings.dtype]).removeprefix("torch."), ATTENTION)
    if settings.activation_checkpointing:
        causal.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if settings.lora is not None:
        add_adapters(causal, settings.lora, settings.seed)
    return causal


def named_hub_parameters(policy: Policy) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield parameters by the names of the model's own folder, without a tied output layer and without adapters."""
    adapter_names = {name for name, _ in named_adapters(policy.causal)}
    for name, parameter in policy.causal.named_parameters():
        if name not in adapter_names:
            yield name, parameter
