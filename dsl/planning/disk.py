"""How much space a run folder takes at its fullest, in bytes. docs/memory.md has the formulas.

Episodes are the most there can be; the rest is what is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.plan import DiskItem, DiskUse, StageBudget
from ..model.recipe import ModelShape, Recipe, SaveEpisodes
from ..model.stage_kinds import has_critic, has_reference
from .memory import adapter_parameters, critic_parameters, parameters, width

__all__ = ["estimate_disk"]

_STATE_BYTES = 12
"""Of a trained parameter in a checkpoint: its weight and both moments in fp32."""
_TOKEN_BYTES = 30
"""Of a token in the log of episodes: its id, log-prob, version and mask, and its share of the text."""


def estimate_disk(recipe: Recipe, shape: ModelShape, budgets: Sequence[StageBudget]) -> tuple[DiskItem, ...]:
    """Parts of a run folder."""
    on_gpus, lora = recipe.hardware.gpus_per_node > 0, recipe.model.lora
    untied = shape.vocab * shape.hidden if shape.tie_embeddings else 0
    export = (parameters(shape) + untied) * width(recipe.model.dtype, on_gpus)
    trained = adapter_parameters(shape, lora) if lora else parameters(shape)
    if any(has_critic(stage.algorithm) for stage in recipe.schedule):
        trained += adapter_parameters(shape, lora) if lora else critic_parameters(shape)
    saves, state = _saves(recipe, budgets), trained * _STATE_BYTES
    # the newest is whole before an older one goes
    kept = min(saves, recipe.checkpoint.keep + (recipe.checkpoint.best is not None) + 1)
    models = min(saves, kept + recipe.checkpoint.keep_exports) if recipe.checkpoint.export else 0
    references = sum(has_reference(stage.algorithm) for stage in recipe.schedule[1:])
    start = parameters(shape) * 4 if recipe.model.init is not None else 0
    items = (
        DiskItem(use=DiskUse.CHECKPOINTS, count=kept, bytes=kept * state),
        DiskItem(use=DiskUse.MODELS, count=models, bytes=models * export),
        DiskItem(use=DiskUse.STARTS, count=references + bool(start), bytes=references * export + start),
        *_episodes(recipe, budgets),
    )
    return tuple(item for item in items if item.bytes)


def _saves(recipe: Recipe, budgets: Sequence[StageBudget]) -> int:
    """Checkpoints in all; very many, where no count of steps bounds them."""
    steps = [budget.max_steps for budget in budgets]
    return 1 + sum(1 << 40 if each is None else each for each in steps) // recipe.checkpoint.every


def _episodes(recipe: Recipe, budgets: Sequence[StageBudget]) -> Iterator[DiskItem]:
    if recipe.checkpoint.episodes is not SaveEpisodes.ALL or any(budget.max_steps is None for budget in budgets):
        return
    pairs = list(zip(recipe.schedule, budgets, strict=True))
    count = sum((budget.max_steps or 0) * budget.episodes_per_step for _, budget in pairs)
    tokens = sum(
        (budget.max_steps or 0) * budget.episodes_per_step * stage.agent.context_tokens for stage, budget in pairs
    )
    yield DiskItem(use=DiskUse.EPISODES, count=count, bytes=tokens * _TOKEN_BYTES)
