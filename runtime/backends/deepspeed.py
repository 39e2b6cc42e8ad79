"""The learner: a DeepSpeed engine around the policy.

Enters: training sequences with advantages. Leaves: new weights and what the update was like. Gradients of all
micro-batches are accumulated with the divisor of the whole update; then, before anything is changed, the update is
judged: an update that is not a number, or beyond the limits it was given, leaves weights and optimiser as they were.
Nothing is compiled at run time: the optimiser is PyTorch's AdamW, and collectives on a CPU go over gloo.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed
from torch import Tensor, nn

from ...dsl.recipe import DType, Offload
from ..loss import LossInputs, LossTerms, loss_terms, token_scale
from ..models import ModelSource, copy_tokenizer, write_model
from ..packing import Row, idle_row, pack, scatter, totals
from ..ports import (
    Floats,
    LearnerSettings,
    Limits,
    NamedTensors,
    Normaliser,
    OptimizerSettings,
    TrainSequence,
    UpdateFault,
    UpdateMetrics,
    UpdateSettings,
)
from .group import join_process_group
from .policy import OUTPUT_LAYER, Policy, hub_names, load_policy

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

__all__ = ["DeepSpeedLearner"]

_TAG = "learner"


class DeepSpeedLearner:
    """One rank of the learner. With several ranks each is given its share of the sequences, and all are called alike;
    the launcher has then made the process group."""

    def __init__(self, settings: LearnerSettings) -> None:
        if settings.zero == 0 and settings.dtype is not DType.FP32:
            # DeepSpeed runs an empty Adam step at its start there, which takes a quarter off the first update
            raise ValueError(f"{settings.dtype} needs ZeRO stage 1 or higher")
        self._settings = settings
        self._engine, self._optimizer = _start(settings)
        self._policy: Policy = self._engine.module
        self._gradients = _GRADIENTS[settings.zero](self._engine)

    @property
    def vocab(self) -> int:
        """Ids that the model knows."""
        return int(self._policy.vocab)

    @property
    def device(self) -> torch.device:
        device = self._engine.device
        assert isinstance(device, torch.device)
        return device

    # --- learning

    def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        """One optimiser step over all `sequences`, in as many micro-batches as they need."""
        rows = self._rows(sequences)
        whole = self._whole_of_ranks(totals(sequences))
        if not whole.tokens:
            return _empty(settings)
        self._engine.train()
        sums = _Sums.zero(self.device)
        for at, row in enumerate(rows):
            self._engine.set_gradient_accumulation_boundary(at == len(rows) - 1)
            if row is None:
                self._idle()
            else:
                sums += self._backward(row, whole, settings)
        grad_norm = self._gradients.norm()
        metrics = _metrics(sums, whole, settings, grad_norm, len(rows))
        metrics = replace(metrics, fault=_judge(metrics, settings.limits))
        if metrics.fault is None:
            self._step(settings, grad_norm)
        else:
            self._gradients.discard()
        return metrics

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        """Of each token given those before it, 0 at the first and where nothing is learnt; without gradient."""
        rows = self._rows(sequences)
        self._engine.eval()
        with torch.no_grad():
            outputs = [self._idle() if row is None else self._engine(row, temperature)[0] for row in rows]
        busy = [(row, output) for row, output in zip(rows, outputs, strict=True) if row is not None]
        return scatter([row for row, _ in busy], [output for _, output in busy], sequences)

    def optimise_by(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        """Sets the optimiser's constants; `fresh` also forgets what it has averaged.

        Weight decay is for the first group, the matrices; where the learner was built without any there is but one
        group, of all parameters, and none can come later.
        """
        groups = self._optimizer.param_groups
        if settings.weight_decay and len(groups) == 1:
            raise ValueError("expected a learner built with weight decay, so that matrices have a group of their own")
        for group, decay in zip(groups, (settings.weight_decay, 0.0), strict=False):
            group.update(betas=settings.betas, eps=settings.eps, weight_decay=decay)
        if fresh:
            for state in self._optimizer.state.values():
                for average in state.values():
                    if isinstance(average, Tensor):
                        average.zero_()

    def _rows(self, sequences: Sequence[TrainSequence]) -> list[Row | None]:
        """This rank's micro-batches; None where it has none left and another rank still has."""
        rows = pack(sequences, self._settings.tokens_per_micro_batch, self.device)
        return [*rows, *[None] * (self._largest_over_ranks(len(rows)) - len(rows))]

    def _idle(self) -> Tensor:
        """Goes through the collectives of a micro-batch and learns nothing."""
        empty: Tensor = self._engine(idle_row(self.device), 1.0)[0] * 0.0
        if torch.is_grad_enabled():
            self._engine.backward(empty.sum(), scale_wrt_gas=False)
        return empty

    def _backward(self, row: Row, whole: Normaliser, settings: UpdateSettings) -> LossTerms:
        logprobs_N, entropy_N = self._engine(row, settings.loss.temperature)
        scale_N = token_scale(row.lengths_S, row.sequence_N, settings.loss.aggregation, settings.loss.length, whole)
        terms = loss_terms(
            LossInputs(
                logprobs_N=logprobs_N,
                entropy_N=entropy_N,
                advantages_N=row.advantages_N,
                scale_N=scale_N,
                unit_N=row.units(settings.loss.ratio),
                old_N=row.old_N,
                reference_N=row.reference_N,
                weights_N=row.weights_N,
            ),
            settings.loss,
        )
        # ranks average their gradients; the divisor is already that of all of them
        self._engine.backward(terms.loss * _ranks(), scale_wrt_gas=False)
        return terms

    def _step(self, settings: UpdateSettings, grad_norm: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = settings.lr
        self._gradients.clip(settings.max_grad_norm, grad_norm)
        self._engine.step()
        if not self._engine.was_step_applied():
            raise RuntimeError("expected DeepSpeed to apply an update that was found sound, and it did not")

    # --- ranks

    def _whole_of_ranks(self, own: Normaliser) -> Normaliser:
        counts = torch.tensor([own.tokens, own.sequences], device=self.device)
        if _ranks() > 1:
            torch.distributed.all_reduce(counts)
        tokens, sequences = counts.tolist()
        return Normaliser(tokens=tokens, sequences=sequences)

    def _largest_over_ranks(self, count: int) -> int:
        if _ranks() == 1:
            return count
        counts = torch.tensor(count, device=self.device)
        torch.distributed.all_reduce(counts, torch.distributed.ReduceOp.MAX)
        return int(counts)

    # --- weights

    def weights(self) -> NamedTensors:
        """The weights, one tensor at a time; valid until the next update."""
        names = set()
        for name, parameter in hub_names(self._policy):
            with self._whole(parameter):
                names.add(name)
                yield name, parameter.detach()
        if OUTPUT_LAYER not in names:
            output = self._policy.output_layer
            with self._whole(output):
                yield OUTPUT_LAYER, output.detach()

    def _whole(self, parameter: Tensor) -> AbstractContextManager[Any]:
        if self._settings.zero < 3:
            return nullcontext()
        import deepspeed

        gathered: AbstractContextManager[Any] = deepspeed.zero.GatheredParameters([parameter])
        return gathered

    def export(self, folder: Path) -> None:
        """A model folder that others can load; its output layer is written out, tied or not."""
        tensors = {name: tensor.cpu().clone() for name, tensor in self.weights()}
        if torch.distributed.get_rank() == 0:
            write_model(self._policy.causal, tensors, folder)
            path = self._settings.tokenizer or str(self._settings.model)
            words = ModelSource(path=path, trust_remote_code=self._settings.trust_remote_code)
            copy_tokenizer(words, folder, self._settings.chat_template)

    # --- checkpoints

    def save(self, folder: Path) -> None:
        """Everything that decides the next update."""
        state = {"torch_rng": torch.get_rng_state()}
        self._engine.save_checkpoint(str(folder), tag=_TAG, client_state=state, save_latest=False)

    def load(self, folder: Path) -> None:
        """Takes up a saved state; the same number of ranks and the same settings are needed."""
        if not (folder / _TAG).is_dir():
            raise FileNotFoundError(f"expected a learner's checkpoint in {folder}")
        _, state = self._engine.load_checkpoint(str(folder), tag=_TAG)
        torch.set_rng_state(state["torch_rng"].cpu())

    def close(self) -> None:
        self._engine.destroy()


# --- what an update was like ---------------------------------------------------------------------------------------

_SUMMED = (
    "loss",
    "policy_loss",
    "entropy",
    "reference_kl",
    "sampler_kl",
    "ratio",
    "clipped_low",
    "clipped_high",
)


@dataclass(slots=True)
class _Sums:
    """Sums over micro-batches; they stay on the device until the update is done."""

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

    def over_ranks(self) -> tuple[dict[str, float], float]:
        if _ranks() > 1:
            torch.distributed.all_reduce(self.terms)
            torch.distributed.all_reduce(self.ratio_error, torch.distributed.ReduceOp.MAX)
        return dict(zip(_SUMMED, self.terms.tolist(), strict=True)), float(self.ratio_error)


def _metrics(
    sums: _Sums, whole: Normaliser, settings: UpdateSettings, grad_norm: float, micro_batches: int
) -> UpdateMetrics:
    terms, ratio_error = sums.over_ranks()
    return UpdateMetrics(
        fault=None,
        loss=terms["loss"],
        policy_loss=terms["policy_loss"],
        entropy=terms["entropy"] / whole.tokens,
        reference_kl=terms["reference_kl"] / whole.tokens,
        sampler_kl=terms["sampler_kl"] / whole.tokens,
        ratio_mean=terms["ratio"] / whole.tokens,
        ratio_error=ratio_error,
        clipped_low=terms["clipped_low"] / whole.tokens,
        clipped_high=terms["clipped_high"] / whole.tokens,
        grad_norm=grad_norm,
        lr=settings.lr,
        tokens=whole.tokens,
        sequences=whole.sequences,
        micro_batches=micro_batches,
    )


def _empty(settings: UpdateSettings) -> UpdateMetrics:
    return UpdateMetrics(
        fault=UpdateFault.EMPTY,
        loss=0.0,
        policy_loss=0.0,
        entropy=0.0,
        reference_kl=0.0,
        sampler_kl=0.0,
        ratio_mean=1.0,
        ratio_error=0.0,
        clipped_low=0.0,
        clipped_high=0.0,
        grad_norm=0.0,
        lr=settings.lr,
        tokens=0,
        sequences=0,
        micro_batches=0,
    )


def _judge(metrics: UpdateMetrics, limits: Limits) -> UpdateFault | None:
    if not (math.isfinite(metrics.loss) and math.isfinite(metrics.grad_norm)):
        return UpdateFault.NAN
    if limits.kl is not None and metrics.sampler_kl > limits.kl:
        return UpdateFault.KL
    if limits.grad_norm is not None and metrics.grad_norm > limits.grad_norm:
        return UpdateFault.GRAD_NORM
    return None


# --- gradients, by ZeRO stage --------------------------------------------------------------------------------------


class _WholeGradients:
    """Stage 0: every rank has all gradients, on the parameters."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self._engine = engine

    def norm(self) -> float:
        return float(nn.utils.get_total_norm([p.grad for p in self._parameters() if p.grad is not None]))

    def clip(self, max_norm: float, norm: float) -> None:
        nn.utils.clip_grads_with_norm_(self._parameters(), max_norm, torch.tensor(norm))

    def discard(self) -> None:
        self._engine.zero_grad()

    def _parameters(self) -> list[nn.Parameter]:
        return list(self._engine.module.parameters())


class _PartitionedGradients:
    """Stages 1 to 3: the optimiser holds this rank's part."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self._engine = engine

    def norm(self) -> float:
        return float(self._engine.optimizer.scaled_global_norm())

    def clip(self, max_norm: float, norm: float) -> None:
        self._engine.optimizer.clip_grad = max_norm

    def discard(self) -> None:
        """Makes a gradient unusable: then DeepSpeed's own way of skipping a step clears all that it has accumulated."""
        from deepspeed.utils import safe_set_full_grad

        parameter = next(self._engine.module.parameters())
        safe_set_full_grad(parameter, torch.full(_shape(parameter), math.nan, device=self._engine.device))
        self._engine.step()
        if self._engine.was_step_applied():
            raise RuntimeError("expected DeepSpeed to skip an update, and it was applied")


class _PartitionedWeights(_PartitionedGradients):
    """Stage 3."""

    def norm(self) -> float:
        norms = [float(norm) for norm in self._engine.optimizer._get_norm_groups()]
        # a part's norm of -1 is DeepSpeed's word for "not a number"
        return math.nan if any(norm < 0 for norm in norms) else math.hypot(*norms)


_GRADIENTS: Mapping[int, Callable[[DeepSpeedEngine], _WholeGradients | _PartitionedGradients]] = {
    0: _WholeGradients,
    1: _PartitionedGradients,
    2: _PartitionedGradients,
    3: _PartitionedWeights,
}


def _shape(parameter: nn.Parameter) -> torch.Size:
    # under stage 3 a parameter is empty until it is gathered; its shape is noted beside it
    shape = getattr(parameter, "ds_shape", parameter.shape)
    assert isinstance(shape, torch.Size)
    return shape


# --- starting ------------------------------------------------------------------------------------------------------


def _start(settings: LearnerSettings) -> tuple[DeepSpeedEngine, torch.optim.Optimizer]:
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    import deepspeed
    import deepspeed.ops

    # nothing is "compatible": whatever DeepSpeed would compile for this machine is left out, and not even probed for
    deepspeed.ops.__compatible_ops__ = {}
    join_process_group()
    policy = load_policy(settings)
    if settings.zero == 3:
        deepspeed.zero.register_external_parameter(policy, policy.output_layer)
    optimizer = torch.optim.AdamW(
        _parameter_groups(policy, settings.optimizer),
        lr=0.0,
        betas=settings.optimizer.betas,
        eps=settings.optimizer.eps,
        fused=True,
    )
    engine, wrapped, _, _ = deepspeed.initialize(
        model=policy,
        optimizer=optimizer,
        config=_config(settings, sum(parameter.numel() for parameter in policy.parameters())),
        dist_init_required=False,
    )
    return engine, wrapped


def _parameter_groups(policy: Policy, settings: OptimizerSettings) -> list[dict[str, Any]]:
    parameters = list(policy.parameters())
    if settings.weight_decay == 0.0:
        return [{"params": parameters, "weight_decay": 0.0}]
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    vectors = [parameter for parameter in parameters if parameter.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def _config(settings: LearnerSettings, parameters: int) -> dict[str, Any]:
    bucket = min(500_000_000, parameters)
    return {
        # DeepSpeed's own accounting of batches is not used: `update` says where each begins and ends
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,
        "steps_per_print": 1 << 60,
        "zero_optimization": {
            # stage 1 in bf16 is another optimiser of DeepSpeed's, that cannot be asked for the gradient's norm before
            # it takes a step; stage 2 takes the same steps and keeps less
            "stage": max(settings.zero, 2) if settings.dtype is DType.BF16 else settings.zero,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
            **_OFFLOAD[settings.offload],
        },
        "zero_force_ds_cpu_optimizer": False,
        **_PRECISION[settings.dtype],
    }


_OFFLOAD: Mapping[Offload, dict[str, Any]] = {
    Offload.NONE: {},
    Offload.OPTIMIZER: {"offload_optimizer": {"device": "cpu"}},
    Offload.ALL: {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
}
_PRECISION: Mapping[DType, dict[str, Any]] = {
    DType.FP32: {},
    DType.BF16: {"bf16": {"enabled": True, "check_grad_overflow": True}, "data_types": {"grad_accum_dtype": "fp32"}},
    DType.FP16: {"fp16": {"enabled": True, "loss_scale": 1.0}},
}


def _ranks() -> int:
    return torch.distributed.get_world_size()
