"""Ops that sample: tasks are drawn and played, a judge scores, groups without a training signal are sampled again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...dsl.model.algorithm import Baseline
from ...dsl.model.plan import Op
from ...dsl.model.stage_kinds import episodes_per_task
from ..errors import StepRefused
from ..learning.filters import groups_missing, keeps_group
from ..learning.metrics import group_metrics, rollout_metrics
from ..learning.reward import RewardError, Scales, Scored
from ..learning.training_batch import score_groups
from ..protocols import SamplingSettings
from ..rollout.episode import Group, Task
from ..rollout.groups import GroupRequest
from .few_shot import play_with_examples
from .judge import judge_groups
from .stage_context import StageContext, episode_limits, sampling_settings
from .step_data import StepData

__all__ = ["draw_tasks", "groups_to_resample", "judge_episodes", "play_tasks", "score_episodes"]


async def draw_tasks(op: Op, context: StageContext, data: StepData) -> None:
    weights = {name: context.value(environment.weight) for name, environment in context.stage.environments.items()}
    count = context.stage.algorithm.groups_per_step if data.num_tasks is None else data.num_tasks
    data.tasks = context.progress.mixture.draw(context.pools, weights, count, context.plan.seed)


async def play_tasks(op: Op, context: StageContext, data: StepData) -> None:
    """A group of episodes per task, and a greedy one to compare with if that is the baseline."""
    assert data.tasks is not None, "tasks are drawn before they are played"
    algorithm, sampling = context.stage.algorithm, sampling_settings(context)
    groups = await _play(context, data, data.tasks, episodes_per_task(algorithm), sampling, "group")
    if algorithm.advantage.baseline is Baseline.GREEDY:
        greedy = await _play(context, data, data.tasks, 1, replace(sampling, temperature=0.0), "greedy")
        groups = [replace(group, greedy=best.episodes[0]) for group, best in zip(groups, greedy, strict=True)]
    data.episodes = groups


async def _play(
    context: StageContext, data: StepData, tasks: Sequence[Task], size: int, sampling: SamplingSettings, purpose: str
) -> list[Group]:
    requests = [
        GroupRequest(
            task=task,
            size=size,
            limits=episode_limits(context, context.stage.environments[task.environment]),
            seed=context.seed(purpose, data.rounds, at),
        )
        for at, task in enumerate(tasks)
    ]
    return await play_with_examples(context, requests, sampling, "rollout")


async def judge_episodes(op: Op, context: StageContext, data: StepData) -> None:
    assert data.episodes is not None, "episodes are played before they are judged"
    data.episodes, row = await judge_groups(context, data.episodes, data.rounds)
    data.judged = {name: data.judged.get(name, 0.0) + value for name, value in row.items()}


def groups_to_resample(context: StageContext, data: StepData) -> int:
    """How many further groups `filter.resample` asks for."""
    assert data.episodes is not None, "episodes are played before they are filtered"
    algorithm = context.stage.algorithm
    groups, _ = _score(context, data.episodes)
    passing = sum(keeps_group(group, algorithm, context.names()) for group in groups)
    return groups_missing(passing, algorithm.groups_per_step, data.rounds, algorithm.filter)


async def score_episodes(op: Op, context: StageContext, data: StepData) -> None:
    assert data.episodes is not None, "episodes are played before they are scored"
    data.scored, scales = _score(context, data.episodes)
    context.progress.scales = dict(scales)
    data.measured = rollout_metrics(data.played) | group_metrics(data.scored)


def _score(context: StageContext, groups: Sequence[Group]) -> tuple[list[list[Scored]], Scales]:
    invalid_turn = context.value(context.stage.reward.invalid_turn)
    try:
        return score_groups(groups, context.stage, invalid_turn, context.names(), context.progress.scales)
    except RewardError as error:
        raise StepRefused(f"reward: {error}") from error
