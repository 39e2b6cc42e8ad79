"""Ops of learning from pairs: given pairs or those of fresh groups, reference log-probs, and updates on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import isfinite

import numpy as np

from ...dsl.model.algorithm import DataSource, LossOn
from ...dsl.model.plan import Op
from ...dsl.model.stage_kinds import samples
from ..data.dataset import Conversation, read_episodes, read_preferences
from ..errors import RunError, irrevocable
from ..learning.metrics import mean
from ..learning.preference_pairs import (
    Pair,
    PreferenceObjective,
    Response,
    apply_masks,
    build_pairs,
    preference_objective,
    responses_of,
    to_sequences,
)
from ..learning.reward import Scored
from ..learning.training_batch import to_sampled_sequences
from ..rollout.episode import Ending, Episode
from ..text_format import format_count
from ..workers.learner_worker import LearnerWorker
from ..workers.rollout_worker import RolloutWorker
from .sft import demonstration_settings, next_batch, resolve_data_path
from .stage_context import StageContext, pair_settings, response_logprobs, shuffled_parts
from .step_data import StepData

__all__ = ["build_score_pairs", "next_pairs", "pair_reference_logprobs", "update_on_pairs"]


async def next_pairs(op: Op, context: StageContext, data: StepData) -> None:
    """The next batch of those that are given: every pair comes once per pass, newly shuffled."""
    if not context.pairs:
        context.pairs.extend(await _GIVEN[context.stage.algorithm.data.source](context))
    data.pairs = next_batch(context, data, context.pairs)


async def build_score_pairs(op: Op, context: StageContext, data: StepData) -> None:
    """Pairs of the episodes, or turns, of each group by their scores."""
    data.pairs = [pair for group in data.scored or () for pair in _pair_by_score(context, group)]


def _pair_by_score(context: StageContext, group: Sequence[Scored]) -> list[Pair]:
    """Pairs without the episodes and turns that the recipe leaves out."""
    return build_pairs(apply_masks(group, context.stage, context.names()), context.stage.algorithm.preference)


async def pair_reference_logprobs(context: StageContext, data: StepData) -> Mapping[Response, float]:
    """Of all responses; those of given pairs are computed once."""
    pairs, known = data.pairs or (), context.pair_reference
    if samples(context.stage.algorithm):
        return await response_logprobs(context, responses_of(pairs), LearnerWorker.logprobs, reference=True)
    new = [each for each in responses_of(pairs) if each not in known]
    known.update(await response_logprobs(context, new, LearnerWorker.logprobs, reference=True))
    return known


async def update_on_pairs(op: Op, context: StageContext, data: StepData) -> None:
    """Passes over fresh pairs in a shuffled order, in batches as equal as can be; or one update on given ones."""
    pairs, algorithm = data.pairs or (), context.stage.algorithm
    objectives = list[PreferenceObjective]()
    if not samples(context.stage.algorithm):
        objectives.append(await _update(context, data, pairs))
    else:
        for part in shuffled_parts(context, pairs, algorithm.batch_size, algorithm.epochs, "order"):
            # after the first update the state at the step's start cannot be saved any more
            with irrevocable() if objectives else nullcontext():
                objectives.append(await _update(context, data, part))
    data.row |= {"preference/pairs": len(pairs), **_preference_metrics(objectives)}


async def _update(context: StageContext, data: StepData, pairs: Sequence[Pair]) -> PreferenceObjective:
    """The learner gets a policy gradient; the recorded loss is the one whose gradient it is."""
    assert isinstance(data.reference_logprobs, Mapping), "pairs are compared with the reference before an update"
    now = await response_logprobs(context, responses_of(pairs), LearnerWorker.logprobs, reference=False)
    objective = preference_objective(pairs, now, data.reference_logprobs, context.stage.algorithm.preference)
    update = await context.workers.compute(LearnerWorker.update, to_sequences(objective.gains), pair_settings(context))
    context.progress.updates += update.fault is None
    if isfinite(update.loss):
        update = replace(update, loss=objective.loss, policy_loss=objective.preference_loss)
    data.updates.append(update)
    return objective


def _preference_metrics(objectives: Sequence[PreferenceObjective]) -> dict[str, float]:
    """As the pairs stood just before each update; nothing where there was none."""
    if not objectives:
        return {}
    better, worse = np.concatenate([objective.rewards for objective in objectives]).T
    return {
        "preference/accuracy": mean(better > worse),
        "preference/margin": mean(better - worse),
        "preference/chosen_reward": mean(better),
        "preference/rejected_reward": mean(worse),
    }


async def _read_pairs(context: StageContext) -> list[Pair]:
    """The pairs of a file: line by line, better and worse."""
    lines = read_preferences(resolve_data_path(context))[: context.stage.algorithm.data.limit]
    sides = await _render(context, [side for line in lines for side in line])
    pairs = [
        Pair(better=_to_response(better), worse=_to_response(worse))
        for better, worse in zip(sides[::2], sides[1::2], strict=True)
        if better.ending is worse.ending is Ending.DONE
    ]
    _note_left_out(context, len(lines) - len(pairs), format_count(len(lines), "pair"))
    return _require_pairs(context, pairs, f"of {len(lines)} pairs none fits the context")


def _to_response(episode: Episode) -> Response:
    return Response(sequences=tuple(to_sampled_sequences(episode)))


async def _pair_recorded(context: StageContext) -> list[Pair]:
    """The pairs of a run folder: among the recorded episodes of each attempt at a task, by their recorded scores.

    A reply that was not understood is not to be imitated, and all the more to be avoided: all turns are compared."""
    conversations = read_episodes(resolve_data_path(context))[: context.stage.algorithm.data.limit]
    groups: dict[object, list[Scored]] = {}
    whole = [episode for episode in await _render(context, conversations) if episode.ending is Ending.DONE]
    _note_left_out(context, len(conversations) - len(whole), format_count(len(conversations), "episode"))
    for episode in whole:
        scored = Scored(episode=episode, outcome=episode.score, turn_rewards=(0.0,) * len(episode.turns))
        groups.setdefault(episode.task, []).append(scored)
    pairs = [pair for group in groups.values() for pair in _pair_by_score(context, group)]
    return _require_pairs(
        context,
        pairs,
        f"no pair among {format_count(len(conversations), 'episode')} of {format_count(len(groups), 'task')}",
    )


_GIVEN: Mapping[DataSource, Callable[[StageContext], Awaitable[list[Pair]]]] = {
    DataSource.FILE: _read_pairs,
    DataSource.EPISODES: _pair_recorded,
}


async def _render(context: StageContext, conversations: Sequence[Conversation]) -> list[Episode]:
    # the loss is that of pairs, whatever other stages imitate
    return await context.workers.rollout(
        RolloutWorker.render, conversations, replace(demonstration_settings(context), loss_on=LossOn.EXPERT)
    )


def _note_left_out(context: StageContext, num: int, whole: str) -> None:
    if num:
        limit = context.stage.agent.context_tokens
        context.reporter.note(
            f"{num} of {whole} exceed 'context_tokens' ({limit}) and are left out; raise 'agent.context_tokens', or "
            "shorten them"
        )


def _require_pairs(context: StageContext, pairs: list[Pair], otherwise: str) -> list[Pair]:
    if not pairs:
        raise RunError(f"stage '{context.stage.stage}': {otherwise}; expected at least one pair to learn from")
    return pairs
