"""Expert episodes of training tasks, as turns of the chat before an agent's own task: `agent: {demonstrations: 2}`.

An environment shows the same few tasks throughout a stage; nobody is shown the task at hand, or one held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...dsl.model.algorithm import LossOn
from ..agents.messages import Message
from ..agents.prompts import begin_next_task
from ..data.demonstrations import keep_solved
from ..errors import StepRefused
from ..protocols import SamplingSettings
from ..rollout.episode import Episode, Group, Task
from ..rollout.groups import GroupRequest
from ..seeds import derive
from ..workers.rollout_worker import RolloutWorker, give_seeds
from .sft import demonstration_settings
from .stage_context import StageContext, episode_limits, open_pool, play_settings, refuse_faults

__all__ = ["play_with_examples"]

_HORIZON = 64
"""Most turns of an example."""
_SPARE = 2
"""Candidates tried per example shown: an expert need not solve every task."""


async def play_with_examples(
    context: StageContext, requests: Sequence[GroupRequest], sampling: SamplingSettings, what: str
) -> list[Group]:
    """Play groups, each with the examples that the recipe asks for; `what` names them where too many are lost."""
    if context.stage.agent.demonstrations:
        requests = [replace(each, examples=await _find_examples(context, each.task)) for each in requests]
    settings = play_settings(context, sum(each.size for each in requests), sampling)
    groups = await context.workers.play(requests, settings, context.reporter.episode)
    episodes = [episode for group in groups for episode in group.episodes]
    refuse_faults(context, episodes, what)
    if context.stage.reward.judge is None:
        _refuse_questions(episodes)
    return groups


def _refuse_questions(episodes: Sequence[Episode]) -> None:
    for episode in episodes:
        if episode.pending is not None and episode.pending.required:
            where = f"environment '{episode.task.environment}', task '{episode.task.id}'"
            raise StepRefused(
                f"{where}: only a judge can tell its success; "
                "write 'reward: {judge: {url: ..., model: ...}}', or choose other tasks"
            )


async def _find_examples(context: StageContext, task: Task) -> tuple[Message, ...]:
    wanted = context.stage.agent.demonstrations
    others = [each for each in await _play_examples(context, task.environment) if each.task.id != task.id][:wanted]
    if len(others) < wanted:
        raise StepRefused(
            f"agent.demonstrations: expected {wanted} solved tasks of '{task.environment}' besides '{task.id}', and "
            f"its expert gave {len(others)}; lower it, or train with more tasks"
        )
    messages: tuple[Message, ...] = ()
    for episode in others:
        messages = begin_next_task(messages, episode.opening[-1].content)
        for turn in episode.turns:
            messages += (Message("assistant", turn.reply), Message(turn.role, turn.observation))
    return messages


async def _play_examples(context: StageContext, name: str) -> Sequence[Episode]:
    """Solved episodes of the environment's training tasks, one more than is shown of them; played when first asked."""
    if name not in context.shown:
        environment = context.stage.environments[name]
        pool = await open_pool(context.plan, name, environment, context.workers, has_judge=False)
        context.reporter.phase("demonstrations")
        limits = episode_limits(context, environment, _HORIZON)
        slots, seed = _SPARE * (context.stage.agent.demonstrations + 1), derive(context.plan.seed, "shown")
        drawn = derive(context.plan.seed, "shown", name)
        tasks = [pool.at(position, drawn) for position in range(min(slots, len(pool.tasks)))]
        settings = replace(demonstration_settings(context), slots=slots, noise=0.0, loss_on=LossOn.EXPERT)
        shown = await context.workers.rollout(RolloutWorker.demonstrate, give_seeds(tasks, seed), settings, limits)
        played = keep_solved(name, tasks, shown, context.reporter.note)
        if lost := [each.fault for each in played if not each.ending.trainable]:
            # another choice of examples would be another run
            raise StepRefused(f"agent.demonstrations: {name} failed its expert by {lost[-1]}; fix it and resume")
        context.shown[name] = [each for each in played if each.success][: context.stage.agent.demonstrations + 1]
    return context.shown[name]
