"""From groups of episodes to what the learner is given: scored, filtered, masked, with an advantage on every token.

Enters: groups as they were played, a stage's settings. Leaves: token sequences, group by group, and what was counted
on the way. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...dsl.model.algorithm import Advantage, Baseline
from ...dsl.model.recipe import Stage
from ..protocols import Floats, TrainSequence
from ..rollout.episode import Episode, Group
from .advantage import advantages, value_targets
from .filters import LossMask, MaskPolicies, has_large_advantage, is_countable, keeps_group, mask_episode, top_groups
from .reward import Scales, Scored, StepNames, assign_turn_rewards, normalise_rewards, score_episode
from .turn_rewards import Float64s, TurnRewards

__all__ = ["ScoredGroups", "TrainingBatch", "build_training_batch", "score_groups"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroups:
    """Groups whose episodes tell something of the policy, scored; in the order in which they were played."""

    groups: list[list[Scored]]
    scales: Scales


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """What one step teaches."""

    groups: list[list[TrainSequence]]
    """Sequences with something to learn, by group; groups that teach nothing are not there."""
    kept_groups: int
    masked: Counter[str]
    """Episodes that are not learnt from, by reason."""

    @property
    def sequences(self) -> list[TrainSequence]:
        return [sequence for group in self.groups for sequence in group]


def score_groups(
    groups: Sequence[Group], stage: Stage, invalid_turn: float, clock: StepNames, scales: Scales
) -> ScoredGroups:
    """Faults and cancelled episodes are gone from here on: they are neither learnt from nor compared with."""

    def earned(episode: Episode) -> Scored:
        return score_episode(
            episode,
            stage.reward,
            invalid_turn=invalid_turn,
            context_tokens=stage.agent.context_tokens,
            clock=clock,
        )

    by_group = [_compared(group, earned) for group in groups]
    divided, scales = normalise_rewards(by_group, stage.reward, scales)
    return ScoredGroups(groups=divided, scales=scales)


def _compared(group: Group, earned: Callable[[Episode], Scored]) -> list[Scored]:
    found = [earned(episode) for episode in group.episodes if is_countable(episode)]
    if group.greedy is None:
        return found
    if not is_countable(group.greedy):
        return []  # there is nothing left to compare them with
    greedy = earned(group.greedy)
    return [replace(each, greedy=greedy) for each in found]


def build_training_batch(book: Sequence[Sequence[Scored]], stage: Stage, clock: StepNames) -> TrainingBatch:
    """What is learnt from groups that `scored` gave."""
    settings = stage.algorithm
    kept = [group for group in book if keeps_group(group, settings.filter, clock)]
    kept = [kept[place] for place in top_groups(kept, settings.filter.top_share)]
    policies = MaskPolicies(
        episodes=settings.filter.episodes,
        on_truncated=stage.agent.on_truncated,
        on_invalid_turn=stage.agent.on_invalid_turn,
    )
    masks = [[mask_episode(each, policies, clock) for each in group] for group in kept]
    credit = [
        [assign_turn_rewards(each, learnt=how.turns) for each, how in zip(group, group_masks, strict=True)]
        for group, group_masks in zip(kept, masks, strict=True)
    ]
    gains = advantages(credit, settings.advantage) if kept else []
    large = has_large_advantage(gains, settings.advantage.drop_below)
    expected = _expected(credit, settings.advantage)
    taught = [
        [
            sequence
            for each, how, tokens, values, wanted in zip(*parts, strict=True)
            if wanted and any(how.turns)
            for sequence in to_train_sequences(each.episode, how, {"advantages": tokens, **values})
        ]
        for parts in zip(kept, masks, gains, expected, large, strict=True)
    ]
    return TrainingBatch(
        groups=[group for group in taught if group],
        kept_groups=len(kept),
        masked=Counter(how.reason.value for group in masks for how in group if how.reason is not None),
    )


def _expected(groups: Sequence[Sequence[TurnRewards]], settings: Advantage) -> list[list[dict[str, Float64s]]]:
    """Of each episode, what the critic said and what it should have said; nothing where there is none."""
    if settings.baseline is not Baseline.CRITIC:
        return [[{} for _ in group] for group in groups]
    return [
        [{"values": credit.known_values, "value_targets": found} for credit, found in zip(*pair, strict=True)]
        for pair in zip(groups, value_targets(groups, settings), strict=True)
    ]


def to_train_sequences(episode: Episode, how: LossMask, tokens: Mapping[str, Float64s]) -> list[TrainSequence]:
    """One sequence per segment; what is known of `tokens` runs over the sampled ones, turn after turn."""
    learn = [np.zeros(len(segment.ids), np.bool_) for segment in episode.segments]
    for turn, learnt in zip(episode.turns, how.turns, strict=True):
        learn[turn.segment][turn.start : turn.end] = learnt
    spread = {name: _spread(episode, numbers) for name, numbers in tokens.items()}
    return [
        TrainSequence(
            ids=segment.ids,
            learn=mask_episode,
            old_logprobs=segment.logprobs,
            **{name: arrays[at] for name, arrays in spread.items()},
        )
        for at, (segment, mask_episode) in enumerate(zip(episode.segments, learn, strict=True))
        if mask_episode.any()
    ]


def _spread(episode: Episode, numbers: Float64s) -> list[Floats]:
    """From the sampled tokens to all tokens of the segments."""
    spread, at = [np.zeros(len(segment.ids), np.float32) for segment in episode.segments], 0
    for turn in episode.turns:
        length = turn.end - turn.start
        spread[turn.segment][turn.start : turn.end] = numbers[at : at + length]
        at += length
    if at != len(numbers):
        raise ValueError(f"expected a number for each of {at} sampled tokens, got {len(numbers)}")
    return spread
