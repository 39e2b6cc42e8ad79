"""Rewards of an episode, turn by turn, under the `reward` settings of a recipe. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import fsum, inf, isfinite, nan, sqrt

from ...dsl.expression.expr import Expr, Facts, MappingFacts
from ...dsl.model.recipe import Overlong, Reward, RewardNormalise
from ..rollout.episode import Ending, Episode
from .baselines import mean_of, std_of
from .turn_rewards import Float64s, TurnRewards, TurnRewardsError

__all__ = [
    "Moments",
    "RewardError",
    "Scales",
    "Scored",
    "StepNames",
    "assign_turn_rewards",
    "episode_facts",
    "group_facts",
    "normalise_rewards",
    "score_episode",
    "turn_facts",
]

FactValue = float | bool | str
StepNames = Mapping[str, FactValue]
"""`step`, `total_step`, `stage` and `stage_index`, which every expression may use."""


class RewardError(ValueError):
    """A reward is NaN, infinite or unknown."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scored:
    """An episode and its rewards."""

    episode: Episode
    outcome: float
    """Reward of the episode as a whole."""
    turn_rewards: tuple[float, ...]
    """Reward of each turn alone."""
    kl_penalty: Float64s | None = None
    """KL penalty of each sampled token, turn after turn; no part of `total`."""
    values: Float64s | None = None
    """Critic value before each sampled token, turn after turn."""
    greedy: Scored | None = None
    """The greedy episode of its task, where that is the baseline."""

    @property
    def total(self) -> float:
        """The episode's reward, by which groups are compared."""
        return fsum((self.outcome, *self.turn_rewards))


def episode_facts(episode: Episode, step_names: StepNames) -> Facts:
    return MappingFacts("episode", {**step_names, **_episode_values(episode)})


def turn_facts(episode: Episode, index: int, step_names: StepNames) -> Facts:
    turn = episode.turns[index]
    values = {
        "turn_reward": turn.reward,
        "turn_index": float(index),
        "turn_invalid": turn.invalid,
        "turn_tokens": float(turn.end - turn.start),
    }
    return MappingFacts("turn", {**step_names, **_episode_values(episode), **values})


def group_facts(group: Sequence[Scored], step_names: StepNames) -> Facts:
    """Collect facts of at least one episode; `std` is unbiased, and 0 for equal rewards and for a single episode."""
    totals = [scored.total for scored in group]
    return MappingFacts(
        "group",
        {
            **step_names,
            "mean": mean_of(totals),
            "std": std_of(totals),
            "min": min(totals),
            "max": max(totals),
            "size": float(len(group)),
            "solved": mean_of(float(scored.episode.success) for scored in group),
            "environment": group[0].episode.task.environment,
        },
    )


def _episode_values(episode: Episode) -> dict[str, FactValue]:
    return {
        "score": episode.score,
        "success": episode.success,
        "turns": float(episode.num_turns),
        "sampled_tokens": float(episode.sampled_tokens),
        "total_tokens": float(episode.total_tokens),
        "invalid_turns": float(episode.invalid_turns),
        "horizon": float(episode.horizon),
        "done": episode.ending in (Ending.DONE, Ending.UNCONTESTED),
        "truncated": episode.ending.truncated,
        "ending": str(episode.ending),
        "environment": episode.task.environment,
        "difficulty": _parse_number(episode.task.difficulty),
    }


def _parse_number(text: str) -> float:
    """Parse a number; NaN, which stands for "not known", for any other text."""
    try:
        return float(text)
    except ValueError:
        return nan


def score_episode(
    episode: Episode, settings: Reward, *, invalid_turn: float, context_tokens: int, step_names: StepNames
) -> Scored:
    """Compute the episode's rewards under the terms of a recipe.

        outcome  = clip(`reward.episode` - overlong), on the last turn: the bounds hold for the outcome alone
        turn k   = `reward.turn` - `invalid_turn` if its reply held no action

    `invalid_turn` is the setting's value at this step, `context_tokens` the token budget of an episode.
    """
    low, high = settings.clip or (-inf, inf)
    reward = _evaluate("reward.episode", settings.episode, episode_facts(episode, step_names), episode)
    outcome = reward - _penalise_overlong(episode, settings.overlong, context_tokens)
    return Scored(
        episode=episode,
        outcome=min(max(outcome, low), high),
        turn_rewards=tuple(
            _turn_reward(episode, index, settings.turn, step_names) - invalid_turn * turn.invalid
            for index, turn in enumerate(episode.turns)
        ),
    )


def _turn_reward(episode: Episode, index: int, term: Expr | None, step_names: StepNames) -> float:
    if term is None:
        return 0.0
    return _evaluate("reward.turn", term, turn_facts(episode, index, step_names), episode)


def _evaluate(key: str, term: Expr, facts: Facts, episode: Episode) -> float:
    value = term.number(facts)
    if value is None or not isfinite(value):
        where = f"task '{episode.task.id}' of '{episode.task.environment}'"
        raise RewardError(f"'{key}' has no value for {where}: '{term.text}' must be a finite number")
    return value


def _penalise_overlong(episode: Episode, settings: Overlong | None, context_tokens: int) -> float:
    """0 until `buffer` tokens before the budget's end, `penalty` at its end, a straight line between.

    It counts all tokens of the longest sequence that the model saw, the environment's included: these use up the
    budget.
    """
    if settings is None:
        return 0.0
    used = max((len(segment.ids) for segment in episode.segments), default=0)
    into = (used - (context_tokens - settings.buffer)) / settings.buffer
    return settings.penalty * min(max(into, 0.0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Count, mean, and sum of squared differences from the mean, of all rewards so far."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def updated(self, values: Sequence[float]) -> Moments:
        """Add further values, in any order."""
        count, mean = len(values), mean_of(values)
        total, difference = self.count + count, mean - self.mean
        return Moments(
            count=total,
            mean=self.mean + difference * count / total,
            squares=fsum(
                (self.squares, *((v - mean) ** 2 for v in values), difference**2 * self.count * count / total)
            ),
        )

    @property
    def divisor(self) -> float:
        """Unbiased standard deviation; 1 where it is 0 or unknown, so that rewards stay as they are."""
        std = sqrt(self.squares / max(self.count - 1, 1))
        return std if std > _NO_SPREAD else 1.0


Scales = Mapping[str, Moments]
"""By environment; empty at the start of a run."""

_NO_SPREAD = 1e-6


def normalise_rewards(
    groups: Sequence[Sequence[Scored]], settings: Reward, scales: Scales
) -> tuple[list[list[Scored]], Scales]:
    """Divide rewards by the running standard deviation of their environment, which is updated by these episodes first.

    The statistics are over whole rewards of episodes. The mean stays: subtracting it would turn a poor success into a
    loss.
    """
    if settings.normalise is RewardNormalise.NONE:
        return [list(group) for group in groups], scales
    updated = {**scales, **_update_scales((scored for group in groups for scored in group), scales)}
    return [[_divide(scored, updated) for scored in group] for group in groups], updated


def _update_scales(episodes: Iterable[Scored], scales: Scales) -> dict[str, Moments]:
    by_name = groupby(sorted(episodes, key=_environment_of), key=_environment_of)
    return {name: scales.get(name, Moments()).updated([scored.total for scored in found]) for name, found in by_name}


def _environment_of(scored: Scored) -> str:
    return scored.episode.task.environment


def _divide(scored: Scored, scales: Scales) -> Scored:
    by = scales[_environment_of(scored)].divisor
    return replace(
        scored,
        outcome=scored.outcome / by,
        turn_rewards=tuple(reward / by for reward in scored.turn_rewards),
        greedy=None if scored.greedy is None else _divide(scored.greedy, scales),
    )


def assign_turn_rewards(scored: Scored, *, loss_mask: Sequence[bool] | None = None) -> TurnRewards:
    """Assign the episode's rewards to its sampled tokens; arrays run over those, turn after turn.

    A turn without sampled tokens has none to hold its reward: it goes to the turn before, at the start of an episode to
    the first that has one. It costs no discount either.
    """
    turns = scored.episode.turns
    lengths = [turn.end - turn.start for turn in turns]
    sampled = [k for k, length in enumerate(lengths) if length]
    if not sampled:
        raise TurnRewardsError(f"no token was sampled in this episode of task '{scored.episode.task.id}'")
    return TurnRewards(
        lengths=tuple(lengths[k] for k in sampled),
        rewards=_settle_rewards(scored, sampled),
        states=tuple(turns[k].state for k in sampled),
        loss_mask=None if loss_mask is None else tuple(loss_mask[k] for k in sampled),
        values=scored.values,
        token_rewards=scored.kl_penalty,
        greedy=None if scored.greedy is None else assign_turn_rewards(scored.greedy),
    )


def _settle_rewards(scored: Scored, sampled: Sequence[int]) -> tuple[float, ...]:
    """Sum rewards over the turns that hold tokens, the outcome with the last of them."""
    borders = [0, *sampled[1:], len(scored.turn_rewards)]
    rewards = [fsum(scored.turn_rewards[a:b]) for a, b in pairwise(borders)]
    return (*rewards[:-1], rewards[-1] + scored.outcome)
