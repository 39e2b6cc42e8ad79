"""Ops of imitation: which episodes are imitated, updates on them, AgentEvol's reset to the stage's first weights.

Given demonstrations are a function of the recipe and its seed alone: they are made again after a resume.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from ...dsl.expression.expr import Expr
from ...dsl.model.algorithm import DataSource, LossKind, LossOn, Relabel
from ...dsl.model.plan import Op
from ...dsl.model.stage_kinds import samples
from ..data.dataset import Conversation, read_conversations, read_episodes
from ..data.demonstrations import keep_solved
from ..errors import RunError, StepRefused
from ..learning.filters import MaskPolicies, mask_episode
from ..learning.reward import episode_facts
from ..learning.training_batch import to_sampled_sequences
from ..learning.training_record import TrainingRecord
from ..progress import Progress
from ..protocols import LossSettings, UpdateLimits
from ..rollout.episode import Ending, Episode, Task
from ..rollout.player import EpisodeLimits
from ..rollout.task_sampler import shuffle
from ..seeds import derive
from ..storage.run_folder import PROGRESS
from ..text_format import format_count
from ..workers.learner_worker import LearnerWorker
from ..workers.rollout_worker import DemonstrationSettings, RolloutWorker, give_seeds
from .stage_context import StageContext, agent_of, episode_limits, equal_parts, refuse_faults, update_settings
from .step_data import StepData

__all__ = [
    "choose_retraining_data",
    "demonstration_settings",
    "keep_episodes",
    "next_batch",
    "next_demonstrations",
    "reset_to_base",
    "resolve_data_path",
    "update_by_imitation",
]

T = TypeVar("T")

_SUCCESS = Expr("success")


async def next_demonstrations(op: Op, context: StageContext, data: StepData) -> None:
    """Take the next batch of those that are given: every one comes once per pass, newly shuffled."""
    given = await _load_demonstrations(context)
    data.demonstrations = next_batch(context, data, given)
    data.row["data/demonstrations"] = len(given)


def next_batch(context: StageContext, data: StepData, given: Sequence[T]) -> list[T]:
    """Take the next batch of what is given, in a new order in each pass."""
    start, progress = context.progress.data_position, context.progress
    progress.data_position += context.stage.algorithm.batch_size
    data.row["data/passes"] = start // len(given)
    places = (divmod(position, len(given)) for position in range(start, progress.data_position))
    return [given[_shuffle_pass(context, len(given), passes)[place]] for passes, place in places]


def _shuffle_pass(context: StageContext, count: int, passes_done: int) -> tuple[int, ...]:
    return shuffle(count, derive(context.plan.seed, context.stage.stage, passes_done))


async def keep_episodes(op: Op, context: StageContext, data: StepData) -> None:
    """Select what the current policy did well, to be imitated: rejection sampling."""
    data.demonstrations = await _keep_scored(context, data, context.stage.algorithm.data.keep or _SUCCESS)


async def _keep_scored(context: StageContext, data: StepData, keep: Expr) -> list[Episode]:
    """Select the episodes that `keep` is true of, and what was reached on the way."""
    algorithm = context.stage.algorithm
    policies = MaskPolicies.of(context.stage.agent, keep)
    scored = [each for group in data.scored or () for each in group]
    demonstrations = [_to_demonstration(each.episode, algorithm.data.loss_on) for each in scored]
    masks = [mask_episode(each, policies, context.names()) for each in scored]
    own = [
        episode
        for mask, episode in zip(masks, demonstrations, strict=True)
        if mask.reason is None and episode.sampled_tokens
    ]
    data.records = {
        each.episode: TrainingRecord(
            reward=each.total, kept=mask.reason is None, reason=mask.reason or "", turns=mask.turns
        )
        for each, mask in zip(scored, masks, strict=True)
    }
    others = [episode for episode in await _relabel(context, demonstrations) if _is_kept(context, keep, episode)]
    data.row |= {"data/kept": len(own) + len(others), "data/relabelled": len(others)}
    return [*own, *others]


async def choose_retraining_data(op: Op, context: StageContext, data: StepData) -> None:
    """Choose what exploring found that is worth keeping, and the demonstrations: AgentEvol."""
    settings, number = context.stage.algorithm.evolve, context.progress.step + 1
    kept = await _keep_scored(context, data, settings.keep)
    wanted = settings.keep_demonstrations or context.progress.step == 0
    given: tuple[Episode, ...] = ()
    if wanted and context.stage.algorithm.data.source is not DataSource.ROLLOUT:
        given = tuple(await _load_demonstrations(context))
    if not (kept or given):
        explored = sum(len(group) for group in data.scored or ())
        raise StepRefused(
            f"stage '{context.stage.stage}', round {number}: '{settings.keep.text}' keeps none of {explored} episodes, "
            "and there are no demonstrations; expected something to train on"
        )
    data.demonstrations = [*given, *kept]
    data.row |= {"evolve/round": number, "data/demonstrations": len(given)}


async def reset_to_base(op: Op, context: StageContext, data: StepData) -> None:
    """Reset weights, optimiser and warm-up to the stage's start; the first round is there already."""
    update_settings(context)  # a rate without a value is refused here: once the weights have changed, nothing can be
    if context.progress.step == 0:
        return
    assert context.base is not None, "the engine keeps the start of a stage that goes back to it"
    await context.workers.learner(LearnerWorker.load, context.base)
    context.progress.updates = Progress.from_json((context.base / PROGRESS).read_text()).updates
    context.progress.version += 1  # whatever the updates do, the sampler has other weights now


async def update_by_imitation(op: Op, context: StageContext, data: StepData) -> None:
    """Update once on the next of the given demonstrations, or in passes over what was chosen, in equal batches."""
    episodes, algorithm = data.demonstrations or (), context.stage.algorithm
    if not samples(context.stage.algorithm):
        await _update_once(context, data, episodes)
        return
    for epoch in range(algorithm.epochs if episodes else 0):
        for places in equal_parts(_shuffle_pass(context, len(episodes), epoch), algorithm.batch_size):
            await _update_once(context, data, [episodes[place] for place in places])


async def _update_once(context: StageContext, data: StepData, episodes: Sequence[Episode]) -> None:
    sequences = [sequence for episode in episodes for sequence in to_sampled_sequences(episode, 1.0)]
    settings = update_settings(context)
    # with advantage 1 everywhere the plain policy gradient is the cross-entropy; there is no policy to stay near
    settings = replace(
        settings,
        loss=LossSettings(kind=LossKind.POLICY_GRADIENT),
        limits=UpdateLimits(grad_norm=settings.limits.grad_norm),
    )
    data.updates.append(await context.workers.compute(LearnerWorker.update, sequences, settings))
    context.progress.updates += data.updates[-1].fault is None


def _to_demonstration(episode: Episode, loss_on: LossOn) -> Episode:
    """Copy an episode as a demonstration: what the environment did not understand is not to be imitated."""
    segments = [replace(segment, sampled=segment.sampled.copy()) for segment in episode.segments]
    for turn in episode.turns:
        segments[turn.segment].sampled[turn.start : turn.end] &= not turn.invalid
    if loss_on is LossOn.ALL:
        for segment in segments:
            segment.sampled[:] = np.arange(len(segment.ids)) > 0  # nothing predicts the first token
    return replace(episode, segments=tuple(segments))


def _is_kept(context: StageContext, keep: Expr | None, episode: Episode) -> bool:
    return keep is None or keep.holds(episode_facts(episode, context.names()))


async def _relabel(context: StageContext, episodes: Sequence[Episode]) -> list[Episode]:
    """Relabel episodes, under `data.relabel`, as solutions of tasks that the recipe trains with, and of no others."""
    if context.stage.algorithm.data.relabel is Relabel.NONE:
        return []
    context.reporter.phase("hindsight")
    made = list[Episode]()
    for name, environment in context.stage.environments.items():
        own = [episode for episode in episodes if episode.task.environment == name and episode.turns]
        limits = episode_limits(context, environment, _LONGEST)
        difficulties = {task.id: task.difficulty or "" for task in context.pools[name].tasks}
        found = await context.workers.rollout(RolloutWorker.relabel, own, demonstration_settings(context), limits)
        made += [
            replace(each, task=replace(each.task, difficulty=difficulties[each.task.id]))
            for solved in found
            for each in solved
            if each.task.id in difficulties
        ]
    return made


async def _load_demonstrations(context: StageContext) -> Sequence[Episode]:
    """Make the demonstrations that are given, when first asked for."""
    if not context.demonstrations:
        context.reporter.phase("demonstrations")
        data = context.stage.algorithm.data
        made = await _SOURCES[data.source](context)
        _note_cut_demonstrations(context, made)
        made += await _relabel(context, made)
        kept = [episode for episode in made if episode.sampled_tokens and _is_kept(context, data.keep, episode)]
        if not kept:
            count = format_count(len(made), "demonstration")
            raise RunError(f"stage '{context.stage.stage}': none of {count} is left to learn from")
        _note_long_replies(context, kept)
        context.demonstrations.extend(kept)
    return context.demonstrations


def _note_cut_demonstrations(context: StageContext, made: Sequence[Episode]) -> None:
    """Note demonstrations that exceed the context: nothing is left of some, and the first replies of others."""
    cut = [episode for episode in made if episode.ending is Ending.BUDGET]
    if cut:
        gone, limit = sum(not episode.turns for episode in cut), context.stage.agent.context_tokens
        context.reporter.note(
            f"{len(cut)} of {format_count(len(made), 'demonstration')} exceed 'context_tokens' ({limit}): {gone} left "
            f"out, {len(cut) - gone} cut after the last reply that fits; raise 'agent.context_tokens', or shorten them"
        )


def _note_long_replies(context: StageContext, demonstrations: Sequence[Episode]) -> None:
    """Note demonstrated replies that exceed `tokens_per_turn`: imitated, they would be cut off."""
    limit = int(context.value(context.stage.agent.tokens_per_turn))
    lengths = [turn.end - turn.start for episode in demonstrations for turn in episode.turns]
    if long := sum(length > limit for length in lengths):
        context.reporter.note(
            f"{long} of {len(lengths)} demonstrated replies exceed 'tokens_per_turn' ({limit}), the longest by "
            f"{max(lengths) - limit} tokens: an agent that imitates them is cut off; raise 'agent.tokens_per_turn'"
        )


def demonstration_settings(context: StageContext) -> DemonstrationSettings:
    data = context.stage.algorithm.data
    return DemonstrationSettings(
        agent=agent_of(context),
        environments=context.stage.environments,
        timeouts=context.plan.rollout,
        slots=context.plan.rollout.slots or _SLOTS,
        noise=data.noise,
        loss_on=data.loss_on,
    )


_SLOTS = 16
"""Demonstrations in the making at the same time, where the recipe sets no number: nothing is sampled, so more would
only wait for each other in the environment, and an expert that plays its solutions takes a second for one."""
_LONGEST = 64
"""Turns of a demonstration where the stage sets none."""
_PER_SLOT = 8
"""Demonstrations that each slot makes between two looks at the clock."""
_QUIET_S = 20
"""An expert that has played for this long is reported at the next look."""


async def _play_experts(context: StageContext) -> list[Episode]:
    limit = context.stage.algorithm.data.limit
    made: list[Episode] = []
    for name, environment in context.stage.environments.items():
        horizon = None if environment.turns or context.stage.turns else _LONGEST
        limits = episode_limits(context, environment, horizon)
        # training tasks, again and again with new seeds up to `data.limit`
        pool, task_seed = context.pools[name], derive(context.plan.seed, "show", name)
        wanted = limit // len(context.pools) if limit is not None else len(pool.tasks)
        tasks = [pool.at(position, task_seed) for position in range(wanted)]
        context.reporter.note(
            f"the expert of '{name}' shows {format_count(len(tasks), 'task')}"
        )  # may take minutes, before any row
        shown = await _show_tasks(context, name, tasks, limits)
        made += keep_solved(name, tasks, shown, context.reporter.note)
    refuse_faults(context, made, "demonstrations")
    return [episode for episode in made if episode.ending.trainable]


async def _show_tasks(
    context: StageContext, env: str, tasks: Sequence[Task], limits: EpisodeLimits
) -> list[Episode | None]:
    settings = demonstration_settings(context)
    seeded = give_seeds(tasks, derive(context.plan.seed, "demonstrations"))
    shown, noted = list[Episode | None](), context.clock()
    while rest := seeded[len(shown) :]:
        part = rest[: _PER_SLOT * settings.slots]
        shown += await context.workers.rollout(RolloutWorker.demonstrate, part, settings, limits)
        if context.clock() - noted >= _QUIET_S and len(shown) < len(tasks):
            context.reporter.note(f"the expert of '{env}' has shown {len(shown)} of {format_count(len(tasks), 'task')}")
            noted = context.clock()
    return shown


async def _render_file(context: StageContext, read: Callable[[Path], list[Conversation]]) -> list[Episode]:
    conversations = read(resolve_data_path(context))[: context.stage.algorithm.data.limit]
    return await context.workers.rollout(RolloutWorker.render, conversations, demonstration_settings(context))


def resolve_data_path(context: StageContext) -> Path:
    path = context.stage.algorithm.data.path
    assert path is not None, "a verified plan says where data are read from"
    return Path(path).expanduser()


_SOURCES: Mapping[DataSource, Callable[[StageContext], Awaitable[list[Episode]]]] = {
    DataSource.EXPERT: _play_experts,
    DataSource.FILE: lambda context: _render_file(context, read_conversations),
    DataSource.EPISODES: lambda context: _render_file(context, read_episodes),
}
