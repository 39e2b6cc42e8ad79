"""A step of imitation: one update on the next demonstrations.

Enters: a Context. Leaves: a StepResult; what was learnt is in the learner. Demonstrations are made, or read, when the
stage begins, and again after a resume: they are a function of the recipe and its seed alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ..dsl.algorithm import DataSource, LossKind
from .context import Context, StepResult, budgets_of, phases_of, refuse_faults, update_settings
from .dataset import Conversation, recorded, written
from .episode import Episode, Task
from .errors import RunError
from .guards import Signs
from .ports import Limits, LossSettings, TrainSequence, UpdateSettings
from .reward import episode_facts
from .seeds import derive
from .statistics import rate, train_row
from .tasks import shuffled
from .workers import DemoStyle

__all__ = ["sft_step"]


async def sft_step(context: Context) -> StepResult:
    """One update on the next demonstrations; every one comes once per pass, newly shuffled."""
    started = context.clock()
    if not context.demonstrations:
        context.reporter.phase("demonstrations")
        context.demonstrations.extend(await _demonstrations(context))
    prepared = context.clock()
    size, position = context.stage.algorithm.batch_size, context.progress.data_position
    batch = [_imitated(context.demonstrations[_place(context, position + i)]) for i in range(size)]
    context.progress.data_position += size
    context.reporter.phase("update")
    update = await context.crew.update([sequence for part in batch for sequence in part], _settings(context))
    context.progress.updates += update.fault is None
    seconds = context.clock() - prepared
    return StepResult(
        updates=int(update.fault is None),
        facts={"loss": update.loss, "grad_norm": update.grad_norm, "entropy": update.entropy},
        row={
            **train_row([update]),
            "horizon/stage": context.progress.stage,
            "data/passes": position // len(context.demonstrations),
            "timing_s/demonstrations": prepared - started,
            "timing_s/update": seconds,
            "perf/update_tokens_per_s": rate(update.tokens, seconds),
        },
        signs=Signs(fault=update.fault),
    )


def _settings(context: Context) -> UpdateSettings:
    settings = update_settings(context)
    # with advantage 1 everywhere the plain policy gradient is the cross-entropy; no policy is there to stay near to
    return replace(
        settings,
        loss=LossSettings(kind=LossKind.POLICY_GRADIENT),
        limits=Limits(grad_norm=settings.limits.grad_norm),
    )


def _place(context: Context, position: int) -> int:
    passes_done, place = divmod(position, len(context.demonstrations))
    return shuffled(len(context.demonstrations), derive(context.plan.seed, context.stage.stage, passes_done))[place]


def _imitated(episode: Episode) -> list[TrainSequence]:
    return [
        TrainSequence(ids=segment.ids, learn=segment.sampled, advantages=segment.sampled.astype("float32"))
        for segment in episode.segments
    ]


# --- where demonstrations come from --------------------------------------------------------------------------------


async def _demonstrations(context: Context) -> list[Episode]:
    made = await _SOURCES[context.stage.algorithm.data.source](context)
    kept = [episode for episode in made if episode.sampled_tokens and _kept(context, episode)]
    if not kept:
        raise RunError(f"stage '{context.stage.stage}': none of {len(made)} demonstrations is left to learn from")
    return kept


def _kept(context: Context, episode: Episode) -> bool:
    keep = context.stage.algorithm.data.keep
    return keep is None or keep.holds(episode_facts(episode, context.names()))


def _style(context: Context) -> DemoStyle:
    data, agent = context.stage.algorithm.data, context.stage.agent
    return DemoStyle(
        format=agent.format,
        prompt=agent.prompt,
        environments=context.stage.environments,
        phases=phases_of(context),
        slots=context.plan.rollout.slots or _SLOTS,
        noise=data.noise,
        loss_on=data.loss_on,
        context_tokens=agent.context_tokens,
    )


_SLOTS = 64
"""Demonstrations in the making at the same time, where the recipe sets no number."""
_LONGEST = 64
"""Turns of a demonstration where the stage sets none."""


async def _by_experts(context: Context) -> list[Episode]:
    tasks = _tasks_to_show(context)
    made: list[Episode] = []
    for name, environment in context.stage.environments.items():
        horizon = None if environment.turns or context.stage.turns else _LONGEST
        budgets = budgets_of(context, environment, horizon)
        mine = [task for task in tasks if task.environment == name]
        seed = derive(context.plan.seed, "demonstrations")
        made += await context.crew.demonstrate(mine, _style(context), budgets, seed)
    refuse_faults(context, made, "demonstrations")
    return [episode for episode in made if episode.ending.trainable]


def _tasks_to_show(context: Context) -> list[Task]:
    """Each environment's training tasks, again and again with new seeds up to `data.limit`."""
    limit = context.stage.algorithm.data.limit
    tasks = []
    for name, pool in context.pools.items():
        wanted = limit // len(context.pools) if limit is not None else len(pool.tasks)
        tasks += [pool.at(position, derive(context.plan.seed, "show", name)) for position in range(wanted)]
    return tasks


async def _from(context: Context, read: Callable[[Path], list[Conversation]]) -> list[Episode]:
    data = context.stage.algorithm.data
    if data.path is None:
        raise RunError(f"stage '{context.stage.stage}': 'data.source: {data.source}' needs a 'data.path'")
    return await context.crew.render(read(Path(data.path).expanduser())[: data.limit], _style(context))


async def _by_rollout(context: Context) -> list[Episode]:
    raise RunError(f"stage '{context.stage.stage}': 'data.source: rollout' is not built yet")


_SOURCES: Mapping[DataSource, Callable[[Context], Awaitable[list[Episode]]]] = {
    DataSource.EXPERT: _by_experts,
    DataSource.FILE: lambda context: _from(context, written),
    DataSource.EPISODES: lambda context: _from(context, recorded),
    DataSource.ROLLOUT: _by_rollout,
}
