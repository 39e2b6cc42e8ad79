"""What holds of every plan: workers where they can be, figures that agree with the settings, wires that lead back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.model.algorithm import Kind
from agym.dsl.model.plan import OpKind, Plan, PlanStage, Role, StageBudget, Worker, peaks
from agym.dsl.model.recipe import Hardware, Launcher, Layout
from agym.dsl.planning.budgets import count_sequences
from agym.dsl.source import Source
from agym.files import DiskLibrary

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ROOT / "recipes", ROOT / "tests" / "recipes_good"
FILES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.yaml")) if "base" not in path.parts]


def problems(plan: Plan) -> list[str]:
    """Everything that keeps a plan from running; nothing, for each plan of a right recipe."""
    return [*_stages(plan), *_placement(plan), *_memory(plan)]


def _stages(plan: Plan) -> Iterator[str]:
    if [stage.index for stage in plan.stages] != list(range(len(plan.stages))) or not plan.stages:
        yield "stages: not in order, or none"
    yield from (f"stages: two are called '{name}'" for name in _repeated(each.settings.stage for each in plan.stages))
    staffed = {worker.role for worker in plan.placement.workers}
    for stage in plan.stages:
        found = [*_wires(stage), *_budget(stage), *_horizon(stage)]
        found += [f"nobody does '{op.id}'" for op in stage.ops if op.role not in staffed | {None}]
        yield from (f"stage {stage.index}: {each}" for each in found)
    played = [stage for stage in plan.stages if stage.budget.horizon]
    for before, after in pairwise(played):
        same = set(before.settings.environments) == set(after.settings.environments)
        if same and not after.settings.shrink and after.budget.horizon[0][1] < _reached(before.budget):
            yield f"stage {after.index}: the horizon falls"


def _reached(budget: StageBudget) -> int:
    """The horizon at a stage's end; of one that may end at any step, the lowest that it can be."""
    turns = [turns for _, turns in budget.horizon]
    return min(turns) if budget.max_steps is None else turns[-1]


def _wires(stage: PlanStage) -> Iterator[str]:
    """Each input has a producer of its type, done before it; only weights may be those of the step before."""
    ports = {(op.id, port.name): port.type for op in stage.ops for port in op.outputs}
    yield from (f"two ops are called '{name}'" for name in _repeated(op.id for op in stage.ops))
    done = set[str]()
    for op in stage.ops:
        yield from (f"'{op.id}' is done every {op.every} steps" for _ in [0] if op.every is not None and op.every < 1)
        for wire in op.inputs:
            if ports.get((wire.op, wire.port)) is not wire.type:
                yield f"'{op.id}' takes '{wire.type}' from '{wire.op}', which gives none"
            if wire.op not in done and not (wire.previous and op.kind is OpKind.SYNC):
                yield f"'{op.id}' takes from '{wire.op}', which is not done before it"
        done.add(op.id)


def _budget(stage: PlanStage) -> Iterator[str]:
    budget, algorithm = stage.budget, stage.settings.algorithm
    plays, learns = any(op.kind is OpKind.ROLLOUT for op in stage.ops), stage.kind is not Kind.EVAL
    counts = {
        "episodes_per_step": plays,
        "max_turns": plays or not learns,
        "max_sampled_tokens_per_step": plays,
        "max_trained_tokens_per_step": learns,
        "updates_per_step": learns,
    }
    for name, there in counts.items():
        if (getattr(budget, name) < 1) if there else (getattr(budget, name) != 0):
            yield f"{name} is {getattr(budget, name)}"
    if budget.max_steps is not None and budget.max_steps < 1:
        yield f"max_steps is {budget.max_steps}"
    per_group = budget.episodes_per_step // algorithm.groups_per_step
    if stage.kind is Kind.RL and per_group not in (algorithm.group_size, algorithm.group_size + 1):
        yield f"episodes_per_step are not groups of {algorithm.group_size}"
    held = (
        budget.episodes_per_step
        * stage.settings.agent.context_tokens
        * count_sequences(stage.settings, budget.max_turns)
    )
    if budget.max_sampled_tokens_per_step > held:
        yield f"more tokens are sampled than the episodes hold, which is {held}"


def _horizon(stage: PlanStage) -> Iterator[str]:
    steps = [step for step, _ in stage.budget.horizon]
    turns = [turns for _, turns in stage.budget.horizon]
    if not steps:
        return
    if steps[0] != 0 or sorted(set(steps)) != steps:
        yield "the horizon's steps do not rise from 0"
    if stage.budget.max_steps is not None and steps[-1] >= stage.budget.max_steps:
        yield "the horizon changes after the end"
    if max(turns) != stage.budget.max_turns or min(turns) < 1:
        yield f"the horizon does not go from 1 to {stage.budget.max_turns}"
    if not stage.settings.shrink and sorted(turns) != turns:
        yield "the horizon falls within the stage"


def _placement(plan: Plan) -> Iterator[str]:
    workers, launcher = plan.placement.workers, plan.placement.launcher
    if launcher not in (Launcher.INLINE, Launcher.RAY):
        yield f"launcher '{launcher}'"
    yield from (f"two workers are called '{name}'" for name in _repeated(worker.id for worker in workers))
    seats: dict[Role, list[tuple[int, tuple[int, ...]]]] = {}
    for worker in workers:
        seats.setdefault(worker.role, []).append((worker.node, worker.gpus))
        if not _fits(worker, plan.hardware):
            yield f"'{worker.id}' is on node {worker.node}, GPUs {worker.gpus}"
    for role, taken in seats.items():
        if [each.rank for each in workers if each.role is role] != list(range(len(taken))):
            yield f"the ranks of '{role}' have a gap"
        if launcher == Launcher.INLINE and len(taken) > 1 and role is not Role.ENVIRONMENT:
            yield f"one process cannot hold {len(taken)} workers of '{role}'"
        if role in (Role.CRITIC, Role.REFERENCE) and taken != seats.get(Role.LEARNER):
            yield f"'{role}' is not where the learners are"
    held = {role: [(node, gpu) for node, gpus in taken for gpu in gpus] for role, taken in seats.items()}
    yield from (f"two workers of '{role}' share a GPU" for role, gpus in held.items() if _repeated(gpus))
    others = {gpu for role, gpus in held.items() if role is not Role.ROLLOUT for gpu in gpus}
    if plan.hardware.layout is Layout.SPLIT and others & set(held.get(Role.ROLLOUT, ())):
        yield "a GPU samples and learns, and the layout is 'split'"


def _fits(worker: Worker, hardware: Hardware) -> bool:
    each = hardware.rollout.tensor_parallel if worker.role is Role.ROLLOUT else 1
    expected = 0 if hardware.gpus_per_node == 0 or worker.role is Role.ENVIRONMENT else each
    is_there = 0 <= worker.node < hardware.nodes and set(worker.gpus) <= set(range(hardware.gpus_per_node))
    return is_there and len(worker.gpus) == expected


def _memory(plan: Plan) -> Iterator[str]:
    budget, staffed = plan.budget, {worker.role for worker in plan.placement.workers}
    for use in budget.memory:
        if use.role not in staffed or any(item.bytes < 0 for item in use.items):
            yield f"memory of '{use.role}'"
    whole, trained = budget.parameters, budget.trainable_parameters
    if {whole is None, trained is None} != {plan.shape is None} or not 0 <= (trained or 0) <= (whole or 0):
        yield f"{trained} of {whole} parameters are trained"
    peak = max(peaks(budget.memory, plan.hardware.layout).values(), default=0)
    if budget.capacity_bytes is not None and peak > budget.capacity_bytes:
        yield "more memory than a GPU has"


def _repeated(names: Iterable[Hashable]) -> list[Hashable]:
    return [name for name, count in Counter(names).items() if count > 1]


# --- every recipe ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_plans_of_every_recipe_can_run(path: Path) -> None:
    source = Source(str(path), path.read_text(encoding="utf-8-sig"), key=str(path))
    compiled = compile_recipe(source, DiskLibrary(path.parent), environ={"CORPUS_TOKEN": "x"}, catalog=catalog())
    assert compiled.variants
    assert [each for variant in compiled.variants for each in problems(variant.plan)] == []


# --- the check itself: what is spoilt is found -----------------------------------------------------------------------


def _worker(at: int, **changes: Any) -> Callable[[Plan], Plan]:
    def spoil(plan: Plan) -> Plan:
        workers = tuple(replace(each, **changes) if i == at else each for i, each in enumerate(plan.placement.workers))
        return replace(plan, placement=replace(plan.placement, workers=workers))

    return spoil


def _stage_budget(**changes: Any) -> Callable[[Plan], Plan]:
    def spoil(plan: Plan) -> Plan:
        *others, last = plan.stages
        return replace(plan, stages=(*others, replace(last, budget=replace(last.budget, **changes))))

    return spoil


def _reversed_ops(plan: Plan) -> Plan:
    first, *rest = plan.stages
    return replace(plan, stages=(replace(first, ops=first.ops[::-1]), *rest))


SPOILT: dict[str, Callable[[Plan], Plan]] = {
    "no stage": lambda plan: replace(plan, stages=()),
    "stages in another order": lambda plan: replace(plan, stages=plan.stages[::-1]),
    "ops in another order": _reversed_ops,
    "no workers": lambda plan: replace(plan, placement=replace(plan.placement, workers=())),
    "a node that there is not": _worker(0, node=1),
    "a GPU that there is not": _worker(0, gpus=(7,)),
    "a gap in the ranks": _worker(0, rank=1),
    "no episodes": _stage_budget(episodes_per_step=0),
    "another number of episodes": _stage_budget(episodes_per_step=1),
    "more tokens than fit": _stage_budget(max_sampled_tokens_per_step=10**12),
    "no update": _stage_budget(updates_per_step=0),
    "no steps": _stage_budget(max_steps=0),
    "a horizon from the middle": _stage_budget(horizon=((1, 8),)),
    "a horizon that falls": _stage_budget(horizon=((0, 8), (10, 4))),
    "trained, and not there": lambda plan: replace(plan, budget=replace(plan.budget, parameters=None)),
    "a small GPU": lambda plan: replace(plan, budget=replace(plan.budget, capacity_bytes=10**6)),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_plan_is_found_out(how: str) -> None:
    source = Source("a", "agym: 1\nname: a\nextends: quickstart\nhardware: {gpus_per_node: 1, gpu: h100}\n")
    (run,) = compile_recipe(source, DiskLibrary(ROOT), catalog=catalog()).variants
    assert problems(run.plan) == []
    assert problems(SPOILT[how](run.plan))
