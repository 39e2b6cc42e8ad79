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
from ..data.dataset import Conversation, read_episodes, read_preferences
from ..errors import RunError, irrevocable
from ..guards import GuardSignals
from ..learning.metrics import group_metrics, mean, rate, rollout_metrics, step_facts, train_metrics, worst_fault
from ..learning.preference_pairs import (
    Pair,
    PreferenceObjective,
    Response,
    apply_masks,
    build_pairs,
    preference_objective,
    responses_of,
    sum_logprobs,
    to_sequences,
)
from ..learning.reward import Scored
from ..protocols import TrainSequence, UpdateMetrics
from ..rollout.episode import Ending, Episode
from ..rollout.task_sampler import shuffle
from .rl import count_batch, equal_parts, next_batch, scored_groups
from .sft import data_index, data_path, demonstration_settings
from .stage_context import StageContext, StepResult, pair_settings
from .turn_preference import pairs_by_critic

__all__ = ["preference_step"]

_Lessons = Sequence[tuple[UpdateMetrics, PreferenceObjective]]


async def preference_step(context: StageContext) -> StepResult:
    """Updates on the pairs of fresh groups, or one update on the next pairs that are given."""
    fresh = context.stage.algorithm.data.source is DataSource.ROLLOUT
    return await (_on_fresh_pairs if fresh else _on_given_pairs)(context)


async def _on_fresh_pairs(context: StageContext) -> StepResult:
    batch = await next_batch(context)
    started = context.clock()
    book = scored_groups(context, batch.groups)
    context.progress.scales = dict(book.scales)
    pairs, told = await _RANKED[context.stage.algorithm.use](context, book.groups)
    with irrevocable():
        reference = await _logprobs(context, responses_of(pairs), reference=True)
        lessons = [each async for each in _passes(context, pairs, reference)]
    measured = rollout_metrics(batch.episodes) | group_metrics(book.groups)
    return _result(
        context,
        lessons,
        pairs=len(pairs),
        seconds=context.clock() - started,
        measured=measured,
        row={**count_batch(context, batch), **measured, **told},
        episodes=batch.episodes,
    )


async def _on_given_pairs(context: StageContext) -> StepResult:
    """Every pair comes once per pass, newly shuffled."""
    given, size, position = context.given, context.stage.algorithm.batch_size, context.progress.data_position
    if not given.pairs:
        context.reporter.phase("pairs")
        given.pairs.extend(await _GIVEN[context.stage.algorithm.data.source](context))
    started = context.clock()
    batch = [given.pairs[data_index(context, len(given.pairs), position + i)] for i in range(size)]
    context.progress.data_position += size
    unknown = [side for side in responses_of(batch) if side not in given.reference]
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
    context: StageContext,
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
            **train_metrics(updates),
            "timing_s/update": seconds,
            "perf/update_tokens_per_s": rate(sum(update.tokens for update in updates), seconds),
        },
        signs=GuardSignals(fault=worst_fault(updates)),
        episodes=episodes,
    )


def _preference_row(lessons: Sequence[PreferenceObjective]) -> dict[str, float]:
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
    context: StageContext, pairs: Sequence[Pair], reference: Mapping[Response, float]
) -> AsyncIterator[tuple[UpdateMetrics, PreferenceObjective]]:
    """Over all pairs, in a shuffled order, in batches as equal as can be."""
    algorithm = context.stage.algorithm
    for epoch in range(algorithm.epochs if pairs else 0):
        order = shuffle(len(pairs), context.seed("order", epoch))
        for places in equal_parts(order, algorithm.batch_size):
            yield await _update(context, [pairs[place] for place in places], reference)


async def _update(
    context: StageContext, pairs: Sequence[Pair], reference: Mapping[Response, float]
) -> tuple[UpdateMetrics, PreferenceObjective]:
    """The learner sees a policy gradient, and is told of the loss that it is the gradient of."""
    now = await _logprobs(context, responses_of(pairs), reference=False)
    lesson = preference_objective(pairs, now, reference, context.stage.algorithm.preference)
    context.reporter.phase("update")
    update = await context.workers.update(to_sequences(lesson.gains), pair_settings(context))
    context.progress.updates += update.fault is None
    if isfinite(update.loss):
        update = replace(update, loss=lesson.loss, policy_loss=lesson.preference_loss)
    return update, lesson


async def _logprobs(context: StageContext, sides: Sequence[Response], *, reference: bool) -> dict[Response, float]:
    if not sides:
        return {}
    context.reporter.phase("reference" if reference else "log-probs")
    sequences = [sequence for side in sides for sequence in side.sequences]
    temperature = pair_settings(context).loss.temperature
    return sum_logprobs(sides, await context.workers.logprobs(sequences, temperature, reference=reference))


# --- where pairs come from -----------------------------------------------------------------------------------------


async def _by_score(
    context: StageContext, groups: Sequence[Sequence[Scored]]
) -> tuple[list[Pair], Mapping[str, float]]:
    return [pair for group in groups for pair in _ranked(context, group)], {}


def _ranked(context: StageContext, group: Sequence[Scored]) -> list[Pair]:
    """The pairs of a group, without the episodes and turns that the recipe leaves out."""
    return build_pairs(apply_masks(group, context.stage, context.names()), context.stage.algorithm.preference)


_RANKED: Mapping[
    Preset, Callable[[StageContext, Sequence[Sequence[Scored]]], Awaitable[tuple[list[Pair], Mapping[str, float]]]]
] = {Preset.DPO: _by_score, Preset.TURN_DPO: pairs_by_critic}


async def _written(context: StageContext) -> list[Pair]:
    """Of a file: line by line, better and worse."""
    lines = read_preferences(data_path(context))[: context.stage.algorithm.data.limit]
    sides = await _rendered(context, [side for line in lines for side in line])
    pairs = [
        Pair(better=_side(better), worse=_side(worse))
        for better, worse in zip(sides[::2], sides[1::2], strict=True)
        if better.ending is worse.ending is Ending.DONE
    ]
    return _some(context, pairs, f"of {len(lines)} pairs none fits the context")


def _side(episode: Episode) -> Response:
    return Response(
        sequences=tuple(
            TrainSequence(ids=segment.ids, loss_mask=segment.sampled, advantages=np.zeros(len(segment.ids), np.float32))
            for segment in episode.segments
        )
    )


async def _recorded(context: StageContext) -> list[Pair]:
    """Of a run folder: among the recorded episodes of each attempt at a task, by the scores that were recorded.

    A reply that was not understood is nothing to imitate, and all the more to avoid: all turns are compared."""
    talks = read_episodes(data_path(context))[: context.stage.algorithm.data.limit]
    groups: dict[object, list[Scored]] = {}
    for episode in await _rendered(context, talks):
        if episode.ending is Ending.DONE:
            scored = Scored(episode=episode, outcome=episode.score, turn_rewards=(0.0,) * len(episode.turns))
            groups.setdefault(episode.task, []).append(scored)
    pairs = [pair for group in groups.values() for pair in _ranked(context, group)]
    return _some(context, pairs, f"{len(talks)} episodes of {len(groups)} tasks make no pair")


_GIVEN: Mapping[DataSource, Callable[[StageContext], Awaitable[list[Pair]]]] = {
    DataSource.FILE: _written,
    DataSource.EPISODES: _recorded,
}


async def _rendered(context: StageContext, talks: Sequence[Conversation]) -> list[Episode]:
    # the loss is that of pairs, whatever other stages imitate
    return await context.workers.render(talks, replace(demonstration_settings(context), loss_on=LossOn.EXPERT))


def _some(context: StageContext, pairs: list[Pair], otherwise: str) -> list[Pair]:
    if not pairs:
        raise RunError(f"stage '{context.stage.stage}': {otherwise}; expected at least one pair to learn from")
    return pairs
