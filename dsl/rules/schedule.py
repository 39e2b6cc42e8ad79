"""Rules about stages and budgets: each ends, its horizon is given and grows, and an episode fits its context."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..diagnostics import Diagnostic
from ..model.algorithm import Kind, Preset, Relabel
from ..model.known_values import Number, Span, Steps, horizon, limits, settled
from ..model.recipe import Agent, Format, MemoryKind, Stage
from ..model.stage_kinds import is_played, kind_of, learns, samples
from ..planning.budgets import horizons, stage_spans, turn_tokens
from ..suggest import shown
from ..text.tree import Path
from .context import Case, Rule

__all__ = ["SCHEDULE_RULES"]

LONGEST_HINT = 60
"""Characters of an expression that is written out again in a hint."""


# --- stages --------------------------------------------------------------------------------------------------------


def at_least_one_stage(case: Case) -> Iterator[Diagnostic]:
    if not case.recipe.schedule:
        yield case.missing(
            "expected at least one stage", "schedule", hint="write '- {stage: train, turns: 20, until: step >= 100}'"
        )


def names_differ(case: Case) -> Iterator[Diagnostic]:
    first: dict[str, int] = {}
    for index, stage in enumerate(case.recipe.schedule):
        before = first.setdefault(stage.stage, index)
        if before != index:
            yield case.error(
                "duplicate-name",
                f"two stages are called {shown(stage.stage)}",
                "schedule",
                index,
                "stage",
                notes=(case.note("the first is here", "schedule", before, "stage"),),
            )


def stages_end(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if stage.until is None and kind_of(stage.algorithm) not in (Kind.EVAL, Kind.EVOLVE):
            yield case.missing(
                f"stage '{stage.stage}' needs 'until': when it ends", *base, hint="for example 'until: step >= 100'"
            )


def ends_are_bounded(case: Case) -> Iterator[Diagnostic]:
    """A stage that waits for a metric may wait for ever."""
    for (base, stage), span in zip(case.stages(), stage_spans(case.recipe), strict=True):
        if stage.until is None or not learns(stage.algorithm):
            continue
        always = settled(stage.until, "until")
        if always is not None:
            yield _constant_end(case, base, always)
        elif span.steps is None:
            yield case.warning(
                "unbounded-stage",
                f"no number of steps is sure to end stage '{stage.stage}'",
                *base,
                "until",
                hint=_bounded(stage.until.text),
            )


def _bounded(until: str) -> str:
    whole = f"write '{until} or step >= 1000'"
    return whole if len(until) <= LONGEST_HINT and "\n" not in until else "add 'or step >= 1000' at its end"


def _constant_end(case: Case, base: Path, always: bool) -> Diagnostic:
    what = "is always true, so that the stage ends after one step" if always else "is never true: the stage never ends"
    return case.error("constant-until", f"this {what}", *base, "until", hint="for example 'step >= 100'")


# --- the horizon ---------------------------------------------------------------------------------------------------


def turns_are_given(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        without = [name for name, each in stage.environments.items() if each.turns is None]
        if is_played(stage.algorithm) and stage.turns is None and without:
            yield case.missing(
                f"stage '{stage.stage}' needs 'turns': how many an episode may take",
                *base,
                hint="for example 'turns: 20'",
            )


def horizon_is_a_turn_or_more(case: Case) -> Iterator[Diagnostic]:
    for (base, stage), span in zip(case.stages(), stage_spans(case.recipe), strict=True):
        for name, turns in horizons(stage) if is_played(stage.algorithm) else ():
            low = next(((step, value) for step, value in horizon(turns, span) or () if value < 1), None)
            if low is not None:
                message = f"expected at least 1, and at step {low[0]} this is {low[1]}"
                yield case.error("out-of-range", message, *_turns_path(base, stage, name), hint="write max(1, ...)")


def horizon_grows(case: Case) -> Iterator[Diagnostic]:
    """Within a stage and from each to the next, environment by environment, as far as it is known before the run."""
    spans = stage_spans(case.recipe)
    reached: dict[str, tuple[Number, Span]] = {}
    for (base, stage), span in zip(case.stages(), spans, strict=True):
        if not is_played(stage.algorithm):
            continue
        for name, turns in horizons(stage):
            path = _turns_path(base, stage, name)
            before = reached.get(name)
            if not stage.shrink and before is not None and _falls(*before, turns, span):
                yield _shrinks(case, path, "the stage before allows more turns")
            if not stage.shrink and _falls_within(turns, span):
                yield _shrinks(case, path, "the horizon falls within this stage")
            reached[name] = (turns, span)


def _turns_path(base: Path, stage: Stage, name: str) -> Path:
    own = stage.environments[name].turns is not None
    return (*base, "environments", name, "turns") if own else (*base, "turns")


def _shrinks(case: Case, path: Path, message: str) -> Diagnostic:
    return case.error(
        "horizon-shrinks", message, *path, hint="write 'shrink: true' in this stage if that is what you want"
    )


def _falls(before: Number, span_before: Span, turns: Number, span: Span) -> bool:
    """Whether the last horizon of one stage is sure to be above the first of the next."""
    table, first = horizon(before, span_before), horizon(turns, span)
    lowest = first[0][1] if first else limits(turns)[1]
    return (_reached(table, span_before) if table else limits(before)[0]) > lowest


def _reached(table: Steps, span: Span) -> int:
    """The horizon at a stage's end; of one that may end at any step, the lowest that it can be."""
    return table[-1][1] if span.steps is not None else min(turns for _, turns in table)


def _falls_within(turns: Number, span: Span) -> bool:
    values = [value for _, value in horizon(turns, span) or ()]
    return any(later < earlier for earlier, later in pairwise(values))


# --- budgets of an episode -----------------------------------------------------------------------------------------


def a_turn_fits_the_context(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        agent, tokens = stage.agent, turn_tokens(stage)
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
                    f"{size} tokens at a time do not fit in an episode of {agent.context_tokens}",
                    *base,
                    "agent",
                    *key.split("."),
                    hint="raise 'agent.context_tokens', or lower this",
                )


def guided_replies_are_lists(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if stage.agent.guided and stage.agent.format is Format.CODE:
            yield case.error(
                "conflict", "'guided' needs actions that can be listed, and code cannot", *base, "agent", "guided"
            )


def guided_replies_are_not_learnt(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if stage.agent.guided and samples(stage.algorithm) and learns(stage.algorithm):
            yield case.error(
                "conflict",
                "what is drawn from valid actions alone has other log-probs than the learner computes",
                *base,
                "agent",
                "guided",
                hint="measure with it, in a stage of 'algorithm: {use: eval}'",
            )


def guided_replies_hold_the_action_alone(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        agent = stage.agent
        if agent.guided and agent.thinking and agent.format in (Format.REACT, Format.TOOLS):
            yield case.error(
                "conflict",
                f"a guided reply holds the action alone, and under 'format: {agent.format}' there is room for thoughts",
                *base,
                "agent",
                "guided",
                hint="write 'thinking: false'",
            )


def told_otherwise_in_one_piece(case: Case) -> Iterator[Diagnostic]:
    """An episode is told as that of another goal, or with its solution, by putting another opening before it."""
    for base, stage in case.stages():
        agent, algorithm = stage.agent, stage.algorithm
        pieces = _in_pieces(agent)
        plans = "planning" if agent.planning is not None else None
        if samples(algorithm) and algorithm.data.relabel is not Relabel.NONE and (key := pieces or plans):
            message = f"what was played with '{key}' for one goal cannot be told as if it had been for another"
            yield case.error("conflict", message, *base, "algorithm", "data", "relabel")
        if algorithm.use is Preset.TURN_DPO and algorithm.critic.privileged and pieces:
            message = f"the critic's solution stands in the first opening, and '{pieces}' makes several"
            yield case.error("conflict", message, *base, "algorithm", "critic", "privileged")


def _in_pieces(agent: Agent) -> str | None:
    """What makes several token sequences of one episode."""
    if agent.reflection is not None:
        return "reflection"
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
    guided_replies_are_not_learnt,
    guided_replies_hold_the_action_alone,
    told_otherwise_in_one_piece,
)
