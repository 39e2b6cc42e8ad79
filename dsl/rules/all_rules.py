"""All rules that a schema cannot express: divisibility, budgets, capabilities, parts that conflict."""

from __future__ import annotations

from ..catalog import Catalog
from ..check import no_effect as relevance
from ..check.spans import Places
from ..diagnostics import Diagnostic, sort_by_place
from ..model.model_sizes import find_shape
from ..model.recipe import ModelShape, Recipe
from .algorithm import ALGORITHM_RULES
from .context import Case, Rule
from .environment import ENVIRONMENT_RULES
from .hardware import HARDWARE_RULES
from .harness import HARNESS_RULES
from .model import MODEL_RULES
from .run import RUN_RULES
from .schedule import SCHEDULE_RULES

__all__ = ["RULES", "check_rules"]

RULES: tuple[Rule, ...] = (
    *MODEL_RULES,
    *ENVIRONMENT_RULES,
    *ALGORITHM_RULES,
    *SCHEDULE_RULES,
    *HARNESS_RULES,
    *HARDWARE_RULES,
    *RUN_RULES,
)


def check_rules(
    recipe: Recipe, places: Places, catalog: Catalog, shape: ModelShape | None = None
) -> tuple[Diagnostic, ...]:
    """Check a recipe whose keys and types are right.

    `shape` is that of a model whose configuration the caller has read; without it, the recipe and the table of known
    models are used.
    """
    case = Case(recipe=recipe, places=places, catalog=catalog, shape=shape or find_shape(recipe.model))
    found = [diagnostic for rule in RULES for diagnostic in rule(case)]
    return tuple(sort_by_place([*found, *relevance.find_keys_without_effect(recipe, places, catalog)]))
