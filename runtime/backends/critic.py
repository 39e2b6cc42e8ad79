"""The critic: a DeepSpeed engine around a language model with a value head.

It gives the learner's guarantees: the divisor is that of the whole update, and an update with NaN or infinity is
skipped. The output layer of a new critic begins at 0. With LoRA that layer and adapters of its own are trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..learning.loss import compute_value_loss
from ..learning.packing import PackedRow, unpack
from ..protocols import (
    Floats,
    LearnerSettings,
    NamedTensors,
    TrainSequence,
    UpdateFault,
    ValueMetrics,
    ValueSettings,
)
from .checkpoint.zero_state import whole_shape
from .checks.packing_check import choose_rows
from .checks.rows import RowNetwork, RowReader, find_backbone
from .lora import named_adapters
from .policy import copy_weights, load_causal
from .sequence_parallel import SequenceGroup, join_sequence_group
from .zero.engine import ZeroEngine

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["DeepSpeedCritic", "build_network"]


class ValueHead(nn.Module):
    """Value head: a hidden state to one number, in full precision."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, dtype=dtype))

    def forward(self, hidden_TD: Tensor) -> Tensor:
        return hidden_TD.float() @ self.weight.float()


class ValueNetwork(RowNetwork):
    """Language model with a value head: the value after each token of a row."""

    def __init__(
        self, backbone: PreTrainedModel, head: ValueHead, group: SequenceGroup | None, *, shares_prefixes: bool
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.rows = RowReader(backbone, group, shares_prefixes=shares_prefixes)
        self.head = head

    def compute(self, row: PackedRow, *_: Any) -> Tensor:
        hidden_TD, part = self.rows.read(row)
        (values_T,) = part.join(self.head(hidden_TD))
        return values_T

    def check(self, run: Callable[[Callable[[], Any]], Any]) -> list[str]:
        """Check that packed rows give the model's own hidden states; return notes for the user."""
        note = choose_rows(self, run)
        return [] if note is None else [note]


class DeepSpeedCritic(ZeroEngine):
    """One rank of the critic, in the process of the learner's rank."""

    def __init__(self, settings: LearnerSettings, weights: NamedTensors | None = None) -> None:
        """Start from the model of a folder, or with `weights` from those of a learner."""
        super().__init__(build_network(settings, weights), settings)

    def values(self, sequences: Sequence[TrainSequence]) -> list[Floats]:
        rows, values = self.outputs(sequences, self)
        return unpack(rows, values, sequences)

    def update(self, sequences: Sequence[TrainSequence], settings: ValueSettings) -> ValueMetrics:
        normaliser = self.compute_global_normaliser(sequences)
        if not normaliser.tokens:
            return ValueMetrics(fault=UpdateFault.EMPTY, lr=settings.lr)
        sums = torch.zeros(2, device=self.device)

        def loss(row: PackedRow) -> Tensor:
            assert row.values_N is not None, "values come before the update"
            assert row.value_targets_N is not None, "a critic is trained on value targets"
            values_N = self(row).index_select(0, row.predict_N)
            terms = compute_value_loss(values_N, row.values_N, row.value_targets_N, settings.clip, normaliser.tokens)
            sums.add_(torch.stack([terms.loss.detach(), terms.clipped]))
            return terms.loss

        grad_norm, _ = self.accumulate(sequences, loss, self)
        total, clipped = self.sum_over_shares(sums).tolist()
        is_finite = math.isfinite(total) and math.isfinite(grad_norm)
        if is_finite:
            self.step(settings.lr, settings.max_grad_norm, grad_norm)
        else:
            self.discard()
        return ValueMetrics(
            fault=None if is_finite else UpdateFault.NAN,
            loss=total,
            clipped=clipped / normaliser.tokens,
            grad_norm=grad_norm,
            lr=settings.lr,
        )


def build_network(settings: LearnerSettings, weights: NamedTensors | None) -> ValueNetwork:
    causal = load_causal(settings)
    if weights is not None:
        copy_weights(causal.named_parameters() if settings.lora is None else named_adapters(causal), weights)
    output = causal.get_output_embeddings().weight
    # the output layer is dropped; only its width is used
    head = ValueHead(whole_shape(output)[1], output.dtype)
    group = join_sequence_group(settings.sequence_parallel)
    return ValueNetwork(find_backbone(causal), head, group, shares_prefixes=settings.share_prefixes)
