"""How sequences are divided between ranks, and how what comes back is joined."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from agym.runtime.protocols import TrainSequence
from agym.runtime.workers.division import Share, divide, is_divided, join
from agym.runtime.workers.learner_worker import LearnerWorker


def sequences(lengths: Sequence[int], episodes: Sequence[int | None] | None = None) -> list[TrainSequence]:
    return [
        TrainSequence(
            ids=np.zeros(length, np.int32),
            loss_mask=np.ones(length, np.bool_),
            advantages=np.zeros(length, np.float32),
            episode=episode,
        )
        for length, episode in zip(lengths, episodes or [None] * len(lengths), strict=True)
    ]


@pytest.mark.parametrize("shares", [1, 2, 3, 8])
def test_each_sequence_is_in_exactly_one_share(shares: int) -> None:
    rng = random.Random(0)
    for count in (0, 1, 2, 7, 40):
        divided = divide(sequences([rng.randint(1, 500) for _ in range(count)]), shares)
        assert len(divided) == shares
        assert sorted(at for share in divided for at in share) == list(range(count))
        assert all(share == sorted(share) for share in divided)


def test_shares_differ_by_no_more_than_the_longest_sequence() -> None:
    rng = random.Random(1)
    lengths = [rng.randint(1, 500) for _ in range(100)]
    tokens = [sum(lengths[at] for at in share) for share in divide(sequences(lengths), 4)]
    assert max(tokens) - min(tokens) <= max(lengths)
    assert max(tokens) < 1.02 * min(tokens)


def test_segments_of_an_episode_stay_together() -> None:
    rng = random.Random(2)
    episodes = [rng.choice([None, *range(6)]) for _ in range(40)]
    divided = divide(sequences([rng.randint(1, 50) for _ in range(40)], episodes), 3)
    for number in range(6):
        assert sum(any(episodes[at] == number for at in share) for share in divided) <= 1


def test_one_share_keeps_the_order() -> None:
    assert divide(sequences([3, 9, 1], [1, 0, 1]), 1) == [[0, 1, 2]]


def test_lists_are_joined_in_the_order_of_the_sequences_and_other_values_are_the_first_ranks() -> None:
    assert join([[0, 3], [1, 2]], [["a", "d"], ["b", "c"]]) == ["a", "b", "c", "d"]
    assert join([[], [0]], [[], ["a"]]) == ["a"]
    assert join([[0], [1]], ["first", "second"]) == "first"
    assert join([[1], [0]], [("first", ["a"]), ("second", ["b"])]) == ("first", ["b", "a"])


def test_all_that_takes_sequences_is_divided_and_nothing_else() -> None:
    marked = {name for name, work in vars(LearnerWorker).items() if is_divided(work)}
    assert marked == {"update", "update_weighed", "logprobs", "values", "update_critic", "rank", "update_ranker"}


def test_a_share_arrives_as_a_list_of_the_same_sequences_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    sent = [
        replace(each, ids=rng.integers(0, 9, 5, np.int32), advantages=rng.random(5, np.float32))
        for each in sequences([5, 5, 5], [3, None, 3])
    ]
    sent[1] = replace(sent[1], old_logprobs=rng.random(5, np.float32))
    arrived = pickle.loads(pickle.dumps(Share(sent), 5))
    assert type(arrived) is list
    for field in fields(TrainSequence):
        for before, after in zip(sent, arrived, strict=True):
            np.testing.assert_array_equal(getattr(after, field.name), getattr(before, field.name), strict=True)
    assert [each.old_logprobs is None for each in arrived] == [True, False, True]
    assert [each.episode for each in arrived] == [3, None, 3]
    assert pickle.loads(pickle.dumps(Share([]), 5)) == []


def test_a_share_with_numbers_of_two_kinds_is_refused_as_one_would_be_rounded() -> None:
    first, second = sequences([2, 3])
    with pytest.raises(TypeError):
        pickle.dumps(Share([first, replace(second, advantages=np.zeros(3))]), 5)
