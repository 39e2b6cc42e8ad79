"""A run that was killed and resumed writes the rows of one that never was, bit for bit."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from agym.runtime.engine import OutcomeKind
from agym.runtime.protocols import UpdateFault

from .conftest import episodes_of

MOVING = (
    "schedule.2.until=step >= 5 or mean(success, 2) >= 0.9",
    "schedule.2.turns=min(1 + total_step // 2, 4) if default(last(success), 1) > 0.1 else 2",
    "algorithm.lr=cosine(4, 1, 9)",
    "environments.other={use: other, weight: 0.7}",
    "algorithm.filter={groups: std > 0, resample: true, max_resamples: 1}",
    "eval={every: 3, turns: 4}",
    "guards.max_roll_backs=50",
)
"""Everything that a step may depend on moves."""


def nan_now_and_then(number: int, sequences: Any) -> UpdateFault | None:
    """Depends on what is trained on, as a real one does; never on how often this process was started."""
    return UpdateFault.NAN if sum(int(each.ids.sum()) for each in sequences) % 4 == 0 else None


def test_two_runs_of_one_recipe_are_equal_in_every_bit(new_run: Any) -> None:
    one, two = new_run(*MOVING), new_run(*MOVING)
    one.go(), two.go()
    assert one.exact() == two.exact()
    other = new_run(*MOVING, "seed=1")
    other.go()
    assert other.exact() != one.exact()


@pytest.mark.slow
@pytest.mark.parametrize("faulty", [False, True], ids=["sound", "with roll-backs"])
@pytest.mark.parametrize(
    ("staleness", "stride"),
    [(1, 13), *(pytest.param(each, 1, marks=pytest.mark.heavy) for each in (0, 2))],
)
def test_killed_at_any_call_and_resumed_the_rows_are_the_same(
    new_run: Any, stride: int, faulty: bool, staleness: int
) -> None:
    settings = (*MOVING, f"hardware.staleness={staleness}")
    whole, kept = new_run(*settings), 0
    if faulty:
        whole.learner.faulty = nan_now_and_then
    calls = whole.watched()
    assert any(row.get("guard/action") == "roll_back" for row in whole.steps()) == faulty
    assert {"play", "demonstrate", "update", "logprobs", "sync", "save", "export", "tasks"} <= set(calls)
    run = new_run(*settings)
    run.learner.faulty = whole.learner.faulty
    for at, again in run.killed_in(range(min(3 + 4 * faulty, stride), len(calls), stride)):
        grave = again.root
        kept += len(list(grave.glob("checkpoints/*/batches.npz")))
        with (grave / "metrics.jsonl").open("a") as file:
            file.write('{"total_step": 7, "rollout/suc')
        assert again.go().kind is OutcomeKind.FINISHED
        assert again.exact() == whole.exact(), f"killed in call {at}, '{calls[at - 1]}'"
        assert not list(grave.glob("*/.unfinished-*"))
        assert episodes_of(grave) == episodes_of(whole.root)
    assert (kept > 0) == (staleness > 0)


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_stopped_after_any_step_and_resumed_the_rows_are_the_same(new_run: Any, staleness: int) -> None:
    settings = (*MOVING, f"hardware.staleness={staleness}")
    whole = new_run(*settings)
    whole.go()
    for wanted in range(1, whole.steps()[-1]["total_step"]):
        run = new_run(*settings)

        def look(row: Any, run: Any = run, wanted: int = wanted) -> None:
            run.stop.wanted = "step" in row and row["total_step"] == wanted

        run.reporter.row = look
        outcome = run.go()
        assert (outcome.kind, outcome.steps) == (OutcomeKind.INTERRUPTED, wanted)
        assert f"step-{wanted}" in run.checkpoints()
        assert run.steps()[-1]["total_step"] == wanted
        again = run.again()
        again.go()
        assert again.exact() == whole.exact(), f"stopped after step {wanted}"


def test_stopped_twice_and_killed_in_between(new_run: Any) -> None:
    whole = new_run(*MOVING)
    whole.go()
    run = new_run(*MOVING)
    run.stop.wanted = True
    assert run.go().steps == 0
    third = run.again().killed(30)
    third.go()
    assert third.exact() == whole.exact()


def test_horizon_is_a_function_of_what_is_saved(new_run: Any) -> None:
    run = new_run(*MOVING, "checkpoint={every: 1, keep: 99}")
    run.go()
    for row, after in zip(run.steps(), run.steps()[1:], strict=False):
        copy = run.root.with_name(f"at-{row['total_step']}")
        shutil.copytree(run.root, copy, ignore=shutil.ignore_patterns(".lock", *_later(run, row["total_step"])))
        again = run.again(copy)
        again.reporter.row = lambda found, again=again: setattr(again.stop, "wanted", "step" in found)
        again.go()
        assert again.steps()[-1].get("horizon/turns") == after.get("horizon/turns")


def _later(run: Any, step: int) -> list[str]:
    return [name for name in run.checkpoints() if int(name.split("-")[1]) > step]
