"""Evaluation on tasks that are never trained on, at the horizons and temperatures that the recipe asks for.

The seeds are the same at every evaluation, so that two of them differ by the weights alone; for the same reason tokens
are drawn from the whole distribution, even where `sampling` cuts it off in training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...dsl.model.algorithm import Preset
from ...dsl.model.plan import Plan
from ...dsl.model.recipe import Environment, Eval, TaskSelection
from ..errors import RunError
from ..learning.metrics import EvalOutcomes, bootstrap, eval_outcomes, mean, mean_measures, pass_at
from ..protocols import SamplingSettings
from ..rollout.episode import Episode, Group, Task
from ..rollout.groups import GroupRequest
from ..seeds import derive
from ..storage.episode_log import EpisodeEntry, Mode
from ..text_format import format_count
from ..workers.rollout_worker import RolloutWorker
from .few_shot import play_with_examples
from .judge import answer_questions
from .stage_context import StageContext, episode_limits, horizon_of

__all__ = ["EvalObserver", "Evaluation", "Play", "evaluate", "gather_play", "play_entries", "refuse_overlap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A measurement: numbers for the run folder, and the episodes behind them."""

    row: Mapping[str, float | int | str]
    plays: tuple[Play, ...]

    @property
    def entries(self) -> list[EpisodeEntry]:
        return play_entries(self.plays)

    @property
    def episodes(self) -> tuple[Episode, ...]:
        return tuple(entry.episode for entry in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Play:
    """The tasks of an environment played at one horizon, in one way."""

    environment: str
    horizon: int
    mode: Mode
    groups: Sequence[Group]

    def outcomes(self, plan: Plan, settings: Eval) -> EvalOutcomes:
        episodes = [group.episodes for group in self.groups]
        return eval_outcomes(episodes, settings.confidence, derive(plan.seed, "bootstrap"))


def gather_play(environment: str, horizon: int, mode: Mode, episodes: Iterable[Episode]) -> Play:
    """Gather a play from those of its episodes that ended, in whatever order."""
    by_task: dict[Task, list[Episode]] = {}
    for episode in sorted(episodes, key=lambda each: (each.task.id, each.index)):
        by_task.setdefault(episode.task, []).append(episode)
    groups = tuple(Group(task=task, episodes=tuple(each)) for task, each in by_task.items())
    return Play(environment=environment, horizon=horizon, mode=mode, groups=groups)


class EvalObserver(Protocol):
    """Watches an evaluation; each of its episodes goes to the Reporter."""

    def begin(self, environment: str, horizon: int, mode: Mode, episodes: int) -> None:
        """Announce a play of so many episodes."""
        ...


class _Unobserved:
    def begin(self, environment: str, horizon: int, mode: Mode, episodes: int) -> None: ...


_UNOBSERVED = _Unobserved()


def play_entries(plays: Sequence[Play]) -> list[EpisodeEntry]:
    """Entries for the log of episodes: each task is a group in each play."""
    groups = [(play.mode, group) for play in plays for group in play.groups]
    return [
        EpisodeEntry(episode=episode, group=number, mode=mode)
        for number, (mode, group) in enumerate(groups)
        for episode in group.episodes
    ]


async def evaluate(context: StageContext, settings: Eval, observer: EvalObserver = _UNOBSERVED) -> Evaluation:
    """Every environment at every horizon, sampled and, if asked for, greedy."""
    started = context.clock()
    metrics: dict[str, float] = {}
    played: list[Play] = []
    for name, environment in context.stage.environments.items():
        tasks = await _tasks(context, settings, name, environment)
        *shorter, longest = sorted({*_horizons(context, settings, environment)})
        plays = [(f"{name}@{horizon}/", horizon, settings) for horizon in shorter]
        plays += [(f"{name}/", longest, settings)]
        if settings.greedy:
            plays += [(f"{name}/greedy_", longest, replace(settings, temperature=0.0, samples=1))]
        for prefix, horizon, how in plays:
            mode = Mode.GREEDY if how.temperature == 0 else Mode.SAMPLED
            observer.begin(name, horizon, mode, len(tasks) * how.samples)
            groups = await _play(context, tasks, environment, horizon, how)
            metrics |= {f"eval/{prefix}{key}": value for key, value in _numbers(context, how, groups).items()}
            played.append(Play(environment=name, horizon=horizon, mode=mode, groups=groups))
    row: dict[str, float | int | str] = {
        "total_step": context.progress.total_step,
        "stage": context.stage.stage,
        **metrics,
        "eval/success": mean(metrics[f"eval/{name}/success"] for name in context.stage.environments),
        "timing_s/eval": context.clock() - started,
    }
    return Evaluation(row=row, plays=tuple(played))


async def _tasks(context: StageContext, settings: Eval, name: str, environment: Environment) -> list[Task]:
    seed = derive(context.plan.seed, "eval tasks")
    selection = environment.tasks.eval if settings.tasks is None else TaskSelection(split=settings.tasks)
    if settings.limit is not None:
        selection = replace(selection, limit=min(settings.limit, selection.limit or settings.limit))
    has_judge = context.stage.reward.judge is not None
    infos = await context.workers.rollout(RolloutWorker.tasks, name, environment, selection, seed, has_judge=has_judge)
    return [
        Task(
            environment=name,
            id=info.id,
            seed=derive(context.plan.seed, "eval", name, info.id),
            difficulty=info.difficulty or "",
        )
        for info in infos
    ]


async def refuse_overlap(context: StageContext, settings: Eval) -> None:
    """Refuse to evaluate on tasks that are trained on."""
    for name, environment in context.stage.environments.items():
        evaluated = {task.id for task in await _tasks(context, settings, name, environment)}
        both = sorted(evaluated & {task.id for task in context.pools[name].tasks})
        if both:
            count = format_count(len(both), "task")
            raise RunError(
                f"eval: training and evaluation share {count} of '{name}', such as '{both[0]}'; "
                "expected 'tasks.train' and 'tasks.eval' to have none in common"
            )


def _horizons(context: StageContext, settings: Eval, environment: Environment) -> tuple[int, ...]:
    if settings.turns is not None:
        return settings.turns
    if isinstance(environment.turns, int):
        return (environment.turns,)
    if context.stage.algorithm.use is Preset.EVAL:
        return (horizon_of(context, environment),)
    return (max(stage.budget.max_turns for stage in context.plan.stages) or _LONGEST,)


_LONGEST = 32
"""Turns of a measurement in a run that plays nothing else and does not set them."""


async def _play(
    context: StageContext, tasks: Sequence[Task], environment: Environment, horizon: int, settings: Eval
) -> list[Group]:
    requests = [
        GroupRequest(
            task=task,
            size=settings.samples,
            limits=episode_limits(context, environment, horizon),
            seed=derive(context.plan.seed, "eval", task.environment, task.id, str(settings.temperature)),
        )
        for task in tasks
    ]
    sampling = SamplingSettings(temperature=settings.temperature, stop_texts=context.stage.sampling.stop)
    return await answer_questions(context, await play_with_examples(context, requests, sampling, "eval"))


def _numbers(context: StageContext, settings: Eval, groups: Sequence[Group]) -> dict[str, float]:
    """Per task first, so that a task that lost an episode to a fault counts as much as the others."""
    counted = [[e for e in group.episodes if e.ending.trainable] for group in groups]
    counted = [group for group in counted if group]
    shares = [mean(episode.success for episode in group) for group in counted]
    low, high = bootstrap(shares, settings.confidence, derive(context.plan.seed, "bootstrap"))
    numbers = {
        "success": mean(shares),
        "ci_low": low,
        "ci_high": high,
        "score": mean(mean(episode.score for episode in group) for group in counted),
        "turns": mean(episode.num_turns for group in counted for episode in group),
        "tasks": float(len(counted)),
        "faults": float(sum(not e.ending.trainable for group in groups for e in group.episodes)),
    }
    measures = {f"env/{name}": value for name, value in mean_measures([e for group in counted for e in group]).items()}
    return numbers | measures | _at_k(counted, settings.samples) | _by_difficulty(counted)


def _at_k(groups: Sequence[Sequence[Episode]], samples: int) -> dict[str, float]:
    whole = [group for group in groups if len(group) == samples]
    if samples == 1 or not whole:
        return {}
    return {
        f"avg@{samples}": mean(mean(episode.success for episode in group) for group in whole),
        f"pass@{samples}": mean(pass_at(samples, samples, sum(e.success for e in group)) for group in whole),
    }


def _by_difficulty(groups: Sequence[Sequence[Episode]]) -> dict[str, float]:
    names = sorted({group[0].task.difficulty for group in groups} - {""})
    if len(names) < 2:
        return {}
    return {
        f"success/{name}": mean(
            mean(episode.success for episode in group) for group in groups if group[0].task.difficulty == name
        )
        for name in names
    }
