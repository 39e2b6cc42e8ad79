"""How much space a run folder takes at its largest, in bytes. docs/memory.md has the formulas.

Episodes are the most there can be; the rest is what is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..catalog import Catalog
from ..model.algorithm import Kind
from ..model.plan import DiskItem, DiskUse, StageBudget
from ..model.recipe import Environment, Eval, ModelShape, Recipe, Stage, TaskSelection
from ..model.stage_kinds import episodes_per_task, has_critic, has_reference, kind_of
from .memory import adapter_parameters, critic_parameters, parameters, width

__all__ = ["estimate_disk", "plays_earlier"]

_STATE_BYTES = 12
"""Of a trained parameter in a checkpoint: its weight and both moments in fp32."""
_TOKEN_BYTES = 30
"""Of a token in the log of episodes: its id, log-prob, version and mask, and its share of the text."""


def estimate_disk(
    recipe: Recipe, shape: ModelShape, budgets: Sequence[StageBudget], catalog: Catalog
) -> tuple[DiskItem, ...]:
    """Parts of a run folder; no evaluation episodes where the catalog does not know how many tasks there are."""
    on_gpus, lora = recipe.hardware.gpus_per_node > 0, recipe.model.lora
    export = parameters(shape) * width(recipe.model.dtype, on_gpus)
    trained = adapter_parameters(shape, lora) if lora else parameters(shape)
    if any(has_critic(stage.algorithm) for stage in recipe.schedule):
        trained += adapter_parameters(shape, lora) if lora else critic_parameters(shape)
    saves, state = _saves(recipe, budgets), trained * _STATE_BYTES
    # the newest is complete before an older one is deleted
    more = (recipe.checkpoint.best is not None) + plays_earlier(recipe, catalog)
    kept = min(saves, recipe.checkpoint.keep + more + 1)
    models = min(saves, kept + recipe.checkpoint.keep_exports) if recipe.checkpoint.export else 0
    references = sum(has_reference(stage.algorithm) for stage in recipe.schedule[1:])
    start = parameters(shape) * 4 if recipe.model.init is not None else 0
    items = (
        DiskItem(use=DiskUse.CHECKPOINTS, count=kept, bytes=kept * state),
        DiskItem(use=DiskUse.MODELS, count=models, bytes=models * export),
        DiskItem(use=DiskUse.STARTS, count=references + bool(start), bytes=references * export + start),
        *_episodes(recipe, budgets),
        *_evaluation_episodes(recipe, budgets, catalog),
    )
    return tuple(item for item in items if item.bytes)


def plays_earlier(recipe: Recipe, catalog: Catalog) -> bool:
    """Whether earlier checkpoints of the run have seats in an environment of a stage; one more is kept then."""
    environments = (each for stage in recipe.schedule for each in stage.environments.values())
    named = [(catalog.environments.get(each.use or ""), each.options) for each in environments]
    return any(info is not None and "earlier" in info.seat_models(options) for info, options in named)


def _saves(recipe: Recipe, budgets: Sequence[StageBudget]) -> int:
    """Checkpoints in all; very many, where no count of steps bounds them."""
    steps = [budget.max_steps for budget in budgets]
    return 1 + sum(1 << 40 if each is None else each for each in steps) // recipe.checkpoint.every


def _episodes(recipe: Recipe, budgets: Sequence[StageBudget]) -> Iterator[DiskItem]:
    if any(budget.max_steps is None for budget in budgets):
        return
    saved = [
        (stage, (budget.max_steps or 0) * _saved_per_step(recipe, stage, budget))
        for stage, budget in zip(recipe.schedule, budgets, strict=True)
    ]
    count = sum(episodes for _, episodes in saved)
    tokens = sum(episodes * stage.agent.context_tokens for stage, episodes in saved)
    yield DiskItem(use=DiskUse.EPISODES, count=count, bytes=tokens * _TOKEN_BYTES)


def _saved_per_step(recipe: Recipe, stage: Stage, budget: StageBudget) -> int:
    groups = recipe.checkpoint.episodes.num_groups
    if groups is None:
        return budget.episodes_per_step
    return min(groups * episodes_per_task(stage.algorithm), budget.episodes_per_step)


# --- evaluations ---------------------------------------------------------------------------------------------------


def _evaluation_episodes(recipe: Recipe, budgets: Sequence[StageBudget], catalog: Catalog) -> Iterator[DiskItem]:
    evaluation, steps = recipe.eval, [budget.max_steps for budget in budgets]
    if not recipe.checkpoint.episodes.saves_evaluations or evaluation is None or None in steps:
        return
    played = [_evaluation_plays(stage, evaluation, catalog) for stage in recipe.schedule]
    if None in played:
        return
    counts = [_evaluations(recipe, index, evaluation, budgets) for index in range(len(recipe.schedule))]
    stages = list(zip(recipe.schedule, counts, played, strict=True))
    count = sum(times * (plays or 0) for _, times, plays in stages)
    tokens = sum(times * (plays or 0) * stage.agent.context_tokens for stage, times, plays in stages)
    yield DiskItem(use=DiskUse.EVALUATIONS, count=count, bytes=tokens * _TOKEN_BYTES)


def _evaluations(recipe: Recipe, index: int, evaluation: Eval, budgets: Sequence[StageBudget]) -> int:
    """The most evaluations that are due in a stage: between steps, before the first and after the last."""
    stage, steps = recipe.schedule[index], budgets[index].max_steps or 0
    if kind_of(stage.algorithm) is Kind.EVAL:
        return steps
    before = sum(budget.max_steps or 0 for budget in budgets[:index])
    every = stage.eval_every or evaluation.every
    due = (before + steps) // every - before // every
    at_start = evaluation.at_start and index == 0
    at_end = evaluation.at_end and index == len(recipe.schedule) - 1 and (before + steps) % every != 0
    return due + at_start + at_end


def _evaluation_plays(stage: Stage, evaluation: Eval, catalog: Catalog) -> int | None:
    """Episodes of one evaluation; None where the number of tasks is not known."""
    tasks = [_count_tasks(environment, evaluation, catalog) for environment in stage.environments.values()]
    horizons = len(set(evaluation.turns or (0,)))
    per_task = horizons * evaluation.samples + evaluation.greedy
    return None if None in tasks else sum(each or 0 for each in tasks) * per_task


def _count_tasks(environment: Environment, evaluation: Eval, catalog: Catalog) -> int | None:
    selection = environment.tasks.eval
    if evaluation.tasks is not None:
        selection = TaskSelection(split=evaluation.tasks)
    known = [size for size in (evaluation.limit, selection.limit) if size is not None]
    if selection.range is not None:
        known.append(selection.range[1] - selection.range[0])
    elif selection.ids is not None:
        known.append(len(selection.ids))
    elif selection.split is not None:
        size = catalog.count_split(environment.use, selection.split, environment.options)
        known += [] if size is None else [size]
    return min(known, default=None)
