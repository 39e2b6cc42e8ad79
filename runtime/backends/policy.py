"""Policy model: rows of packed sequences in, log-probs of trained tokens out.

The model is that of `transformers`, with attention that keeps packed sequences apart; the output layer is applied only
where its result is used. `FrozenPolicy`, the KL reference, is the same without gradients or optimiser; it is divided
among the ranks where the learner is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...dsl.model.recipe import DType
from ..errors import RunError
from ..learning.loss import Head, compute_logits, compute_logprobs
from ..learning.packing import PackedRow, scatter
from ..protocols import Floats, LearnerSettings, NamedTensors, TrainSequence
from .checks.packing_check import choose_head, choose_rows
from .checks.rows import ATTENTION, OWN_ATTENTION, RowNetwork, RowReader, find_backbone, register_attention
from .hf_models import ModelSource, load_causal_model
from .lora import add_adapters, named_adapters
from .sequence_parallel import join_sequence_group
from .zero.divided_weights import gather_parameters, is_divided, load_divided
from .zero.engine import ZeroEngine

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "TORCH_DTYPES",
    "FrozenPolicy",
    "Policy",
    "copy_weights",
    "load_causal",
    "named_hub_parameters",
]

OUTPUT_LAYER = "lm_head.weight"
TORCH_DTYPES = {DType.FP32: torch.float32, DType.BF16: torch.bfloat16, DType.FP16: torch.float16}


class Policy(RowNetwork):
    """Log-probs and entropies of the trained tokens of a row, by the model of a folder."""

    def __init__(self, settings: LearnerSettings) -> None:
        super().__init__()
        self.causal = load_causal(settings)
        self.rows = RowReader(
            find_backbone(self.causal),
            join_sequence_group(settings.sequence_parallel),
            shares_prefixes=settings.share_prefixes,
        )
        self._logit_elements = settings.logit_elements
        self._head = Head(fp32=settings.fp32_head)

    def compute(self, row: PackedRow, *inputs: float) -> tuple[Tensor, Tensor]:
        (temperature,) = inputs
        hidden_ND, part = self.rows.read(row, row.predict_N)
        hidden_ND, head_VD = self._join_bias(hidden_ND)
        targets_N = part.select(row.targets_N)
        logprobs_N, entropy_N = part.join(
            *compute_logprobs(hidden_ND, head_VD, targets_N, temperature, self._logit_elements, self._head)
        )
        return logprobs_N, entropy_N

    def check(self, run: Callable[[Callable[[], Any]], Any]) -> list[str]:
        """Check that packed rows give the model's own log-probs; return notes for the user."""
        note = choose_rows(self, run)
        chosen = choose_head(
            self, self.causal, lambda hidden, head: compute_logits(*self._join_bias(hidden), head), run
        )
        self._head = replace(chosen, fp32=self._head.fp32)
        return [] if note is None else [note]

    @property
    def vocab(self) -> int:
        return int(self.causal.config.get_text_config().vocab_size)

    @property
    def output_layer(self) -> Tensor:
        weight = self.causal.get_output_embeddings().weight
        assert isinstance(weight, Tensor)
        return weight

    @property
    def is_tied(self) -> bool:
        """Whether the output layer is the embedding."""
        return self.output_layer is self.causal.get_input_embeddings().weight and self._output_bias is None

    @property
    def outside(self) -> list[Tensor]:
        """Parameters that are read without calling the module that holds them."""
        bias = self._output_bias
        return [self.output_layer] if bias is None else [self.output_layer, bias]

    @property
    def _output_bias(self) -> Tensor | None:
        bias: Tensor | None = getattr(self.causal.get_output_embeddings(), "bias", None)
        return bias

    def _join_bias(self, hidden_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states and output layer; a bias is the weight of an input that is always 1."""
        # some models keep their last hidden states in fp32
        hidden_ND, bias_V = hidden_ND.to(self.output_layer.dtype), self._output_bias
        if bias_V is None:
            return hidden_ND, self.output_layer
        hidden_ND = torch.cat([hidden_ND, hidden_ND.new_ones(len(hidden_ND), 1)], 1)
        return hidden_ND, torch.cat([self.output_layer, bias_V[:, None]], 1)


class FrozenPolicy:
    """A policy that is not trained."""

    def __init__(self, settings: LearnerSettings, device: torch.device) -> None:
        self._policy = Policy(settings).requires_grad_(False)
        self._engine: ZeroEngine | None = None
        if is_divided(settings):
            self._engine = ZeroEngine(self._policy, settings, outside=self._policy.outside)
            self.notes = self._engine.notes
            # DeepSpeed itself keeps references to what it has started
            weakref.finalize(self, self._engine.close).atexit = False
        else:
            self._policy.to(device).eval()
            self.notes = self._policy.check(lambda work: work())
        self._capacity = settings.tokens_per_micro_batch
        self._device = device

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        if self._engine is not None:
            engine = self._engine
            return scatter(*engine.outputs(sequences, lambda row: engine(row, temperature)[0]), sequences)
        rows = self._policy.rows.pack(sequences, self._capacity, self._device)
        with torch.no_grad():
            return scatter(rows, [self._policy(row, temperature)[0] for row in rows], sequences)


def copy_weights(parameters: Iterable[tuple[str, nn.Parameter]], weights: NamedTensors) -> None:
    """Copy a learner's weights, by name, into the parameters of a model of the same shape."""
    own = dict(parameters)
    for name, tensor in weights:
        if (parameter := own.pop(name, None)) is not None:
            with torch.no_grad(), gather_parameters(parameter, are_changed=True):
                parameter.copy_(tensor)
    if own:
        raise ValueError(f"missing weights: {', '.join(sorted(own))}")


def load_causal(settings: LearnerSettings) -> PreTrainedModel:
    """Load the model of a folder, in training precision, for packed rows; with adapters where LoRA is set."""
    register_attention()
    source = ModelSource(path=str(settings.model), trust_remote_code=settings.trust_remote_code)
    dtype = str(TORCH_DTYPES[settings.dtype]).removeprefix("torch.")
    try:
        with load_divided(settings):
            try:
                causal = load_causal_model(source, dtype, ATTENTION)
            except KeyError:
                # an older architecture has a class for each attention that it knows
                causal = load_causal_model(source, dtype, OWN_ATTENTION)
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        raise RunError(f"model: '{settings.model}' is no causal language model that can be loaded: {reason}") from error
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
