"""A learner that is lost in any call is started anew, and the history of the run is that of one that never lost any."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import LearnerLost, RunError
from agym.runtime.reporting import EventKind, SilentReporter
from agym.runtime.storage.events import EVENTS, EventLog
from agym.runtime.workers.inline import InlineWorkerGroup
from agym.runtime.workers.worker_group import WorkerGroup

from .conftest import episodes_of, worker_call
from .test_resume import MOVING, nan_now_and_then

RAY = "hardware.launcher=ray"
ROLLOUT_CALLS = {"rollout", "play"}


@dataclass
class Fragile:
    """Workers whose learner is lost in some of its calls, before or after the work of that call was done."""

    run: Any
    workers: InlineWorkerGroup
    dies: Callable[[Sequence[str]], bool] = lambda calls: False
    """By the learner's calls so far, the one at hand included."""
    last_rollout_call: int = 0
    """In which a sampler notices that the learner is lost."""
    rollout_calls: int = 0
    failing_restarts: int = 0
    calls: list[str] = field(default_factory=list)
    restarts: int = 0
    replaced: Counter[str] = field(default_factory=Counter)
    is_lost: bool = False
    under_way: int = 0

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.workers, name)
        if name in ROLLOUT_CALLS:
            return self._watched(function)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.is_lost:
                raise LearnerLost("the learner: rank 1 is gone")
            in_flight = self.run.plan.hardware.in_flight
            assert name != "sync" or in_flight or not self.under_way, "weights do not change under episodes"
            self.calls.append(worker_call(name, args)[0])
            at = len(self.calls)
            self.is_lost = self.dies(self.calls)
            if self.is_lost and at % 2:
                raise LearnerLost("the learner: rank 0 is gone")
            result = await function(*args, **kwargs)
            if self.is_lost:
                raise LearnerLost("the learner: rank 1 is gone")
            return result

        return call

    def _watched(self, function: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.under_way += 1
            self.rollout_calls += 1
            is_last = self.rollout_calls == self.last_rollout_call
            try:
                await asyncio.sleep(0)
                result = await function(*args, **kwargs)
                if is_last:
                    self.is_lost = True
                    raise LearnerLost("a sampler: its weights are gone with the learner")
                return result
            finally:
                self.under_way -= 1

        return call

    def count_replaced(self) -> Counter[str]:
        return self.replaced

    async def restart_learner(self) -> None:
        assert (self.is_lost, self.under_way) == (True, 0)
        self.restarts += 1
        await asyncio.sleep(0)
        if self.restarts <= self.failing_restarts:
            raise LearnerLost("the learner: rank 0 does not start")
        # engines just built: of what was learned nothing is left
        fresh = self.run.again()
        self.run.learner = fresh.learner
        self.workers._maybe_learner = self.run.workers()._learner
        self.is_lost = False


class Kept(SilentReporter):
    """A reporter that keeps events as a run does, and never knows the time."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def note(self, text: str) -> None:
        self.event(EventKind.NOTE, text)

    def event(self, kind: EventKind, text: str, **facts: Any) -> None:
        log = EventLog(self._root, lambda: 0.0)
        log.add(kind, text, **facts)
        log.close()


def events_of(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / EVENTS).read_text().splitlines()]


def in_call(*numbers: int) -> Callable[[Sequence[str]], bool]:
    return lambda calls: len(calls) in numbers


def fragile(run: Any, **how: Any) -> list[Fragile]:
    """The one group of workers that the run is given."""
    made: list[Fragile] = []

    def around(workers: WorkerGroup) -> Any:
        made.append(Fragile(run=run, workers=workers, **how))  # type: ignore[arg-type]
        return made[-1]

    run.around = around
    return made


def lost(new_run: Any, *settings: str, faulty: Any = None, **how: Any) -> tuple[Any, Fragile]:
    """A run that came to its end, and its workers."""
    run = new_run(RAY, *settings)
    run.learner.faulty, run.reporter = faulty or run.learner.faulty, Kept(run.root)
    made = fragile(run, **how)
    assert run.go().kind is OutcomeKind.FINISHED
    return run, made[0]


@pytest.mark.slow
@pytest.mark.parametrize("faulty", [None, nan_now_and_then], ids=["sound", "with roll-backs"])
@pytest.mark.parametrize(
    ("staleness", "stride"), [(1, 11), *(pytest.param(each, 1, marks=pytest.mark.heavy) for each in (0, 2))]
)
def test_lost_in_any_call_the_history_is_that_of_a_run_that_lost_none(
    new_run: Any, staleness: int, stride: int, faulty: Any
) -> None:
    settings = (*MOVING, f"hardware.staleness={staleness}")
    whole, workers = lost(new_run, *settings, faulty=faulty)
    calls = workers.calls
    assert {"update", "logprobs", "sync", "save", "export", "set_optimizer", "refer_to", "take_notes"} <= set(calls)
    assert ("load" in calls) == bool(faulty)
    for at in range(1, len(calls) + 1, stride):
        # with a second one soon after: in what the first restart does
        run, workers = lost(new_run, *settings, faulty=faulty, dies=in_call(at, at + 1 + at % 5))
        where = f"lost in call {at}, '{calls[at - 1]}'"
        assert workers.restarts in (1, 2), where
        assert run.exact() == whole.exact(), where
        assert episodes_of(run.root) == episodes_of(whole.root), where
        assert run.checkpoints() == whole.checkpoints(), where
        assert not list(run.root.glob("*/.unfinished-*")), where


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 2])
def test_where_a_sampler_notices_the_loss_the_history_is_the_same(new_run: Any, staleness: int) -> None:
    settings = (*MOVING, f"hardware.staleness={staleness}")
    whole, workers = lost(new_run, *settings)
    for at in range(1, workers.rollout_calls + 1, 9):
        run, workers = lost(new_run, *settings, last_rollout_call=at)
        assert workers.restarts == 1
        assert run.exact() == whole.exact(), f"lost in call {at}"


@pytest.mark.slow
def test_lost_in_any_call_while_weights_change_in_flight_each_step_stands_once(new_run: Any) -> None:
    settings = ("hardware.staleness=2", "hardware.in_flight=true", "checkpoint={every: 2, episodes: all}")
    _, workers = lost(new_run, *settings)
    for at in range(1, len(workers.calls) + 1, 5):
        run, _ = lost(new_run, *settings, dies=in_call(at))
        steps = [row["total_step"] for row in run.steps()]
        assert steps == list(range(1, len(steps) + 1))
        assert {line["total_step"] for lines in episodes_of(run.root).values() for line in lines} <= {0, *steps}


def test_restarts_and_discarded_steps_are_counted_in_rows_and_events(new_run: Any) -> None:
    whole, workers = lost(new_run, "checkpoint={every: 3}")
    assert not any(key.startswith("workers/") for row in whole.rows() for key in row)
    updates = [at for at, name in enumerate(workers.calls, 1) if name == "update"]
    run, _ = lost(new_run, "checkpoint={every: 3}", dies=in_call(updates[-1]))
    text = "learner restarted from step 6; 2 steps discarded"
    prompt, restarted = (each for each in events_of(run.root) if each["kind"] != "note")
    assert prompt["kind"] == "prompt", "recorded once, not again after a restart or in a later stage"
    assert restarted == {"time": 0.0, "total_step": 6, "kind": "learner_restarted", "text": text, "discarded_steps": 2}
    counts = [{key: value for key, value in row.items() if key.startswith("workers/")} for row in run.steps()]
    counted = {"workers/discarded_steps": 2, "workers/learner_restarts": 1}
    assert counts == [{}] * 6 + [counted] * 3


def test_replaced_workers_are_counted_by_role_also_over_resumes(new_run: Any) -> None:
    first = new_run(RAY)
    for run, ends in ((first, 5), (first.again(), 99)):
        made, run.reporter = fragile(run), Kept(run.root)

        def look(name: str, run: Any = run, made: Any = made, ends: int = ends) -> None:
            # one after every second step
            made[0].replaced["rollout"] = len(run.steps()) // 2 - (0 if ends == 5 else 2)
            run.stop.wanted = len(run.steps()) == ends

        run.reporter.phase = look
        run.go()
    assert [row.get("workers/replaced_rollout", 0) for row in first.steps()] == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    told = [(each["kind"], each["text"]) for each in events_of(first.root) if each["kind"] != "note"]
    replaced = ("worker_replaced", "rollout: replaced 1")
    resumed = ("resume", "resumed from step 5; 0 steps discarded")
    prompt = told[0]
    assert prompt[0] == "prompt"
    assert told == [prompt, replaced, replaced, resumed, prompt, replaced, replaced]


def test_restarts_without_a_checkpoint_between_them_are_bounded(new_run: Any) -> None:
    run = new_run(RAY, "hardware.max_restarts=2")
    made = fragile(run, dies=lambda calls: calls[-1] == "update")
    with pytest.raises(
        RunError,
        match=r"^the learner: rank \d is gone; the learner was restarted 2 times since the checkpoint of step 0, the "
        r"limit of 'hardware.max_restarts' \(2\): fix what ends it, and resume$",
    ):
        run.go()
    assert made[0].restarts == 2
    assert run.again().go().kind is OutcomeKind.FINISHED


def test_restarts_after_which_the_run_came_further_are_not_counted_together(new_run: Any) -> None:
    _, workers = lost(new_run, "hardware.max_restarts=1", dies=_third_after_save)
    assert workers.restarts > 2


def _third_after_save(calls: Sequence[str]) -> bool:
    return calls[-4:-3] == ["save"] and "save" not in calls[-3:]


def test_a_learner_that_does_not_start_is_tried_again_and_not_for_ever(new_run: Any) -> None:
    whole, _ = lost(new_run)
    run, workers = lost(new_run, dies=in_call(20), failing_restarts=2)
    assert (workers.restarts, run.exact()) == (3, whole.exact())
    run = new_run(RAY)
    fragile(run, dies=in_call(20), failing_restarts=99)
    with pytest.raises(
        RunError, match=r"rank 0 does not start; the learner was restarted 3 times since the checkpoint of step"
    ):
        run.go()


@pytest.mark.parametrize("when", ["before the restart", "during the restart", "after it"])
def test_a_run_that_is_asked_to_stop_waits_for_no_learner(new_run: Any, when: str) -> None:
    whole, _ = lost(new_run)
    run = new_run(RAY)
    made = fragile(run, dies=in_call(30))
    if when == "before the restart":
        run.reporter.phase = lambda name: setattr(run.stop, "wanted", run.stop.wanted or made[0].is_lost)

    async def hanging() -> None:
        run.stop.wanted = True
        if when == "during the restart":
            await asyncio.sleep(3600)
        await Fragile.restart_learner(made[0])

    make = run.around

    def around(workers: Any) -> Any:
        made_now = make(workers)
        made_now.restart_learner = hanging
        return made_now

    run.around = around
    outcome = run.go()
    assert outcome.kind is OutcomeKind.INTERRUPTED
    assert run.checkpoints()[-1] == f"step-{outcome.steps}"
    again = run.again()
    assert again.go().kind is OutcomeKind.FINISHED
    assert again.exact() == whole.exact()
