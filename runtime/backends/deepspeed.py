"""The learner: a DeepSpeed engine around the policy.

Gradients of all micro-batches are accumulated with the divisor of the whole update. Then the update is checked: with
NaN or infinity, or beyond its limits, it is skipped, and weights and optimiser stay as they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch
import torch.distributed
from torch import Tensor, nn

from ...dsl.model.algorithm import Importance, Level, LossKind
from ...dsl.model.recipe import Lora
from ..learning.importance import has_segments, share_log_ratios
from ..learning.loss import LossInputs, LossTerms, compute_loss, compute_token_scale, weigh_by_own_logprobs
from ..learning.packing import PackedRow, scatter
from ..protocols import (
    Checksum,
    Floats,
    LearnerSettings,
    LossSettings,
    NamedTensors,
    Normaliser,
    Scorer,
    TrainSequence,
    UpdateFault,
    UpdateLimits,
    UpdateMetrics,
    UpdateSettings,
)
from .checks.checksums import checksums
from .hf_models import ModelSource, copy_tokenizer, write_model
from .lora import (
    AdapterReference,
    adapted_layers,
    adapter_shapes,
    named_adapters,
    read_adapters,
    read_foreign_adapters,
    write_adapters,
)
from .policy import OUTPUT_LAYER, Policy, copy_weights, named_hub_parameters
from .process_group import max_over_ranks
from .zero.engine import ZeroEngine

__all__ = ["DeepSpeedLearner"]

_STATE = "learner"
_ADAPTERS = "adapter"
"""Folder of the adapters inside an exported model."""


class DeepSpeedLearner(ZeroEngine):
    """One rank of the learner."""

    def __init__(self, settings: LearnerSettings, start: Path | None = None) -> None:
        """Start from the model of the settings, or from the learner that was exported to the folder `start`."""
        self._settings = settings
        # frozen weights are not part of a checkpoint, so they always come from the model of the settings
        self._policy = Policy(settings if start is None or settings.lora else replace(settings, model=start))
        adapters = _choose_adapters(settings.lora, start, self._policy.causal)
        if adapters is not None:
            copy_weights(named_adapters(self._policy.causal), adapters.items())
        super().__init__(self._policy, settings, outside=self._policy.outside)

    @property
    def vocab(self) -> int:
        """Size of the model's vocabulary."""
        return self._policy.vocab

    # --- learning

    def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        sequences = self._share_ratios(sequences, settings.loss)
        return self._update(sequences, settings, lambda row, inputs: inputs)

    def update_weighed(
        self, sequences: Sequence[TrainSequence], settings: UpdateSettings, importance: Importance
    ) -> tuple[UpdateMetrics, list[Floats]]:
        rows, logprobs = list[PackedRow](), list[Tensor]()

        def weigh(row: PackedRow, inputs: LossInputs) -> LossInputs:
            weighed = weigh_by_own_logprobs(inputs, importance)
            assert weighed.old_N is not None, "they are what was given last"
            rows.append(row)
            logprobs.append(weighed.old_N)
            return weighed

        metrics = self._update(sequences, settings, weigh)
        return metrics, scatter(rows, logprobs, sequences)

    def _update(
        self,
        sequences: Sequence[TrainSequence],
        settings: UpdateSettings,
        weigh: Callable[[PackedRow, LossInputs], LossInputs],
    ) -> UpdateMetrics:
        normaliser = self.compute_global_normaliser(sequences)
        if not normaliser.tokens:
            return UpdateMetrics(fault=UpdateFault.EMPTY, lr=settings.lr)
        sums = _Sums.zero(self.device)

        def loss(row: PackedRow) -> Tensor:
            nonlocal sums
            terms = compute_loss(weigh(row, self._inputs(row, normaliser, settings.loss)), settings.loss)
            sums += terms
            return terms.loss

        grad_norm, micro_batches = self.accumulate(sequences, loss, self._logprobs)
        metrics = _metrics(sums.over_ranks(self.sum_over_shares), normaliser, settings, grad_norm, micro_batches)
        metrics = replace(metrics, fault=_find_fault(metrics, settings.limits))
        if metrics.fault is None:
            self.step(settings.lr, settings.max_grad_norm, grad_norm)
        else:
            self.discard()
        return metrics

    def _share_ratios(self, sequences: Sequence[TrainSequence], loss: LossSettings) -> Sequence[TrainSequence]:
        """Attach the ratio of each episode whose segments may be in several micro-batches: one more forward pass."""
        shares = loss.ratio is Level.EPISODE and loss.kind is not LossKind.POLICY_GRADIENT
        needed = (shares or loss.off_policy is not None) and has_segments(sequences)
        if not max_over_ranks(torch.tensor(int(needed), device=self.device)):
            return sequences
        return share_log_ratios(sequences, self.logprobs(sequences, loss.temperature))

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        rows, logprobs = self.outputs(sequences, lambda row: self._logprobs(row, temperature))
        return scatter(rows, logprobs, sequences)

    def _logprobs(self, row: PackedRow, temperature: float = 1.0) -> Tensor:
        logprobs_N: Tensor = self(row, temperature)[0]
        return logprobs_N

    def _inputs(self, row: PackedRow, normaliser: Normaliser, loss: LossSettings) -> LossInputs:
        logprobs_N, entropy_N = self(row, loss.temperature)
        return LossInputs(
            logprobs_N=logprobs_N,
            entropy_N=entropy_N,
            advantages_N=row.advantages_N,
            scale_N=compute_token_scale(
                row.episode_lengths_S, row.sequence_N, loss.aggregation, loss.length, normaliser
            ),
            unit_N=row.units(loss.ratio),
            shared_log_ratio_N=row.shared_log_ratio_N,
            episode_N=row.sequence_N,
            sampled_N=row.sampled_N,
            shared_drift_N=row.shared_drift_N,
            old_N=row.old_N,
            reference_N=row.reference_N,
            weights_N=row.weights_N,
        )

    # --- weights

    def weights(self) -> NamedTensors:
        return self._merged_weights() if self._settings.lora is None else self._adapters()

    def checksums(self) -> Mapping[str, Checksum]:
        return checksums(self.weights())

    def _adapters(self) -> NamedTensors:
        for name, parameter in named_adapters(self._policy.causal):
            with self.gather_parameters(parameter):
                yield name, parameter.detach()

    def _merged_weights(self, *, tied: bool = False) -> NamedTensors:
        """Yield the weights of an equivalent model without adapters; `tied` leaves out an output layer that is the
        embedding."""
        layers, names = adapted_layers(self._policy.causal), set()
        for name, parameter in named_hub_parameters(self._policy):
            names.add(name)
            layer = layers.get(name.removesuffix(".weight"))
            with self.gather_parameters(parameter, *((layer.lora_A, layer.lora_B) if layer else ())):
                yield name, layer.merged() if layer else parameter.detach()
        if OUTPUT_LAYER not in names and not tied:
            output = self._policy.output_layer
            with self.gather_parameters(output):
                yield OUTPUT_LAYER, output.detach()

    def reference(self, folder: Path | None) -> Scorer:
        """Return the model that training began with, or the one exported to `folder`, without loading either; with LoRA
        only."""
        others = _choose_adapters(self._settings.lora, folder, self._policy.causal)
        return AdapterReference(self, self._policy.causal, others)

    def export(self, folder: Path) -> None:
        """Write a model folder that others can load: tied as it was, adapters merged, and with them in a folder of
        their own."""
        adapter_weights = {name: tensor.cpu().clone() for name, tensor in self._adapters()}
        if torch.distributed.get_rank() > 0:
            for _ in self._merged_weights(tied=self._policy.is_tied):
                pass
        else:
            weights = self._merged_weights(tied=self._policy.is_tied)
            write_model(self._policy.causal, weights, folder, tied=self._policy.is_tied)
            if self._settings.lora is not None:
                base = self._settings.base_model or str(self._settings.model)
                write_adapters(adapter_weights, self._settings.lora, folder / _ADAPTERS, base)
            path = self._settings.tokenizer or str(self._settings.model)
            source = ModelSource(path=path, trust_remote_code=self._settings.trust_remote_code)
            copy_tokenizer(source, folder, self._settings.chat_template)
        # no rank returns before the folder is there
        torch.distributed.barrier()

    # --- checkpoints

    def save(self, folder: Path) -> None:
        super().save(folder / _STATE)

    def load(self, folder: Path) -> None:
        super().load(folder / _STATE)


def _choose_adapters(lora: Lora | None, folder: Path | None, causal: nn.Module) -> dict[str, Tensor] | None:
    """Those of an exported model, else those that the recipe begins with, if any."""
    if lora is None:
        return None
    if folder is not None:
        return read_adapters(folder / _ADAPTERS)
    return None if lora.path is None else read_foreign_adapters(Path(lora.path), lora, adapter_shapes(causal))


# --- what an update was like ---------------------------------------------------------------------------------------

_SUMMED = ("loss", "policy_loss", "entropy", "reference_kl", "sampler_kl", "ratio", "clipped_low", "clipped_high")


@dataclass(slots=True)
class _Sums:
    """Sums over micro-batches, on the device until the update is done."""

    terms: Tensor
    """In the order of `_SUMMED`."""
    ratio_error: Tensor

    @classmethod
    def zero(cls, device: torch.device) -> Self:
        return cls(torch.zeros(len(_SUMMED), device=device), torch.zeros((), device=device))

    def __iadd__(self, terms: LossTerms) -> Self:
        self.terms += torch.stack([getattr(terms, name).detach().float() for name in _SUMMED])
        self.ratio_error = torch.maximum(self.ratio_error, terms.ratio_error)
        return self

    def over_ranks(self, sum_over_shares: Callable[[Tensor], Tensor]) -> tuple[dict[str, float], float]:
        terms, error = sum_over_shares(self.terms), max_over_ranks(self.ratio_error)
        return dict(zip(_SUMMED, terms.tolist(), strict=True)), float(error)


def _metrics(
    sums: tuple[Mapping[str, float], float],
    normaliser: Normaliser,
    settings: UpdateSettings,
    grad_norm: float,
    micro_batches: int,
) -> UpdateMetrics:
    terms, ratio_error = sums
    return UpdateMetrics(
        fault=None,
        loss=terms["loss"],
        policy_loss=terms["policy_loss"],
        entropy=terms["entropy"] / normaliser.tokens,
        reference_kl=terms["reference_kl"] / normaliser.tokens,
        sampler_kl=terms["sampler_kl"] / normaliser.tokens,
        ratio_mean=terms["ratio"] / normaliser.tokens,
        ratio_error=ratio_error,
        clipped_low=terms["clipped_low"] / normaliser.tokens,
        clipped_high=terms["clipped_high"] / normaliser.tokens,
        grad_norm=grad_norm,
        lr=settings.lr,
        tokens=normaliser.tokens,
        sequences=normaliser.sequences,
        micro_batches=micro_batches,
    )


def _find_fault(metrics: UpdateMetrics, limits: UpdateLimits) -> UpdateFault | None:
    if not (math.isfinite(metrics.loss) and math.isfinite(metrics.grad_norm)):
        return UpdateFault.NAN
    if limits.kl is not None and metrics.sampler_kl > limits.kl:
        return UpdateFault.KL
    if limits.grad_norm is not None and metrics.grad_norm > limits.grad_norm:
        return UpdateFault.GRAD_NORM
    return None
