"""From groups of episodes to what the learner is given: scored, filtered, masked, with an advantage on every token.

Enters: groups as they were played, a stage's settings. Leaves: token sequences, group by group, and what was counted
on the way. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..dsl.recipe import Stage
from .advantage import advantages
from .credit import Float64s
from .episode import Episode, Group
from .filters import Mask, Policies, countable, highest, mask, passes, sizeable
from .ports import TrainSequence
from .reward import Clock, Scales, Scored, credit_of, normalised, score

__all__ = ["Lesson", "Scorebook", "lesson", "scored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorebook:
    """Groups whose episodes tell something of the policy, scored; in the order in which they were played."""

    groups: list[list[Scored]]
    scales: Scales


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What one step teaches."""

    groups: list[list[TrainSequence]]
    """Sequences with something to learn, by group; groups that teach nothing are not there."""
    kept_groups: int
    masked: Counter[str]
    """Episodes that are not learnt from, by reason."""

    @property
    def sequences(self) -> list[TrainSequence]:
        return [sequence for group in self.groups for sequence in group]


def scored(groups: Sequence[Group], stage: Stage, invalid_turn: float, clock: Clock, scales: Scales) -> Scorebook:
    """Faults and cancelled episodes are gone from here on: they are neither learnt from nor compared with."""

    def earned(episode: Episode) -> Scored:
        return score(
            episode,
            stage.reward,
            invalid_turn=invalid_turn,
            context_tokens=stage.agent.context_tokens,
            clock=clock,
        )

    by_group = [_compared(group, earned) for group in groups]
    divided, scales = normalised(by_group, stage.reward, scales)
    return Scorebook(groups=divided, scales=scales)


def _compared(group: Group, earned: Callable[[Episode], Scored]) -> list[Scored]:
    found = [earned(episode) for episode in group.episodes if countable(episode)]
    if group.greedy is None:
        return found
    if not countable(group.greedy):
        return []  # there is nothing left to compare them with
    greedy = earned(group.greedy)
    return [replace(each, greedy=greedy) for each in found]


def lesson(book: Sequence[Sequence[Scored]], stage: Stage, clock: Clock) -> Lesson:
    """What is learnt from groups that `scored` gave."""
    settings = stage.algorithm
    kept = [group for group in book if passes(group, settings.filter, clock)]
    kept = [kept[place] for place in highest(kept, settings.filter.top_share)]
    policies = Policies(
        episodes=settings.filter.episodes,
        on_truncated=stage.agent.on_truncated,
        on_void_turn=stage.agent.on_void_turn,
    )
    masks = [[mask(each, policies, clock) for each in group] for group in kept]
    credit = [
        [credit_of(each, learnt=how.turns) for each, how in zip(group, group_masks, strict=True)]
        for group, group_masks in zip(kept, masks, strict=True)
    ]
    values = advantages(credit, settings.advantage) if kept else []
    large = sizeable(values, settings.advantage.drop_below)
    taught = [
        [
            sequence
            for each, how, tokens, wanted in zip(group, group_masks, group_values, group_large, strict=True)
            if wanted and any(how.turns)
            for sequence in sequences_of(each.episode, how, tokens)
        ]
        for group, group_masks, group_values, group_large in zip(kept, masks, values, large, strict=True)
    ]
    return Lesson(
        groups=[group for group in taught if group],
        kept_groups=len(kept),
        masked=Counter(how.reason.value for group in masks for how in group if how.reason is not None),
    )


def sequences_of(episode: Episode, how: Mask, tokens: Float64s) -> list[TrainSequence]:
    """One sequence per segment; `tokens` runs over the episode's sampled tokens, turn after turn."""
    learn = [np.zeros(len(segment.ids), np.bool_) for segment in episode.segments]
    spread = [np.zeros(len(segment.ids), np.float32) for segment in episode.segments]
    at = 0
    for turn, learnt in zip(episode.turns, how.turns, strict=True):
        length = turn.end - turn.start
        spread[turn.segment][turn.start : turn.end] = tokens[at : at + length]
        learn[turn.segment][turn.start : turn.end] = learnt
        at += length
    if at != len(tokens):
        raise ValueError(f"expected an advantage for each of {at} sampled tokens, got {len(tokens)}")
    return [
        TrainSequence(ids=segment.ids, learn=mask, advantages=values, old_logprobs=segment.logprobs)
        for segment, mask, values in zip(episode.segments, learn, spread, strict=True)
        if mask.any()
    ]
