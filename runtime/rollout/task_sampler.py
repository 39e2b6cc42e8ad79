"""Task sampling: a pure function of the seed and of saved counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ...dsl.model.recipe import TaskSelection
from ...envs.protocol import EnvClient, TaskInfo
from ..errors import StepRefused
from ..seeds import derive
from ..text_format import format_count
from .episode import Task

__all__ = ["SelectionError", "TaskMixture", "TaskPool", "select_tasks", "shuffle"]


class SelectionError(StepRefused):
    """The recipe's selection of tasks does not fit the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPool:
    """Tasks of one environment to sample from, in the environment's own order."""

    environment: str
    tasks: tuple[TaskInfo, ...]

    def at(self, position: int, seed: int) -> Task:
        """Return the task at a position of an endless sequence in which every task comes once per pass, newly
        shuffled."""
        passes, place = divmod(position, len(self.tasks))
        info = self.tasks[shuffle(len(self.tasks), derive(seed, "pass", self.environment, passes))[place]]
        return Task(
            environment=self.environment,
            id=info.id,
            seed=derive(seed, "task", self.environment, position),
            difficulty=info.difficulty or "",
        )


@lru_cache(maxsize=64)
def shuffle(count: int, seed: int) -> tuple[int, ...]:
    return tuple(int(i) for i in np.random.Generator(np.random.PCG64(seed)).permutation(count))


@dataclass(slots=True)
class TaskMixture:
    """Groups drawn from each environment, and its credit; part of the checkpoint."""

    drawn: dict[str, int] = field(default_factory=dict)
    owed: dict[str, float] = field(default_factory=dict)

    def draw(self, pools: Mapping[str, TaskPool], weights: Mapping[str, float], count: int, seed: int) -> list[Task]:
        """Draw the next tasks; over any stretch, each environment gets its share to within one group."""
        total = sum(weights[name] for name in pools)
        if total <= 0:
            raise SelectionError("all environments have weight 0 at this step: at least one must be above 0")
        return [self._next(pools, weights, total, seed) for _ in range(count)]

    def _next(self, pools: Mapping[str, TaskPool], weights: Mapping[str, float], total: float, seed: int) -> Task:
        for name in pools:
            self.owed[name] = self.owed.get(name, 0.0) + weights[name] / total
        # by name where two are owed the same, so that the order of a mapping decides nothing
        name = max(sorted(name for name in pools if weights[name] > 0), key=lambda name: self.owed[name])
        self.owed[name] -= 1.0
        position = self.drawn.get(name, 0)
        self.drawn[name] = position + 1
        return pools[name].at(position, seed)


async def select_tasks(
    client: EnvClient,
    selection: TaskSelection,
    listed: Sequence[str] | None,
    name: str,
    seed: int,
    *,
    has_judge: bool = True,
    remark: Callable[[str], None] = lambda text: None,
) -> tuple[TaskInfo, ...]:
    """Select tasks by a recipe's selection; `listed` are the ids of `selection.file`, already read. Of a split, those
    that need a judge are left out where there is none, with a remark."""
    ids = selection.ids if listed is None else tuple(listed)
    if ids is not None:
        tasks = tuple(TaskInfo(id=task) for task in ids)
    else:
        tasks = await client.tasks(selection.split or "train")
        if not has_judge:
            tasks = _without_judged(tasks, name, selection.split or "train", remark)
    if selection.range is not None:
        low, high = selection.range
        if not low < high <= len(tasks):
            count = format_count(len(tasks), "task")
            raise SelectionError(f"environment '{name}': range {low} to {high} exceeds its {count}")
        tasks = tasks[low:high]
    if selection.limit is not None:
        tasks = sample_evenly(tasks, selection.limit, derive(seed, "limit", name))
    if not tasks:
        where = f": split '{selection.split or 'train'}' has none with these options" if ids is None else ""
        raise SelectionError(f"environment '{name}': no task was selected{where}")
    return tasks


def _without_judged(
    tasks: tuple[TaskInfo, ...], name: str, split: str, remark: Callable[[str], None]
) -> tuple[TaskInfo, ...]:
    kept = tuple(task for task in tasks if not task.judged)
    if len(kept) < len(tasks):
        left_out = f"{len(tasks) - len(kept)} of {format_count(len(tasks), 'task')}"
        text = f"environment '{name}': {left_out} in split '{split}' need a judge, and are left out"
        if not kept:
            raise SelectionError(f"{text}; write 'reward: {{judge: {{url: ..., model: ...}}}}' to play them")
        remark(f"{text}; write 'reward: {{judge: {{url: ..., model: ...}}}}' to play them too")
    return kept


def sample_evenly(tasks: tuple[TaskInfo, ...], limit: int, seed: int) -> tuple[TaskInfo, ...]:
    """Sample so many tasks by the seed, keeping their order."""
    if limit >= len(tasks):
        return tasks
    kept = set(shuffle(len(tasks), seed)[:limit])
    return tuple(task for i, task in enumerate(tasks) if i in kept)
