"""What a schema cannot say of a recipe: divisibility, budgets, capabilities, parts that do not go together.

Enters: a bound Recipe, where its keys stand, what is registered. Leaves: diagnostics in file order. Each rule is
a small function in the module of its topic; RULES is all of them.
"""

from __future__ import annotations

from ..catalog import Catalog
from ..check import no_effect as relevance
from ..check.spans import Places
from ..diagnostics import Diagnostic, in_file_order
from ..model.model_sizes import shape_of
from ..model.recipe import ModelShape, Recipe
from .algorithm import ALGORITHM_RULES
from .context import Case, Rule
from .environment import ENVIRONMENT_RULES
from .hardware import HARDWARE_RULES
from .model import MODEL_RULES
from .run import RUN_RULES
from .schedule import SCHEDULE_RULES

__all__ = ["RULES", "check"]

RULES: tuple[Rule, ...] = (
    *MODEL_RULES,
    *ENVIRONMENT_RULES,
    *ALGORITHM_RULES,
    *SCHEDULE_RULES,
    *HARDWARE_RULES,
    *RUN_RULES,
)


def check(recipe: Recipe, places: Places, catalog: Catalog, shape: ModelShape | None = None) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a recipe whose keys and types are right.

    `shape` is for a model whose configuration the caller has read; the recipe and the table of known models are asked
    without it.
    """
    case = Case(recipe=recipe, places=places, catalog=catalog, shape=shape or shape_of(recipe.model))
    found = [diagnostic for rule in RULES for diagnostic in rule(case)]
    return tuple(in_file_order([*found, *relevance.check(recipe, places, catalog.sinks)]))
