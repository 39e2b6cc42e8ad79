"""Rounds of exploring and retraining: where each begins, what it learns from, and that a kill changes nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import StepRefused
from agym.runtime.protocols import TrainSequence, UpdateFault

from .conftest import echoing, trained_in

EVOLVING = echoing("""
algorithm:
  {use: agent_evol, lr: 1, batch_size: 5, groups_per_step: 4, epochs: 2,
   optimizer: {betas: [0.5, 0.9], warmup_steps: 3}, evolve: {rounds: 3, samples: 3}}
schedule: [{stage: evolve, turns: 4}]
eval: null
checkpoint: {every: 1, episodes: all}
""")
IMITATE = "{stage: imitate, until: step >= 2, algorithm: {use: sft, lr: 2, batch_size: 4, data: expert}}"
AFTER_IMITATION = (
    f"schedule=[{IMITATE}, {{stage: evolve, turns: 4}}]",
    "eval={every: 2, turns: 4}",
)
NOTHING = "algorithm.evolve.keep=turns < 0"
ALONE = "algorithm.data=rollout"


def learnt(run: Any) -> tuple[np.ndarray, np.ndarray]:
    return run.learner.table, run.learner.momentum


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(learnt(one), learnt(other), strict=True))


def test_a_stage_of_rounds_ends_by_itself_and_tells_what_each_was_trained_on(new_run: Any) -> None:
    run = new_run(text=EVOLVING)
    assert run.go().kind is OutcomeKind.FINISHED
    rows = run.steps()
    assert [row["evolve/round"] for row in rows] == [1, 2, 3]
    assert {row["rollout/episodes"] for row in rows} == {4 * 3}
    assert [row["data/kept"] for row in rows] == [round(12 * row["rollout/success"]) for row in rows]
    assert {row["data/demonstrations"] for row in rows} == {5}
    for row in rows:
        assert row["train/updates"] == 2 * -(-(5 + row["data/kept"]) // 5)
    assert rows[-1]["rollout/success"] > rows[0]["rollout/success"]


def test_an_end_of_the_recipe_comes_before_the_last_round(new_run: Any) -> None:
    run = new_run("schedule.0.until=step >= 2", text=EVOLVING)
    run.go()
    assert [row["evolve/round"] for row in run.steps()] == [1, 2]


def test_retraining_from_the_base_is_training_from_it_bit_for_bit(new_run: Any) -> None:
    once, thrice = (new_run(f"algorithm.evolve.rounds={rounds}", NOTHING, text=EVOLVING) for rounds in (1, 3))
    on_and_on = new_run(NOTHING, "algorithm.evolve.retrain_from=last", text=EVOLVING)
    imitating = new_run(
        "algorithm={use: sft, lr: 1, batch_size: 5, optimizer: {betas: [0.5, 0.9], warmup_steps: 3}}",
        "schedule=[{stage: evolve, until: step >= 2}]",
        text=EVOLVING,
    )
    for run in (once, thrice, on_and_on, imitating):
        run.go()
    assert same(once, thrice)
    assert same(once, imitating)
    assert not same(once, on_and_on)
    # the warm-up begins anew with each round
    assert [settings.lr for settings in thrice.learner.updates] == [0.25, 0.5] * 3
    assert [settings.lr for settings in on_and_on.learner.updates] == [0.25, 0.5, 0.75, 1, 1, 1]


def test_the_base_is_what_the_stage_found_and_not_what_the_run_began_with(new_run: Any) -> None:
    once, thrice = (
        new_run(*AFTER_IMITATION, f"algorithm.evolve.rounds={rounds}", NOTHING, text=EVOLVING) for rounds in (1, 3)
    )
    alone = new_run(NOTHING, "algorithm.evolve.rounds=1", text=EVOLVING)
    for run in (once, thrice, alone):
        run.go()
    assert same(once, thrice)
    assert not same(once, alone)


def test_each_round_explores_with_the_weights_of_the_round_before(new_run: Any) -> None:
    run = new_run(NOTHING, "algorithm.lr=20", text=EVOLVING)
    run.go()
    first, second, third = (row["rollout/success"] for row in run.steps())
    assert min(second, third) > first


def test_going_back_reaches_the_sampler_even_where_no_update_follows(new_run: Any) -> None:
    settings = ("algorithm.evolve.rounds=2", "eval={every: 9, turns: 4}", "guards.on_nan=skip")
    run = new_run(NOTHING, *settings, text=EVOLVING)
    run.learner.faulty = lambda number, sequences: UpdateFault.NAN if number > 2 else None
    begun = run.learner.table.copy()
    run.go()
    assert np.array_equal(run.learner.table, begun)
    assert np.array_equal(run.sampler.table, begun)


def test_demonstrations_may_serve_the_first_round_alone(new_run: Any) -> None:
    run = new_run("algorithm.evolve.keep_demonstrations=false", "algorithm.evolve.keep=turns > 0", text=EVOLVING)
    run.go()
    assert [row["data/demonstrations"] for row in run.steps()] == [5, 0, 0]


def test_without_demonstrations_it_lives_on_what_it_finds(new_run: Any) -> None:
    run = new_run(ALONE, "algorithm.evolve.samples=8", text=EVOLVING)
    assert run.go().kind is OutcomeKind.FINISHED
    assert {row["data/demonstrations"] for row in run.steps()} == {0}
    assert min(row["data/kept"] for row in run.steps()) > 0


def test_a_round_with_nothing_to_learn_from_says_so_and_saves(new_run: Any) -> None:
    run = new_run(ALONE, NOTHING, text=EVOLVING)
    with pytest.raises(StepRefused, match=r"'evolve', round 1: 'turns < 0' keeps none of 12 episodes, and there"):
        run.go()
    assert run.checkpoints() == ["step-0"]


def test_exploring_is_never_ahead_of_learning(new_run: Any) -> None:
    grpo = "algorithm: {use: grpo, group_size: 4, groups_per_step: 2}"
    stages = f"schedule=[{{stage: reinforce, turns: 2, until: step >= 2, {grpo}}}, {{stage: evolve, turns: 4}}]"
    run = new_run(stages, "hardware.staleness=1", text=EVOLVING)
    run.go()
    drawn = [_versions(run, step) for step in (3, 4, 5)]
    assert [len(versions) for versions in drawn] == [1, 1, 1]
    assert drawn[0] < drawn[1] < drawn[2]


def _versions(run: Any, step: int) -> list[int]:
    """Of the weights that a step's episodes were drawn from."""
    segments = [segment for record in trained_in(run.root, step) for segment in record["segments"]]
    return sorted({version for segment in segments for version in segment["versions"]} - {-1})


@pytest.mark.parametrize(
    ("start", "stride"), [("base", 9), ("last", 9), pytest.param("base", 1, marks=pytest.mark.heavy)]
)
def test_killed_at_any_call_and_resumed_the_rounds_are_the_same(new_run: Any, start: str, stride: int) -> None:
    settings = (*AFTER_IMITATION, "guards.max_roll_backs=50", f"algorithm.evolve.retrain_from={start}")

    def faulty(number: int, sequences: Sequence[TrainSequence]) -> UpdateFault | None:
        return UpdateFault.NAN if sum(int(each.ids.sum()) for each in sequences) % 5 == 0 else None

    whole = new_run(*settings, text=EVOLVING)
    whole.learner.faulty = faulty
    calls = whole.watched()
    assert (whole.root / "bases").exists() == (start == "base")
    run = new_run(*settings, text=EVOLVING)
    run.learner.faulty = faulty
    for at, again in run.killed_in(range(1, len(calls), stride)):
        assert again.go().kind is OutcomeKind.FINISHED
        assert again.exact() == whole.exact(), f"killed in call {at}, '{calls[at - 1]}'"
        assert same(again, whole)
