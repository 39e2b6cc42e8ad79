"""A Recipe to a Plan: ops, placement, budget. Assumes that the rules found no error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..catalog import Catalog
from ..model.plan import VERSION, Budget, Placement, Plan, PlanStage
from ..model.recipe import Environment, ModelShape, Recipe
from ..model.stage_kinds import kind_of, roles
from .budgets import budget_stages, make_sizing
from .disk import estimate_disk, plays_earlier
from .memory import adapter_parameters, capacity_bytes, estimate_memory, parameters
from .ops import stage_ops
from .placement import place_workers
from .transfer import estimate_transfer

__all__ = ["lower"]


def lower(
    recipe: Recipe,
    shape: ModelShape | None,
    choices: Sequence[tuple[str, str]] | Mapping[str, str],
    recipe_sha256: str,
    catalog: Catalog | None = None,
) -> Plan:
    """The plan of one run. The catalog says which environments are light enough to need no server, and their tasks."""
    catalog = catalog or Catalog()
    light = {name for name, info in catalog.environments.items() if info.light}
    needed = roles(recipe.model, recipe.schedule, evaluates=recipe.eval is not None)
    placement = place_workers(recipe.hardware, needed, _environments(recipe), light)
    return Plan(
        version=VERSION,
        recipe_sha256=recipe_sha256,
        name=recipe.name,
        description=recipe.description,
        seed=recipe.seed,
        output=recipe.output,
        tags=recipe.tags,
        choices=dict(choices),
        model=recipe.model,
        shape=shape,
        stages=_stages(recipe),
        rollout=recipe.rollout,
        eval=recipe.eval,
        checkpoint=recipe.checkpoint,
        hardware=recipe.hardware,
        guards=recipe.guards,
        logging=recipe.logging,
        placement=placement,
        budget=_budget(recipe, shape, catalog, placement),
        plays_earlier=plays_earlier(recipe, catalog),
    )


def _stages(recipe: Recipe) -> tuple[PlanStage, ...]:
    return tuple(
        PlanStage(
            index=index,
            kind=kind_of(stage.algorithm),
            settings=stage,
            ops=stage_ops(stage, recipe.model, recipe.hardware, recipe.eval, recipe.checkpoint),
            budget=budget,
        )
        for index, (stage, budget) in enumerate(zip(recipe.schedule, budget_stages(recipe), strict=True))
    )


def _environments(recipe: Recipe) -> dict[str, Environment]:
    """Those in which some stage plays or evaluates, each as its first stage has it."""
    found: dict[str, Environment] = {}
    for stage in recipe.schedule:
        for name, environment in stage.environments.items():
            found.setdefault(name, environment)
    return found


def _budget(recipe: Recipe, shape: ModelShape | None, catalog: Catalog, placement: Placement) -> Budget:
    capacity = capacity_bytes(recipe.hardware)
    if shape is None:
        return Budget(parameters=None, trainable_parameters=None, capacity_bytes=capacity, memory=())
    lora = recipe.model.lora
    adapters = adapter_parameters(shape, lora) if lora else 0
    sizing = make_sizing(recipe, shape)
    return Budget(
        parameters=parameters(shape) + adapters,
        trainable_parameters=(adapters or parameters(shape)) if sizing.learns else 0,
        capacity_bytes=capacity,
        memory=estimate_memory(sizing),
        zero=sizing.zero if sizing.learns else None,
        transfer=estimate_transfer(sizing, recipe.hardware, placement),
        disk=estimate_disk(recipe, shape, budget_stages(recipe), catalog),
    )
