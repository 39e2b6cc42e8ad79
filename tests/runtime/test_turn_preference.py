"""A critic that is told a solution ranks turns: what it reads, what it learns, and that the policy learns from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from agym.envs.clients.client import InlineEnv
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import RunError
from agym.runtime.protocols import TrainSequence
from agym.runtime.steps.turn_preference import with_opening

from .conftest import echoing, worker_call

RANKED = echoing("""
algorithm: {use: turn_dpo, group_size: 4, groups_per_step: 4, batch_size: 8, lr: 20, optimizer: {betas: [0.5, 0.9]},
            preference: {beta: 0.3, candidates: 3}, critic: {lr: 40}}
schedule:
  - {stage: prefer, turns: 3, until: step >= 10}
eval: {every: 5, turns: 3}
checkpoint: {every: 2}
""")
BLIND = "algorithm.critic.privileged=false"
ONE_PAIR = ("algorithm.preference.pairs_per_group=1",)


@dataclass
class Watched:
    """A group of workers whose every call is noted, with its arguments and its result."""

    workers: Any
    calls: list[tuple[str, tuple[Any, ...], Any]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            found = await getattr(self.workers, name)(*args, **kwargs)
            self.calls.append((*worker_call(name, args), found))
            return found

        return call

    def count_replaced(self) -> dict[str, int]:
        return {}

    def given(self, name: str) -> list[Any]:
        """The first argument of each call."""
        return [args[0] for each, args, _ in self.calls if each == name]

    def places(self, name: str) -> list[int]:
        """Of its calls, among all."""
        return [at for at, (each, _, _) in enumerate(self.calls) if each == name]


@pytest.fixture
def watch(new_run: Any) -> Callable[..., tuple[Any, Watched]]:
    def make(*settings: str, **rest: Any) -> tuple[Any, Watched]:
        run, watched = new_run(*settings, text=RANKED, **rest), Watched(None)

        def around(workers: Any) -> Watched:
            watched.workers = workers
            return watched

        run.around = around
        return run, watched

    return make


@pytest.fixture
def solvable(echo: Any) -> InlineEnv:
    class Solvable(echo):  # type: ignore[misc]
        def expert(self, task: str, seed: int) -> tuple[str, ...]:
            self.reset(task, seed)
            actions = [str(self._wanted)]
            self.step(actions[0])
            return (*actions, str(self._wanted))

    return InlineEnv(Solvable)


def turns(sequence: TrainSequence) -> list[np.ndarray]:
    """Places of each run of trained tokens."""
    places = np.flatnonzero(sequence.loss_mask)
    return np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)


def test_the_policy_learns_from_turns_that_a_critic_ranks(new_run: Any) -> None:
    run = new_run(BLIND, text=RANKED)
    assert run.go().kind is OutcomeKind.FINISHED
    rows = run.steps()
    assert (
        np.mean([row["rollout/score"] for row in rows[-3:]])
        > np.mean([row["rollout/score"] for row in rows[:3]]) + 0.15
    )
    assert [row["critic/accuracy"] for row in rows if row["critic/pairs"]][-1] > 0.6
    assert all(row["preference/pairs"] <= 16 for row in rows)


def test_only_the_critic_is_told_the_solution(watch: Any, words: Any, solvable: Any) -> None:
    run, watched = watch("schedule.0.until=step >= 1", clients={"echo": solvable})
    run.go()
    numbers = set(words.encode("0 1 2 3"))

    def solved(ids: list[int]) -> bool:
        """Whether two unknown words, `A solution`, are followed by its two numbers."""
        return any(ids[i : i + 2] == [4, 4] and {*ids[i + 2 : i + 4]} <= numbers for i in range(len(ids) - 4))

    for name, knows in (("update", False), ("update_ranker", True), ("rank", True)):
        sequences = [each for given in watched.given(name) for each in given]
        assert sequences
        assert all(solved(each.ids.tolist()) == knows for each in sequences), name


@pytest.mark.parametrize("opening", [None, (9, 9), (9, 8, 7, 6, 5)])
def test_told_a_solution_the_critic_reads_all_that_came_after_the_opening(opening: tuple[int, ...] | None) -> None:
    ids, loss_mask = np.arange(10, 20, dtype=np.int32), np.zeros(10, np.bool_)
    loss_mask[[4, 6, 7, 8]] = True
    read = with_opening(
        TrainSequence(ids=ids, loss_mask=loss_mask, advantages=np.zeros(10, np.float32)), 3, opening, 0.25
    )
    begun = (10, 11, 12) if opening is None else opening
    assert read.ids.tolist() == [*begun, *range(13, 20)]
    assert read.ids[read.loss_mask].tolist() == [14, 16, 17, 18]
    assert read.weights is not None
    assert read.weights[read.loss_mask].tolist() == [0.25] * 4
    assert not read.weights[~read.loss_mask].any()


def worth(sequence: TrainSequence, critic: Sequence[float], reference: Sequence[float]) -> float:
    """One token after the other: the mean of its log-ratio."""
    total, tokens = 0.0, 0
    for said, one, other in zip(sequence.loss_mask.tolist(), critic, reference, strict=True):
        if said:
            total, tokens = total + float(one) - float(other), tokens + 1
    return total / tokens


def test_the_critic_learns_that_the_better_episode_has_the_larger_mean_over_its_tokens(watch: Any) -> None:
    run, watched = watch(BLIND, "schedule.0.until=step >= 3", "algorithm.batch_size=99", *ONE_PAIR)
    run.go()
    lengths = set()
    for row, at in zip(run.steps(), watched.places("update_ranker"), strict=True):
        (_, (known, _), reference), (_, (asked, _), critic), (_, (lessons, _), _) = watched.calls[at - 2 : at + 1]
        by_ids = {each.ids.tobytes(): found for each, found in zip(known, reference, strict=True)}
        # each episode is in one pair, next to the other one of that pair
        worths = [worth(each, found, by_ids[each.ids.tobytes()]) for each, found in zip(asked, critic, strict=True)]
        margins = [0.3 * (better - worse) for better, worse in zip(worths[::2], worths[1::2], strict=True)]
        losses = [math.log(1 + math.exp(-each)) for each in margins]
        assert row["critic/loss"] == pytest.approx(sum(losses) / len(losses))
        for place, lesson in enumerate(lessons):
            tokens, sign = int(lesson.loss_mask.sum()), -1 if place % 2 else 1
            slope = sign * 0.3 / (1 + math.exp(margins[place // 2])) / len(margins) / tokens
            found = (lesson.advantages * lesson.weights)[lesson.loss_mask] / len(lessons)
            assert found.tolist() == pytest.approx([slope] * tokens)
            lengths.add(tokens)
    assert len(lengths) > 1


def test_of_two_candidates_the_policy_learns_the_one_with_the_larger_mean_over_its_tokens(watch: Any) -> None:
    run, watched = watch(BLIND, "schedule.0.until=step >= 3", *ONE_PAIR)
    run.go()
    names = [name for name, _, _ in watched.calls]
    for at in watched.places("sample_replies")[1:]:
        ranked = next(place for place in watched.places("rank") if place > at and names[place + 1] == "logprobs")
        (_, (asked, _), critic), (_, _, reference) = watched.calls[ranked : ranked + 2]
        worths = {
            each.ids.tobytes(): worth(each, one, other)
            for each, one, other in zip(asked, critic, reference, strict=True)
        }
        (lesson,) = [args[0] for name, args, _ in watched.calls[ranked : ranked + 6] if name == "update"]
        assert lesson
        for better, worse in zip(lesson[::2], lesson[1::2], strict=True):
            assert better.advantages.max() > 0 > worse.advantages.min()
            assert worths[better.ids.tobytes()] > worths[worse.ids.tobytes()]


def test_the_critic_begins_undecided_and_its_first_gains_are_even(watch: Any) -> None:
    run, watched = watch(BLIND, "schedule.0.until=step >= 1", "algorithm.batch_size=99", "algorithm.group_size=2")
    run.go()
    (sequences,) = watched.given("update_ranker")
    (row,) = run.steps()
    assert row["critic/loss"] == pytest.approx(np.log(2))
    # beta / 2 for each side, over the pairs, times what the learner divides by: each episode is in one pair
    expected = 0.3 / 2 / row["critic/pairs"] * len(sequences)
    gains = [float(each.advantages[each.loss_mask][0]) for each in sequences]
    assert sorted(np.sign(gains)) == [-1] * row["critic/pairs"] + [1] * row["critic/pairs"]
    assert np.abs(gains) == pytest.approx(expected)


def test_candidates_go_on_from_where_the_turn_was_taken(watch: Any) -> None:
    run, watched = watch(BLIND, "schedule.0.until=step >= 1")
    run.go()
    (requests,) = watched.given("sample_replies")
    assert len({request.seed for request in requests}) == len(requests)
    by_prompt = {request.prompt for request in requests}
    assert len(requests) % 2 == 0  # two further ones besides the one that was said
    assert watched.given("update")
    for sequences in watched.given("update"):
        for sequence in sequences:
            (places,) = turns(sequence)
            assert tuple(sequence.ids[: places[0]].tolist()) in by_prompt
            assert places[-1] == len(sequence.ids) - 1


def test_nobody_learns_from_a_critic_that_warms_up(new_run: Any) -> None:
    run = new_run(BLIND, "algorithm.critic.warmup_steps=2", "schedule.0.until=step >= 4", text=RANKED)
    run.go()
    assert [row["train/updates"] > 0 for row in run.steps()] == [False, False, True, True]
    assert all(row["critic/pairs"] for row in run.steps())


def test_a_critic_that_cannot_be_told_anything_stops_the_run(new_run: Any) -> None:
    with pytest.raises(RunError, match=r"'echo' has no solution of task .* or 'critic\.privileged: false'"):
        new_run(text=RANKED).go()


@pytest.mark.parametrize("stride", [17, pytest.param(1, marks=pytest.mark.heavy)])
def test_killed_at_any_call_and_resumed_the_rows_are_the_same(new_run: Any, stride: int) -> None:
    make = lambda: new_run(BLIND, "schedule.0.until=step >= 5", "eval.every=3", text=RANKED)  # noqa: E731
    whole = make()
    calls = whole.watched()
    assert {"rank", "update_ranker", "new_ranker", "sample_replies", "update"} <= set(calls)
    for at, again in make().killed_in(range(5, len(calls), stride)):
        assert again.go().kind is OutcomeKind.FINISHED
        assert again.exact() == whole.exact(), f"killed in call {at}, '{calls[at - 1]}'"
