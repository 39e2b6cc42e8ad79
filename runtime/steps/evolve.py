"""A step of evolving: one round of exploring, keeping and retraining.

Enters: a Context. Leaves: a StepResult; what was learnt is in the learner. A round is a function of the weights that it
begins with and of its number: it explores with them, goes back to those of the stage's start, where the recipe says so,
and learns from what it kept and from the demonstrations. Nothing is carried from one round to the next but weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.model.algorithm import DataSource, RetrainFrom
from ..errors import StepRefused
from ..progress import Progress
from ..rollout.episode import Episode
from ..storage.run_folder import PROGRESS
from .sft import demonstrations, harvest, imitate
from .stage_context import StageContext, StepResult, update_settings

__all__ = ["evolve_step"]


async def evolve_step(context: StageContext) -> StepResult:
    """Explore, keep what is worth it, retrain."""
    settings, number = context.stage.algorithm.evolve, context.progress.step + 1
    found = await harvest(context, settings.keep)
    given = await _given(context)
    if not (found.kept or given):
        raise StepRefused(
            f"stage '{context.stage.stage}', round {number}: of {len(found.batch.episodes)} episodes none is kept by "
            f"'{settings.keep.text}', and there are no demonstrations; expected something to learn from"
        )
    update_settings(context)  # a rate without a value is refused here: once the weights are others, nothing can be
    if settings.retrain_from is RetrainFrom.BASE and context.progress.step:
        await _go_back(context)
    return await imitate(
        context, found, [*given, *found.kept], {"evolve/round": number, "data/demonstrations": len(given)}
    )


async def _given(context: StageContext) -> Sequence[Episode]:
    algorithm = context.stage.algorithm
    wanted = algorithm.evolve.keep_demonstrations or context.progress.step == 0
    return await demonstrations(context) if wanted and algorithm.data.source is not DataSource.ROLLOUT else ()


async def _go_back(context: StageContext) -> None:
    """To the weights and the optimiser of the stage's start, and to where the warm-up stood then."""
    assert context.base is not None, "the engine keeps the start of a stage that goes back to it"
    await context.workers.load(context.base)
    context.progress.updates = Progress.from_json((context.base / PROGRESS).read_text()).updates
    context.progress.version += 1  # whatever comes of the updates, the sampler has other weights now
