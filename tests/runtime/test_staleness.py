"""Sampling ahead of learning: which weights play which batch, what is trained on, and that no clock decides it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from itertools import groupby
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agym.runtime.agents.messages import Message
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import RunError, StepRefused
from agym.runtime.protocols import SamplerError, UpdateFault
from agym.runtime.rollout.episode import (
    Ending,
    Episode,
    Group,
    Segment,
    Task,
    Turn,
)
from agym.runtime.rollout.task_sampler import TaskMixture
from agym.runtime.steps.rollout_batch import RolloutBatch, read_batches, write_batches
from agym.runtime.workers.learner_worker import LearnerWorker

from .conftest import echoing, episodes_of

RECIPE = echoing("""
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, lr: 4, filter: size > 0}
schedule:
  - {stage: one, turns: "min(1 + step, 3)", until: "step >= 5 and last(grad_norm) >= 0"}
  - {stage: two, turns: 4, until: step >= 3}
eval: {every: 100, at_start: false, at_end: false, turns: 3}
checkpoint: {every: 100, keep: 100, episodes: all}
""")
"""One update in a step, so that a step's number is the weights' version; only the second stage's length is known."""

UPDATES = (LearnerWorker.update, LearnerWorker.update_weighed)

ONE_STAGE = RECIPE.replace(RECIPE.splitlines()[-3] + "\n", "")


@pytest.fixture
def ahead(new_run: Any) -> Callable[..., Any]:
    """`ahead(2, "eval.every=3")`: a run at a staleness."""
    return lambda staleness, *settings, text=RECIPE: new_run(f"hardware.staleness={staleness}", *settings, text=text)


# --- workers that overlap --------------------------------------------------------------------------------------------


@dataclass
class Apart:
    """A crew whose workers do not wait for each other; an update takes this many rounds of the event loop."""

    workers: Any
    rounds: int = 0
    events: list[str] = field(default_factory=list)
    playing: int = 0
    overlaps: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.workers, name)

    async def play(self, orders: Any, style: Any, seen: Any) -> Any:
        assert not self.playing, "two batches at the same time"
        self.playing += 1
        self.events.append("play")
        try:
            return await self.workers._rollout.play(orders, style, seen)
        finally:
            self.playing -= 1
            self.events.append("played")

    async def sync(self, version: int) -> Any:
        assert not self.playing, "new weights in the middle of a batch"
        self.events.append(f"sync {version}")
        return await self.workers.sync(version)

    async def compute(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        if work not in UPDATES:
            return await self.workers.compute(work, *args, **kwargs)
        self.events.append("learn")
        for _ in range(self.rounds):
            await asyncio.sleep(0)
            self.overlaps += self.playing
        self.events.append("learnt")
        return work(self.workers._learner, *args)


def apart(run: Any, rounds: int) -> list[Apart]:
    """Makes the run's workers overlap; the crew is in the list once it goes."""
    sample, made = run.sampler.sample, list[Apart]()

    async def slow(request: Any) -> Any:
        await asyncio.sleep(0)
        return await sample(request)

    def around(workers: Any) -> Any:
        made.append(Apart(workers, rounds))
        return made[0]

    run.sampler.sample, run.around = slow, around
    return made


def versions(run: Any, kind: str = "") -> list[set[int]]:
    """Of the weights that drew each step's tokens."""
    purpose = "eval" if kind else "train"
    records = [each for file in episodes_of(run.root).values() for each in file if each["purpose"] == purpose]
    return [_drawn_by([*step]) for _, step in groupby(records, lambda record: record["total_step"])]


def _drawn_by(records: list[Any]) -> set[int]:
    segments = [segment for record in records for segment in record["segments"]]
    return {version for segment in segments for version in segment["versions"]} - {-1}


def staleness(run: Any) -> list[int]:
    return [row["rollout/staleness"] for row in run.steps()]


# --- which weights play which batch ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ages", "played_by"),
    [
        (1, [0, 0, 1, 2, 3, 5, 5, 6]),
        (2, [0, 0, 0, 2, 2, 5, 5, 5]),
        (3, [0, 0, 0, 0, 3, 5, 5, 5]),
    ],
)
def test_a_batch_is_played_by_one_version_that_is_never_too_old(ahead: Any, ages: int, played_by: list[int]) -> None:
    run = ahead(ages)
    assert run.go().kind is OutcomeKind.FINISHED
    assert versions(run) == [{version} for version in played_by]
    assert staleness(run) == [step - version for step, version in enumerate(played_by)]
    assert max(staleness(run)) == min(ages, 3)


def test_without_staleness_the_newest_weights_play_and_rows_say_nothing_of_it(ahead: Any) -> None:
    run = ahead(0)
    run.go()
    assert versions(run) == [{step} for step in range(8)]
    assert not {"rollout/staleness", "mismatch/truncated"} & {key for row in run.steps() for key in row}


def test_the_next_batch_is_begun_before_the_one_in_hand_is_trained_on(ahead: Any) -> None:
    run = ahead(1, "schedule.0.until=step >= 3", text=ONE_STAGE)
    made = apart(run, 10_000)
    run.go()
    learnt = ["learn", "play", "played", "learnt"]
    assert made[0].events == ["sync 0", "play", "played", *learnt, "sync 1", *learnt, "learn", "learnt"]


@pytest.mark.slow
@pytest.mark.parametrize("ages", [1, 2, 3])
@pytest.mark.parametrize("rounds", [0, 7, 10_000])
def test_who_is_faster_decides_nothing(ahead: Any, ages: int, rounds: int) -> None:
    moving = ("algorithm.groups_per_update=2", "algorithm.filter.resample=true", "algorithm.filter.groups=std > 0")
    settings = (*moving, "schedule.1.turns=4 if default(last(success), 1) > 0.3 else 3", "eval.every=3")
    inline, overlapping = ahead(ages, *settings), ahead(ages, *settings)
    inline.go()
    made = apart(overlapping, rounds)
    overlapping.go()
    assert overlapping.exact() == inline.exact()
    assert (made[0].overlaps > 0) == (rounds > 0)
    assert sum(row["filter/rounds"] for row in inline.steps()) > 0


@dataclass
class Restless:
    """Lets whatever is under way go on before an update."""

    workers: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.workers, name)

    async def compute(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        for _ in range(20 if work in UPDATES else 0):
            await asyncio.sleep(0)
        return await self.workers.compute(work, *args, **kwargs)


def test_workers_of_one_thread_take_turns(ahead: Any) -> None:
    run, under_way, found = ahead(2), list[Any](), list[int]()
    sample, update = run.sampler.sample, run.learner.update

    async def slow(request: Any) -> Any:
        under_way.append(request)
        for _ in range(50):
            await asyncio.sleep(0)
        under_way.remove(request)
        return await sample(request)

    def look(*args: Any) -> Any:
        found.append(len(under_way))
        return update(*args)

    run.sampler.sample, run.learner.update, run.around = slow, look, Restless
    run.go()
    assert found == [0] * 8


def test_values_are_those_of_the_step_that_a_batch_is_for(ahead: Any) -> None:
    runs = [ahead(ages) for ages in (0, 1, 2)]
    for run in runs:
        run.go()
        assert [row["horizon/turns"] for row in run.steps()] == [1, 2, 3, 3, 3, 4, 4, 4]
    tasks = [_tasks(run) for run in runs]
    assert tasks[0] == tasks[1] == tasks[2]


def _tasks(run: Any) -> list[tuple[str, str, int]]:
    records = [record for file in episodes_of(run.root).values() for record in file]
    return [(record["id"], record["task"]["id"], record["task"]["seed"]) for record in records]


def test_metrics_that_values_ask_for_are_those_of_when_the_batch_was_begun(ahead: Any) -> None:
    run = ahead(1, "schedule.0.turns=1 if default(last(success), -1) < 0 else 3", text=ONE_STAGE)
    run.go()
    # the second batch is begun before the first step has measured anything
    assert [row["horizon/turns"] for row in run.steps()] == [1, 1, 3, 3, 3]


# --- what is trained on ----------------------------------------------------------------------------------------------


def test_older_samples_are_weighted_by_ratios_that_are_cut(ahead: Any) -> None:
    run, largest = ahead(1, "algorithm.importance.cap=1.05"), list[float]()
    update = run.learner.update

    def look(sequences: Any, settings: Any) -> Any:
        own = run.learner.logprobs(sequences, 1.0)
        largest.append(max(float(each.weights.max()) for each in sequences))
        assert all(np.array_equal(each.old_logprobs, mine) for each, mine in zip(sequences, own, strict=True))
        return update(sequences, settings)

    run.learner.update = look
    run.go()
    assert largest[0] == pytest.approx(1, abs=1e-5)
    assert largest[1] == pytest.approx(1.05)
    first, second = run.steps()[:2]
    assert (first["rollout/staleness"], first["mismatch/truncated"]) == (0, 0)
    assert first["mismatch/kl"] == pytest.approx(0, abs=1e-9)
    assert second["mismatch/kl"] > 1e-4
    assert 0 < second["mismatch/truncated"] < 1


def test_the_guard_against_engines_that_disagree_does_not_mistake_age_for_it(ahead: Any) -> None:
    run = ahead(1, "guards.mismatch_max=1e-6")
    assert run.go().kind is OutcomeKind.FINISHED
    assert max(row["mismatch/kl"] for row in run.steps()) > 1e-4


@pytest.mark.parametrize("ages", [1, 2])
def test_it_still_learns(ahead: Any, ages: int) -> None:
    run = ahead(ages, "schedule.1.until=step >= 40", "algorithm.lr=2")
    run.go()
    success = [row["rollout/success"] for row in run.steps()]
    assert np.mean(success[:8]) < 0.4
    assert np.mean(success[-8:]) > 0.9


# --- in flight -------------------------------------------------------------------------------------------------------


@dataclass
class InFlight(Apart):
    """Workers that take new weights while they play, and play several batches at a time."""

    synced_in_play: int = 0
    most: int = 0

    async def play(self, orders: Any, style: Any, seen: Any) -> Any:
        self.playing += 1
        self.most = max(self.most, self.playing)
        try:
            return await self.workers._rollout.play(orders, style, seen)
        finally:
            self.playing -= 1

    async def sync(self, version: int) -> Any:
        self.synced_in_play += self.playing > 0
        return await self.workers.sync(version)


@pytest.fixture
def in_flight(ahead: Callable[..., Any]) -> Callable[..., Any]:
    """`in_flight(2, rounds=7)`: a run whose workers overlap, an update takes this many rounds of the event loop."""

    def make(staleness: int, *settings: str, rounds: int = 7, pace: int = 3) -> tuple[Any, list[InFlight]]:
        run = ahead(staleness, "hardware.in_flight=true", "hardware.launcher=ray", *settings)
        sample, made = run.sampler.sample, list[InFlight]()

        async def slow(request: Any) -> Any:
            # some are many times slower than the others, as long episodes are
            for _ in range(pace * (20 if request.seed % 7 == 0 else 1)):
                await asyncio.sleep(0)
            return await sample(request)

        def around(workers: Any) -> Any:
            made.append(InFlight(workers, rounds))
            return made[0]

        run.sampler.sample, run.around = slow, around
        return run, made

    return make


@pytest.mark.parametrize("ages", [1, 2, 3])
def test_in_flight_weights_change_while_episodes_are_under_way_within_the_bound(in_flight: Any, ages: int) -> None:
    run, made = in_flight(ages)
    assert run.go().kind is OutcomeKind.FINISHED
    assert made[0].synced_in_play > 0
    assert made[0].most > 1, "batches overlap"
    drawn = versions(run)
    assert any(len(each) > 1 for each in drawn), "a batch was sampled by several versions"
    assert all(step - ages <= min(each) and max(each) <= step for step, each in enumerate(drawn))
    lags = [step - min(each) for step, each in enumerate(drawn)]
    assert [row["rollout/lag_max"] for row in run.steps()] == lags
    assert all(0 <= row["rollout/lag_mean"] <= row["rollout/lag_max"] for row in run.steps())


@pytest.mark.parametrize("rounds", [0, 40])
def test_in_flight_each_step_has_the_tasks_that_it_would_have_without(ahead: Any, in_flight: Any, rounds: int) -> None:
    run, plain = in_flight(2, rounds=rounds)[0], ahead(0)
    run.go(), plain.go()
    tasks = [_tasks(each) for each in (run, plain)]
    assert tasks[0] == tasks[1]


def test_in_flight_with_resampling_batches_follow_each_other(in_flight: Any) -> None:
    moving = ("algorithm.filter.resample=true", "algorithm.filter.groups=std > 0")
    run, made = in_flight(2, *moving)
    assert run.go().kind is OutcomeKind.FINISHED
    assert made[0].most == 1
    assert made[0].synced_in_play > 0


def test_in_flight_a_token_older_than_the_bound_stops_the_run(in_flight: Any) -> None:
    run, _ = in_flight(1)
    sample = run.sampler.sample

    async def old(request: Any) -> Any:
        sampled = await sample(request)
        return replace(sampled, versions=tuple(version - 3 for version in sampled.versions))

    run.sampler.sample = old
    with pytest.raises(
        RunError, match="was sampled by version -3 of the weights, and its batch was begun with version 0"
    ):
        run.go()


@pytest.mark.parametrize("wanted", [1, 3, 6])
def test_in_flight_an_interrupted_run_goes_on_with_what_was_played(ahead: Any, in_flight: Any, wanted: int) -> None:
    plain, (run, _) = ahead(0), in_flight(2)
    plain.go()
    run.reporter.row = lambda row: setattr(run.stop, "wanted", row["total_step"] == wanted)
    assert run.go().kind is OutcomeKind.INTERRUPTED
    again = run.again()
    again.around = lambda workers: InFlight(workers, 7)
    assert again.go().kind is OutcomeKind.FINISHED
    assert [row["total_step"] for row in again.steps()] == list(range(1, 9))
    tasks = [_tasks(each) for each in (again, plain)]
    assert tasks[0] == tasks[1]


# --- borders, measurements, guards -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ages", [1, 2])
def test_nothing_is_begun_past_a_border_that_is_known_and_what_is_begun_past_another_leaves_no_trace(
    ahead: Any, ages: int
) -> None:
    run = ahead(ages)
    made = apart(run, 3)
    run.go()
    # the fifth step, after which the first stage ends, begins as many as any other
    assert made[0].events.count("play") == 5 + ages + 3
    progress = json.loads((run.root / "checkpoints/step-8/progress.json").read_text())
    assert progress["mixture"]["drawn"] == {"echo": 8 * 4}


@pytest.mark.parametrize("ages", [1, 2])
def test_a_measurement_is_of_the_weights_that_were_just_learnt(ahead: Any, ages: int) -> None:
    quiet, run = ahead(ages), ahead(ages, "eval.every=2")
    apart(run, 3)
    quiet.go(), run.go()
    assert versions(run, "-eval") == [{2}, {4}, {6}, {8}]
    assert [row for row in run.exact() if "step" in row] == quiet.exact()


def test_a_roll_back_drops_what_the_weights_that_failed_have_played(ahead: Any) -> None:
    run = ahead(1, "checkpoint.every=2")
    run.learner.faulty = lambda number, sequences: UpdateFault.NAN if number == 4 else None
    run.go()
    assert run.steps()[3]["guard/action"] == "roll_back"
    # step 5's batch was begun with version 3; after the rollback it is played anew, by the weights of step 2
    assert staleness(run)[:5] == [0, 1, 1, 1, 0]
    progress = json.loads((run.root / "checkpoints/step-8/progress.json").read_text())
    assert progress["mixture"]["drawn"] == {"echo": 8 * 4}


# --- the end of a process --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ages", "waiting"), [(1, [1, 1, 1, 1, 1, 1, 1]), (2, [2, 1, 2, 1, 2, 2, 1])])
def test_saved_after_every_step_a_run_goes_on_from_each_of_them(ahead: Any, ages: int, waiting: list[int]) -> None:
    whole = ahead(ages)
    whole.go()
    for wanted in range(1, 8):
        run = ahead(ages)
        apart(run, 5)
        run.reporter.row = lambda row, run=run, wanted=wanted: setattr(run.stop, "wanted", row["total_step"] == wanted)
        assert run.go().kind is OutcomeKind.INTERRUPTED
        assert len(read_batches(run.root / f"checkpoints/step-{wanted}")) == waiting[wanted - 1]
        again = run.again()
        again.go()
        assert again.exact() == whole.exact(), f"stopped after step {wanted}"


@pytest.mark.parametrize("ages", [1, 2])
@pytest.mark.parametrize("steps", range(5))
def test_a_sampler_that_dies_takes_no_row_with_it_that_cannot_be_made_again(ahead: Any, ages: int, steps: int) -> None:
    whole = ahead(ages)
    whole.go()
    run, requests = ahead(ages, "checkpoint.every=2"), whole.sampler.requests
    enough = 10 + steps * len(requests) // 6
    sample = run.sampler.sample

    async def mortal(request: Any) -> Any:
        if len(run.sampler.requests) >= enough:
            raise SamplerError("gone")
        return await sample(request)

    run.sampler.sample = mortal
    with pytest.raises(StepRefused, match="sampler: gone; resume to start it anew"):
        run.go()
    again = run.again()
    assert again.go().kind is OutcomeKind.FINISHED
    assert again.exact() == whole.exact()


def test_a_step_that_is_refused_keeps_its_batch(ahead: Any) -> None:
    whole = ahead(1)
    whole.go()
    run, calls = ahead(1), list[int]()

    def around(workers: Any) -> Any:
        compute = workers.compute

        async def refused(work: Any, *args: Any, **kwargs: Any) -> Any:
            calls.extend([1] * (work is LearnerWorker.logprobs))
            if len(calls) == 3:
                raise StepRefused("not now")
            return await compute(work, *args, **kwargs)

        workers.compute = refused
        return workers

    run.around = around
    with pytest.raises(StepRefused, match="not now"):
        run.go()
    (kept,) = read_batches(run.root / "checkpoints/step-2")
    assert kept.staleness == 1
    again = run.again()
    again.go()
    assert again.exact() == whole.exact()


def test_a_mistake_in_a_batch_that_nobody_needs_is_still_heard(ahead: Any) -> None:
    run = ahead(1)
    sample = run.sampler.sample

    async def wrong(request: Any) -> Any:
        if run.sampler.version == 4:
            raise ZeroDivisionError
        return await sample(request)

    run.sampler.sample = wrong
    with pytest.raises(ZeroDivisionError):
        run.go()


# --- files -----------------------------------------------------------------------------------------------------------


def segment(*ids: int) -> Segment:
    return Segment(
        ids=np.array(ids, np.int32),
        sampled=np.array([at > 0 for at in range(len(ids))]),
        logprobs=np.array([-0.1 * at for at in range(len(ids))], np.float32),
        versions=np.array([at - 1 for at in range(len(ids))], np.int32),
    )


def batch() -> RolloutBatch:
    task = Task(environment="echo", id="ä", seed=2**60, difficulty="odd")
    turn = Turn(segment=0, start=1, end=3, reply="\ud83d a\n", action=None, observation="", reward=1 / 3, state="s")
    whole = Episode(
        task=task,
        index=0,
        segments=(segment(4, 5, 6), segment(7)),
        turns=(turn, turn),
        ending=Ending.HORIZON,
        horizon=2,
        score=0.1 + 0.2,
        success=True,
        opening=(Message("user", "say"),),
        faults=("deadline", "garbage"),
        retries=1,
        seconds=2.5,
    )
    lost = Episode(
        task=task, index=1, segments=(), turns=(), ending=Ending.ENV_FAULT, horizon=2, score=0, success=False, fault="x"
    )
    mixture = TaskMixture(drawn={"echo": 3}, owed={"echo": 0.1})
    groups = (Group(task=task, episodes=(whole, lost)), Group(task=task, episodes=(lost,), greedy=whole))
    return RolloutBatch(groups=groups, rounds=2, mixture=mixture, staleness=1, seconds={"tasks": 1.0, "rollout": 9.0})


def plain(value: Any) -> Any:
    """All the way down, so that two of them can be compared."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    if isinstance(value, list | tuple):
        return type(value), [plain(each) for each in value]
    if isinstance(value, RolloutBatch | Group | Episode | Segment):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value


def test_batches_come_back_as_they_were(tmp_path: Path) -> None:
    write_batches(tmp_path, [batch(), batch()])
    found = read_batches(tmp_path)
    assert plain(found) == plain((batch(), batch()))
    assert {path.name for path in tmp_path.iterdir()} == {"batches.json", "batches.npz"}


def test_pictures_in_batches_come_back_as_they_were(tmp_path: Path) -> None:
    one = batch()
    whole, lost = one.groups[0].episodes
    turns = (replace(whole.turns[0], picture=b"\x89PNG\x00"), whole.turns[1])
    drawn = replace(whole, picture=b"", judge_keys=("a", "b"), turns=turns)
    write_batches(tmp_path, [replace(one, groups=(replace(one.groups[0], episodes=(drawn, lost)),))])
    (found,) = read_batches(tmp_path)
    read = found.groups[0].episodes[0]
    assert (read.picture, read.judge_keys) == (b"", ("a", "b"))
    assert [turn.picture for turn in read.turns] == [b"\x89PNG\x00", None]


def test_batches_of_nothing_but_faults_come_back_too(tmp_path: Path) -> None:
    group = batch().groups[0]
    lost = [
        RolloutBatch(
            groups=(Group(task=group.task, episodes=group.episodes[1:]),),
            rounds=0,
            mixture=TaskMixture(),
            staleness=1,
            seconds={},
        )
    ]
    write_batches(tmp_path, lost)
    assert plain(read_batches(tmp_path)) == plain(tuple(lost))


def test_where_no_batch_waits_there_is_no_file(tmp_path: Path) -> None:
    write_batches(tmp_path, ())
    assert list(tmp_path.iterdir()) == []
    assert read_batches(tmp_path) == ()


def test_batches_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "batches.json").write_text('{"version": 2}')
    with pytest.raises(RunError, match="is of version 2; expected 1"):
        read_batches(tmp_path)


def places_in(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for step, inner in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield (*path, step)
        yield from places_in(inner, (*path, step))


@pytest.mark.slow
def test_a_value_of_another_kind_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    write_batches(tmp_path, [batch()])
    file, taken = tmp_path / "batches.json", set[str]()
    text = file.read_text()
    for *path, last in places_in(json.loads(text)):
        for value in (None, True, -1, 0.5, float("nan"), "x", [None], {}, {"x": None}):
            data = json.loads(text)
            holder = reduce(getitem, path, data)
            was, holder[last] = holder[last], value
            file.write_text(json.dumps(data))
            with suppress(RunError):
                read_batches(tmp_path, {"echo"})
                taken |= {str(last)} if type(was) is not type(value) else set()
    numbers = {"score", "reward", "seconds", "sampling_s", "env_s", "tasks", "rollout", "echo"}
    assert taken == numbers | {"action"}, "a whole number is a real one; an action may be none"


@pytest.mark.parametrize("name", ["ids", "sampled", "logprobs", "versions"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda array: array.astype(np.float64),
        lambda array: array[:-1],
        lambda array: array[None],
        lambda array: np.append(array, array[:1]),
    ],
    ids=["kind", "short", "shape", "long"],
)
def test_tokens_of_another_kind_or_number_are_named(name: str, damage: Any, tmp_path: Path) -> None:
    write_batches(tmp_path, [batch()])
    with np.load(tmp_path / "batches.npz") as kept:
        arrays = dict(kept)
    np.savez(tmp_path / "batches.npz", **arrays | {name: damage(arrays[name])})
    with pytest.raises(RunError, match=f"is damaged: ValueError: {name} is "):
        read_batches(tmp_path)


def test_a_negative_token_is_named(tmp_path: Path) -> None:
    write_batches(tmp_path, [batch()])
    with np.load(tmp_path / "batches.npz") as kept:
        arrays = dict(kept)
    arrays["ids"][0] = -1
    np.savez(tmp_path / "batches.npz", **arrays)
    with pytest.raises(RunError, match="a token or a length is negative"):
        read_batches(tmp_path)


def test_a_turn_whose_tokens_are_not_there_is_named(tmp_path: Path) -> None:
    write_batches(tmp_path, [batch()])
    text = (tmp_path / "batches.json").read_text()
    (tmp_path / "batches.json").write_text(text.replace('"start": 1, "end": 3', '"start": 1, "end": 4', 1))
    with pytest.raises(RunError, match="tokens 1 to 4 of sequence 0 are not there"):
        read_batches(tmp_path)


def test_batches_of_an_environment_that_is_not_in_the_plan_are_refused(tmp_path: Path) -> None:
    write_batches(tmp_path, [batch()])
    with pytest.raises(RunError, match="there are episodes of echo"):
        read_batches(tmp_path, {"craft"})
