"""`agym plan RECIPE`: stages, placement, memory and cost of a run. Writes nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from ..dsl.compile import CompiledVariant
from ..dsl.model.hidden import conceal
from ..dsl.model.plan import Plan
from ..dsl.publish.plan_json import dump_json
from ..reporters.diagnostics.text import Style
from ..reporters.plan_graph import plan_dot, plan_mermaid
from .invocation.compiling import build_compiler, choose
from .invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run"]


def _tree(plan: Plan, style: Style) -> str:
    from ..reporters.plan_tree import plan_tree  # imports rich, which the other formats do not need

    return plan_tree(plan, style)


def _simulated(plan: Plan, lengths: str, style: Style) -> str:
    from ..reporters.plan_tree import plan_tree
    from ..simulation import Lengths, simulate  # brings the scheduler and numpy

    return plan_tree(plan, style, simulate(plan, Lengths(lengths)))


FORMATS: Mapping[str, Callable[[Plan, Style], str]] = {
    "tree": _tree,
    "json": lambda plan, style: dump_json(plan),
    "mermaid": lambda plan, style: plan_mermaid(plan),
    "dot": lambda plan, style: plan_dot(plan),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", metavar="RECIPE", help="a recipe, or the name of a shipped one, or - for standard input"
    )
    parser.add_argument("--format", choices=FORMATS, default="tree", help="output format (default: tree)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the recipe")
    parser.add_argument("--run", type=int, metavar="N", help="which run of a matrix, counted from 1")
    parser.add_argument(
        "--simulate",
        nargs="?",
        choices=("heavy", "even"),
        const="heavy",
        help="estimate the time of a step and who waits, with episodes of heavy-tailed (default) or even length",
    )


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    runs = build_compiler(shell, arguments.set).runs(arguments.recipe)
    if arguments.format == "json" and arguments.run is None and _is_matrix(runs):
        plans = ",\n".join(dump_json(conceal(each.plan)).rstrip("\n") for each in runs)
        shell.out.write(f"[\n{plans}\n]\n")
    elif arguments.simulate:
        if arguments.format != "tree":
            raise UsageError("--simulate adds to the tree: leave out --format")
        chosen = choose(runs, arguments.recipe, arguments.run)
        shell.out.write(_simulated(conceal(chosen.plan), arguments.simulate, shell.style))
    elif arguments.format == "tree" and arguments.run is None and len(runs) > 1:
        from ..reporters.plan_tree import runs_table

        table = runs_table([(dict(each.choices), conceal(each.plan)) for each in runs], shell.style)
        advice = f"for the plan of one: agym plan {arguments.recipe} --run 1"
        shell.out.write(f"{table}\n{len(runs)} runs; {advice}\n")
    else:
        chosen = choose(runs, arguments.recipe, arguments.run)
        shell.out.write(FORMATS[arguments.format](conceal(chosen.plan), shell.style))
    return Exit.RIGHT


def _is_matrix(runs: Sequence[CompiledVariant]) -> bool:
    """Whether the output is a list of plans, even of one."""
    return any(each.choices for each in runs)
