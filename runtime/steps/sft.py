"""Ops of imitation: which episodes are imitated, updates on them, AgentEvol's reset to the stage's first weights.

Given demonstrations are a function of the recipe and its seed alone: they are made again after a resume.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...dsl.expression.expr import Expr
from ...dsl.model.algorithm import DataSource, LossKind, LossOn, Relabel
from ...dsl.model.plan import Op
from ...dsl.model.stage_kinds import samples
from ..data.dataset import Conversation, read_conversations, read_episodes
from ..errors import RunError, StepRefused
from ..learning.filters import MaskPolicies, mask_episode
from ..learning.reward import episode_facts
from ..learning.training_batch import to_sampled_sequences
from ..progress import Progress
from ..protocols import LossSettings, UpdateLimits
from ..rollout.episode import Episode
from ..rollout.task_sampler import shuffle
from ..seeds import derive
from ..storage.run_folder import PROGRESS
from ..workers.learner_worker import LearnerWorker
from ..workers.rollout_worker import DemonstrationSettings, RolloutWorker
from .stage_context import StageContext, episode_limits, equal_parts, refuse_faults, update_settings
from .step_data import StepData

__all__ = [
    "choose_retraining_data",
    "data_index",
    "data_path",
    "demonstration_settings",
    "keep_episodes",
    "next_demonstrations",
    "reset_to_base",
    "update_by_imitation",
]

_SUCCESS = Expr("success")


async def next_demonstrations(op: Op, context: StageContext, data: StepData) -> None:
    """The next batch of those that are given: every one comes once per pass, newly shuffled."""
    given = await _demonstrations(context)
    size, position = context.stage.algorithm.batch_size, context.progress.data_position
    data.demonstrations = [given[data_index(context, len(given), position + i)] for i in range(size)]
    context.progress.data_position += size
    data.row |= {"data/demonstrations": len(given), "data/passes": position // len(given)}


def data_index(context: StageContext, count: int, position: int) -> int:
    """Of the next one among so many that are given."""
    passes_done, place = divmod(position, count)
    return _order(context, count, passes_done)[place]


def _order(context: StageContext, count: int, passes_done: int) -> tuple[int, ...]:
    return shuffle(count, derive(context.plan.seed, context.stage.stage, passes_done))


async def keep_episodes(op: Op, context: StageContext, data: StepData) -> None:
    """Rejection sampling: what the present policy did well is imitated."""
    data.demonstrations = await _keep(context, data, context.stage.algorithm.data.keep or _SUCCESS)


async def _keep(context: StageContext, data: StepData, keep: Expr) -> list[Episode]:
    """The episodes that `keep` is true of, and what was reached on the way."""
    algorithm = context.stage.algorithm
    policies = MaskPolicies.of(context.stage.agent, keep)
    scored = [each for group in data.scored or () for each in group]
    shown = [_shown(each.episode, algorithm.data.loss_on) for each in scored]
    own = [
        episode
        for each, episode in zip(scored, shown, strict=True)
        if mask_episode(each, policies, context.names()).reason is None and episode.sampled_tokens
    ]
    others = [episode for episode in await _relabelled(context, shown) if _holds(context, keep, episode)]
    data.row |= {"data/kept": len(own) + len(others), "data/relabelled": len(others)}
    return [*own, *others]


async def choose_retraining_data(op: Op, context: StageContext, data: StepData) -> None:
    """AgentEvol: what exploring found that is worth keeping, and the demonstrations."""
    settings, number = context.stage.algorithm.evolve, context.progress.step + 1
    kept = await _keep(context, data, settings.keep)
    wanted = settings.keep_demonstrations or context.progress.step == 0
    given: tuple[Episode, ...] = ()
    if wanted and context.stage.algorithm.data.source is not DataSource.ROLLOUT:
        given = tuple(await _demonstrations(context))
    if not (kept or given):
        explored = sum(len(group) for group in data.scored or ())
        raise StepRefused(
            f"stage '{context.stage.stage}', round {number}: '{settings.keep.text}' keeps none of {explored} episodes, "
            "and there are no demonstrations; expected something to train on"
        )
    data.demonstrations = [*given, *kept]
    data.row |= {"evolve/round": number, "data/demonstrations": len(given)}


async def reset_to_base(op: Op, context: StageContext, data: StepData) -> None:
    """Weights, optimiser and warm-up as at the stage's start; the first round is there already."""
    update_settings(context)  # a rate without a value is refused here: once the weights are others, nothing can be
    if context.progress.step == 0:
        return
    assert context.base is not None, "the engine keeps the start of a stage that goes back to it"
    await context.workers.learner(LearnerWorker.load, context.base)
    context.progress.updates = Progress.from_json((context.base / PROGRESS).read_text()).updates
    context.progress.version += 1  # whatever comes of the updates, the sampler has other weights now


async def update_by_imitation(op: Op, context: StageContext, data: StepData) -> None:
    """One update on the next of the given demonstrations, or passes over what was chosen, in equal batches."""
    episodes, algorithm = data.demonstrations or (), context.stage.algorithm
    if not samples(context.stage.algorithm):
        await _update(context, data, episodes)
        return
    for epoch in range(algorithm.epochs if episodes else 0):
        for places in equal_parts(_order(context, len(episodes), epoch), algorithm.batch_size):
            await _update(context, data, [episodes[place] for place in places])


async def _update(context: StageContext, data: StepData, episodes: Sequence[Episode]) -> None:
    sequences = [sequence for episode in episodes for sequence in to_sampled_sequences(episode, 1.0)]
    settings = update_settings(context)
    # with advantage 1 everywhere the plain policy gradient is the cross-entropy; no policy is there to stay near to
    settings = replace(
        settings,
        loss=LossSettings(kind=LossKind.POLICY_GRADIENT),
        limits=UpdateLimits(grad_norm=settings.limits.grad_norm),
    )
    data.updates.append(await context.workers.compute(LearnerWorker.update, sequences, settings))
    context.progress.updates += data.updates[-1].fault is None


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
        found = await context.workers.rollout(
            RolloutWorker.relabel, mine, demonstration_settings(context), episode_limits(context, environment, _LONGEST)
        )
        made += [
            replace(each, task=replace(each.task, difficulty=difficulties[each.task.id]))
            for each in found
            if each.task.id in difficulties
        ]
    return made


async def _demonstrations(context: StageContext) -> Sequence[Episode]:
    """Those that are given, made when first asked for."""
    if not context.demonstrations:
        context.reporter.phase("demonstrations")
        data = context.stage.algorithm.data
        made = await _SOURCES[data.source](context)
        made += await _relabelled(context, made)
        kept = [episode for episode in made if episode.sampled_tokens and _holds(context, data.keep, episode)]
        if not kept:
            raise RunError(f"stage '{context.stage.stage}': none of {len(made)} demonstrations is left to learn from")
        _note_long_replies(context, kept)
        context.demonstrations.extend(kept)
    return context.demonstrations


def _note_long_replies(context: StageContext, shown: Sequence[Episode]) -> None:
    """Note demonstrated replies that exceed `tokens_per_turn`: imitated, they would be cut off."""
    limit = int(context.value(context.stage.agent.tokens_per_turn))
    lengths = [turn.end - turn.start for episode in shown for turn in episode.turns]
    if long := sum(length > limit for length in lengths):
        context.reporter.note(
            f"{long} of {len(lengths)} demonstrated replies exceed 'tokens_per_turn' ({limit}), the longest by "
            f"{max(lengths) - limit} tokens: an agent that imitates them is cut off; raise 'agent.tokens_per_turn'"
        )


def demonstration_settings(context: StageContext) -> DemonstrationSettings:
    data = context.stage.algorithm.data
    return DemonstrationSettings(
        agent=context.stage.agent,
        environments=context.stage.environments,
        timeouts=context.plan.rollout,
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
    limit = context.stage.algorithm.data.limit
    made: list[Episode] = []
    for name, environment in context.stage.environments.items():
        horizon = None if environment.turns or context.stage.turns else _LONGEST
        limits = episode_limits(context, environment, horizon)
        # training tasks, again and again with new seeds up to `data.limit`
        pool, show = context.pools[name], derive(context.plan.seed, "show", name)
        wanted = limit // len(context.pools) if limit is not None else len(pool.tasks)
        mine = [pool.at(position, show) for position in range(wanted)]
        context.reporter.note(f"the expert of '{name}' shows {len(mine)} tasks")  # may take minutes, before any row
        seed = derive(context.plan.seed, "demonstrations")
        made += await context.workers.rollout(
            RolloutWorker.demonstrate, mine, demonstration_settings(context), limits, seed
        )
    refuse_faults(context, made, "demonstrations")
    return [episode for episode in made if episode.ending.trainable]


async def _from(context: StageContext, read: Callable[[Path], list[Conversation]]) -> list[Episode]:
    talks = read(data_path(context))[: context.stage.algorithm.data.limit]
    return await context.workers.rollout(RolloutWorker.render, talks, demonstration_settings(context))


def data_path(context: StageContext) -> Path:
    path = context.stage.algorithm.data.path
    assert path is not None, "a verified plan says where data are read from"
    return Path(path).expanduser()


_SOURCES: Mapping[DataSource, Callable[[StageContext], Awaitable[list[Episode]]]] = {
    DataSource.EXPERT: _by_experts,
    DataSource.FILE: lambda context: _from(context, read_conversations),
    DataSource.EPISODES: lambda context: _from(context, read_episodes),
}
