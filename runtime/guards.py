"""Guards: a verdict on each step by the recipe's `guards`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import gt, lt

from ..dsl.model.recipe import Guards, OnFault
from .progress import GuardState
from .protocols import UpdateFault

__all__ = ["GuardSignals", "GuardStop", "Verdict", "apply_guards"]


class GuardStop(Exception):
    """A guard ended the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSignals:
    """Values that guards check; None where the step has no such value."""

    fault: UpdateFault | None = None
    """The worst of the step's updates."""
    entropy: float | None = None
    zero_std_frac: float | None = None
    invalid_rate: float | None = None
    mismatch_kl: float | None = None
    mismatch_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Decision on a step."""

    action: OnFault | None = None
    reason: str = ""
    help: str = ""
    """What to try where the run stops."""


def apply_guards(guards: Guards, state: GuardState, signals: GuardSignals) -> Verdict:
    """Return the first guard's verdict, faults of the update before slow decay; counts strikes on the way."""
    if signals.fault is not None and signals.fault in _FAULTS:
        reason, action, help_ = _FAULTS[signals.fault]
        return Verdict(action=action(guards), reason=reason, help=help_)
    for name, (signal, exceeds) in _BOUNDS.items():
        value, bound = getattr(signals, signal), getattr(guards, name)
        if bound is None or value is None or not exceeds(value, bound):
            state.strikes.pop(name, None)
            continue
        state.strikes[name] = strikes = state.strikes.get(name, 0) + 1
        if strikes >= guards.patience or name in _IMMEDIATE:
            in_a_row = "" if name in _IMMEDIATE else f", {strikes} steps in a row"
            reason = f"guard '{name}': {value:.4g}, limit {bound:.4g}{in_a_row}"
            return Verdict(action=OnFault.STOP, reason=reason, help=_HELP[name])
    return Verdict()


_FAULTS: Mapping[UpdateFault, tuple[str, Callable[[Guards], OnFault], str]] = {
    UpdateFault.NAN: (
        "the loss or a gradient is NaN or infinite",
        lambda guards: guards.on_nan,
        "lower 'lr', or set 'model.dtype: fp32'",
    ),
    UpdateFault.KL: (
        "the KL divergence from the sampling policy exceeded 'kl_max'",
        lambda guards: guards.on_kl,
        "lower 'lr' or 'epochs', or set 'hardware.staleness: 0'",
    ),
    UpdateFault.GRAD_NORM: (
        "the gradient norm exceeded 'grad_norm_max'",
        lambda guards: guards.on_grad_norm,
        "lower 'lr', or raise the limit if such norms are usual here",
    ),
}
"""An empty update is no fault: all groups were filtered out."""

_IMMEDIATE = ("mismatch_max", "mismatch_ratio_max")
"""Guards without patience: engines that disagree do not recover."""

_DISAGREE = (
    "sampler and learner give the same tokens other probabilities with the same weights: the precision is too coarse, "
    "or an engine computes this model differently (attention, packing, adapters); set 'model.dtype: fp32'"
)
_HELP = {
    "entropy_min": "the policy is nearly deterministic: lower 'lr', or raise 'entropy.coef' or 'kl.coef'",
    "zero_std_max": "groups are all right or all wrong: use other tasks, or raise 'group_size' or 'turns'",
    "invalid_max": "the model does not follow 'agent.format': start with an SFT stage, or use another format",
    "mismatch_max": f"{_DISAGREE}, or raise the limit if this is usual for the model",
    "mismatch_ratio_max": f"{_DISAGREE}, or raise the limit if only a few very unlikely tokens are that far apart",
}

_BOUNDS: Mapping[str, tuple[str, Callable[[float, float], bool]]] = {
    "entropy_min": ("entropy", lt),
    "zero_std_max": ("zero_std_frac", gt),
    "invalid_max": ("invalid_rate", gt),
    "mismatch_max": ("mismatch_kl", gt),
    "mismatch_ratio_max": ("mismatch_ratio", gt),
}
"""Each guard's signal, and when it is beyond the bound."""
