"""From groups to pairs, and from pairs to a gradient: against direct preference optimisation written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from agym.dsl.model.algorithm import Aggregation, Level, LossKind, Preference
from agym.runtime.learning.filters import LossMask
from agym.runtime.learning.loss import LossInputs, compute_loss, compute_token_scale
from agym.runtime.learning.packing import compute_normaliser, pack
from agym.runtime.learning.preference_pairs import (
    Pair,
    Response,
    build_pairs,
    preference_objective,
    responses_of,
    sum_logprobs,
    to_sequences,
)
from agym.runtime.learning.reward import Scored
from agym.runtime.protocols import LossSettings, TrainSequence
from agym.runtime.rollout.episode import Episode

from .factories import make_episode, make_segment, make_turn

VOCAB = 7
PROMPT = (6, 5)


def episode(*replies: tuple[int, ...], states: str = "", segments: Sequence[int] = ()) -> Episode:
    """Replies after a prompt, each followed by a token of the environment's; `segments` says where each reply lies."""
    places = list(segments) or [0] * len(replies)
    ids: list[list[int]] = [list(PROMPT) for _ in range(max(places, default=0) + 1)]
    turns = []
    for at, (reply, segment) in enumerate(zip(replies, places, strict=True)):
        start = len(ids[segment])
        ids[segment] += [*reply, 4]
        turns.append(make_turn(start, start + len(reply), segment=segment, state=states[at : at + 1]))
    return make_episode([make_segment([False] * len(each), each) for each in ids], turns)


def scored(
    played: Episode, outcome: float, rewards: Sequence[float] = (), learnt: Sequence[bool] = ()
) -> tuple[Scored, LossMask]:
    count = len(played.turns)
    earned = Scored(episode=played, outcome=outcome, turn_rewards=tuple(rewards) or (0.0,) * count)
    return earned, LossMask(turns=tuple(learnt) or (True,) * count)


def group(*outcomes: float) -> list[tuple[Scored, LossMask]]:
    """Each episode says its own place."""
    return [scored(episode((at,)), outcome) for at, outcome in enumerate(outcomes)]


def said(side: Response) -> list[int]:
    return [token for each in side.sequences for token in each.ids[each.loss_mask].tolist()]


def chosen(*outcomes: float, **settings: Any) -> list[tuple[int, int]]:
    """Places of the better and the worse."""
    pairs = build_pairs(group(*outcomes), Preference(**settings))
    return [(said(pair.better)[0], said(pair.worse)[0]) for pair in pairs]


# --- pairs of episodes


def test_the_best_and_the_worst_are_the_first_pair() -> None:
    assert chosen(0.5, 1.0, 0.0, 0.75) == [(1, 2), (3, 0), (3, 2), (1, 0)]


def test_who_has_been_in_fewer_pairs_comes_before_who_is_further_apart() -> None:
    assert chosen(1.0, 0.0, 0.0, 1.0, 0.0, 0.0) == [(0, 1), (3, 2), (0, 4), (3, 5)]


@pytest.mark.parametrize(("most", "found"), [(1, 1), (3, 3), (99, 6)])
def test_no_more_pairs_than_asked_for_and_each_but_once(most: int, found: int) -> None:
    pairs = chosen(0.0, 0.25, 0.5, 1.0, pairs_per_group=most)
    assert len(set(pairs)) == len(pairs) == found


def test_equal_scores_make_no_pair() -> None:
    assert chosen(0.5, 0.5, 0.5) == []
    assert chosen(1.0) == []
    assert chosen() == []


def test_the_margin_is_the_smallest_difference_that_makes_a_pair() -> None:
    assert chosen(0.3, 0.1, 0.2, margin=0.2) == [(0, 1)]
    assert chosen(0.3, 0.1, margin=0.21) == []


def test_what_was_said_alike_makes_no_pair() -> None:
    alike = [scored(episode((1, 2)), 1.0), scored(episode((1, 2)), 0.0), scored(episode((1,), (2,)), 0.0)]
    assert build_pairs(alike, Preference()) == []


def test_all_replies_of_an_episode_are_learnt_but_those_that_are_masked() -> None:
    better = scored(episode((1, 2), (3,), (0, 1)), 1.0, learnt=(True, False, True))
    worse = scored(episode((2,), (5,), segments=(0, 1)), 0.0)
    (pair,) = build_pairs([better, worse, scored(episode((0,)), 9.0, learnt=(False,))], Preference())
    assert (said(pair.better), said(pair.worse)) == ([1, 2, 0, 1], [2, 5])
    assert (pair.better.tokens, pair.worse.tokens) == (4, 2)
    assert [len(side.sequences) for side in (pair.better, pair.worse)] == [1, 2]


# --- pairs of turns

TURNS = Preference(level=Level.TURN)


def test_turns_are_compared_where_they_were_taken_from_the_same_state() -> None:
    one = scored(episode((1,), (2,), states="ab"), 1.0)
    two = scored(episode((3,), (5,), states="ac"), 0.0)
    three = scored(episode((0,), states="c"), 0.5)
    pairs = build_pairs([one, two, three], TURNS)
    assert [(said(pair.better), said(pair.worse)) for pair in pairs] == [([1], [3]), ([0], [5])]


def test_a_turn_is_worth_what_followed_it() -> None:
    one = scored(episode((1,), (2,), states="ab"), 0.0, rewards=(5.0, 0.0))
    two = scored(episode((3,), (5,), states="cb"), 0.0, rewards=(0.0, 1.0))
    (pair,) = build_pairs([one, two], TURNS)
    assert (said(pair.better), said(pair.worse)) == ([5], [2])


def test_two_turns_of_one_episode_may_be_a_pair() -> None:
    (pair,) = build_pairs([scored(episode((1,), (2,), states="aa"), 0.0, rewards=(1.0, 0.0))], TURNS)
    assert (said(pair.better), said(pair.worse)) == ([1], [2])


def test_states_without_a_name_and_masked_turns_are_in_no_pair() -> None:
    assert build_pairs([scored(episode((1,)), 1.0), scored(episode((2,)), 0.0)], TURNS) == []
    masked = scored(episode((1,), states="a"), 1.0, learnt=(False,))
    assert build_pairs([masked, scored(episode((2,), states="a"), 0.0)], TURNS) == []


def test_each_turn_keeps_the_context_that_it_was_taken_in() -> None:
    one = scored(episode((1,), (2,), states="ab", segments=(0, 1)), 1.0)
    two = scored(episode((0,), (3,), (5,), states="xyb"), 0.0)
    (pair,) = build_pairs([one, two], TURNS)
    ((better,), (worse,)) = pair.better.sequences, pair.worse.sequences
    assert better.ids.tolist() == [*PROMPT, 2, 4]
    assert worse.ids.tolist() == [*PROMPT, 0, 4, 3, 4, 5, 4]
    assert (np.flatnonzero(better.loss_mask).tolist(), np.flatnonzero(worse.loss_mask).tolist()) == ([2], [6])


# --- the gradient


def model(seed: int) -> torch.Tensor:
    """Logits of a token by the two before it."""
    return torch.randn(2, VOCAB, VOCAB, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def logprobs(weights: torch.Tensor, sequence: TrainSequence) -> torch.Tensor:
    """Of the trained tokens."""
    at = np.flatnonzero(sequence.loss_mask)
    ids = torch.from_numpy(sequence.ids.astype(np.int64))
    rows = (weights[0, ids[at - 1]] + weights[1, ids[at - 2]]).log_softmax(-1)
    return rows[range(len(at)), ids[at]]


def directly(pairs: Sequence[Pair], start: torch.Tensor, settings: Preference) -> tuple[float, torch.Tensor]:
    """The published loss, pair by pair, and its gradient by autograd."""
    weights, reference = start.clone().requires_grad_(), model(1)
    loss = torch.zeros((), dtype=torch.float64)
    for pair in pairs:
        better, worse, ref_better, ref_worse = (
            sum(logprobs(of, each).sum() for each in side.sequences)
            for of in (weights, reference)
            for side in (pair.better, pair.worse)
        )
        margin = settings.beta * ((better - ref_better) - (worse - ref_worse))
        doubt = settings.label_smoothing
        loss = loss - (1 - doubt) * margin.sigmoid().log() - doubt * (-margin).sigmoid().log()
        loss = loss - settings.sft_coef * better / pair.better.tokens
    loss = loss / len(pairs)
    loss.backward()
    assert weights.grad is not None
    return loss.item(), weights.grad


def found(sides: Sequence[Response], weights: torch.Tensor) -> dict[Response, float]:
    """As a learner returns them: 0 where nothing is trained."""
    values = []
    for side in sides:
        for sequence in side.sequences:
            row = np.zeros(len(sequence.ids), np.float32)
            row[sequence.loss_mask] = logprobs(weights, sequence).numpy()
            values.append(row)
    return sum_logprobs(sides, values)


def through_the_learner(sequences: list[TrainSequence], start: torch.Tensor, capacity: int) -> torch.Tensor:
    """The gradient that a learner would take, micro-batch by micro-batch."""
    weights = start.clone().requires_grad_()
    settings = LossSettings(kind=LossKind.POLICY_GRADIENT, aggregation=Aggregation.FIXED_LENGTH, length=1)
    for row in pack(sequences, capacity, torch.device("cpu")):
        own = [sequences[member] for member in row.members]
        terms = compute_loss(
            LossInputs(
                logprobs_N=torch.cat([logprobs(weights, each) for each in own]),
                entropy_N=torch.zeros(len(row.targets_N)),
                advantages_N=row.advantages_N,
                scale_N=compute_token_scale(
                    row.lengths_S, row.sequence_N, settings.aggregation, settings.length, compute_normaliser(sequences)
                ),
            ),
            settings,
        )
        terms.loss.backward()
    assert weights.grad is not None
    return weights.grad


def several_pairs() -> list[Pair]:
    """Episodes of several turns and segments, a masked turn, one that is better here and worse there."""
    return build_pairs(
        [
            scored(episode((1, 2), (3,)), 1.0),
            scored(episode((0,), (2, 2), (5, 1), segments=(0, 0, 1)), 0.5),
            scored(episode((3, 3, 3), (1,), (0,)), 0.0, learnt=(True, True, False)),
            scored(episode((5,)), -1.0),
        ],
        Preference(pairs_per_group=5),
    )


@pytest.mark.parametrize("capacity", [1, 9, 1000])
@pytest.mark.parametrize(
    "settings",
    [
        Preference(),
        Preference(beta=2.0),
        Preference(beta=0.5, label_smoothing=0.2),
        Preference(sft_coef=0.7),
        Preference(beta=0.3, label_smoothing=0.1, sft_coef=1.5),
    ],
)
def test_loss_and_gradient_are_those_of_direct_preference_optimisation(settings: Preference, capacity: int) -> None:
    pairs, start = several_pairs(), model(0)
    assert len(pairs) == 5
    assert len(responses_of(pairs)) == 4
    loss, gradient = directly(pairs, start, settings)
    sides = responses_of(pairs)
    lesson = preference_objective(pairs, found(sides, start), found(sides, model(1)), settings)
    assert lesson.loss == pytest.approx(loss, rel=1e-6)
    torch.testing.assert_close(
        through_the_learner(to_sequences(lesson.gains), start, capacity), gradient, rtol=1e-5, atol=1e-6
    )


def test_pairs_of_turns_have_the_gradient_of_their_turns_alone() -> None:
    one = scored(episode((1, 2), (3, 0), (2,), states="abc"), 1.0)
    two = scored(episode((5,), (0, 0, 1), states="ba"), 0.0)
    pairs, settings = build_pairs([one, two], TURNS), Preference(beta=1.0)
    assert len(pairs) == 2
    start, sides = model(0), responses_of(pairs)
    loss, gradient = directly(pairs, start, settings)
    lesson = preference_objective(pairs, found(sides, start), found(sides, model(1)), settings)
    assert lesson.loss == pytest.approx(loss, rel=1e-6)
    torch.testing.assert_close(
        through_the_learner(to_sequences(lesson.gains), start, 9), gradient, rtol=1e-5, atol=1e-6
    )


def test_at_the_reference_the_loss_is_that_of_a_coin_and_rewards_are_nothing() -> None:
    pairs = several_pairs()
    at_start = found(responses_of(pairs), model(0))
    lesson = preference_objective(pairs, at_start, at_start, Preference())
    assert lesson.loss == lesson.preference_loss == pytest.approx(np.log(2))
    assert lesson.margins.tolist() == [0.0] * 5


def test_a_margin_far_beyond_a_float_is_still_a_number() -> None:
    (pair,) = build_pairs(group(1.0, 0.0), Preference())
    for apart, loss in ((1e6, 0.0), (-1e6, 2e5)):
        lesson = preference_objective(
            [pair], {pair.better: apart, pair.worse: -apart}, dict.fromkeys(responses_of([pair]), 0.0), Preference()
        )
        assert lesson.loss == pytest.approx(loss)
        assert np.isfinite(list(lesson.gains.values())).all()


def test_the_better_side_is_pulled_up_as_much_as_the_worse_is_pushed_down() -> None:
    (pair,) = build_pairs(group(1.0, 0.0), Preference())
    even = dict.fromkeys(responses_of([pair]), -1.0)
    gains = preference_objective([pair], even, even, Preference(beta=0.2)).gains
    assert gains == {pair.better: pytest.approx(0.1), pair.worse: pytest.approx(-0.1)}
    doubtful = preference_objective([pair], even, even, Preference(beta=0.2, label_smoothing=0.25)).gains
    assert doubtful[pair.better] == pytest.approx(0.05)
    liked = preference_objective([pair], even, even, Preference(beta=0.2, sft_coef=0.5)).gains
    assert (liked[pair.better], liked[pair.worse]) == (pytest.approx(0.6), pytest.approx(-0.1))
