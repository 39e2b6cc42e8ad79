"""Protocols of the engines, and the values that cross them.

A sampler and a learner do not know each other: weights travel as named tensors, and every sync carries their checksums
and a probe, so a sampler with wrong weights is found at once and not by a curve that fails to rise.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ..dsl.model.algorithm import Aggregation, Divergence, Importance, KLEstimator, Level, LossKind
from ..dsl.model.recipe import DType, Lora, Offload

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float32]
NamedTensors = Iterable[tuple[str, "Tensor"]]
"""Weights by their Hugging Face names; the output layer is always there, tied or not. With LoRA only the adapters:
`LAYER.lora_A` and `LAYER.lora_B`, before their scale."""


# --- sampling ------------------------------------------------------------------------------------------------------


class FinishReason(StrEnum):
    """Reason why sampling ended."""

    STOP = "stop"
    """A stop token or a stop text; it is the last of the ids."""
    LENGTH = "length"
    """The token limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """Sampling parameters."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 for all."""
    min_p: float = 0.0
    stop_ids: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()
    allowed: tuple[int, ...] = ()
    """Tokens to sample from; all, if empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """A prompt to continue."""

    prompt: Sequence[int]
    sampling: SamplingSettings
    max_tokens: int
    seed: int
    """Seed of this request alone: its tokens do not depend on other requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Sampled tokens."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Under the distribution that was sampled from: of the allowed tokens, after temperature, top-p, top-k and
    min-p."""
    versions: tuple[int, ...]
    """Version of the weights behind each token; a sync may fall between."""
    finish: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksum:
    """What a tensor must arrive as."""

    dtype: str
    shape: tuple[int, ...]
    digest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeLimits:
    """Bounds of the mean difference between two engines' log-probs that rounding alone explains.

    The difference of each token is relative to 1 + the size of its log-prob, with which rounding grows.
    """

    floor: float
    """Always allowed, however close the engines were at first."""
    ceiling: float
    """Never exceeded: a first sync beyond it is wrong, and does not measure rounding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """Sequences of real text with the learner's log-probs: a check that a sampler computes as the learner does."""

    sequences: Sequence[Sequence[int]]
    logprobs: Sequence[Floats]
    """Of the last tokens of each sequence, each given all before it, at temperature 1."""
    limits: ProbeLimits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightUpdate:
    """New weights for a sampler."""

    version: int
    tensors: NamedTensors | AsyncIterable[NamedTensors]
    """In parts, where they come from another process."""
    checksums: Mapping[str, Checksum]
    """Of every tensor, and of no other."""
    probe: Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncProof:
    """How new weights were checked."""

    compared: int
    """Tensors that a sampler holds as they were sent."""
    unproven: tuple[str, ...]
    """Kinds of tensors that could not be compared, and that only log-probs check."""
    difference: float
    """Mean relative difference of the log-probs of the probe."""


class Transfer(StrEnum):
    """How a sampler gets new weights; the names are those of vLLM's backends."""

    DIRECT = "agym"
    """As tensors in host memory or on this process's GPU."""
    IPC = "ipc"
    """As memory of the learner, on the same GPUs."""
    NCCL = "nccl"
    """From the learner's GPUs to others."""


class SamplerError(RuntimeError):
    """The sampling engine failed; its requests are lost, the weights are not."""


class SyncError(RuntimeError):
    """A sampler has other weights than the learner sent."""


class Sampler(Protocol):
    """An engine that samples."""

    async def sample(self, request: SampleRequest) -> Sampled: ...

    def expecting(self) -> AbstractContextManager[None]:
        """Within it, a caller waits for an environment, and will then send a request, which a step may wait for."""
        ...

    async def score(self, ids: Sequence[int]) -> Floats:
        """Log-probs of `ids[1:]`, each given all before it, at temperature 1."""
        ...

    async def load(self, update: WeightUpdate) -> SyncProof:
        """Replace the weights and verify them; raises SyncError. Requests under way go on with the new weights."""
        ...

    async def forget(self) -> None:
        """Drop cached prompts, so that the next ones are computed as in a sampler just started."""
        ...

    async def sleep(self) -> None:
        """Release the memory of a GPU shared with a learner, until the next request."""
        ...

    async def close(self) -> None: ...


# --- learning ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainSequence:
    """A token sequence to train on. All arrays have the length of `ids`."""

    ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    """True at tokens that enter the loss; never at the first, which nothing predicts."""
    advantages: Floats
    old_logprobs: Floats | None = None
    """Denominator of ratios; None where the loss takes no ratio."""
    reference_logprobs: Floats | None = None
    """For the KL divergence from the reference."""
    weights: Floats | None = None
    """Importance weights, multiplied into the policy's part of each token's loss."""
    values: Floats | None = None
    """Critic value before each token, as of this step's start."""
    value_targets: Floats | None = None
    """Value target before each token."""
    episode: int | None = None
    """Number of its episode: segments with the same number count as one episode, and are in the same update on the same
    rank. None where the sequence is an episode of its own."""
    sampled_logprobs: Floats | None = None
    """Of the policy that sampled; None where `old_logprobs` are these."""
    shared_drift: Floats | None = None
    """Mean log-ratio of sampler to learner over the whole episode; given where `shared_log_ratio` is."""
    shared_log_ratio: Floats | None = None
    """Mean log-ratio over the whole episode, at every token; where an update has an episode in several segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """The objective."""

    kind: LossKind = LossKind.PPO_CLIP
    ratio: Level = Level.TOKEN
    """Unit that shares a ratio."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    gate_positive: float = 1.0
    gate_negative: float = 1.05
    divergence: Divergence = Divergence.TV
    aggregation: Aggregation = Aggregation.TOKEN_MEAN
    length: int | None = None
    """Divisor of `fixed_length`."""
    kl_coef: float = 0.0
    kl_estimator: KLEstimator = KLEstimator.K3
    kl_gradient: KLEstimator | None = None
    kl_clamp: float | None = None
    previous_coef: float = 0.0
    """Coefficient of the KL divergence from the policy of `old_logprobs`."""
    entropy_coef: float = 0.0
    off_policy: float | None = None
    """Mean log-ratio of sampler to learner above which tokens with a negative advantage are left out."""
    temperature: float = 1.0
    """Temperature that the tokens were sampled at; log-probs are taken at the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normaliser:
    """Divisors of the whole update: all micro-batches of all ranks together."""

    tokens: int
    """Tokens in the loss."""
    sequences: int
    """Episodes with at least one such token; segments of the same episode count once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateLimits:
    """Limits beyond which an update is computed and reported, but not applied."""

    kl: float | None = None
    grad_norm: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """Settings of one update."""

    lr: float
    max_grad_norm: float = 1.0
    loss: LossSettings = field(default_factory=LossSettings)
    limits: UpdateLimits = field(default_factory=UpdateLimits)


class UpdateFault(StrEnum):
    """Reason for not applying an update."""

    NAN = "nan"
    KL = "kl"
    GRAD_NORM = "grad_norm"
    EMPTY = "empty"
    """No token in the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetrics:
    """Metrics of an update, by default of one without tokens. Means are over the tokens in the loss."""

    fault: UpdateFault | None
    """None: the weights have changed. Otherwise they, and the optimiser, are as they were."""
    lr: float
    loss: float = 0.0
    policy_loss: float = 0.0
    entropy: float = 0.0
    reference_kl: float = 0.0
    """Estimated KL divergence from the reference; 0 without one."""
    sampler_kl: float = 0.0
    """k3 estimate of the KL divergence from the policy of `old_logprobs`; 0 without them."""
    ratio_mean: float = 1.0
    ratio_error: float = 0.0
    """Largest |ratio - 1|; on fresh samples it shows whether masks, alignment and sync are right."""
    clipped_low: float = 0.0
    """Share of tokens whose gradient was clipped from below."""
    clipped_high: float = 0.0
    grad_norm: float = 0.0
    """Before clipping."""
    tokens: int = 0
    sequences: int = 0
    micro_batches: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSettings:
    """Settings of one update of a critic."""

    lr: float
    clip: float | None = 0.2
    """Change of a value beyond which its gradient is clipped."""
    max_grad_norm: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueMetrics:
    """Metrics of an update of a critic."""

    fault: UpdateFault | None
    """None: the critic has changed. Otherwise it is as it was."""
    lr: float
    loss: float = 0.0
    clipped: float = 0.0
    """Share of tokens whose gradient was clipped."""
    grad_norm: float = 0.0
    """Before clipping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """Constants of AdamW."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    """For matrices only; norms and biases are never decayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """Settings of a learner."""

    model: Path
    dtype: DType = DType.FP32
    lora: Lora | None = None
    """Train adapters only."""
    seed: int = 0
    """Seed of the adapters' start and of dropout."""
    zero: int = 0
    offload: Offload = Offload.NONE
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    tokens_per_micro_batch: int = 16384
    sequence_parallel: int = 1
    """Neighbouring ranks that have the same sequences and divide the tokens of each row between them."""
    share_prefixes: bool = True
    """Compute once what sequences of a micro-batch begin with in common, where the model allows it."""
    activation_checkpointing: bool = False
    logit_elements: int = 1 << 25
    """Maximum logits in memory; beyond it they are computed in pieces, twice."""
    fp32_head: bool = False
    """Compute logits in fp32 where the weights are in half precision."""
    trust_remote_code: bool = False
    tokenizer: str | None = None
    """Folder or hub id of the tokenizer of exported models; None for the model's own."""
    chat_template: str | None = None
    """Chat template of exported models; None for the tokenizer's own."""
    base_model: str | None = None
    """Hub id that exported adapters name as their base; None for the model's folder."""


class Scorer(Protocol):
    """An engine that computes log-probs."""

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        """Log-prob of each token given those before it, 0 outside the loss mask; without gradient."""
        ...


class TrainedEngine(Protocol):
    """An engine with weights that are trained."""

    def set_optimizer(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        """Set the optimiser's constants; `fresh` also resets its averages."""
        ...

    def save(self, folder: Path) -> None:
        """Save everything that decides the next update."""
        ...

    def load(self, folder: Path) -> None:
        """Restore a saved state, of any number of ranks under any ZeRO stage; the model must be the same."""
        ...

    def close(self) -> None: ...


class Learner(Scorer, TrainedEngine, Protocol):
    """An engine that trains a policy."""

    def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        """One optimiser step over all `sequences`, in as many micro-batches as they need."""
        ...

    def update_weighed(
        self, sequences: Sequence[TrainSequence], settings: UpdateSettings, importance: Importance
    ) -> tuple[UpdateMetrics, list[Floats]]:
        """Update on sequences whose `old_logprobs` are the sampler's: the learner's own, of this very pass, take their
        place and weigh each token. Return them as well."""
        ...

    def weights(self) -> NamedTensors:
        """Yield the trained tensors one at a time; valid until the next update."""
        ...

    def checksums(self) -> Mapping[str, Checksum]:
        """Checksums of what `weights` yields."""
        ...

    def export(self, folder: Path) -> None:
        """Write a model folder that others can load."""
        ...


class ValueLearner(TrainedEngine, Protocol):
    """An engine that trains a critic."""

    def values(self, sequences: Sequence[TrainSequence]) -> list[Floats]:
        """Value after each token, up to the last in the loss mask; 0 after it.

        The value before token j stands at j - 1, the value after the last token at the last.
        """
        ...

    def update(self, sequences: Sequence[TrainSequence], settings: ValueSettings) -> ValueMetrics:
        """One optimiser step towards the `value_targets` of all `sequences`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSettings:
    """Settings of a sampler."""

    model: Path
    dtype: DType = DType.FP32
    context_tokens: int = 2048
    """Tokens of a prompt and its continuation."""
    slots: int = 64
    """Requests that advance at the same time."""
    tensor_parallel: int = 1
    """Processes, or GPUs, that hold a part of every layer each."""
    block_size: int = 32
    cache_bytes: int | None = None
    """Size of the KV cache. None: on a CPU what the slots need, on a GPU what `memory_share` leaves."""
    memory_share: float = 0.85
    """Share of a GPU's memory for weights and cache."""
    shares_gpu: bool = False
    """Share the GPU with a learner: one rests while the other works."""
    eager: bool = True
    transfer: Transfer = Transfer.DIRECT
    weights_follow: bool = True
    """The first weights come by `load`; those in the folder are not read."""
    version: int = 0
    """Version of the folder's weights, where none follow."""
    lora: Lora | None = None
    """`load` brings adapters to the weights in the folder, which are read."""
    trust_remote_code: bool = False
