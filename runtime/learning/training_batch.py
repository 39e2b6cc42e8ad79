"""Training batch: groups of episodes scored, filtered, masked, with an advantage on every token. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from ...dsl.model.algorithm import Advantage, Baseline
from ...dsl.model.recipe import Stage
from ..protocols import Floats, TrainSequence
from ..rollout.episode import Episode, Group
from .advantage import compute_advantages, compute_value_targets
from .filters import LossMask, MaskPolicies, has_large_advantage, is_countable, keeps_group, mask_episode, top_groups
from .reward import Scales, Scored, StepNames, assign_turn_rewards, normalise_rewards, score_episode
from .training_record import LeftOut, TrainingRecord
from .turn_rewards import Float64s, TurnRewards

__all__ = [
    "TrainingBatch",
    "attach_values",
    "build_training_batch",
    "score_groups",
    "to_sampled_sequences",
    "to_train_sequences",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """Sequences of one step."""

    groups: list[list[TrainSequence]]
    """Sequences with a loss mask, by group; groups without any are not there."""
    kept_groups: int
    masked: Counter[str]
    """Masked episodes by reason."""
    records: Mapping[Episode, TrainingRecord] = field(default_factory=dict)
    """What became of each scored episode."""

    @property
    def sequences(self) -> list[TrainSequence]:
        return [sequence for group in self.groups for sequence in group]


def score_groups(
    groups: Sequence[Group], stage: Stage, invalid_turn: float, step_names: StepNames, scales: Scales
) -> tuple[list[list[Scored]], Scales]:
    """Score the groups in their order; faults and cancelled episodes are dropped here, from loss and baseline."""

    def score(episode: Episode) -> Scored:
        return score_episode(
            episode,
            stage.reward,
            invalid_turn=invalid_turn,
            context_tokens=stage.agent.context_tokens,
            step_names=step_names,
        )

    return normalise_rewards([_score_group(group, score) for group in groups], stage.reward, scales)


def _score_group(group: Group, score: Callable[[Episode], Scored]) -> list[Scored]:
    found = [score(episode) for episode in group.episodes if is_countable(episode)]
    if group.greedy is None:
        return found
    if not is_countable(group.greedy):
        return []  # there is nothing left to compare them with
    greedy = score(group.greedy)
    return [replace(each, greedy=greedy) for each in found]


def attach_values(groups: Sequence[Sequence[Scored]], values: Sequence[Floats]) -> list[list[Scored]]:
    """Attach critic values to each episode's tokens. `values` belongs to `sampled_sequences`: the value once each token
    has been read, so the value before a token stands at the one before it, the environment's or the model's own."""
    found = iter(values)
    return [[_attach_to_episode(each, found) for each in group] for group in groups]


def _attach_to_episode(each: Scored, found: Iterator[Floats]) -> Scored:
    segments = [next(found).astype(np.float64) for _ in each.episode.segments]
    sampled = (turn for turn in each.episode.turns if turn.end > turn.start)
    before = [segments[turn.segment][turn.start - 1 : turn.end - 1] for turn in sampled]
    return replace(each, values=np.concatenate(before))


def build_training_batch(groups: Sequence[Sequence[Scored]], stage: Stage, step_names: StepNames) -> TrainingBatch:
    """Build the sequences of groups from `score_groups`."""
    settings = stage.algorithm
    passing = [at for at, group in enumerate(groups) if keeps_group(group, settings, step_names)]
    top = top_groups([groups[at] for at in passing], settings.filter.top_share)
    chosen = [passing[place] for place in top]
    kept = [groups[at] for at in chosen]
    policies = MaskPolicies.of(stage.agent, settings.filter.episodes)
    masks = [[mask_episode(each, policies, step_names) for each in group] for group in kept]
    turn_rewards = [
        [assign_turn_rewards(each, loss_mask=mask.turns) for each, mask in zip(group, group_masks, strict=True)]
        for group, group_masks in zip(kept, masks, strict=True)
    ]
    advantages = compute_advantages(turn_rewards, settings.advantage) if kept else []
    large = has_large_advantage(advantages, settings.advantage.drop_below)
    critic_columns = _critic_columns(turn_rewards, settings.advantage)
    numbers, records = count(), _record_dropped(groups, passing, chosen)
    trained_groups: list[list[TrainSequence]] = []
    for parts in zip(kept, masks, advantages, critic_columns, large, strict=True):
        trained_groups.append([])
        for each, mask, tokens, values, is_large in zip(*parts, strict=True):
            reason = _reason_left_out(mask, is_large)
            records[each.episode] = TrainingRecord(
                reward=each.total, kept=not reason, reason=reason, turns=mask.turns, advantages=tokens
            )
            if not reason:
                columns = {"advantages": tokens, **values}
                trained_groups[-1] += to_train_sequences(each.episode, mask, columns, next(numbers))
    return TrainingBatch(
        groups=[group for group in trained_groups if group],
        kept_groups=len(kept),
        masked=Counter(mask.reason.value for group in masks for mask in group if mask.reason is not None),
        records=records,
    )


def _reason_left_out(mask: LossMask, is_large: bool) -> str:
    """Return why nothing of an episode in a kept group is trained on; empty if something is."""
    if mask.reason is not None:
        return mask.reason
    if not any(mask.turns):
        return LeftOut.TURNS
    return "" if is_large else LeftOut.ADVANTAGE


def _record_dropped(
    groups: Sequence[Sequence[Scored]], passing: Sequence[int], chosen: Sequence[int]
) -> dict[Episode, TrainingRecord]:
    """Record the episodes of groups that were dropped whole."""
    reasons = dict.fromkeys(range(len(groups)), LeftOut.GROUP) | dict.fromkeys(passing, LeftOut.TOP_SHARE)
    dropped = reasons.keys() - set(chosen)
    return {
        each.episode: TrainingRecord(reward=each.total, kept=False, reason=reasons[at])
        for at in sorted(dropped)
        for each in groups[at]
    }


def _critic_columns(groups: Sequence[Sequence[TurnRewards]], settings: Advantage) -> list[list[dict[str, Float64s]]]:
    """Collect values and value targets of each episode; none without a critic."""
    if settings.baseline is not Baseline.CRITIC:
        return [[{} for _ in group] for group in groups]
    return [
        [
            {"values": turn_rewards.known_values, "value_targets": found}
            for turn_rewards, found in zip(*pair, strict=True)
        ]
        for pair in zip(groups, compute_value_targets(groups, settings), strict=True)
    ]


def to_train_sequences(
    episode: Episode, mask: LossMask, tokens: Mapping[str, Float64s], number: int | None = None
) -> list[TrainSequence]:
    """Build one sequence per segment, with the episode's number; the arrays in `tokens` run over the sampled tokens,
    turn after turn."""
    loss_mask = [np.zeros(len(segment.ids), np.bool_) for segment in episode.segments]
    for turn, trained in zip(episode.turns, mask.turns, strict=True):
        loss_mask[turn.segment][turn.start : turn.end] = trained
    spread = {name: _spread_over_segments(episode, numbers) for name, numbers in tokens.items()}
    return [
        TrainSequence(
            ids=segment.ids,
            loss_mask=mask,
            old_logprobs=segment.logprobs,
            episode=number,
            **{name: arrays[at] for name, arrays in spread.items()},
        )
        for at, (segment, mask) in enumerate(zip(episode.segments, loss_mask, strict=True))
        if mask.any()
    ]


def to_sampled_sequences(episode: Episode, advantage: float = 0.0) -> list[TrainSequence]:
    """Build one sequence per segment, with the same advantage on all sampled tokens."""
    return [
        TrainSequence(
            ids=segment.ids, loss_mask=segment.sampled, advantages=segment.sampled.astype(np.float32) * advantage
        )
        for segment in episode.segments
    ]


def _spread_over_segments(episode: Episode, numbers: Float64s) -> list[Floats]:
    """Spread numbers of the sampled tokens over all tokens of the segments."""
    spread, at = [np.zeros(len(segment.ids), np.float32) for segment in episode.segments], 0
    for turn in episode.turns:
        length = turn.end - turn.start
        spread[turn.segment][turn.start : turn.end] = numbers[at : at + length]
        at += length
    if at != len(numbers):
        raise ValueError(f"expected {at} numbers, one per sampled token; got {len(numbers)}")
    return spread
