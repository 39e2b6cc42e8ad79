"""Loss of one micro-batch, from hidden states to one number. Pure: no device, no state, no logging.

The divisor is that of the whole update, so cutting it into micro-batches changes nothing but rounding.

Shapes: N tokens in the loss, S sequences, D hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...dsl.model.algorithm import (
    Aggregation,
    Correction,
    Divergence,
    Importance,
    KLEstimator,
    LossKind,
)
from ..protocols import LossSettings, Normaliser

__all__ = [
    "Head",
    "LossInputs",
    "LossTerms",
    "compute_logits",
    "compute_logprobs",
    "compute_loss",
    "compute_token_scale",
    "compute_value_loss",
    "estimate_kl",
    "weigh_by_own_logprobs",
]

_LOG_RATIO_BOUND = 20.0
"""e^20 is far outside any clip; beyond it a ratio overflows, and infinity times a zero advantage is NaN."""
_IMPOSSIBLE = 1e4
"""Beyond any log-ratio of tokens that both policies can sample."""


# --- log-probs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How a model makes logits of its last hidden states, besides the matrix."""

    scale: float = 1.0
    """Factor of all logits."""
    softcap: float | None = None
    """Bound that logits approach: cap * tanh(logits / cap)."""
    fp32: bool = False
    """Keep the matrix product in fp32 instead of rounding it to the precision of the matrix."""


_PLAIN = Head()
_HEAD_BLOCK = 4096
"""Entries of the vocabulary whose weights are in fp32 at the same time where a device cannot mix precisions."""


def compute_logprobs(
    hidden_ND: Tensor,
    head_VD: Tensor,
    targets_N: Tensor,
    temperature: float,
    max_elements: int,
    head: Head = _PLAIN,
) -> tuple[Tensor, Tensor]:
    """Compute the log-prob of each target and the entropy of each distribution; at most `max_elements` logits at a
    time."""
    rows = max(1, max_elements // head_VD.shape[0])
    if hidden_ND.shape[0] <= rows:
        logits_NV = compute_logits(hidden_ND, head_VD, head)
        return _logprobs_and_entropy(_log_softmax(logits_NV, temperature), targets_N)
    chunked: Callable[..., tuple[Tensor, Tensor]] = _ChunkedLogprobs.apply
    return chunked(hidden_ND, head_VD, targets_N, temperature, rows, head)


def compute_logits(hidden_ND: Tensor, head_VD: Tensor, head: Head) -> Tensor:
    """Compute the logits as the model does, in fp32."""
    if head.fp32 and head_VD.dtype is not torch.float32:
        product: Callable[..., Tensor] = _Fp32Product.apply
        return _shape_logits(product(hidden_ND, head_VD), head)
    return _shape_logits((hidden_ND @ head_VD.T).float(), head)


def _shape_logits(product_NV: Tensor, head: Head) -> Tensor:
    logits_NV = product_NV if head.scale == 1.0 else product_NV * head.scale
    return logits_NV if head.softcap is None else head.softcap * torch.tanh(logits_NV / head.softcap)


def _shape_slope(logits_NV: Tensor, head: Head) -> Tensor | float:
    """Derivative of what `_shape_logits` returned."""
    return head.scale if head.softcap is None else head.scale * (1 - (logits_NV / head.softcap).square())


def _log_softmax(logits_NV: Tensor, temperature: float) -> Tensor:
    return torch.log_softmax(logits_NV if temperature == 1.0 else logits_NV / temperature, dim=-1)


def _logprobs_and_entropy(logp_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    # entr, not p * log p: the latter is not a number where a probability is 0
    return logp_NV.gather(1, targets_N[:, None])[:, 0], torch.special.entr(logp_NV.exp()).sum(-1)


class _Fp32Product(torch.autograd.Function):
    """Product of half-precision matrices, in fp32. The gradient is rounded as autograd would: it moves no ratio."""

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, head_VD: Tensor) -> Tensor:
        ctx.save_for_backward(hidden_ND, head_VD)
        if hidden_ND.is_cuda:
            return torch.mm(hidden_ND, head_VD.T, out_dtype=torch.float32)
        # a CPU cannot mix precisions; in blocks the copy of the matrix stays small
        wide_ND = hidden_ND.float()
        return torch.cat([wide_ND @ block.float().T for block in head_VD.split(_HEAD_BLOCK)], dim=1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None]:
        hidden_ND, head_VD = ctx.saved_tensors
        grad_NV = grads[0].to(head_VD.dtype)
        return grad_NV @ head_VD, grad_NV.T @ hidden_ND if ctx.needs_input_grad[1] else None


class _ChunkedLogprobs(torch.autograd.Function):
    """The same, some rows at a time; the backward pass recomputes the logits."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor, temperature: float, rows: int, head: Head
    ) -> tuple[Tensor, Tensor]:
        pieces = [
            _logprobs_and_entropy(_log_softmax(compute_logits(hidden, head_VD, head), temperature), targets)
            for hidden, targets in zip(torch.split(hidden_ND, rows), torch.split(targets_N, rows), strict=True)
        ]
        ctx.save_for_backward(hidden_ND, head_VD, targets_N)
        ctx.temperature, ctx.rows, ctx.head = temperature, rows, head
        return torch.cat([logprobs for logprobs, _ in pieces]), torch.cat([entropy for _, entropy in pieces])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        hidden_ND, head_VD, targets_N = ctx.saved_tensors
        hidden_grad_ND = torch.empty_like(hidden_ND)
        # in fp32 until the end: hundreds of pieces added in half precision lose the small ones
        head_grad_VD = torch.zeros_like(head_VD, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for start in range(0, hidden_ND.shape[0], ctx.rows):
            piece = slice(start, start + ctx.rows)
            logits_NV = compute_logits(hidden_ND[piece], head_VD, ctx.head)
            logp_NV = _log_softmax(logits_NV, ctx.temperature)
            logits_grad_NV = _logits_grad(logp_NV, targets_N[piece], grads[0][piece], grads[1][piece])
            logits_grad_NV = (logits_grad_NV / (ctx.temperature / _shape_slope(logits_NV, ctx.head))).to(head_VD.dtype)
            hidden_grad_ND[piece] = logits_grad_NV @ head_VD
            if head_grad_VD is not None:
                head_grad_VD += logits_grad_NV.T @ hidden_ND[piece]
        head_grad = None if head_grad_VD is None else head_grad_VD.to(head_VD.dtype)
        return hidden_grad_ND, head_grad, None, None, None, None


def _logits_grad(logp_NV: Tensor, targets_N: Tensor, logprob_grad_N: Tensor, entropy_grad_N: Tensor) -> Tensor:
    p_NV = logp_NV.exp()
    entropy_N = torch.special.entr(p_NV).sum(-1, keepdim=True)
    grad_NV: Tensor = -p_NV * (logprob_grad_N[:, None] + entropy_grad_N[:, None] * (logp_NV + entropy_N))
    grad_NV.scatter_add_(1, targets_N[:, None], logprob_grad_N[:, None])
    return grad_NV


# --- the loss ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossInputs:
    """Per-token inputs of the loss of one micro-batch."""

    logprobs_N: Tensor
    entropy_N: Tensor
    advantages_N: Tensor
    scale_N: Tensor
    """Share of each token in the loss, from `compute_token_scale`."""
    unit_N: Tensor | None = None
    """Tokens with the same number share a ratio; without it each has its own."""
    shared_log_ratio_N: Tensor | None = None
    """Mean log-ratio of each token's unit, where units may reach beyond this micro-batch."""
    episode_N: Tensor | None = None
    """Tokens with the same number are of one episode; needed where drifting episodes are left out."""
    sampled_N: Tensor | None = None
    """Log-probs of the policy that sampled; the old ones if not given."""
    shared_drift_N: Tensor | None = None
    """Mean log-ratio of sampler to learner of each token's episode, where it may reach beyond this micro-batch."""
    old_N: Tensor | None = None
    reference_N: Tensor | None = None
    weights_N: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossTerms:
    """Loss with a gradient, and sums over tokens for the metrics without one."""

    loss: Tensor
    policy_loss: Tensor
    """Summed by the same shares as the loss."""
    entropy: Tensor
    reference_kl: Tensor
    sampler_kl: Tensor
    ratio: Tensor
    clipped_low: Tensor
    clipped_high: Tensor
    ratio_error: Tensor
    """Maximum, not a sum."""


@dataclass(frozen=True, slots=True, eq=False)
class _Surrogate:
    loss_N: Tensor
    ratio_N: Tensor
    clipped_low_N: Tensor
    clipped_high_N: Tensor


def compute_loss(inputs: LossInputs, settings: LossSettings) -> LossTerms:
    """Compute the loss of one micro-batch; those of all micro-batches add up to the loss of the update."""
    surrogate = _SURROGATES[settings.kind](inputs, settings)
    policy_N = surrogate.loss_N if inputs.weights_N is None else surrogate.loss_N * inputs.weights_N
    if settings.off_policy is not None:
        policy_N = policy_N * _keep_near_sampler(inputs, settings.off_policy)
    reference_N = _kl_from(inputs, inputs.reference_N, settings.kl_coef, settings, "reference")
    loss_N = policy_N + settings.kl_coef * reference_N
    if settings.previous_coef:
        previous_N = _kl_from(inputs, inputs.old_N, settings.previous_coef, settings, "policy before the step")
        loss_N = loss_N + settings.previous_coef * previous_N
    if settings.entropy_coef:
        loss_N = loss_N - settings.entropy_coef * inputs.entropy_N
    loss = (loss_N * inputs.scale_N).sum()
    with torch.no_grad():
        return LossTerms(
            loss=loss,
            policy_loss=(policy_N * inputs.scale_N).sum(),
            entropy=inputs.entropy_N.sum(),
            reference_kl=reference_N.sum(),
            sampler_kl=_estimate_sampler_kl(inputs).sum(),
            ratio=surrogate.ratio_N.sum(),
            clipped_low=surrogate.clipped_low_N.sum(),
            clipped_high=surrogate.clipped_high_N.sum(),
            ratio_error=(surrogate.ratio_N - 1).abs().max(),
        )


def weigh_by_own_logprobs(inputs: LossInputs, importance: Importance) -> LossInputs:
    """Make this pass's log-probs the old ones, and weigh each token by its ratio of these to the sampler's: the same as
    `importance.weigh_sequences` by log-probs that were computed before."""
    if inputs.old_N is None:
        raise ValueError("importance weights need the log-probs that the tokens were sampled with")
    own_N = inputs.logprobs_N.detach()
    ratio_N = (own_N.double() - inputs.old_N.double()).clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND).exp()
    weights_N = _CORRECTIONS[importance.correction](ratio_N, importance).to(own_N.dtype)
    return replace(inputs, old_N=own_N, weights_N=weights_N)


_CORRECTIONS: Mapping[Correction, Callable[[Tensor, Importance], Tensor]] = {
    Correction.NONE: lambda ratio_N, importance: torch.ones_like(ratio_N),
    Correction.TRUNCATE: lambda ratio_N, importance: ratio_N.clamp(max=importance.cap),
    Correction.MASK: lambda ratio_N, importance: torch.where(
        (ratio_N < importance.floor) | (ratio_N > importance.cap), torch.zeros_like(ratio_N), ratio_N
    ),
}


def _keep_near_sampler(inputs: LossInputs, threshold: float) -> Tensor:
    """0 for tokens with a negative advantage in an episode whose mean log-ratio of sampler to learner is above the
    threshold, else 1: what the policy would no longer do teaches it nothing about what to avoid."""
    drift_N = inputs.shared_drift_N
    if drift_N is None:
        sampled_N = inputs.old_N if inputs.sampled_N is None else inputs.sampled_N
        if sampled_N is None or inputs.episode_N is None:
            raise ValueError("the drift from the sampler needs its log-probs, and which episode each token is of")
        drift_N = _average_by_unit(sampled_N - inputs.logprobs_N.detach(), inputs.episode_N)
    return ((inputs.advantages_N >= 0) | (drift_N <= threshold)).float()


def compute_token_scale(
    lengths_S: Tensor, sequence_N: Tensor, aggregation: Aggregation, length: int | None, whole: Normaliser
) -> Tensor:
    """Compute the share of each token in the loss of the whole update; `lengths_S` counts the trained tokens of
    each sequence's episode."""
    if aggregation is Aggregation.FIXED_LENGTH and length is None:
        raise ValueError("aggregation 'fixed_length' needs a length")
    return _SCALES[aggregation](lengths_S.float(), length or 1, whole).index_select(0, sequence_N)


_SCALES: Mapping[Aggregation, Callable[[Tensor, int, Normaliser], Tensor]] = {
    Aggregation.TOKEN_MEAN: lambda lengths_S, _, whole: torch.full_like(lengths_S, 1 / whole.tokens),
    Aggregation.SEQUENCE_MEAN: lambda lengths_S, _, whole: 1 / (lengths_S * whole.sequences),
    Aggregation.FIXED_LENGTH: lambda lengths_S, length, whole: torch.full_like(
        lengths_S, 1 / (length * whole.sequences)
    ),
}


def _ppo_clip(inputs: LossInputs, settings: LossSettings) -> _Surrogate:
    advantages_N, ratio_N = inputs.advantages_N, _compute_ratio(inputs)
    loss_N = torch.maximum(-advantages_N * ratio_N, -advantages_N * _clip_ratio(ratio_N, settings))
    if settings.dual_clip is not None:
        bound_N = -advantages_N * settings.dual_clip
        loss_N = torch.where(advantages_N < 0, torch.minimum(loss_N, bound_N), loss_N)
    with torch.no_grad():
        below_N, above_N = ratio_N < 1 - settings.clip_low, ratio_N > 1 + settings.clip_high
        return _Surrogate(loss_N, ratio_N.detach(), below_N & (advantages_N < 0), above_N & (advantages_N > 0))


def _cispo(inputs: LossInputs, settings: LossSettings) -> _Surrogate:
    """CISPO: the clipped ratio weighs the gradient and has none itself, so every token keeps its gradient."""
    with torch.no_grad():
        ratio_N = _compute_ratio(inputs)
        clipped_N = _clip_ratio(ratio_N, settings)
        below_N, above_N = ratio_N < 1 - settings.clip_low, ratio_N > 1 + settings.clip_high
    return _Surrogate(-clipped_N * inputs.advantages_N * inputs.logprobs_N, ratio_N, below_N, above_N)


def _sapo(inputs: LossInputs, settings: LossSettings) -> _Surrogate:
    """SAPO: a sigmoid around ratio 1 in place of the clip, with the slope 1 there at any temperature."""
    advantages_N, ratio_N = inputs.advantages_N, _compute_ratio(inputs)
    gate_N = torch.full_like(advantages_N, settings.gate_negative)
    gate_N = torch.where(advantages_N > 0, torch.full_like(gate_N, settings.gate_positive), gate_N)
    gated_N = torch.sigmoid(gate_N * (ratio_N - 1)) * 4 / gate_N
    never_N = torch.zeros_like(ratio_N, dtype=torch.bool)
    return _Surrogate(-advantages_N * gated_N, ratio_N.detach(), never_N, never_N)


def _dppo(inputs: LossInputs, settings: LossSettings) -> _Surrogate:
    """DPPO: a token loses its gradient once it has moved in the direction of its advantage by more than the bound. The
    distance is that of two distributions over this token and all others together."""
    advantages_N, ratio_N = inputs.advantages_N, _compute_ratio(inputs)
    assert inputs.old_N is not None, "the ratio was computed with it"
    with torch.no_grad():
        p_N, old_N = inputs.logprobs_N.exp(), inputs.old_N.exp()
        moved_N = _DIVERGENCES[settings.divergence](p_N, old_N)
        above_N = (advantages_N > 0) & (p_N > old_N) & (moved_N > settings.clip_high)
        below_N = (advantages_N <= 0) & (p_N < old_N) & (moved_N > settings.clip_low)
        kept_N = (~(above_N | below_N)).float()
    return _Surrogate(-advantages_N * ratio_N * kept_N, ratio_N.detach(), below_N & (advantages_N < 0), above_N)


def _binary_kl(p_N: Tensor, old_N: Tensor) -> Tensor:
    """KL divergence of the new from the old distribution over the token and its complement."""
    rest_N, old_rest_N = (1 - p_N).clamp(min=_LEAST), (1 - old_N).clamp(min=_LEAST)
    return old_N * (old_N.clamp(min=_LEAST) / p_N.clamp(min=_LEAST)).log() + (1 - old_N) * (old_rest_N / rest_N).log()


_LEAST = 1e-8
"""Probability below which single precision no longer tells 1 - p from 1."""
_DIVERGENCES: Mapping[Divergence, Callable[[Tensor, Tensor], Tensor]] = {
    Divergence.TV: lambda p_N, old_N: (p_N - old_N).abs(),
    Divergence.KL: _binary_kl,
}


def _policy_gradient(inputs: LossInputs, settings: LossSettings) -> _Surrogate:
    """Policy gradient without a ratio; with advantage 1 everywhere it is the cross-entropy of SFT."""
    with torch.no_grad():
        ratio_N = torch.ones_like(inputs.logprobs_N) if inputs.old_N is None else _compute_ratio(inputs)
        never_N = torch.zeros_like(ratio_N, dtype=torch.bool)
    return _Surrogate(-inputs.advantages_N * inputs.logprobs_N, ratio_N, never_N, never_N)


def _clip_ratio(ratio_N: Tensor, settings: LossSettings) -> Tensor:
    return ratio_N.clamp(1 - settings.clip_low, 1 + settings.clip_high)


def _compute_ratio(inputs: LossInputs) -> Tensor:
    """Compute the ratio of each token; where tokens share one, the geometric mean of theirs, bounded as a whole.
    The gradient reaches each token through its own log-prob alone, so one with an advantage of its own keeps it."""
    if inputs.old_N is None:
        raise ValueError("the ratio needs the old log-probs")
    # an impossible token has no finite log-prob, and infinity less itself is NaN
    log_ratio_N = (inputs.logprobs_N - inputs.old_N).clamp(-_IMPOSSIBLE, _IMPOSSIBLE)
    if inputs.unit_N is not None:
        own_N, shared_N = log_ratio_N.detach(), inputs.shared_log_ratio_N
        log_ratio_N = log_ratio_N - own_N + (_average_by_unit(own_N, inputs.unit_N) if shared_N is None else shared_N)
    return log_ratio_N.clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND).exp()


def _average_by_unit(values_N: Tensor, unit_N: Tensor) -> Tensor:
    size = int(unit_N.max()) + 1
    sums_U = values_N.new_zeros(size).index_add_(0, unit_N, values_N)
    counts_U = values_N.new_zeros(size).index_add_(0, unit_N, torch.ones_like(values_N))
    return (sums_U / counts_U).index_select(0, unit_N)


_SURROGATES: Mapping[LossKind, Callable[[LossInputs, LossSettings], _Surrogate]] = {
    LossKind.PPO_CLIP: _ppo_clip,
    LossKind.GSPO: _ppo_clip,
    LossKind.CISPO: _cispo,
    LossKind.SAPO: _sapo,
    LossKind.DPPO: _dppo,
    LossKind.POLICY_GRADIENT: _policy_gradient,
}


# --- divergences ---------------------------------------------------------------------------------------------------


def estimate_kl(estimator: KLEstimator, logprobs_N: Tensor, other_N: Tensor) -> Tensor:
    """Estimate, per token sampled from the first policy, its KL divergence from the other."""
    return _ESTIMATORS[estimator](other_N - logprobs_N)


_ESTIMATORS: Mapping[KLEstimator, Callable[[Tensor], Tensor]] = {
    KLEstimator.K1: lambda log_ratio_N: -log_ratio_N,
    KLEstimator.K2: lambda log_ratio_N: log_ratio_N.square() / 2,
    KLEstimator.K3: lambda log_ratio_N: torch.expm1(log_ratio_N.clamp(max=_LOG_RATIO_BOUND)) - log_ratio_N,
}


def _kl_from(inputs: LossInputs, other_N: Tensor | None, coef: float, settings: LossSettings, other: str) -> Tensor:
    if other_N is None:
        if coef:
            raise ValueError(f"the KL divergence from the {other} needs its log-probs")
        return torch.zeros_like(inputs.advantages_N)
    value_N = _bound_kl(settings.kl_estimator, inputs.logprobs_N, other_N, settings)
    if settings.kl_gradient is None:
        return value_N
    gradient_N = _bound_kl(settings.kl_gradient, inputs.logprobs_N, other_N, settings)
    return gradient_N - gradient_N.detach() + value_N.detach()


def _bound_kl(estimator: KLEstimator, logprobs_N: Tensor, other_N: Tensor, settings: LossSettings) -> Tensor:
    kl_N = estimate_kl(estimator, logprobs_N, other_N)
    return kl_N if settings.kl_clamp is None else kl_N.clamp(-settings.kl_clamp, settings.kl_clamp)


def _estimate_sampler_kl(inputs: LossInputs) -> Tensor:
    if inputs.old_N is None:
        return torch.zeros_like(inputs.advantages_N)
    # the tokens were drawn from the old policy, so it comes first
    return estimate_kl(KLEstimator.K3, inputs.old_N, inputs.logprobs_N)


# --- values --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ValueTerms:
    """Loss with a gradient, and the number of tokens whose gradient was clipped."""

    loss: Tensor
    clipped: Tensor


def compute_value_loss(
    values_N: Tensor, old_N: Tensor, targets_N: Tensor, clip: float | None, tokens: int
) -> ValueTerms:
    """0.5 * max((v - t)^2, (v held within `clip` of the old value - t)^2), divided by the tokens of the whole update.

    A value that has moved further than `clip` towards its target loses its gradient; one that moved away keeps it.
    """
    clipped_N = values_N if clip is None else torch.clamp(values_N, old_N - clip, old_N + clip)
    free_N, bound_N = (values_N - targets_N).square(), (clipped_N - targets_N).square()
    return ValueTerms(torch.maximum(free_N, bound_N).sum() / (2 * tokens), (bound_N > free_N).sum())
