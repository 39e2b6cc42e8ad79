"""Measuring: tasks that are never learnt from, at the horizons and temperatures that the recipe asks for.

Enters: a plan, a crew whose sampler holds the weights to be measured. Leaves: one row for the run folder. The seeds are
the same at every measurement, so that two of them differ by the weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..dsl.plan import Plan, PlanStage
from ..dsl.recipe import Environment, Eval, TaskSelection
from .episode import Episode, Group, Task
from .ports import Draw
from .reporting import Reporter
from .rollout import Budgets, Order, Phases
from .seeds import derive
from .statistics import bootstrap, mean, pass_at
from .workers import Crew, PlayStyle

__all__ = ["Measured", "Measuring", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """One measurement to be made."""

    plan: Plan
    stage: PlanStage
    total_step: int
    crew: Crew
    clock: Callable[[], float]

    @property
    def settings(self) -> Eval:
        assert self.plan.eval is not None, "nothing is measured without an 'eval'"
        return self.plan.eval


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measurement: numbers for the run folder, and the episodes behind them."""

    row: Mapping[str, float | int | str]
    episodes: tuple[Episode, ...]


async def measure(what: Measuring, reporter: Reporter) -> Measured:
    """Every environment at every horizon, sampled and, if asked for, greedy."""
    started = what.clock()
    row: dict[str, float | int | str] = {"total_step": what.total_step, "stage": what.stage.settings.stage}
    episodes: list[Episode] = []
    successes = []
    for name, environment in what.stage.settings.environments.items():
        tasks = await _tasks(what, name, environment)
        horizons = _horizons(what, environment)
        for horizon in sorted(horizons):
            suffix = "" if horizon == max(horizons) else f"@{horizon}"
            groups = await _play(what, name, tasks, horizon, what.settings.temperature, what.settings.samples, reporter)
            numbers = _numbers(what, groups)
            row |= {f"eval/{name}{suffix}/{key}": value for key, value in numbers.items()}
            episodes += [episode for group in groups for episode in group.episodes]
        successes.append(numbers["success"])
        if what.settings.greedy:
            groups = await _play(what, name, tasks, max(horizons), 0.0, 1, reporter)
            row |= {f"eval/{name}/greedy_{key}": value for key, value in _numbers(what, groups).items()}
    return Measured(
        row={**row, "eval/success": mean(successes), "timing_s/eval": what.clock() - started}, episodes=tuple(episodes)
    )


async def _tasks(what: Measuring, name: str, environment: Environment) -> list[Task]:
    selection = environment.tasks.eval
    if what.settings.tasks is not None:
        selection = TaskSelection(split=what.settings.tasks)
    if what.settings.limit is not None:
        limit = min(what.settings.limit, selection.limit or what.settings.limit)
        selection = TaskSelection(
            split=selection.split, ids=selection.ids, file=selection.file, range=selection.range, limit=limit
        )
    infos = await what.crew.tasks(name, environment, selection, derive(what.plan.seed, "eval tasks"))
    return [
        Task(
            environment=name,
            id=info.id,
            seed=derive(what.plan.seed, "eval", name, info.id),
            difficulty=info.difficulty or "",
        )
        for info in infos
    ]


def _horizons(what: Measuring, environment: Environment) -> tuple[int, ...]:
    if what.settings.turns is not None:
        return what.settings.turns
    fixed = environment.turns if isinstance(environment.turns, int) else None
    return (fixed or max(stage.budget.max_turns for stage in what.plan.stages),)


async def _play(
    what: Measuring,
    name: str,
    tasks: Sequence[Task],
    horizon: int,
    temperature: float,
    samples: int,
    reporter: Reporter,
) -> list[Group]:
    agent, sampling, rollout = what.stage.settings.agent, what.stage.settings.sampling, what.plan.rollout
    tokens = agent.tokens_per_turn
    budgets = Budgets(
        horizon=horizon,
        tokens_per_turn=tokens if isinstance(tokens, int) else agent.context_tokens,
        context_tokens=agent.context_tokens,
        invalid_limit=agent.invalid_limit,
        on_invalid=agent.on_invalid,
        observation_tokens=agent.observation_tokens,
    )
    orders = [
        Order(
            task=task,
            size=samples,
            budgets=budgets,
            seed=derive(what.plan.seed, "eval", name, task.id, str(temperature)),
        )
        for task in tasks
    ]
    style = PlayStyle(
        format=agent.format,
        environments=what.stage.settings.environments,
        draw=Draw(temperature=temperature, stop_texts=sampling.stop),
        phases=Phases(
            reset_timeout_s=rollout.reset_timeout_s,
            step_timeout_s=rollout.step_timeout_s,
            episode_timeout_s=rollout.episode_timeout_s,
            retries=rollout.retries,
        ),
        slots=rollout.slots or len(tasks) * samples,
    )
    return await what.crew.play(orders, style, reporter.episode)


def _numbers(what: Measuring, groups: Sequence[Group]) -> dict[str, float]:
    """Per task first, so that a task that lost an episode to a fault counts as much as the others."""
    counted = [[e for e in group.episodes if e.ending.trainable] for group in groups]
    counted = [group for group in counted if group]
    shares = [mean(episode.success for episode in group) for group in counted]
    interval = bootstrap(shares, what.settings.confidence, derive(what.plan.seed, "bootstrap"))
    numbers = {
        "success": mean(shares),
        "ci_low": interval.low,
        "ci_high": interval.high,
        "score": mean(mean(episode.score for episode in group) for group in counted),
        "turns": mean(len(episode.turns) for group in counted for episode in group),
        "tasks": float(len(counted)),
        "faults": float(sum(not e.ending.trainable for group in groups for e in group.episodes)),
    }
    return numbers | _at_k(counted, what.settings.samples) | _by_difficulty(counted)


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
