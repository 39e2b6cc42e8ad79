"""A Plan as a tree for people: stages with their horizon and cost, placement, memory per GPU. Needs rich."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from ..dsl.model.algorithm import Kind
from ..dsl.model.plan import DiskUse, MemoryUse, Phase, Placement, Plan, PlanStage, Role, peaks
from ..dsl.planning.speeds import ASSUMED, network_rate
from .diagnostics.text import Style
from .quantity import binary, count, plural

if TYPE_CHECKING:
    from ..simulation import Simulation  # brings the runtime

__all__ = ["plan_tree", "rendered", "runs_table"]

SHOWN_HORIZONS = 8


def plan_tree(plan: Plan, style: Style, simulation: Simulation | None = None) -> str:
    """The plan of one run, and the times of its steps where they were simulated."""
    tree = Tree(_line(plan.name, plan.description), guide_style="dim")
    branches = {"model": _model, "schedule": _schedule, "eval": _eval, "hardware": _hardware, "memory": _memory}
    branches |= {"sync": _sync, "disk": _disk}
    for title, describe in branches.items():
        parts = (*describe(plan), *(_times(simulation) if simulation and title == "schedule" else ()))
        if parts:
            branch = tree.add(Text(title, "bold"))
            for part in parts:
                branch.add(part)
    return rendered(tree, style)


def runs_table(runs: Sequence[tuple[Mapping[str, str], Plan]], style: Style) -> str:
    """The runs of a matrix, a row each."""
    run, *totals = (Column(title, justify="right") for title in ("run", "stages", "steps", "episodes"))
    table = Table(run, *runs[0][0], *totals, box=None, pad_edge=False)
    for number, (choices, plan) in enumerate(runs, start=1):
        table.add_row(str(number), *map(Text, choices.values()), str(len(plan.stages)), *_totals(plan))
    return rendered(table, style)


def rendered(renderable: RenderableType, style: Style) -> str:
    sink = io.StringIO()
    console = Console(
        file=sink,
        width=style.width,
        force_terminal=style.colour,
        no_color=not style.colour,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in sink.getvalue().splitlines())


def _line(head: str, *rest: str) -> Text:
    return Text.assemble((head, "bold"), *(f"  {each}" for each in rest if each))


def _facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


# --- parts ---------------------------------------------------------------------------------------------------------


def _model(plan: Plan) -> Iterator[RenderableType]:
    total, trained = plan.budget.parameters, plan.budget.trainable_parameters
    size = f"{count(total)} parameters" if total is not None else "size not known here"
    share = f"{count(trained)} of them trained" if trained is not None and trained != total else ""
    origin = plan.model.path or (f"{plan.model.init.family}, from scratch" if plan.model.init else "")
    yield Text(", ".join(part for part in (origin, size, share, f"dtype {plan.model.dtype}") if part))


def _schedule(plan: Plan) -> Iterator[RenderableType]:
    for stage in plan.stages:
        branch = Tree(_line(stage.settings.stage, str(stage.settings.algorithm.use)), guide_style="dim")
        branch.add(_facts(_stage(stage)))
        yield branch
    if len(plan.stages) > 1:
        steps, episodes = _totals(plan)
        yield Text(f"in all  {steps} steps, {episodes} episodes")


def _stage(stage: PlanStage) -> Iterator[tuple[str, str]]:
    budget = stage.budget
    if stage.settings.until is not None:
        yield "until", stage.settings.until.text
    yield "steps", f"at most {budget.max_steps}" if budget.max_steps is not None else "no bound by count"
    if budget.horizon or budget.max_turns:
        yield "horizon", _horizon(stage)
    if budget.episodes_per_step:
        yield "episodes", _episodes(stage)
    yield "updates", f"{budget.updates_per_step} per step"
    yield "tokens", _tokens(stage)
    yield "ops", " -> ".join(op.id for op in stage.ops if op.every is None)
    yield "between", ", ".join(f"{op.id} every {plural(op.every, 'step')}" for op in stage.ops if op.every is not None)


def _horizon(stage: PlanStage) -> str:
    table = stage.budget.horizon
    if not table:
        return f"at most {plural(stage.budget.max_turns, 'turn')}"
    shown = [f"{turns} from step {step}" for step, turns in table[:SHOWN_HORIZONS]]
    more = [f"and {len(table) - SHOWN_HORIZONS} more"] if len(table) > SHOWN_HORIZONS else []
    return plural(table[0][1], "turn") if len(table) == 1 else ", ".join((*shown, *more))


def _episodes(stage: PlanStage) -> str:
    algorithm = stage.settings.algorithm
    groups = f", {algorithm.groups_per_step} groups of {algorithm.group_size}" if stage.kind is Kind.RL else ""
    per_step, steps = stage.budget.episodes_per_step, stage.budget.max_steps
    in_all = f"; {count(per_step * steps)} in all" if steps is not None else ""
    return f"{per_step} per step{groups}{in_all}"


def _tokens(stage: PlanStage) -> str:
    budget = stage.budget
    figures = ((budget.max_sampled_tokens_per_step, "sampled"), (budget.max_trained_tokens_per_step, "trained"))
    parts = [f"{count(tokens)} {what}" for tokens, what in figures if tokens]
    return f"{' and '.join(parts)} per step at most" if parts else "none"


def _times(simulation: Simulation) -> Iterator[RenderableType]:
    if simulation.unknown:
        yield Text(f"time of a step: not known, as {simulation.unknown}")
        return
    titles = ("time of a step", "in all", "rollout", "sync", "learning", "engines idle", "learners idle", "GPUs idle")
    table = Table(titles[0], *(Column(each, justify="right") for each in titles[1:]), box=None, pad_edge=False)
    table.header_style = "dim"
    for name, times in simulation.stages:
        seconds = (times.step_s, times.rollout_s, times.sync_s, times.learning_s)
        idle = (times.engines_idle, times.learners_idle, times.gpus_idle)
        shares = ("-" if each is None else f"{each:.0%}" for each in idle)
        table.add_row(Text(name), *(f"{each:.1f} s" if each else "-" for each in seconds), *shares)
    yield table
    lengths = "alike" if simulation.lengths == "even" else "heavy-tailed"
    yield Text(
        f"estimated, at each stage's longest horizon: episodes of {simulation.mean_share:.0%} of the most tokens, "
        f"{lengths}; {ASSUMED.learning:.0%} of the GPU's operations while learning, {ASSUMED.memory:.0%} of its "
        "memory's rate while sampling; environments, evaluations and saves take no time"
    )


def _eval(plan: Plan) -> Iterator[RenderableType]:
    if plan.eval is None:
        return
    turns = ", ".join(map(str, plan.eval.turns or ())) or "the longest of the schedule"
    tasks = plan.eval.tasks or "each environment's own"
    yield _facts(
        (
            ("every", plural(plan.eval.every, "step")),
            ("tasks", tasks + (f", at most {plan.eval.limit}" if plan.eval.limit else "")),
            ("turns", turns),
            ("samples", f"{plan.eval.samples} per task" + (", and one greedy" if plan.eval.greedy else "")),
        )
    )


def _hardware(plan: Plan) -> Iterator[RenderableType]:
    hardware = plan.hardware
    gpus = f"{plural(hardware.gpus_per_node, 'GPU')} each" if hardware.gpus_per_node else "CPU only"
    model = f" ({hardware.gpu})" if hardware.gpu else ""
    layout = f", {hardware.layout}" if hardware.gpus_per_node else ""
    yield Text(f"{plural(hardware.nodes, 'node')}, {gpus}{model}{layout}, launched by {plan.placement.launcher}")
    yield _placement(plan.placement)


def _placement(placement: Placement) -> Table:
    table = Table("role", "node", "workers", "GPUs of each", box=None, pad_edge=False, header_style="dim")
    # servers of one environment make a row, and so do ranks
    of_a_kind = groupby(placement.workers, key=lambda each: (each.role, each.node, each.id.rpartition("/")[0]))
    for (role, node, _), group in of_a_kind:
        workers = tuple(group)
        names = workers[0].id if len(workers) == 1 else f"{workers[0].id} to {workers[-1].id}"
        # `0 | 1 | 2`, or `0,1 | 2,3` where two share the work
        gpus = " | ".join(",".join(map(str, each.gpus)) for each in workers if each.gpus) or "-"
        table.add_row(role, str(node), Text(names), gpus)
    return table


def _memory(plan: Plan) -> Iterator[RenderableType]:
    uses = plan.budget.memory
    if not uses:
        yield Text("not known: the sizes of the model are not at hand (see model.shape)")
        return
    yield _memory_table(uses)
    yield from _zero(plan)
    capacity = plan.budget.capacity_bytes
    for role, peak in peaks(_without_cache(uses) if capacity else uses, plan.hardware.layout).items():
        of = f" of {binary(capacity)}, {peak / capacity:.0%}" if capacity else ""
        # the cache fills what the engine may take: the run does not need that much
        left = f"; headroom {binary(max(capacity - peak, 0))}, which the cache may fill" if capacity else ""
        whose = f"  ({role})" if plan.hardware.layout == "split" else ""
        yield Text(f"peak per GPU  {binary(peak)}{of}{left}{whose}")


def _zero(plan: Plan) -> Iterator[RenderableType]:
    ranks = sum(worker.role is Role.LEARNER for worker in plan.placement.workers)
    runs, asked = plan.budget.zero, plan.hardware.train.zero
    if runs is not None and (ranks > 1 or plan.hardware.gpus_per_node):
        why = "half precision has no such stage here" if runs else "one rank has nothing to shard"
        rest = "" if runs == asked else f" in place of {asked}: {why}"
        shared = plan.hardware.train.sequence_parallel
        row = f", rows divided between {shared}" if shared > 1 else ""
        yield Text(f"learner       {plural(ranks, 'rank')}{row}, ZeRO stage {runs}{rest}")


def _without_cache(uses: Sequence[MemoryUse]) -> list[MemoryUse]:
    items = (tuple(item for item in use.items if use.host or item.what != "cache") for use in uses)
    return [replace(use, items=kept) for use, kept in zip(uses, items, strict=True)]


def _sync(plan: Plan) -> Iterator[RenderableType]:
    sent = plan.budget.transfer
    if sent is None or sent.bytes == 0:
        return
    where = f"each of {sent.samplers} samplers" if sent.samplers > 1 else "the sampler"
    over = f", on {plural(sent.nodes, 'node')}" if sent.nodes > 1 else ""
    yield Text(f"{binary(sent.bytes)} of weights to {where}{over}")
    if sent.seconds is not None:
        yield Text(f"about {sent.seconds:.1f} s, if PCIe gives {ASSUMED.link:.0%} of its rate{_between_nodes(plan)}")


def _between_nodes(plan: Plan) -> str:
    if len({worker.node for worker in plan.placement.workers}) == 1:
        return ""
    key = " (hardware.network_gb_per_s)" if plan.hardware.network_gb_per_s is None else ""
    return f", and {network_rate(plan.hardware) / 1e9:g} GB/s between nodes{key}"


def _disk(plan: Plan) -> Iterator[RenderableType]:
    if not plan.budget.disk:
        return
    table = Table("what", Column("count", justify="right"), Column("size", justify="right"), box=None, pad_edge=False)
    table.header_style = "dim"
    for item in plan.budget.disk:
        bound = "at most " if item.use in (DiskUse.EPISODES, DiskUse.EVALUATIONS) else ""
        table.add_row(item.use, f"{item.count:,}", bound + binary(item.bytes))
    yield table
    total = sum(item.bytes for item in plan.budget.disk)
    counted = any(item.use is DiskUse.EVALUATIONS for item in plan.budget.disk)
    more = "" if counted or plan.eval is None else ", and the episodes of evaluations"
    yield Text(f"in all  {binary(total)} in the run folder{more}")


def _memory_table(uses: Iterable[MemoryUse]) -> Table:
    titles = ("role", "where", "what", "when", Column("size", justify="right"))
    table = Table(*titles, box=None, pad_edge=False, header_style="dim")
    for use in uses:
        where = "host, per node" if use.host else "each GPU"
        for item in use.items:
            when = "always" if item.phase is Phase.RESIDENT else f"while {item.phase}"
            table.add_row(use.role, where, item.what, when, binary(item.bytes))
    return table


def _totals(plan: Plan) -> tuple[str, str]:
    """Steps and episodes of all stages; one without a bound makes the sums lower bounds."""
    budgets = [stage.budget for stage in plan.stages]
    more = " or more" if any(budget.max_steps is None for budget in budgets) else ""
    steps = sum(budget.max_steps or 0 for budget in budgets)
    episodes = sum((budget.max_steps or 0) * budget.episodes_per_step for budget in budgets)
    return f"{steps:,}{more}", f"{episodes:,}{more}"
