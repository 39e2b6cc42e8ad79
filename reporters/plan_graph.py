"""A Plan as a graph in Mermaid's or Graphviz's language: a box per stage, a node per op, an arrow per wire.

A dashed arrow comes from the step before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

from ..dsl.model.plan import Op, Plan, PlanStage, Wire

__all__ = ["plan_dot", "plan_mermaid"]

MERMAID = str.maketrans({"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;"})


def plan_mermaid(plan: Plan) -> str:
    return "".join(f"{line}\n" for line in _mermaid(plan))


def _mermaid(plan: Plan) -> Iterator[str]:
    yield "flowchart LR"
    for stage in plan.stages:
        yield f"  subgraph s{stage.index}[{_mermaid_text(_title(stage))}]"
        yield from (f"    {_id(stage, op.id)}[{_mermaid_text(_label(op))}]" for op in stage.ops)
        for op, wire in _wires(stage):
            arrow = "-.->" if wire.previous else "-->"
            yield f"    {_id(stage, wire.op)} {arrow}|{wire.type}| {_id(stage, op.id)}"
        yield "  end"
    yield from (f"  s{before.index} ==> s{after.index}" for before, after in pairwise(plan.stages))


def _mermaid_text(text: str) -> str:
    """In quotes, with Mermaid's syntax characters as character references."""
    return f'"{text.translate(MERMAID)}"'


def plan_dot(plan: Plan) -> str:
    return "".join(f"{line}\n" for line in _dot(plan))


def _dot(plan: Plan) -> Iterator[str]:
    yield f"digraph {_dot_text(plan.name)} {{"
    yield "  rankdir=LR; compound=true; node [shape=box];"
    for stage in plan.stages:
        yield f"  subgraph cluster_{stage.index} {{"
        yield f"    label={_dot_text(_title(stage))};"
        yield from (f"    {_id(stage, op.id)} [label={_dot_text(_label(op))}];" for op in stage.ops)
        for op, wire in _wires(stage):
            style = ", style=dashed" if wire.previous else ""
            yield f"    {_id(stage, wire.op)} -> {_id(stage, op.id)} [label={_dot_text(wire.type)}{style}];"
        yield "  }"
    for before, after in pairwise(plan.stages):
        ends = f"ltail=cluster_{before.index}, lhead=cluster_{after.index}"
        yield f"  {_id(before, before.ops[-1].id)} -> {_id(after, after.ops[0].id)} [{ends}, style=bold];"
    yield "}"


def _dot_text(text: str) -> str:
    # quotes and backslashes are written as in JSON
    return json.dumps(text, ensure_ascii=False)


def _wires(stage: PlanStage) -> Iterator[tuple[Op, Wire]]:
    return ((op, wire) for op in stage.ops for wire in op.inputs)


def _id(stage: PlanStage, op: str) -> str:
    return f"s{stage.index}_{op}"


def _title(stage: PlanStage) -> str:
    turns = f", {stage.budget.max_turns} turns" if stage.budget.max_turns else ""
    return f"{stage.settings.stage}: {stage.settings.algorithm.use}{turns}"


def _label(op: Op) -> str:
    every = "" if op.every is None else f", every {op.every} steps" if op.every > 1 else ", every step"
    return f"{op.id}{f' ({op.role})' if op.role else ''}{every}"
