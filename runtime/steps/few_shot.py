"""Expert episodes of training tasks, as an agent is told them before its own: `agent: {demonstrations: 2}`.

An environment shows the same few tasks throughout a stage; nobody is shown the task at hand, or one held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...dsl.model.algorithm import LossOn
from ...dsl.model.recipe import Environment
from ..agents import prompts as wording
from ..agents.prompts import with_paragraphs
from ..errors import StepRefused
from ..rollout.episode import Episode, Task
from ..seeds import derive
from ..workers.rollout_worker import RolloutWorker
from .sft import demonstration_settings
from .stage_context import StageContext, episode_limits, open_pool

__all__ = ["examples_for"]

_HORIZON = 64
"""Turns of an example, at the most."""
_SPARE = 2
"""Times as many are tried as are shown: an expert need not solve every task."""


async def examples_for(context: StageContext, tasks: Sequence[Task]) -> list[str]:
    """What is told before each of the tasks; nothing, where the recipe asks for none."""
    wanted = context.stage.agent.demonstrations
    if not wanted:
        return [""] * len(tasks)
    return [_told(task, await _experts(context, task.environment), wanted) for task in tasks]


def _told(task: Task, shown: Sequence[Episode], wanted: int) -> str:
    others = [each for each in shown if each.task.id != task.id][:wanted]
    if len(others) < wanted:
        raise StepRefused(
            f"agent.demonstrations: expected {wanted} solved tasks of '{task.environment}' besides '{task.id}', and "
            f"its expert gave {len(others)}; lower it, or train with more tasks"
        )
    return with_paragraphs(*(_text(each) for each in others))


def _text(episode: Episode) -> str:
    """As the agent would have seen it, without the guide, which it is told anyway."""
    turns = (f"{turn.reply}\n\n{turn.observation}" for turn in episode.turns)
    return with_paragraphs(wording.SHOWN, episode.opening[-1].content, *turns)


async def _experts(context: StageContext, name: str) -> Sequence[Episode]:
    """Solved episodes of the environment's training tasks, one more than is shown of them; played when first asked."""
    if name not in context.shown:
        environment = context.stage.environments[name]
        tasks = await _candidates(context, name, environment)
        context.reporter.phase("demonstrations")
        limits = episode_limits(context, environment, _HORIZON)
        slots = _SPARE * (context.stage.agent.demonstrations + 1)
        style = replace(demonstration_settings(context), slots=slots, noise=0.0, loss_on=LossOn.EXPERT)
        played = await context.workers.rollout(
            RolloutWorker.demonstrate, tasks, style, limits, derive(context.plan.seed, "shown")
        )
        if lost := [each.fault for each in played if not each.ending.trainable]:
            # another choice of examples would be another run
            raise StepRefused(f"agent.demonstrations: {name} failed its expert by {lost[-1]}; fix it and resume")
        context.shown[name] = [each for each in played if each.success][: context.stage.agent.demonstrations + 1]
    return context.shown[name]


async def _candidates(context: StageContext, name: str, environment: Environment) -> list[Task]:
    pool = await open_pool(context.plan, name, environment, context.workers)
    count = min(_SPARE * (context.stage.agent.demonstrations + 1), len(pool.tasks))
    return [pool.at(position, derive(context.plan.seed, "shown", name)) for position in range(count)]
