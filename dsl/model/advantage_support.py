"""Supported combinations of `advantage` settings, and the numbers that each estimator reads.

A combination that is not refused here has exactly one meaning, that of `runtime/learning/advantage.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .algorithm import Advantage, Baseline, Estimator, Normalise

__all__ = ["BASELINES", "READS", "explain_unsupported"]

_COMPARING = frozenset({Baseline.GROUP_MEAN, Baseline.LEAVE_ONE_OUT})
_FROM_SAMPLES = _COMPARING | {Baseline.NONE, Baseline.BATCH_MEAN, Baseline.GREEDY}
_CRITIC = frozenset({Baseline.CRITIC})

BASELINES: Mapping[Estimator, frozenset[Baseline]] = {
    Estimator.OUTCOME: _FROM_SAMPLES,
    Estimator.REWARD_TO_GO: _FROM_SAMPLES,
    Estimator.TURN_RETURNS: _FROM_SAMPLES,
    Estimator.GAE: _CRITIC,
    Estimator.BILEVEL_GAE: _CRITIC,
    # steps from one state are compared with each other: no other baseline has anything to say about them
    Estimator.STEP_GROUPS: _COMPARING,
    # rewards of single tokens are not compared with those of others
    Estimator.TOKEN_REWARDS: frozenset({Baseline.NONE}),
}
"""Baselines that each estimator can take."""

READS: Mapping[Estimator, frozenset[str]] = {
    Estimator.OUTCOME: frozenset(),
    Estimator.REWARD_TO_GO: frozenset({"gamma"}),
    Estimator.TURN_RETURNS: frozenset({"turn_gamma"}),
    Estimator.GAE: frozenset({"gamma", "lam"}),
    Estimator.BILEVEL_GAE: frozenset({"gamma", "lam", "turn_gamma", "turn_lam"}),
    Estimator.STEP_GROUPS: frozenset({"turn_gamma", "step_weight"}),
    Estimator.TOKEN_REWARDS: frozenset({"gamma"}),
}
"""Of `gamma`, `lam`, `turn_gamma`, `turn_lam` and `step_weight`, those that change what an estimator gives."""


def explain_unsupported(settings: Advantage) -> str | None:
    """The reason why these settings conflict; None if they do not."""
    if settings.baseline not in BASELINES[settings.estimator]:
        return (
            f"estimator '{settings.estimator}' takes baseline {_either(BASELINES[settings.estimator])}, "
            f"not '{settings.baseline}'"
        )
    # a group's spread is one around the group's own mean
    if settings.normalise is Normalise.GROUP_STD and settings.baseline not in _COMPARING:
        return (
            f"normalise '{settings.normalise}' is the spread around a group's mean and takes baseline "
            f"{_either(_COMPARING)}, not '{settings.baseline}'"
        )
    return None


def _either(baselines: Iterable[Baseline]) -> str:
    names = [f"'{baseline}'" for baseline in Baseline if baseline in baselines]
    return " or ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
