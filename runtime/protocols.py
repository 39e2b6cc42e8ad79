"""What the run asks of the engines behind it, and the values that cross: two small protocols and frozen dataclasses.

A sampler turns token ids into further token ids with their log-probs. A learner turns token sequences with advantages
into new weights. Neither knows the other: weights travel as named tensors, and every hand-over carries a probe, a
sequence with the learner's own log-probs, so that a sampler that holds other weights than it was given is found out at
once and not by a curve that fails to rise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ..dsl.model.algorithm import Aggregation, KLEstimator, Level, LossKind
from ..dsl.model.recipe import DType, Lora, Offload

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "FinishReason",
    "Floats",
    "Learner",
    "LearnerSettings",
    "LossSettings",
    "NamedTensors",
    "Normaliser",
    "OptimizerSettings",
    "Probe",
    "SampleRequest",
    "Sampled",
    "Sampler",
    "SamplerError",
    "SamplerSettings",
    "SamplingSettings",
    "Scorer",
    "SyncError",
    "TrainSequence",
    "UpdateFault",
    "UpdateLimits",
    "UpdateMetrics",
    "UpdateSettings",
    "ValueLearner",
    "ValueMetrics",
    "ValueSettings",
    "WeightUpdate",
]

Floats = NDArray[np.float32]
NamedTensors = Iterable[tuple[str, "Tensor"]]
"""Weights by the names that Hugging Face gives them; the output layer is always there, tied or not. Of a learner with
LoRA its adapters alone: `LAYER.lora_A` and `LAYER.lora_B`, before their scale."""


# --- sampling ------------------------------------------------------------------------------------------------------


class FinishReason(StrEnum):
    """Why sampling ended."""

    STOP = "stop"
    """A stop token or a stop text; it is the last of the ids."""
    LENGTH = "length"
    """No token was left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How tokens are drawn."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 for all."""
    min_p: float = 0.0
    stop_ids: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()
    allowed: tuple[int, ...] = ()
    """The only tokens to draw from; all, if empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """A prompt to be continued."""

    prompt: Sequence[int]
    draw: SamplingSettings
    max_tokens: int
    seed: int
    """Of this request alone: what is drawn does not depend on who else is being sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What was drawn, as it was drawn."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Under the distribution that was drawn from: of what was allowed, after temperature, top-p, top-k and min-p."""
    versions: tuple[int, ...]
    """Of the weights that drew each token; they differ when a hand-over fell between."""
    finish: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """A sequence and what the learner thinks of it: proof that a sampler holds the learner's weights."""

    ids: Sequence[int]
    logprobs: Floats
    """Of `ids[1:]`, each given all before it, at temperature 1."""
    tolerance: float
    """Largest difference that is rounding and not a fault."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightUpdate:
    """New weights on their way to a sampler."""

    version: int
    tensors: NamedTensors
    probe: Probe


class SamplerError(RuntimeError):
    """The sampling engine failed; what it was sampling is lost, the weights are not."""


class SyncError(RuntimeError):
    """A sampler holds other weights than it was given."""


class Sampler(Protocol):
    """An engine that samples."""

    async def sample(self, request: SampleRequest) -> Sampled: ...

    async def score(self, ids: Sequence[int]) -> Floats:
        """Log-probs of `ids[1:]`, each given all before it, at temperature 1."""
        ...

    async def load(self, update: WeightUpdate) -> None:
        """Replaces the weights and proves it; raises SyncError. Requests under way go on with the new weights."""
        ...

    async def forget(self) -> None:
        """Drops what is kept of earlier prompts, so that the next ones are computed as in a sampler just started."""
        ...

    async def rest(self) -> None:
        """Gives back the memory of a card that it shares with a learner, until it is next asked for something."""
        ...

    async def pause(self) -> None:
        """Returns when no request advances any more; they wait, and lose nothing."""
        ...

    def resume(self) -> None: ...

    async def close(self) -> None: ...


# --- learning ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainSequence:
    """A token sequence and what is to be learnt from it. All arrays have the length of `ids`."""

    ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    """True at tokens that enter the loss; never at the first, which nothing predicts."""
    advantages: Floats
    old_logprobs: Floats | None = None
    """What ratios are taken against; None where the loss takes no ratio."""
    reference_logprobs: Floats | None = None
    """What the divergence is measured from."""
    weights: Floats | None = None
    """Importance weights, multiplied into the policy's part of each token's loss."""
    values: Floats | None = None
    """What the critic expected before each token, when it was asked for this step."""
    value_targets: Floats | None = None
    """What it should have expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """The objective."""

    kind: LossKind = LossKind.PPO_CLIP
    ratio: Level = Level.TOKEN
    """What shares a ratio."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    aggregation: Aggregation = Aggregation.TOKEN_MEAN
    length: int | None = None
    """Divisor of `fixed_length`."""
    kl_coef: float = 0.0
    kl_estimator: KLEstimator = KLEstimator.K3
    kl_clamp: float | None = None
    previous_coef: float = 0.0
    """Of the divergence from the policy that `old_logprobs` belong to."""
    entropy_coef: float = 0.0
    temperature: float = 1.0
    """At which the tokens were drawn; log-probs are taken at the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normaliser:
    """What the whole update is divided by: all micro-batches of all ranks together."""

    tokens: int
    """Tokens that enter the loss."""
    sequences: int
    """Sequences with at least one such token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateLimits:
    """Beyond these an update is computed, reported and not applied."""

    kl: float | None = None
    grad_norm: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """How one update is made."""

    lr: float
    max_grad_norm: float = 1.0
    loss: LossSettings = field(default_factory=LossSettings)
    limits: UpdateLimits = field(default_factory=UpdateLimits)


class UpdateFault(StrEnum):
    """Why an update was not applied."""

    NAN = "nan"
    KL = "kl"
    GRAD_NORM = "grad_norm"
    EMPTY = "empty"
    """No token entered the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetrics:
    """What an update was like. Means are over the tokens that enter the loss."""

    fault: UpdateFault | None
    """None: the weights have changed. Else they, and the optimiser, are as they were."""
    loss: float
    policy_loss: float
    entropy: float
    reference_kl: float
    """Estimate of the divergence from the reference; 0 without one."""
    sampler_kl: float
    """The k3 estimate of the divergence from the policy that `old_logprobs` belong to; 0 without them."""
    ratio_mean: float
    ratio_error: float
    """Largest |ratio - 1|; on fresh samples it says whether masks, alignment and hand-over are right."""
    clipped_low: float
    """Share of tokens whose gradient was cut from below."""
    clipped_high: float
    grad_norm: float
    """Before clipping."""
    lr: float
    tokens: int
    sequences: int
    micro_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSettings:
    """How one update of a critic is made."""

    lr: float
    clip: float | None = 0.2
    """How far a value may be from the one that it was before its gradient is cut."""
    max_grad_norm: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueMetrics:
    """What an update of a critic was like."""

    fault: UpdateFault | None
    """None: the critic has changed. Else it is as it was."""
    loss: float
    clipped: float
    """Share of tokens whose gradient was cut."""
    grad_norm: float
    """Before clipping."""
    lr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """AdamW and its constants."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    """Of matrices; norms and biases are never decayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """How a learner is built."""

    model: Path
    dtype: DType = DType.FP32
    lora: Lora | None = None
    """Adapters are all that learns."""
    seed: int = 0
    """Of what is drawn: adapters before their first update, and what is dropped in one."""
    zero: int = 0
    offload: Offload = Offload.NONE
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    tokens_per_micro_batch: int = 16384
    activation_checkpointing: bool = False
    logit_elements: int = 1 << 25
    """Logits held at the same time, at the most; beyond it they are computed in pieces, twice."""
    trust_remote_code: bool = False
    tokenizer: str | None = None
    """Folder or hub id of the tokenizer that exported models get; the model's own if not given."""
    chat_template: str | None = None
    """The template that exported models get; the tokenizer's own if not given."""


class Scorer(Protocol):
    """Something that can say how likely tokens are."""

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        """Of each token given those before it, 0 at the first and where nothing is learnt; without gradient."""
        ...


class Learner(Scorer, Protocol):
    """An engine that learns."""

    def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        """One optimiser step over all `sequences`, in as many micro-batches as they need."""
        ...

    def optimise_by(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        """Sets the optimiser's constants; `fresh` also forgets what it has averaged."""
        ...

    def weights(self) -> NamedTensors:
        """What learns, one tensor at a time; valid until the next update."""
        ...

    def save(self, folder: Path) -> None:
        """Everything that decides the next update."""
        ...

    def load(self, folder: Path) -> None: ...

    def export(self, folder: Path) -> None:
        """A model folder that others can load."""
        ...

    def close(self) -> None: ...


class ValueLearner(Protocol):
    """An engine that learns what to expect."""

    def values(self, sequences: Sequence[TrainSequence]) -> list[Floats]:
        """What is expected once each token has been seen, up to the last that `learn` marks; 0 after it.

        The value before token j stands at j - 1, the value after the last token at the last.
        """
        ...

    def update(self, sequences: Sequence[TrainSequence], settings: ValueSettings) -> ValueMetrics:
        """One optimiser step towards the `value_targets` of all `sequences`."""
        ...

    def optimise_by(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        """As of a learner."""
        ...

    def save(self, folder: Path) -> None:
        """Everything that decides the next update."""
        ...

    def load(self, folder: Path) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSettings:
    """How a sampler is built."""

    model: Path
    dtype: DType = DType.FP32
    context_tokens: int = 2048
    """Of a prompt and what is drawn after it."""
    slots: int = 64
    """Requests that advance at the same time."""
    block_size: int = 32
    cache_bytes: int | None = None
    """Of keys and values. None: on a CPU what the slots need, on a GPU what `memory_share` leaves."""
    memory_share: float = 0.85
    """Of a GPU's memory, for weights and cache."""
    shares_card: bool = False
    """With a learner, so that the one rests while the other works."""
    eager: bool = True
    weights_follow: bool = True
    """The first weights come by `load`; those in the folder are not read."""
    lora: Lora | None = None
    """What comes by `load` are adapters to the weights in the folder, which are read."""
    trust_remote_code: bool = False
