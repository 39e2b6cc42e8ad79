"""From a finished step to its entries in the log of episodes: rewards, advantages, masks, log-probs as trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from ..learning.training_record import TrainingRecord
from ..protocols import Floats, TrainSequence
from ..rollout.episode import Episode, Group, Segment
from .episode_log import EpisodeEntry, EpisodeTraining

__all__ = ["StepTraining", "choose_groups", "demonstration_entries", "training_entries"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTraining:
    """What a step made of its episodes; nothing of it is copied until an episode is asked for."""

    records: Mapping[Episode, TrainingRecord] = field(default_factory=dict)
    sequences: Mapping[int, TrainSequence] = field(default_factory=dict)
    """All that were trained on, with the log-probs that the loss compared with, by the identity of their ids: those are
    the segment's own."""
    penalised: Mapping[Segment, Floats] = field(default_factory=dict)
    """Reference log-probs, where a KL penalty was in the reward."""
    has_own_logprobs: bool = False
    """Whether the learner computed its own log-probs before the update."""

    def of(self, episode: Episode) -> EpisodeTraining | None:
        """What became of an episode; None for one that was not scored."""
        record = self.records.get(episode)
        if record is None:
            return None
        found = [self.sequences.get(id(segment.ids)) for segment in episode.segments]
        return EpisodeTraining(
            record=record,
            learner_logprobs=tuple(each.old_logprobs if each and self.has_own_logprobs else None for each in found),
            reference_logprobs=tuple(
                each.reference_logprobs if each and each.reference_logprobs is not None else self.penalised.get(segment)
                for each, segment in zip(found, episode.segments, strict=True)
            ),
        )


def choose_groups(groups: Sequence[Group], wanted: int | None, seed: int) -> list[int]:
    """Choose so many groups, or all, by a seed; in their order."""
    if wanted is None or wanted >= len(groups):
        return list(range(len(groups)))
    return sorted(Random(seed).sample(range(len(groups)), wanted))


def training_entries(groups: Sequence[Group], chosen: Sequence[int], training: StepTraining) -> list[EpisodeEntry]:
    """Entries of the chosen groups, for the log."""
    return [
        EpisodeEntry(episode=episode, group=at, training=training.of(episode))
        for at in chosen
        for episode in groups[at].episodes
    ]


def demonstration_entries(demonstrations: Sequence[Episode], seed: int) -> list[EpisodeEntry]:
    """Entries of a sample of what a stage imitates, each a group of its own."""
    wanted = min(_DEMONSTRATIONS, len(demonstrations))
    chosen = sorted(Random(seed).sample(range(len(demonstrations)), wanted))
    return [EpisodeEntry(episode=demonstrations[at], group=at, mode=None) for at in chosen]


_DEMONSTRATIONS = 32
"""Demonstrations of a stage that are kept for people to look at."""
