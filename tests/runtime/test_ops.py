"""The ops of a plan are what runs: added, removed and moved ops change what a step does, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import permutations
from typing import Any, ClassVar

import pytest
from agym.dsl.check.presets import load_presets
from agym.dsl.model.plan import Op, OpKind, Plan, PortType
from agym.runtime.engine import OutcomeKind
from agym.runtime.steps import ops as ops_module
from agym.runtime.steps.ops import OPS, OpFunction, check_ops, is_due
from agym.runtime.steps.stage_context import StageContext
from agym.runtime.steps.step_data import StepData

from .conftest import RECIPE, plan_of
from .test_golden import FURTHER, recipe_of

SETTINGS = ("algorithm.kl={coef: 0.05, reference: start}",)
ELSEWHERE = {PortType.WEIGHTS, PortType.METRICS, PortType.FOLDER}
"""Weights live in the workers, metrics in the row, checkpoints on the disk."""
PORTS = {each.value for each in PortType} & {each.name for each in fields(StepData)}


def with_ops(plan: Plan, change: Callable[[tuple[Op, ...]], tuple[Op, ...]]) -> Plan:
    stages = tuple(replace(stage, ops=change(stage.ops)) for stage in plan.stages)
    return replace(plan, stages=stages)


def without(kind: OpKind) -> Callable[[tuple[Op, ...]], tuple[Op, ...]]:
    """The ops without those of a kind, and without what others take from them."""

    def change(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        gone = {op.id for op in ops if op.kind is kind}
        kept = (op for op in ops if op.kind is not kind)
        return tuple(replace(op, inputs=tuple(wire for wire in op.inputs if wire.op not in gone)) for op in kept)

    return change


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[OpKind, OpFunction]:
    """The table of ops, to be changed for one test."""
    changed = dict(OPS)
    monkeypatch.setattr(ops_module, "OPS", changed)
    return changed


def test_every_kind_of_op_has_a_function() -> None:
    assert set(OPS) == set(OpKind)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("staleness", [0, 1])
def test_an_op_that_is_added_runs_in_its_place(
    new_run: Any, table: dict[OpKind, OpFunction], ahead: bool, staleness: int
) -> None:
    seen = list[tuple[str, bool]]()

    async def look(op: Op, context: StageContext, data: StepData) -> None:
        seen.append((context.stage.stage, data.episodes is not None))
        data.row["looked/episodes"] = len(data.played)

    table[OpKind.RANK] = look  # a kind that this recipe has no use for
    plain, run = (new_run(*SETTINGS, f"hardware.staleness={staleness}") for _ in range(2))

    def add(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        at = next((at for at, op in enumerate(ops) if op.kind is OpKind.ROLLOUT), None)
        if at is None:
            return ops
        at += 1 if ahead else 2
        return (*ops[:at], Op(id="look", kind=OpKind.RANK, role=None, ahead=ahead), *ops[at:])

    run.plan = with_ops(run.plan, add)
    plain.go()
    assert run.go().kind is OutcomeKind.FINISHED
    assert seen == [(row["stage"], True) for row in plain.steps() if row["stage"] != "imitate"]
    told = [row.pop("looked/episodes") for row in run.steps() if "looked/episodes" in row]
    assert told == ([] if ahead else [16] * len(seen))
    new = {name: value for row in run.exact() for name, value in row.items() if name == "looked/episodes"}
    assert [{k: v for k, v in row.items() if k not in new} for row in run.exact()] == plain.exact()


def test_without_its_reference_op_the_kl_is_gone(new_run: Any) -> None:
    whole, run = new_run(*SETTINGS), new_run(*SETTINGS)
    run.plan = with_ops(run.plan, without(OpKind.REFERENCE))
    whole.go(), run.go()
    assert any(row["train/kl"] > 0 for row in whole.steps())
    assert all(row["train/kl"] == 0 for row in run.steps())
    assert not any(update.loss.kl_coef == 0 for update in run.learner.updates[2:])  # the settings are what they were
    assert run.exact() != whole.exact()


def test_without_its_reference_op_nothing_is_taken_off_the_reward(new_run: Any) -> None:
    settings = ("algorithm.kl={coef: 0.05, place: reward, reference: start}",)
    run = new_run(*settings)
    run.plan = with_ops(run.plan, without(OpKind.REFERENCE))
    run.go()
    assert not any("reward/kl" in row for row in run.steps())


def test_without_its_save_and_eval_ops_a_run_saves_and_evaluates_only_at_its_end(new_run: Any) -> None:
    run = new_run()
    run.plan = with_ops(with_ops(run.plan, without(OpKind.SAVE)), without(OpKind.EVAL))
    run.go()
    assert [row["total_step"] for row in run.rows() if "eval/success" in row] == [9]
    assert run.checkpoints() == ["step-9"]


def independent(ops: Sequence[Op]) -> Iterator[tuple[Op, ...]]:
    """Other orders in which every op comes after those that it takes from, of those that are done between steps too."""
    for at in range(len(ops) - 1):
        first, second = ops[at], ops[at + 1]
        apart = second.id not in {wire.op for wire in first.inputs} and first.id not in {
            wire.op for wire in second.inputs
        }
        if apart and first.ahead == second.ahead and (first.every is None) == (second.every is None):
            yield (*ops[:at], second, first, *ops[at + 2 :])


@pytest.mark.parametrize("case", ["ppo", "grpo", "turn_dpo", "agent_evol", "moving-2", "both-logprobs"])
def test_independent_ops_may_stand_in_any_order(new_run: Any, case: str) -> None:
    text, settings = recipe_of(case) if case != "both-logprobs" else (RECIPE, (*SETTINGS[:1], "model.dtype=bf16"))
    if case == "ppo":
        settings = (*settings, "algorithm.kl={coef: 0.05, place: reward, reference: start}")
    if case == "turn_dpo":
        settings = (*settings, "algorithm.critic.privileged=false")
    whole, tried = new_run(*settings, text=text), 0
    whole.go()
    places = range(max(len(list(independent(stage.ops))) for stage in whole.plan.stages))
    for place in places:
        run = new_run(*settings, text=text)

        def change(ops: tuple[Op, ...], place: int = place) -> tuple[Op, ...]:
            orders = list(independent(ops))
            return orders[place] if place < len(orders) else ops

        run.plan = with_ops(run.plan, change)
        assert run.go().kind is OutcomeKind.FINISHED
        assert run.exact() == whole.exact()
        tried += 1
    assert tried > 0


def test_ops_that_need_each_other_are_not_walked_in_another_order() -> None:
    ops = plan_of(RECIPE, *SETTINGS).stages[1].ops
    check_ops(ops)
    for order in permutations(range(len(ops)), 2):
        first, second = sorted(order)
        swapped = list(ops)
        swapped[first], swapped[second] = ops[second], ops[first]
        if any(wire.op == ops[first].id and not wire.previous for wire in ops[second].inputs):
            with pytest.raises(ValueError, match="which does not give it before"):
                check_ops(swapped)
    with pytest.raises(ValueError, match="two ops have the same id"):
        check_ops([*ops, ops[0]])


def test_ops_between_steps_are_due_by_the_steps_of_the_run() -> None:
    op = Op(id="eval", kind=OpKind.EVAL, role=None, every=3)
    assert [step for step in range(10) if is_due(op, step)] == [3, 6, 9]
    assert [step for step in range(10) if is_due(replace(op, at_start=True), step)] == [0, 3, 6, 9]
    assert not any(is_due(replace(op, every=None, at_start=True), step) for step in range(10))


def test_each_op_is_timed_by_its_id(new_run: Any) -> None:
    run = new_run(*SETTINGS)
    run.go()
    for row in run.steps():
        (stage,) = (stage for stage in run.plan.stages if stage.settings.stage == row["stage"])
        timed = {name.removeprefix("timing_s/") for name in row if name.startswith("timing_s/")}
        assert timed == {op.id for op in stage.ops if op.every is None} | {"step"}


# --- what an op takes and gives is what its wires say --------------------------------------------------------------


class Watched(StepData):
    """Notes which of the fields that stand for ports are read, where there is something to read, and written."""

    read: ClassVar[set[str]] = set()
    written: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in PORTS and found is not None:
            Watched.read.add(name)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name in PORTS:
            Watched.written.add(name)
        super().__setattr__(name, value)


def test_a_field_stands_for_every_port_that_travels_within_a_step() -> None:
    assert {each.value for each in PortType if each not in ELSEWHERE} == PORTS


@pytest.mark.parametrize("case", [each for each in (*sorted(load_presets()), *FURTHER) if each != "moving-2"])
def test_an_op_reads_and_writes_what_its_wires_say(
    new_run: Any, solvable: Any, judge_url: str, table: dict[OpKind, OpFunction], case: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(ops_module, "StepData", Watched)
    walked = set[str]()

    def watched(function: OpFunction) -> OpFunction:
        async def run(op: Op, context: StageContext, data: StepData) -> None:
            Watched.read.clear(), Watched.written.clear()
            await function(op, context, data)
            walked.add(op.id)
            assert Watched.read - Watched.written <= {wire.port for wire in op.inputs}, op.id
            # a KL penalty is applied once: whoever applies it takes the log-probs away
            taken = {"reference_logprobs"} if op.kind is OpKind.ADVANTAGE else set()
            assert Watched.written - taken == {port.name for port in op.outputs} & PORTS, op.id

        return run

    for kind, function in OPS.items():
        if kind is not OpKind.RESAMPLE:  # it walks others
            table[kind] = watched(function)
    text, settings = recipe_of(case, judge_url)
    run = new_run(*settings, text=text, clients={"echo": solvable, "other": solvable})
    assert run.go().kind is OutcomeKind.FINISHED
    in_steps = {op.id for stage in run.plan.stages for op in stage.ops if op.every is None}
    assert in_steps - {"resample"} <= walked
