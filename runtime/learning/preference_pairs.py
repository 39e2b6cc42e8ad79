"""Preference pairs, and direct preference optimisation as a policy gradient. Pure.

With w and l the sums of the log-probs of the better and of the worse response, over P pairs,

    m    = beta * ((w - ref_w) - (l - ref_l))
    loss = mean of  -(1 - e) log s(m) - e log s(-m)  -  sft_coef * w / (tokens of the better)

so a response that is better in some pairs and worse in others is moved by

    gain = 1/P * (sum over pairs it is better in of  beta * (s(-m) - e) + sft_coef / tokens
                  - sum over pairs it is worse in of  beta * (s(-m) - e))

per unit of its log-prob: as advantages of its tokens these gains make the plain policy gradient that of the preference
loss, and each response passes through the learner once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import fsum

import numpy as np

from ...dsl.model.algorithm import Level, Preference
from ...dsl.model.recipe import Stage
from ..protocols import Floats, TrainSequence
from ..rollout.episode import Episode
from .filters import LossMask, MaskPolicies, mask_episode
from .reward import Scored, StepNames, assign_turn_rewards
from .training_batch import to_train_sequences
from .turn_rewards import Float64s

__all__ = [
    "Pair",
    "PreferenceObjective",
    "Response",
    "apply_masks",
    "build_pairs",
    "choose_pairs",
    "preference_objective",
    "responses_of",
    "sum_logprobs",
    "to_sequences",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Response:
    """Sampled tokens of an episode, or of one turn of it."""

    sequences: tuple[TrainSequence, ...]
    score: float = 0.0
    state: str = ""
    """Only responses from the same state are compared."""

    @property
    def tokens(self) -> int:
        return sum(int(sequence.loss_mask.sum()) for sequence in self.sequences)

    @property
    def reply_bytes(self) -> bytes:
        return b"".join(sequence.ids[sequence.loss_mask].tobytes() for sequence in self.sequences)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """A better and a worse response."""

    better: Response
    worse: Response


def apply_masks(group: Sequence[Scored], stage: Stage, step_names: StepNames) -> list[tuple[Scored, LossMask]]:
    """Attach each episode's loss mask under the recipe's policies."""
    policies = MaskPolicies.of(stage.agent, stage.algorithm.data.keep)
    return [(each, mask_episode(each, policies, step_names)) for each in group]


def build_pairs(group: Sequence[tuple[Scored, LossMask]], settings: Preference) -> list[Pair]:
    """Build the pairs of a group, of its episodes or of their turns."""
    return choose_pairs(
        [response for scored, mask in group for response in _RESPONSES[settings.level](scored, mask)], settings
    )


def choose_pairs(responses: Sequence[Response], settings: Preference) -> list[Pair]:
    """Choose the pairs furthest apart, preferring responses in fewer pairs."""
    options = [Pair(better=a, worse=b) for a, b in permutations(responses, 2) if _is_pair(a, b, settings.margin)]
    uses, taken = Counter[Response](), list[Pair]()
    while options and len(taken) < settings.pairs_per_group:
        best = min(
            options, key=lambda pair: (uses[pair.better] + uses[pair.worse], pair.worse.score - pair.better.score)
        )
        options.remove(best)
        uses.update((best.better, best.worse))
        taken.append(best)
    return taken


def _is_pair(better: Response, worse: Response, margin: float) -> bool:
    """Return whether the first is better by the margin; equal tokens make no pair, however they were rewarded."""
    gap = better.score - worse.score
    # in binary, 0.3 - 0.1 is a little below 0.2
    return better.state == worse.state and gap > 0 and gap >= margin - 1e-9 and better.reply_bytes != worse.reply_bytes


def _episode_response(scored: Scored, mask: LossMask) -> Iterator[Response]:
    if sequences := _trained_sequences(scored.episode, mask.turns):
        yield Response(sequences=sequences, score=scored.total)


def _turn_responses(scored: Scored, mask: LossMask) -> Iterator[Response]:
    """Yield each turn from a named state, scored by the rewards from it on."""
    turns, rewards = scored.episode.turns, assign_turn_rewards(scored).rewards
    sampled = [k for k, turn in enumerate(turns) if turn.end > turn.start]
    for at, k in enumerate(sampled):
        if mask.turns[k] and turns[k].state:
            only = tuple(other == k for other in range(len(turns)))
            yield Response(
                sequences=_trained_sequences(scored.episode, only), score=fsum(rewards[at:]), state=turns[k].state
            )


_RESPONSES: Mapping[Level, Callable[[Scored, LossMask], Iterator[Response]]] = {
    Level.EPISODE: _episode_response,
    Level.TURN: _turn_responses,
}


def _trained_sequences(episode: Episode, turns: tuple[bool, ...]) -> tuple[TrainSequence, ...]:
    unknown = {"advantages": np.zeros(sum(turn.end - turn.start for turn in episode.turns))}
    # no ratio is taken: what the tokens were drawn with is of no interest
    return tuple(
        replace(each, old_logprobs=None) for each in to_train_sequences(episode, LossMask(turns=turns), unknown)
    )


def responses_of(pairs: Sequence[Pair]) -> list[Response]:
    """Return each response once, in any number of pairs."""
    return list(dict.fromkeys(response for pair in pairs for response in (pair.better, pair.worse)))


def sum_logprobs(responses: Sequence[Response], logprobs: Sequence[Floats]) -> dict[Response, float]:
    """Sum the log-probs of each response; `logprobs` are those of all its sequences, 0 outside the loss mask."""
    remaining = iter(logprobs)
    return {
        response: fsum(_sum_weighted(next(remaining), sequence.weights) for sequence in response.sequences)
        for response in responses
    }


def _sum_weighted(logprobs: Floats, weights: Floats | None) -> float:
    return float((logprobs.astype(np.float64) * (1.0 if weights is None else weights)).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreferenceObjective:
    """Loss of some pairs, and its gradient."""

    loss: float
    preference_loss: float
    """Without the likelihood of the better responses."""
    rewards: Float64s
    """Per pair, better and worse: beta times the log-ratio to the reference."""
    gains: Mapping[Response, float]
    """Decrease of the loss per unit of a response's log-prob."""

    @property
    def margins(self) -> Float64s:
        return self.rewards[:, 0] - self.rewards[:, 1]


def preference_objective(
    pairs: Sequence[Pair], now: Mapping[Response, float], reference: Mapping[Response, float], settings: Preference
) -> PreferenceObjective:
    gap = [[now[response] - reference[response] for response in (pair.better, pair.worse)] for pair in pairs]
    rewards = settings.beta * np.asarray(gap, np.float64)
    margins = rewards[:, 0] - rewards[:, 1]
    smoothing = settings.label_smoothing
    preference = (1 - smoothing) * np.logaddexp(0, -margins) + smoothing * np.logaddexp(0, margins)
    tokens = np.asarray([pair.better.tokens for pair in pairs])
    likelihood = np.asarray([now[pair.better] for pair in pairs]) / tokens
    slope = settings.beta * (np.exp(-np.logaddexp(0, margins)) - smoothing) / len(pairs)
    towards = slope + settings.sft_coef / tokens / len(pairs)
    gains: dict[Response, float] = defaultdict(float)
    for pair, up, down in zip(pairs, towards.tolist(), slope.tolist(), strict=True):
        gains[pair.better] += up
        gains[pair.worse] -= down
    return PreferenceObjective(
        loss=float((preference - settings.sft_coef * likelihood).mean()),
        preference_loss=float(preference.mean()),
        rewards=rewards,
        gains=gains,
    )


def to_sequences(gains: Mapping[Response, float]) -> list[TrainSequence]:
    """Build sequences for the plain policy gradient, whose update divides by their number."""
    count = sum(len(response.sequences) for response in gains)
    return [
        replace(sequence, advantages=(sequence.loss_mask * (gain * count)).astype(np.float32))
        for response, gain in gains.items()
        for sequence in response.sequences
    ]
