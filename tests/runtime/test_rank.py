"""A critic that is told a solution ranks turns: what it reads, what it learns, and that the policy learns from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from agym.envs.client import InlineEnv
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import RunError
from agym.runtime.ports import TrainSequence
from agym.runtime.rank import told

from .conftest import echoing

RANKED = echoing("""
algorithm: {use: turn_dpo, group_size: 4, groups_per_step: 4, batch_size: 8, lr: 20, optimizer: {betas: [0.5, 0.9]},
            preference: {beta: 0.3, candidates: 3}, critic: {lr: 40}}
schedule:
  - {stage: prefer, turns: 3, until: step >= 10}
eval: {every: 5, turns: 3}
checkpoint: {every: 2}
""")
BLIND = "algorithm.critic.privileged=false"


@dataclass
class Watched:
    """A crew whose every call is noted."""

    crew: Any
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args))
            return await getattr(self.crew, name)(*args, **kwargs)

        return call

    def given(self, name: str) -> list[Any]:
        """The first argument of each call."""
        return [args[0] for each, args in self.calls if each == name]


@pytest.fixture
def watch(new_run: Any) -> Callable[..., tuple[Any, Watched]]:
    def make(*settings: str, **rest: Any) -> tuple[Any, Watched]:
        run, watched = new_run(*settings, text=RANKED, **rest), Watched(None)

        def around(crew: Any) -> Watched:
            watched.crew = crew
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
    """Places of each run of learnt tokens."""
    places = np.flatnonzero(sequence.learn)
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
def test_every_turn_counts_alike_for_the_critic_however_long(opening: tuple[int, ...] | None) -> None:
    ids, learn = np.arange(10, 20, dtype=np.int32), np.zeros(10, np.bool_)
    learn[[4, 6, 7, 8]] = True
    read = told(TrainSequence(ids=ids, learn=learn, advantages=np.zeros(10, np.float32)), 3, opening)
    begun = (10, 11, 12) if opening is None else opening
    assert read.ids.tolist() == [*begun, *range(13, 20)]
    assert read.ids[read.learn].tolist() == [14, 16, 17, 18]
    assert read.weights is not None
    assert read.weights[read.learn].tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])
    assert not read.weights[~read.learn].any()


def test_the_critic_begins_undecided_and_its_first_gains_are_even(watch: Any) -> None:
    run, watched = watch(BLIND, "schedule.0.until=step >= 1", "algorithm.batch_size=99", "algorithm.group_size=2")
    run.go()
    (sequences,) = watched.given("update_ranker")
    (row,) = run.steps()
    assert row["critic/loss"] == pytest.approx(np.log(2))
    # beta / 2 for each side, over the pairs, times what the learner divides by: each episode is in one pair
    expected = 0.3 / 2 / row["critic/pairs"] * len(sequences)
    gains = [float(each.advantages[each.learn][0]) for each in sequences]
    assert sorted(np.sign(gains)) == [-1] * row["critic/pairs"] + [1] * row["critic/pairs"]
    assert np.abs(gains) == pytest.approx(expected)


def test_candidates_go_on_from_where_the_turn_was_taken(watch: Any) -> None:
    run, watched = watch(BLIND, "schedule.0.until=step >= 1")
    run.go()
    (requests,) = watched.given("draw")
    assert len({request.seed for request in requests}) == len(requests)
    by_prompt = {request.prompt for request in requests}
    assert len(requests) % 2 == 0  # two further ones beside the one that was said
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
    with pytest.raises(RunError, match=r"'echo' knows no solution of task .* or 'critic\.privileged: false'"):
        new_run(text=RANKED).go()


@pytest.mark.parametrize("stride", [17, pytest.param(1, marks=pytest.mark.heavy)])
def test_killed_at_any_call_and_resumed_the_rows_are_the_same(new_run: Any, stride: int) -> None:
    make = lambda: new_run(BLIND, "schedule.0.until=step >= 5", "eval.every=3", text=RANKED)  # noqa: E731
    whole = make()
    calls = whole.watched()
    assert {"rank", "update_ranker", "new_ranker", "draw", "update"} <= set(calls)
    for at in range(5, len(calls), stride):
        again = make().killed(at)
        assert again.go().kind is OutcomeKind.FINISHED
        assert again.exact() == whole.exact(), f"killed in call {at}, '{calls[at - 1]}'"
