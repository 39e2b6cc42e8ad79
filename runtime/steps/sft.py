"""A step of imitation: one update on the next demonstrations, or passes over the best of what was played for it.

Enters: a Context. Leaves: a StepResult; what was learnt is in the learner. Demonstrations that are given are made, or
read, when the stage begins, and again after a resume: they are a function of the recipe and its seed alone. Fresh
rollouts are played, sifted and learnt from in one step, so that a resume has nothing to find again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...dsl.expression.expr import Expr
from ...dsl.model.algorithm import DataSource, LossKind, LossOn, Relabel
from ..data.dataset import Conversation, read_conversations, read_episodes
from ..errors import RunError
from ..guards import GuardSignals
from ..learning.filters import MaskPolicies, mask_episode
from ..learning.metrics import group_metrics, rate, rollout_metrics, step_facts, train_metrics, worst_fault
from ..learning.reward import episode_facts
from ..protocols import LossSettings, TrainSequence, UpdateLimits, UpdateMetrics, UpdateSettings
from ..rollout.episode import Episode, Task
from ..rollout.task_sampler import shuffle
from ..seeds import derive
from ..workers.rollout_worker import DemonstrationSettings
from .rl import count_batch, equal_parts, next_batch, scored_groups
from .rollout_batch import RolloutBatch
from .stage_context import StageContext, StepResult, episode_limits, refuse_faults, timeouts_of, update_settings

__all__ = [
    "Harvest",
    "data_index",
    "data_path",
    "demonstration_settings",
    "demonstrations",
    "harvest",
    "imitate",
    "sft_step",
]

_SUCCESS = Expr("success")


async def sft_step(context: StageContext) -> StepResult:
    """One update on the next demonstrations, or passes over what the present policy did well."""
    fresh = context.stage.algorithm.data.source is DataSource.ROLLOUT
    return await (_on_fresh if fresh else _on_given)(context)


async def _on_given(context: StageContext) -> StepResult:
    """Every demonstration comes once per pass, newly shuffled."""
    started = context.clock()
    given = await demonstrations(context)
    prepared = context.clock()
    size, position = context.stage.algorithm.batch_size, context.progress.data_position
    update = await _update(context, [given[data_index(context, len(given), position + i)] for i in range(size)])
    context.progress.data_position += size
    seconds = context.clock() - prepared
    return StepResult(
        updates=int(update.fault is None),
        facts={"loss": update.loss, "grad_norm": update.grad_norm, "entropy": update.entropy},
        row={
            **train_metrics([update]),
            "horizon/stage": context.progress.stage,
            "data/demonstrations": len(given),
            "data/passes": position // len(given),
            "timing_s/demonstrations": prepared - started,
            "timing_s/update": seconds,
            "perf/update_tokens_per_s": rate(update.tokens, seconds),
        },
        signs=GuardSignals(fault=update.fault),
    )


def data_index(context: StageContext, count: int, position: int) -> int:
    """Among so many that are given, of the one that is next."""
    passes_done, place = divmod(position, count)
    return _order(context, count, passes_done)[place]


def _order(context: StageContext, count: int, passes_done: int) -> tuple[int, ...]:
    return shuffle(count, derive(context.plan.seed, context.stage.stage, passes_done))


async def _on_fresh(context: StageContext) -> StepResult:
    """Rejection sampling: what the present policy did well is imitated."""
    found = await harvest(context, context.stage.algorithm.data.keep or _SUCCESS)
    return await imitate(context, found, found.kept)


# --- learning ------------------------------------------------------------------------------------------------------


async def imitate(
    context: StageContext, found: Harvest, episodes: Sequence[Episode], row: Mapping[str, float] | None = None
) -> StepResult:
    """Passes over the episodes, in batches as equal as can be; what a step did that played what it learns from."""
    started, algorithm, updates = context.clock(), context.stage.algorithm, list[UpdateMetrics]()
    for epoch in range(algorithm.epochs if episodes else 0):
        for places in equal_parts(_order(context, len(episodes), epoch), algorithm.batch_size):
            updates.append(await _update(context, [episodes[place] for place in places]))
    seconds = context.clock() - started
    return StepResult(
        updates=sum(update.fault is None for update in updates),
        facts=step_facts(found.measured, updates),
        row={
            **count_batch(context, found.batch),
            **found.measured,
            **(row or {}),
            "data/kept": len(found.kept),
            "data/relabelled": found.relabelled,
            **train_metrics(updates),
            "timing_s/update": seconds,
            "perf/update_tokens_per_s": rate(sum(update.tokens for update in updates), seconds),
        },
        signs=GuardSignals(fault=worst_fault(updates)),
        episodes=found.batch.episodes,
    )


async def _update(context: StageContext, episodes: Sequence[Episode]) -> UpdateMetrics:
    context.reporter.phase("update")
    sequences = [sequence for episode in episodes for sequence in _sequences(episode)]
    update = await context.workers.update(sequences, _settings(context))
    context.progress.updates += update.fault is None
    return update


def _sequences(episode: Episode) -> list[TrainSequence]:
    return [
        TrainSequence(ids=segment.ids, learn=segment.sampled, advantages=segment.sampled.astype("float32"))
        for segment in episode.segments
    ]


def _settings(context: StageContext) -> UpdateSettings:
    settings = update_settings(context)
    # with advantage 1 everywhere the plain policy gradient is the cross-entropy; no policy is there to stay near to
    return replace(
        settings,
        loss=LossSettings(kind=LossKind.POLICY_GRADIENT),
        limits=UpdateLimits(grad_norm=settings.limits.grad_norm),
    )


# --- fresh rollouts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """What was played for a step, and what of it is to be imitated."""

    batch: RolloutBatch
    measured: Mapping[str, float]
    kept: tuple[Episode, ...]
    relabelled: int
    """Of those kept, how many were played for another goal than they are learnt for."""


async def harvest(context: StageContext, keep: Expr) -> Harvest:
    """The next batch, sifted by `keep`, with what was reached on the way."""
    batch, stage = await next_batch(context), context.stage
    book = scored_groups(context, batch.groups)
    context.progress.scales = dict(book.scales)
    policies = MaskPolicies(
        episodes=keep, on_truncated=stage.agent.on_truncated, on_invalid_turn=stage.agent.on_invalid_turn
    )
    played = [each for group in book.groups for each in group]
    shown = [_shown(each.episode, stage.algorithm.data.loss_on) for each in played]
    own = [
        episode
        for each, episode in zip(played, shown, strict=True)
        if mask_episode(each, policies, context.names()).reason is None and episode.sampled_tokens
    ]
    others = [episode for episode in await _relabelled(context, shown) if _holds(context, keep, episode)]
    return Harvest(
        batch=batch,
        measured=rollout_metrics(batch.episodes) | group_metrics(book.groups),
        kept=(*own, *others),
        relabelled=len(others),
    )


def _shown(episode: Episode, loss_on: LossOn) -> Episode:
    """As a demonstration: what the environment did not understand is nothing to imitate."""
    segments = [replace(segment, sampled=segment.sampled.copy()) for segment in episode.segments]
    for turn in episode.turns:
        segments[turn.segment].sampled[turn.start : turn.end] &= not turn.invalid
    if loss_on is LossOn.ALL:
        for segment in segments:
            segment.sampled[:] = np.arange(len(segment.ids)) > 0  # nothing predicts the first token
    return replace(episode, segments=tuple(segments))


def _holds(context: StageContext, keep: Expr | None, episode: Episode) -> bool:
    return keep is None or keep.holds(episode_facts(episode, context.names()))


async def _relabelled(context: StageContext, episodes: Sequence[Episode]) -> list[Episode]:
    """What else these show, under `data.relabel`: how to do tasks that the recipe trains with, and no others."""
    if context.stage.algorithm.data.relabel is Relabel.NONE:
        return []
    context.reporter.phase("hindsight")
    made = list[Episode]()
    for name, environment in context.stage.environments.items():
        mine = [episode for episode in episodes if episode.task.environment == name and episode.turns]
        difficulties = {task.id: task.difficulty or "" for task in context.pools[name].tasks}
        found = await context.workers.relabel(
            mine, demonstration_settings(context), episode_limits(context, environment, _LONGEST)
        )
        made += [
            replace(each, task=replace(each.task, difficulty=difficulties[each.task.id]))
            for each in found
            if each.task.id in difficulties
        ]
    return made


# --- where demonstrations come from --------------------------------------------------------------------------------


async def demonstrations(context: StageContext) -> Sequence[Episode]:
    """Those that are given, made when first asked for."""
    if not context.demonstrations:
        context.reporter.phase("demonstrations")
        context.demonstrations.extend(await _made(context))
    return context.demonstrations


async def _made(context: StageContext) -> list[Episode]:
    data = context.stage.algorithm.data
    made = await _SOURCES[data.source](context)
    made += await _relabelled(context, made)
    kept = [episode for episode in made if episode.sampled_tokens and _holds(context, data.keep, episode)]
    if not kept:
        raise RunError(f"stage '{context.stage.stage}': none of {len(made)} demonstrations is left to learn from")
    _tell_of_long_replies(context, kept)
    return kept


def _tell_of_long_replies(context: StageContext, shown: Sequence[Episode]) -> None:
    """What is learnt from them would be cut off when it is said."""
    most = int(context.value(context.stage.agent.tokens_per_turn))
    lengths = [turn.end - turn.start for episode in shown for turn in episode.turns]
    if long := sum(length > most for length in lengths):
        told = f"{long} of {len(lengths)} demonstrated replies have more than the {most} tokens of 'tokens_per_turn'"
        context.reporter.note(f"{told}, up to {max(lengths)}: whoever has learnt them is cut off when saying them")


def demonstration_settings(context: StageContext) -> DemonstrationSettings:
    data = context.stage.algorithm.data
    return DemonstrationSettings(
        agent=context.stage.agent,
        environments=context.stage.environments,
        timeouts=timeouts_of(context),
        slots=context.plan.rollout.slots or _SLOTS,
        noise=data.noise,
        loss_on=data.loss_on,
    )


_SLOTS = 16
"""Demonstrations in the making at the same time, where the recipe sets no number: nobody samples, so more of them would
only wait for each other in the environment, and an expert that plays its solutions takes a second for one."""
_LONGEST = 64
"""Turns of a demonstration where the stage sets none."""


async def _by_experts(context: StageContext) -> list[Episode]:
    tasks = _tasks_to_show(context)
    made: list[Episode] = []
    for name, environment in context.stage.environments.items():
        horizon = None if environment.turns or context.stage.turns else _LONGEST
        limits = episode_limits(context, environment, horizon)
        mine = [task for task in tasks if task.environment == name]
        context.reporter.note(f"the expert of '{name}' shows {len(mine)} tasks")  # may take minutes, before any row
        seed = derive(context.plan.seed, "demonstrations")
        made += await context.workers.demonstrate(mine, demonstration_settings(context), limits, seed)
    refuse_faults(context, made, "demonstrations")
    return [episode for episode in made if episode.ending.trainable]


def _tasks_to_show(context: StageContext) -> list[Task]:
    """Each environment's training tasks, again and again with new seeds up to `data.limit`."""
    limit = context.stage.algorithm.data.limit
    tasks = []
    for name, pool in context.pools.items():
        wanted = limit // len(context.pools) if limit is not None else len(pool.tasks)
        tasks += [pool.at(position, derive(context.plan.seed, "show", name)) for position in range(wanted)]
    return tasks


async def _from(context: StageContext, read: Callable[[Path], list[Conversation]]) -> list[Episode]:
    talks = read(data_path(context))[: context.stage.algorithm.data.limit]
    return await context.workers.render(talks, demonstration_settings(context))


def data_path(context: StageContext) -> Path:
    path = context.stage.algorithm.data.path
    assert path is not None, "a verified plan says where data are read from"
    return Path(path).expanduser()


_SOURCES: Mapping[DataSource, Callable[[StageContext], Awaitable[list[Episode]]]] = {
    DataSource.EXPERT: _by_experts,
    DataSource.FILE: lambda context: _from(context, read_conversations),
    DataSource.EPISODES: lambda context: _from(context, read_episodes),
}
