"""Proof that a plan can run: ops wired type by type, workers where they can be, a budget that agrees with the settings.

Enters: a Plan, from `lower` or from a file; nobody is trusted. Leaves: a Problem for each thing that is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from ..frozen import frozen
from ..model.algorithm import Kind
from ..model.plan import VERSION, OpKind, Plan, PlanStage, Role, StageBudget, Worker, peaks
from ..model.recipe import Hardware, Launcher, Layout
from .budgets import pieces

__all__ = ["Problem", "verify_plan"]


@frozen
class Problem:
    """Why a plan cannot run."""

    where: str
    message: str


def verify_plan(plan: Plan) -> tuple[Problem, ...]:
    """Everything that is wrong with a plan; nothing, for each plan that `lower` makes from a right recipe."""
    if plan.version != VERSION:
        return (Problem(where="version", message=f"expected {VERSION}, not {plan.version}"),)
    return (*_stage_problems(plan), *_placement_problems(plan), *_memory_problems(plan))


def _stage_problems(plan: Plan) -> Iterator[Problem]:
    if not plan.stages:
        yield Problem(where="stages", message="expected at least one")
    for name in _repeated(stage.settings.stage for stage in plan.stages):
        yield Problem(where="stages", message=f"two are called '{name}'")
    for place, stage in enumerate(plan.stages):
        where = f"stages[{place}]"
        if stage.index != place:
            yield Problem(where=where, message=f"expected index {place}, not {stage.index}")
        yield from _budget_problems(where, stage)
        yield from _horizon_problems(where, stage)
    yield from _order_problems(plan.stages)


def _budget_problems(where: str, stage: PlanStage) -> Iterator[Problem]:
    budget, algorithm = stage.budget, stage.settings.algorithm
    there = f"{where}.budget"
    plays = any(op.kind is OpKind.ROLLOUT for op in stage.ops)
    learns = stage.kind is not Kind.EVAL
    figures = {
        "episodes_per_step": (budget.episodes_per_step, plays),
        "max_turns": (budget.max_turns, plays or not learns),
        "max_sampled_tokens_per_step": (budget.max_sampled_tokens_per_step, plays),
        "max_trained_tokens_per_step": (budget.max_trained_tokens_per_step, learns),
        "updates_per_step": (budget.updates_per_step, learns),
    }
    for name, (figure, counts) in figures.items():
        if (figure < 1) if counts else (figure != 0):
            expected = "1 or more" if counts else "0"
            yield Problem(where=f"{there}.{name}", message=f"expected {expected}, not {figure}")
    if budget.max_steps is not None and budget.max_steps < 1:
        yield Problem(where=f"{there}.max_steps", message=f"expected 1 or more, not {budget.max_steps}")
    if stage.kind is Kind.RL and budget.episodes_per_step // algorithm.groups_per_step not in (
        algorithm.group_size,
        algorithm.group_size + 1,
    ):
        message = f"{budget.episodes_per_step} are not {algorithm.groups_per_step} groups of {algorithm.group_size}"
        yield Problem(where=f"{there}.episodes_per_step", message=message)
    views = pieces(stage.settings, budget.max_turns)
    most = budget.episodes_per_step * stage.settings.agent.context_tokens * views
    if budget.max_sampled_tokens_per_step > most:
        yield Problem(where=f"{there}.max_sampled_tokens_per_step", message=f"the episodes hold {most} at the most")


def _horizon_problems(where: str, stage: PlanStage) -> Iterator[Problem]:
    there, table, budget = f"{where}.budget.horizon", stage.budget.horizon, stage.budget
    if not table:
        return
    if table[0][0] != 0:
        yield Problem(where=there, message=f"expected to begin at step 0, not {table[0][0]}")
    if any(later[0] <= earlier[0] for earlier, later in pairwise(table)):
        yield Problem(where=there, message="expected steps that rise")
    if budget.max_steps is not None and table[-1][0] >= max(budget.max_steps, 1):
        yield Problem(where=there, message=f"changes at step {table[-1][0]}, after the stage has ended")
    if max(turns for _, turns in table) != budget.max_turns or min(turns for _, turns in table) < 1:
        yield Problem(where=there, message=f"expected turns from 1 to {budget.max_turns}")
    if not stage.settings.shrink and any(later[1] < earlier[1] for earlier, later in pairwise(table)):
        yield Problem(where=there, message="falls within a stage that does not say 'shrink: true'")


def _order_problems(stages: tuple[PlanStage, ...]) -> Iterator[Problem]:
    """The horizon from stage to stage, where each has a table and the same environments."""
    played = [(place, stage) for place, stage in enumerate(stages) if stage.budget.horizon]
    for (_, before), (place, stage) in pairwise(played):
        same = set(before.settings.environments) == set(stage.settings.environments)
        reached, first = _reached(before.budget), stage.budget.horizon[0][1]
        if same and not stage.settings.shrink and first < reached:
            message = f"falls from {reached} turns to {first}"
            yield Problem(where=f"stages[{place}].budget.horizon", message=message)


def _reached(budget: StageBudget) -> int:
    """The horizon at a stage's end; of one that may end at any step, the lowest that it can be."""
    turns = [turns for _, turns in budget.horizon]
    return min(turns) if budget.max_steps is None else turns[-1]


def _placement_problems(plan: Plan) -> Iterator[Problem]:
    workers, hardware = plan.placement.workers, plan.hardware
    if plan.placement.launcher not in (Launcher.INLINE, Launcher.RAY):
        yield Problem(
            where="placement.launcher", message=f"expected 'inline' or 'ray', not '{plan.placement.launcher}'"
        )
    for repeated in _repeated(worker.id for worker in workers):
        yield Problem(where="placement", message=f"two workers are called '{repeated}'")
    for role in sorted({worker.role for worker in workers}):
        ranks = [worker.rank for worker in workers if worker.role is role]
        if ranks != list(range(len(ranks))):
            yield Problem(where="placement", message=f"the ranks of '{role}' are not 0 to {len(ranks) - 1} in order")
        if plan.placement.launcher == Launcher.INLINE and len(ranks) > 1 and role is not Role.ENVIRONMENT:
            yield Problem(where="placement", message=f"one process cannot hold {len(ranks)} workers of '{role}'")
    for worker in workers:
        there = f"placement.{worker.id}"
        yield from (Problem(where=there, message=message) for message in _worker_problems(worker, hardware))
    yield from _sharing_problems(workers, hardware.layout)
    yield from _company_problems(workers)


def _worker_problems(worker: Worker, hardware: Hardware) -> Iterator[str]:
    if not 0 <= worker.node < hardware.nodes:
        yield f"node {worker.node} is not one of {hardware.nodes}"
    wanted = _gpus_wanted(worker.role, hardware)
    if len(worker.gpus) != wanted:
        yield f"expected {wanted} GPUs, not {len(worker.gpus)}"
    if len(set(worker.gpus)) != len(worker.gpus):
        yield "has a GPU twice"
    for gpu in worker.gpus:
        if not 0 <= gpu < hardware.gpus_per_node:
            yield f"GPU {gpu} is not one of {hardware.gpus_per_node}"


def _gpus_wanted(role: Role, hardware: Hardware) -> int:
    if hardware.gpus_per_node == 0 or role is Role.ENVIRONMENT:
        return 0
    return hardware.rollout.tensor_parallel if role is Role.ROLLOUT else 1


def _sharing_problems(workers: tuple[Worker, ...], layout: Layout) -> Iterator[Problem]:
    """Workers of one role never share a GPU; samplers and learners do only where they take turns."""
    holders: dict[tuple[int, int], list[Worker]] = {}
    for worker in workers:
        for gpu in set(worker.gpus):
            holders.setdefault((worker.node, gpu), []).append(worker)
    for (node, gpu), sharing in holders.items():
        where = f"placement, node {node}, GPU {gpu}"
        for role in _repeated(worker.role for worker in sharing):
            yield Problem(where=where, message=f"two workers of '{role}' share it")
        roles = {worker.role for worker in sharing}
        if layout is Layout.SPLIT and Role.ROLLOUT in roles and len(roles) > 1:
            yield Problem(where=where, message="samples and learns, and the layout is 'split'")


def _company_problems(workers: tuple[Worker, ...]) -> Iterator[Problem]:
    """Critics and references live in the learners' processes, rank by rank."""
    learners = [(worker.node, worker.gpus) for worker in workers if worker.role is Role.LEARNER]
    for role in (Role.CRITIC, Role.REFERENCE):
        seats = [(worker.node, worker.gpus) for worker in workers if worker.role is role]
        if seats and seats != learners:
            yield Problem(where="placement", message=f"'{role}' does not sit where the learners do")


def _memory_problems(plan: Plan) -> Iterator[Problem]:
    budget = plan.budget
    staffed = {worker.role for worker in plan.placement.workers}
    for use in budget.memory:
        if use.role not in staffed:
            yield Problem(where="budget.memory", message=f"no worker has the role '{use.role}'")
        for item in use.items:
            if item.bytes < 0:
                yield Problem(where="budget.memory", message=f"'{item.what}' takes {item.bytes} bytes")
    if (budget.parameters is None) is not (plan.shape is None):
        yield Problem(
            where="budget.parameters", message="expected a count where the model's sizes are known, and only there"
        )
    yield from _parameter_problems(plan)
    for role, peak in peaks(budget.memory, plan.hardware.layout).items():
        if budget.capacity_bytes is not None and peak > budget.capacity_bytes:
            message = f"a card of '{role}' holds {peak} bytes, and has {budget.capacity_bytes}"
            yield Problem(where="budget.memory", message=message)


def _parameter_problems(plan: Plan) -> Iterator[Problem]:
    whole, trained = plan.budget.parameters, plan.budget.trainable_parameters
    if whole is None or trained is None:
        if whole is not trained:
            yield Problem(
                where="budget.trainable_parameters", message="expected a count if and only if there is one of all"
            )
        return
    if not 0 <= trained <= whole or whole < 1:
        yield Problem(where="budget.trainable_parameters", message=f"{trained} of {whole} parameters cannot be trained")


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
