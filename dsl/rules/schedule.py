"""Rules about stages and budgets: stages end, horizons exist and grow, an episode fits its context."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..diagnostics import Diagnostic
from ..model.algorithm import Kind, Preset, Relabel
from ..model.known_values import NumberOrExpr, StageSpan, Steps, bound_value, constant_truth, tabulate_horizon
from ..model.recipe import Agent, Format, MemoryKind, Stage, Thoughts
from ..model.stage_kinds import is_played, kind_of, learns, samples
from ..planning.budgets import fixed_turn_tokens, list_horizons, locate_recipe_stages
from ..suggest import quote
from ..text.node import Path
from .context import Case, Rule

__all__ = ["SCHEDULE_RULES"]

LONGEST_HINT = 60
"""Characters of an expression that is written out again in a hint."""


# --- stages --------------------------------------------------------------------------------------------------------


def at_least_one_stage(case: Case) -> Iterator[Diagnostic]:
    if not case.recipe.schedule:
        yield case.missing(
            "expected at least one stage", ("schedule",), hint="write '- {stage: train, turns: 20, until: step >= 100}'"
        )


def names_differ(case: Case) -> Iterator[Diagnostic]:
    first: dict[str, int] = {}
    for index, stage in enumerate(case.recipe.schedule):
        before = first.setdefault(stage.stage, index)
        if before != index:
            message = f"two stages are named {quote(stage.stage)}"
            notes = (case.note("the first is here", ("schedule", before, "stage")),)
            yield case.error(
                "duplicate-name",
                message,
                ("schedule", index, "stage"),
                hint="give one of them another name",
                notes=notes,
            )


def stages_end(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if stage.until is None and kind_of(stage.algorithm) not in (Kind.EVAL, Kind.EVOLVE):
            yield case.missing(
                f"stage '{stage.stage}' needs 'until', its end condition", base, hint="for example 'until: step >= 100'"
            )


def ends_are_bounded(case: Case) -> Iterator[Diagnostic]:
    """Warn of a stage that waits for a metric and may never end."""
    for (base, stage), span in zip(case.stages(), locate_recipe_stages(case.recipe), strict=True):
        if stage.until is None or not learns(stage.algorithm):
            continue
        always = constant_truth(stage.until, "until")
        if always is not None:
            what = "always true: the stage ends after one step" if always else "never true: the stage never ends"
            path = (*base, "until")
            yield case.error("constant-until", f"'until' is {what}", path, hint="for example 'step >= 100'")
        elif span.steps is None:
            message = f"stage '{stage.stage}' may never end: 'until' has no step limit"
            yield case.warning("unbounded-stage", message, (*base, "until"), hint=_bounded(stage.until.text))


def _bounded(until: str) -> str:
    whole = f"write '{until} or step >= 1000'"
    return whole if len(until) <= LONGEST_HINT and "\n" not in until else "add 'or step >= 1000' at the end"


# --- the horizon ---------------------------------------------------------------------------------------------------


def turns_are_given(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        without = [name for name, each in stage.environments.items() if each.turns is None]
        if is_played(stage.algorithm) and stage.turns is None and without:
            message = f"stage '{stage.stage}' needs 'turns', the most an episode may take"
            yield case.missing(message, base, hint="for example 'turns: 20'")


def horizon_is_a_turn_or_more(case: Case) -> Iterator[Diagnostic]:
    for (base, stage), span in zip(case.stages(), locate_recipe_stages(case.recipe), strict=True):
        for name, turns in list_horizons(stage) if is_played(stage.algorithm) else ():
            low = next(((step, value) for step, value in tabulate_horizon(turns, span) or () if value < 1), None)
            if low is not None:
                message = f"must be at least 1, but at step {low[0]} it is {low[1]}"
                yield case.error("out-of-range", message, _turns_path(base, stage, name), hint="write max(1, ...)")


def horizon_grows(case: Case) -> Iterator[Diagnostic]:
    """Compare horizons within a stage and between stages, per environment, as far as they are known before the run."""
    spans = locate_recipe_stages(case.recipe)
    reached: dict[str, tuple[NumberOrExpr, StageSpan]] = {}
    for (base, stage), span in zip(case.stages(), spans, strict=True):
        if not is_played(stage.algorithm):
            continue
        for name, turns in list_horizons(stage):
            path = _turns_path(base, stage, name)
            before = reached.get(name)
            if not stage.shrink and before is not None and _falls(*before, turns, span):
                yield _shrinks(case, path, "the stage before ends with more turns")
            if not stage.shrink and _falls_within(turns, span):
                yield _shrinks(case, path, "the horizon shrinks within this stage")
            reached[name] = (turns, span)


def _turns_path(base: Path, stage: Stage, name: str) -> Path:
    own = stage.environments[name].turns is not None
    return (*base, "environments", name, "turns") if own else (*base, "turns")


def _shrinks(case: Case, path: Path, message: str) -> Diagnostic:
    return case.error("horizon-shrinks", message, path, hint="write 'shrink: true' in this stage if this is intended")


def _falls(before: NumberOrExpr, span_before: StageSpan, turns: NumberOrExpr, span: StageSpan) -> bool:
    """Whether the last horizon of one stage certainly exceeds the first of the next."""
    table, first = tabulate_horizon(before, span_before), tabulate_horizon(turns, span)
    lowest = first[0][1] if first else bound_value(turns)[1]
    return (_reached(table, span_before) if table else bound_value(before)[0]) > lowest


def _reached(table: Steps, span: StageSpan) -> int:
    """The horizon at the end of a stage; the lowest one if it may end at any step."""
    return table[-1][1] if span.steps is not None else min(turns for _, turns in table)


def _falls_within(turns: NumberOrExpr, span: StageSpan) -> bool:
    values = [value for _, value in tabulate_horizon(turns, span) or ()]
    return any(later < earlier for earlier, later in pairwise(values))


# --- budgets of an episode -----------------------------------------------------------------------------------------


def a_turn_fits_the_context(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        agent, tokens = stage.agent, fixed_turn_tokens(stage)
        parts = {
            "tokens_per_turn": tokens or 0,
            "observation_tokens": agent.observation_tokens or 0,
            "planning.tokens": agent.planning.tokens if agent.planning else 0,
            "reflection.tokens": agent.reflection.tokens if agent.reflection else 0,
        }
        for key, size in parts.items():
            if size >= agent.context_tokens:
                yield case.error(
                    "over-budget",
                    f"'{key}' ({size}) {'exceeds' if size > agent.context_tokens else 'leaves no room in'}"
                    f" 'agent.context_tokens' ({agent.context_tokens})",
                    (*base, "agent", *key.split(".")),
                    hint=f"write context_tokens: {2 * size} or more, or {key}: {-(-agent.context_tokens // 4)} or less",
                )


def guided_replies_are_lists(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if stage.agent.guided and stage.agent.format is Format.CODE:
            yield case.error(
                "conflict",
                "'guided' needs a list of valid actions, and code has none",
                (*base, "agent", "guided"),
                hint="remove it, or write another 'format'",
            )


def guided_replies_are_not_trained_on(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if stage.agent.guided and samples(stage.algorithm) and learns(stage.algorithm):
            message = "guided sampling changes the log-probs, so its episodes cannot be trained on"
            hint = "use it for evaluation only, in a stage with 'algorithm: {use: eval}'"
            yield case.error("conflict", message, (*base, "agent", "guided"), hint=hint)


def guided_replies_hold_the_action_alone(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        agent = stage.agent
        if agent.guided and agent.thinking and agent.format in (Format.REACT, Format.TOOLS):
            message = f"a guided reply is the action alone, but 'format: {agent.format}' allows thoughts"
            yield case.error("conflict", message, (*base, "agent", "guided"), hint="write 'thinking: false'")


def relabelled_episodes_are_one_sequence(case: Case) -> Iterator[Diagnostic]:
    """Relabelling and a privileged critic replace the first prompt, which needs an episode in one sequence."""
    for base, stage in case.stages():
        agent, algorithm = stage.agent, stage.algorithm
        pieces = _in_pieces(agent)
        plans = "planning" if agent.planning is not None else None
        # an expert needs none of these but a harness
        if (
            (samples(algorithm) or agent.harness is not None)
            and algorithm.data.relabel is not Relabel.NONE
            and (key := pieces or plans)
        ):
            message = f"an episode with '{key}' cannot be relabelled for another goal"
            yield case.error(
                "conflict",
                message,
                (*base, "algorithm", "data", "relabel"),
                hint=f"write 'relabel: none', or remove 'agent.{key}'",
            )
        if algorithm.use is Preset.TURN_DPO and algorithm.critic.privileged and pieces:
            message = f"the solution is shown to the critic in the first prompt, but '{pieces}' makes several prompts"
            yield case.error(
                "conflict",
                message,
                (*base, "algorithm", "critic", "privileged"),
                hint=f"write 'privileged: false', or remove 'agent.{pieces}'",
            )


def _in_pieces(agent: Agent) -> str | None:
    """The setting that splits an episode into several token sequences."""
    if agent.harness is not None:
        return "harness"
    if agent.reflection is not None:
        return "reflection"
    if agent.thinking and agent.thoughts is not Thoughts.KEEP:
        return "thoughts"
    return None if agent.memory.kind is MemoryKind.FULL else "memory"


SCHEDULE_RULES: tuple[Rule, ...] = (
    at_least_one_stage,
    names_differ,
    stages_end,
    ends_are_bounded,
    turns_are_given,
    horizon_is_a_turn_or_more,
    horizon_grows,
    a_turn_fits_the_context,
    guided_replies_are_lists,
    guided_replies_are_not_trained_on,
    guided_replies_hold_the_action_alone,
    relabelled_episodes_are_one_sequence,
)
