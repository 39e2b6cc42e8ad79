"""A step of learning from pairs: play and rank, or take the next ones that are given; then make the better likelier.

Enters: a Context. Leaves: a StepResult; what was learnt is in the learner. Pairs that are given are a function of the
recipe and its files alone, so that they are read again after a resume.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np

from ...dsl.model.algorithm import DataSource, LossOn, Preset
from ..data.dataset import Conversation, preferred, recorded
from ..errors import RunError, irrevocable
from ..guards import Signs
from ..learning.metrics import group_row, mean, rate, rollout_row, step_facts, train_row, worst
from ..learning.preference_pairs import Objective, Pair, Side, masked, objective, pairs_of, sides_of, summed, taught
from ..learning.reward import Scored
from ..protocols import TrainSequence, UpdateMetrics
from ..rollout.episode import Ending, Episode
from ..rollout.task_sampler import shuffled
from .rl import counted, next_batch, parts, scored_groups
from .sft import data_path, demo_style, place_of
from .stage_context import Context, StepResult, pair_settings
from .turn_preference import pairs_by_critic

__all__ = ["preference_step"]

_Lessons = Sequence[tuple[UpdateMetrics, Objective]]


async def preference_step(context: Context) -> StepResult:
    """Updates on the pairs of fresh groups, or one update on the next pairs that are given."""
    fresh = context.stage.algorithm.data.source is DataSource.ROLLOUT
    return await (_on_fresh_pairs if fresh else _on_given_pairs)(context)


async def _on_fresh_pairs(context: Context) -> StepResult:
    batch = await next_batch(context)
    started = context.clock()
    book = scored_groups(context, batch.groups)
    context.progress.scales = dict(book.scales)
    pairs, told = await _RANKED[context.stage.algorithm.use](context, book.groups)
    with irrevocable():
        reference = await _logprobs(context, sides_of(pairs), reference=True)
        lessons = [each async for each in _passes(context, pairs, reference)]
    measured = rollout_row(batch.episodes) | group_row(book.groups)
    return _result(
        context,
        lessons,
        pairs=len(pairs),
        seconds=context.clock() - started,
        measured=measured,
        row={**counted(context, batch), **measured, **told},
        episodes=batch.episodes,
    )


async def _on_given_pairs(context: Context) -> StepResult:
    """Every pair comes once per pass, newly shuffled."""
    given, size, position = context.given, context.stage.algorithm.batch_size, context.progress.data_position
    if not given.pairs:
        context.reporter.phase("pairs")
        given.pairs.extend(await _GIVEN[context.stage.algorithm.data.source](context))
    started = context.clock()
    batch = [given.pairs[place_of(context, len(given.pairs), position + i)] for i in range(size)]
    context.progress.data_position += size
    unknown = [side for side in sides_of(batch) if side not in given.reference]
    given.reference.update(await _logprobs(context, unknown, reference=True))
    lesson = await _update(context, batch, given.reference)
    return _result(
        context,
        [lesson],
        pairs=size,
        seconds=context.clock() - started,
        row={"data/passes": position // len(given.pairs)},
    )


def _result(
    context: Context,
    lessons: _Lessons,
    *,
    pairs: int,
    seconds: float,
    row: Mapping[str, float | int | str],
    measured: Mapping[str, float] | None = None,
    episodes: tuple[Episode, ...] = (),
) -> StepResult:
    updates = [update for update, _ in lessons]
    facts = step_facts(measured or {}, updates)
    return StepResult(
        updates=sum(update.fault is None for update in updates),
        facts=facts,
        row={
            **row,
            "horizon/stage": context.progress.stage,
            "preference/pairs": pairs,
            **_preference_row([lesson for _, lesson in lessons]),
            **train_row(updates),
            "timing_s/update": seconds,
            "perf/update_tokens_per_s": rate(sum(update.tokens for update in updates), seconds),
        },
        signs=Signs(fault=worst(updates)),
        episodes=episodes,
    )


def _preference_row(lessons: Sequence[Objective]) -> dict[str, float]:
    """As the pairs stood just before each update; nothing where there was none."""
    if not lessons:
        return {}
    better, worse = np.concatenate([lesson.rewards for lesson in lessons]).T
    return {
        "preference/accuracy": mean(better > worse),
        "preference/margin": mean(better - worse),
        "preference/chosen_reward": mean(better),
        "preference/rejected_reward": mean(worse),
    }


# --- learning ------------------------------------------------------------------------------------------------------


async def _passes(
    context: Context, pairs: Sequence[Pair], reference: Mapping[Side, float]
) -> AsyncIterator[tuple[UpdateMetrics, Objective]]:
    """Over all pairs, in a shuffled order, in batches as equal as can be."""
    algorithm = context.stage.algorithm
    for epoch in range(algorithm.epochs if pairs else 0):
        order = shuffled(len(pairs), context.seed("order", epoch))
        for places in parts(order, algorithm.batch_size):
            yield await _update(context, [pairs[place] for place in places], reference)


async def _update(
    context: Context, pairs: Sequence[Pair], reference: Mapping[Side, float]
) -> tuple[UpdateMetrics, Objective]:
    """The learner sees a policy gradient, and is told of the loss that it is the gradient of."""
    now = await _logprobs(context, sides_of(pairs), reference=False)
    lesson = objective(pairs, now, reference, context.stage.algorithm.preference)
    context.reporter.phase("update")
    update = await context.crew.update(taught(lesson.gains), pair_settings(context))
    context.progress.updates += update.fault is None
    if isfinite(update.loss):
        update = replace(update, loss=lesson.loss, policy_loss=lesson.preference_loss)
    return update, lesson


async def _logprobs(context: Context, sides: Sequence[Side], *, reference: bool) -> dict[Side, float]:
    if not sides:
        return {}
    context.reporter.phase("reference" if reference else "log-probs")
    sequences = [sequence for side in sides for sequence in side.sequences]
    temperature = pair_settings(context).loss.temperature
    return summed(sides, await context.crew.logprobs(sequences, temperature, reference=reference))


# --- where pairs come from -----------------------------------------------------------------------------------------


async def _by_score(context: Context, groups: Sequence[Sequence[Scored]]) -> tuple[list[Pair], Mapping[str, float]]:
    return [pair for group in groups for pair in _ranked(context, group)], {}


def _ranked(context: Context, group: Sequence[Scored]) -> list[Pair]:
    """The pairs of a group, without the episodes and turns that the recipe leaves out."""
    return pairs_of(masked(group, context.stage, context.names()), context.stage.algorithm.preference)


_RANKED: Mapping[
    Preset, Callable[[Context, Sequence[Sequence[Scored]]], Awaitable[tuple[list[Pair], Mapping[str, float]]]]
] = {Preset.DPO: _by_score, Preset.TURN_DPO: pairs_by_critic}


async def _written(context: Context) -> list[Pair]:
    """Of a file: line by line, better and worse."""
    lines = preferred(data_path(context))[: context.stage.algorithm.data.limit]
    sides = await _rendered(context, [side for line in lines for side in line])
    pairs = [
        Pair(better=_side(better), worse=_side(worse))
        for better, worse in zip(sides[::2], sides[1::2], strict=True)
        if better.ending is worse.ending is Ending.DONE
    ]
    return _some(context, pairs, f"of {len(lines)} pairs none fits the context")


def _side(episode: Episode) -> Side:
    return Side(
        sequences=tuple(
            TrainSequence(ids=segment.ids, learn=segment.sampled, advantages=np.zeros(len(segment.ids), np.float32))
            for segment in episode.segments
        )
    )


async def _recorded(context: Context) -> list[Pair]:
    """Of a run folder: among the recorded episodes of each attempt at a task, by the scores that were recorded.

    A reply that was not understood is nothing to imitate, and all the more to avoid: all turns are compared."""
    talks = recorded(data_path(context))[: context.stage.algorithm.data.limit]
    groups: dict[object, list[Scored]] = {}
    for episode in await _rendered(context, talks):
        if episode.ending is Ending.DONE:
            scored = Scored(episode=episode, outcome=episode.score, turn_rewards=(0.0,) * len(episode.turns))
            groups.setdefault(episode.task, []).append(scored)
    pairs = [pair for group in groups.values() for pair in _ranked(context, group)]
    return _some(context, pairs, f"{len(talks)} episodes of {len(groups)} tasks make no pair")


_GIVEN: Mapping[DataSource, Callable[[Context], Awaitable[list[Pair]]]] = {
    DataSource.FILE: _written,
    DataSource.EPISODES: _recorded,
}


async def _rendered(context: Context, talks: Sequence[Conversation]) -> list[Episode]:
    # the loss is that of pairs, whatever other stages imitate
    return await context.crew.render(talks, replace(demo_style(context), loss_on=LossOn.EXPERT))


def _some(context: Context, pairs: list[Pair], otherwise: str) -> list[Pair]:
    if not pairs:
        raise RunError(f"stage '{context.stage.stage}': {otherwise}; expected at least one pair to learn from")
    return pairs
