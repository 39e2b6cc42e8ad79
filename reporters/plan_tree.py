"""A Plan as a tree for people: stages with their horizon and cost, placement, memory per card.

Enters: a Plan, or the runs of a matrix. Leaves: text for a terminal of some width. Only this module of the reporters
needs rich.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ..dsl.model.algorithm import Kind
from ..dsl.model.plan import MemoryUse, Phase, Placement, Plan, PlanStage, Role, Worker, peaks
from .diagnostics.text import Style
from .quantity import binary, count, plural

__all__ = ["plan_tree", "rendered", "runs_table"]

SHOWN_HORIZONS = 8


def plan_tree(plan: Plan, style: Style) -> str:
    """The plan of one run."""
    tree = Tree(_line(plan.name, plan.description), guide_style="dim")
    for title, parts in (
        ("model", _model(plan)),
        ("schedule", _schedule(plan)),
        ("eval", _eval(plan)),
        ("hardware", _hardware(plan)),
        ("memory", _memory(plan)),
    ):
        _branch(tree, title, parts)
    return rendered(tree, style)


def runs_table(runs: Sequence[tuple[Mapping[str, str], Plan]], style: Style) -> str:
    """The runs of a matrix, a row each."""
    table = Table(box=None, pad_edge=False)
    table.add_column("run", justify="right")
    for axis in runs[0][0]:
        table.add_column(axis)
    for title in ("stages", "steps", "episodes"):
        table.add_column(title, justify="right")
    for number, (choices, plan) in enumerate(runs, start=1):
        totals = (str(len(plan.stages)), _total_steps(plan), _total_episodes(plan))
        table.add_row(str(number), *(Text(value) for value in choices.values()), *totals)
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


def _branch(tree: Tree, title: str, parts: Iterable[RenderableType]) -> None:
    parts = tuple(parts)
    if parts:
        branch = tree.add(Text(title, "bold"))
        for part in parts:
            branch.add(part)


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
        yield Text(f"in all  {_total_steps(plan)} steps, {_total_episodes(plan)} episodes")


def _stage(stage: PlanStage) -> Iterator[tuple[str, str]]:
    budget = stage.budget
    if stage.settings.until is not None:
        yield "until", stage.settings.until.text
    yield "steps", f"{budget.max_steps} at the most" if budget.max_steps is not None else "no bound by count"
    if budget.horizon or budget.max_turns:
        yield "horizon", _horizon(stage)
    if budget.episodes_per_step:
        yield "episodes", _episodes(stage)
    yield "updates", f"{budget.updates_per_step} per step"
    yield "tokens", _tokens(stage)
    yield "ops", " -> ".join(op.id for op in stage.ops)


def _horizon(stage: PlanStage) -> str:
    table = stage.budget.horizon
    if not table:
        return f"{plural(stage.budget.max_turns, 'turn')} at the most"
    shown = [f"{turns} from step {step}" for step, turns in table[:SHOWN_HORIZONS]]
    more = [f"and {len(table) - SHOWN_HORIZONS} more"] if len(table) > SHOWN_HORIZONS else []
    return plural(table[0][1], "turn") if len(table) == 1 else ", ".join((*shown, *more))


def _episodes(stage: PlanStage) -> str:
    algorithm = stage.settings.algorithm
    groups = f", {algorithm.groups_per_step} groups of {algorithm.group_size}" if stage.kind is Kind.RL else ""
    return f"{stage.budget.episodes_per_step} per step{groups}{_in_all(stage, stage.budget.episodes_per_step)}"


def _tokens(stage: PlanStage) -> str:
    budget = stage.budget
    figures = ((budget.max_sampled_tokens_per_step, "sampled"), (budget.max_trained_tokens_per_step, "trained"))
    parts = [f"{count(tokens)} {what}" for tokens, what in figures if tokens]
    return f"{' and '.join(parts)} per step at the most" if parts else "none"


def _in_all(stage: PlanStage, per_step: int) -> str:
    steps = stage.budget.max_steps
    return f"; {count(per_step * steps)} in all" if steps is not None else ""


def _eval(plan: Plan) -> Iterator[RenderableType]:
    if plan.eval is None:
        return
    turns = ", ".join(map(str, plan.eval.turns or ())) or "the longest of the schedule"
    tasks = plan.eval.tasks or "each environment's own"
    yield _facts(
        (
            ("every", plural(plan.eval.every, "step")),
            ("tasks", tasks + (f", {plan.eval.limit} at the most" if plan.eval.limit else "")),
            ("turns", turns),
            ("samples", f"{plan.eval.samples} per task" + (", and one greedy" if plan.eval.greedy else "")),
        )
    )


def _hardware(plan: Plan) -> Iterator[RenderableType]:
    hardware = plan.hardware
    cards = f"{plural(hardware.gpus_per_node, 'GPU')} each" if hardware.gpus_per_node else "CPU only"
    card = f" ({hardware.gpu})" if hardware.gpu else ""
    layout = f", {hardware.layout}" if hardware.gpus_per_node else ""
    yield Text(f"{plural(hardware.nodes, 'node')}, {cards}{card}{layout}, launched by {plan.placement.launcher}")
    yield _placement(plan.placement)


def _placement(placement: Placement) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("role", "node", "workers", "GPUs of each"):
        table.add_column(title)
    for (role, node), workers in groupby(placement.workers, key=lambda each: (each.role, each.node)):
        listed = tuple(workers)
        table.add_row(role, str(node), Text(_names(listed)), _gpus(listed))
    return table


def _names(workers: tuple[Worker, ...]) -> str:
    first, last = workers[0], workers[-1]
    return first.id if len(workers) == 1 else f"{first.id} to {last.id}"


def _gpus(workers: tuple[Worker, ...]) -> str:
    """`0 | 1 | 2`, or `0,1 | 2,3` where two share the work."""
    return " | ".join(",".join(map(str, each.gpus)) for each in workers if each.gpus) or "-"


def _memory(plan: Plan) -> Iterator[RenderableType]:
    uses = plan.budget.memory
    if not uses:
        yield Text("not known: the sizes of the model are not at hand (see model.shape)")
        return
    yield _memory_table(uses)
    capacity = plan.budget.capacity_bytes
    for role, peak in peaks(uses, plan.hardware.layout).items():
        of = f" of {binary(capacity)}, {peak / capacity:.0%}" if capacity else ""
        yield Text(f"peak per GPU  {binary(peak)}{of}{_where(role, plan)}")


def _where(role: Role, plan: Plan) -> str:
    return f"  ({role})" if plan.hardware.layout == "split" else ""


def _memory_table(uses: Iterable[MemoryUse]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("role", "where", "what", "when"):
        table.add_column(title)
    table.add_column("size", justify="right")
    for use in uses:
        where = "host, per node" if use.host else "each GPU"
        for item in use.items:
            when = "always" if item.phase is Phase.RESIDENT else f"while {item.phase}"
            table.add_row(use.role, where, item.what, when, binary(item.bytes))
    return table


# --- totals --------------------------------------------------------------------------------------------------------


def _total_steps(plan: Plan) -> str:
    return _sum((stage.budget.max_steps, 1) for stage in plan.stages)


def _total_episodes(plan: Plan) -> str:
    return _sum((stage.budget.max_steps, stage.budget.episodes_per_step) for stage in plan.stages)


def _sum(parts: Iterable[tuple[int | None, int]]) -> str:
    """Steps times what each has; a stage without a bound makes the sum a lower one."""
    parts = tuple(parts)
    known = sum(steps * each for steps, each in parts if steps is not None)
    return f"{known:,}" if all(steps is not None for steps, _ in parts) else f"{known:,} or more"
