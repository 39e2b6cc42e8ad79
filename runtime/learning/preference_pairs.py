"""Pairs, better and worse, and how far each side is to be moved: direct preference optimisation as a policy gradient.

Enters: scored groups, then log-probs of their sides under the policy and under the reference. Leaves: pairs, then token
sequences whose advantages make the plain policy gradient that of the preference loss. Pure. With w and l the sums of
the log-probs of all that was said on the better and on the worse side, over P pairs,

    m    = beta * ((w - ref_w) - (l - ref_l))
    loss = mean of  -(1 - e) log s(m) - e log s(-m)  -  sft_coef * w / (tokens of the better)

so that a side that is better in some pairs and worse in others is to be moved by

    gain = 1/P * (sum over pairs it is better in of  beta * (s(-m) - e) + sft_coef / tokens
                  - sum over pairs it is worse in of  beta * (s(-m) - e))

per unit of its log-prob: every token of it has that gain, and passes through the learner once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    "PairDataset",
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
    """What was said in an episode, or in one turn of it."""

    sequences: tuple[TrainSequence, ...]
    score: float = 0.0
    state: str = ""
    """Only sides from the same state are compared."""

    @property
    def tokens(self) -> int:
        return sum(int(sequence.learn.sum()) for sequence in self.sequences)

    @property
    def said(self) -> bytes:
        return b"".join(sequence.ids[sequence.learn].tobytes() for sequence in self.sequences)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Two ways to go on, of which one is better."""

    better: Response
    worse: Response


@dataclass(slots=True)
class PairDataset:
    """All pairs of an offline stage, and the reference's log-probs of the sides that have been learnt from."""

    pairs: list[Pair] = field(default_factory=list)
    reference: dict[Response, float] = field(default_factory=dict)


# --- from groups to pairs ------------------------------------------------------------------------------------------


def apply_masks(group: Sequence[Scored], stage: Stage, clock: StepNames) -> list[tuple[Scored, LossMask]]:
    """With what the recipe leaves out of each episode."""
    policies = MaskPolicies(
        episodes=stage.algorithm.data.keep,
        on_truncated=stage.agent.on_truncated,
        on_invalid_turn=stage.agent.on_invalid_turn,
    )
    return [(each, mask_episode(each, policies, clock)) for each in group]


def build_pairs(group: Sequence[tuple[Scored, LossMask]], settings: Preference) -> list[Pair]:
    """The pairs that a group gives, of its episodes or of their turns."""
    return choose_pairs([side for scored, how in group for side in _SIDES[settings.level](scored, how)], settings)


def choose_pairs(sides: Sequence[Response], settings: Preference) -> list[Pair]:
    """The furthest apart first, but before them who has been in fewer pairs."""
    options = [Pair(better=a, worse=b) for a, b in permutations(sides, 2) if _is_pair(a, b, settings.margin)]
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
    """What was said alike is not better for its luck."""
    apart = better.score - worse.score
    # in binary, 0.3 - 0.1 is a little below 0.2
    return better.state == worse.state and apart > 0 and apart >= margin - 1e-9 and better.said != worse.said


def _episode(scored: Scored, mask_episode: LossMask) -> Iterator[Response]:
    if sequences := _learnt(scored.episode, mask_episode.turns):
        yield Response(sequences=sequences, score=scored.total)


def _turns(scored: Scored, mask_episode: LossMask) -> Iterator[Response]:
    """Each turn from a state that has a name, by the rewards from it on."""
    turns, rewards = scored.episode.turns, assign_turn_rewards(scored).rewards
    spoken = [k for k, turn in enumerate(turns) if turn.end > turn.start]
    for at, k in enumerate(spoken):
        if mask_episode.turns[k] and turns[k].state:
            only = tuple(other == k for other in range(len(turns)))
            yield Response(sequences=_learnt(scored.episode, only), score=fsum(rewards[at:]), state=turns[k].state)


_SIDES: Mapping[Level, Callable[[Scored, LossMask], Iterator[Response]]] = {Level.EPISODE: _episode, Level.TURN: _turns}


def _learnt(episode: Episode, turns: tuple[bool, ...]) -> tuple[TrainSequence, ...]:
    unknown = {"advantages": np.zeros(sum(turn.end - turn.start for turn in episode.turns))}
    # no ratio is taken: what the tokens were drawn with is of no interest
    return tuple(
        replace(each, old_logprobs=None) for each in to_train_sequences(episode, LossMask(turns=turns), unknown)
    )


# --- from log-probs to a lesson ------------------------------------------------------------------------------------


def responses_of(pairs: Sequence[Pair]) -> list[Response]:
    """Each once, in how many pairs it may be."""
    return list(dict.fromkeys(side for pair in pairs for side in (pair.better, pair.worse)))


def sum_logprobs(sides: Sequence[Response], logprobs: Sequence[Floats]) -> dict[Response, float]:
    """Of each side; `logprobs` are those of all sequences of all sides, and 0 where nothing is learnt."""
    found = iter(logprobs)
    return {side: fsum(_sum(next(found), sequence.weights) for sequence in side.sequences) for side in sides}


def _sum(logprobs: Floats, weights: Floats | None) -> float:
    return float((logprobs.astype(np.float64) * (1.0 if weights is None else weights)).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreferenceObjective:
    """The loss of some pairs, and what follows from it."""

    loss: float
    preference_loss: float
    """Without the likelihood of the better ones."""
    rewards: Float64s
    """Of each pair, better and worse: beta times the log-ratio to the reference."""
    gains: Mapping[Response, float]
    """By how much the loss falls per unit of a side's log-prob."""

    @property
    def margins(self) -> Float64s:
        return self.rewards[:, 0] - self.rewards[:, 1]


def preference_objective(
    pairs: Sequence[Pair], now: Mapping[Response, float], reference: Mapping[Response, float], settings: Preference
) -> PreferenceObjective:
    apart = [[now[side] - reference[side] for side in (pair.better, pair.worse)] for pair in pairs]
    rewards = settings.beta * np.asarray(apart, np.float64)
    margins = rewards[:, 0] - rewards[:, 1]
    doubt = settings.label_smoothing
    preference = (1 - doubt) * np.logaddexp(0, -margins) + doubt * np.logaddexp(0, margins)
    tokens = np.asarray([pair.better.tokens for pair in pairs])
    likelihood = np.asarray([now[pair.better] for pair in pairs]) / tokens
    kl_penalty = settings.beta * (np.exp(-np.logaddexp(0, margins)) - doubt) / len(pairs)
    towards = kl_penalty + settings.sft_coef / tokens / len(pairs)
    gains: dict[Response, float] = defaultdict(float)
    for pair, up, down in zip(pairs, towards.tolist(), kl_penalty.tolist(), strict=True):
        gains[pair.better] += up
        gains[pair.worse] -= down
    return PreferenceObjective(
        loss=float((preference - settings.sft_coef * likelihood).mean()),
        preference_loss=float(preference.mean()),
        rewards=rewards,
        gains=gains,
    )


def to_sequences(gains: Mapping[Response, float]) -> list[TrainSequence]:
    """Sequences for the plain policy gradient, whose update divides by their number."""
    count = sum(len(side.sequences) for side in gains)
    return [
        replace(sequence, advantages=(sequence.learn * (gain * count)).astype(np.float32))
        for side, gain in gains.items()
        for sequence in side.sequences
    ]
