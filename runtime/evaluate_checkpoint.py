"""Evaluate a model on a recipe's eval tasks, without a learner and without a run.

Tasks, seeds and engine are those of a run, so the row is the one that a run would write of the same weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ..dsl.model.plan import Plan
from ..dsl.model.recipe import Eval
from .errors import RunError
from .progress import Progress
from .reporting import Reporter
from .rollout.env_connections import EnvConnector, OpenEnvs, make_deadlines
from .steps.evaluate import Evaluation, evaluate
from .steps.stage_context import StageContext
from .workers.build import find_model, rollout_worker
from .workers.inline import InlineWorkerGroup
from .workers.rollout_worker import RolloutWorker

__all__ = ["evaluate_checkpoint"]


def evaluate_checkpoint(
    plan: Plan,
    progress: Progress,
    reporter: Reporter,
    *,
    environ: Mapping[str, str],
    clock: Callable[[], float],
) -> Evaluation:
    """Play the eval tasks with the model that the plan names by its path, as the stage of `progress` would."""
    with TemporaryDirectory(prefix="agym-eval-") as logs:
        connector = EnvConnector(Path(logs), environ, reporter.note, make_deadlines(plan.rollout))
        return asyncio.run(_evaluate(plan, progress, reporter, connector, clock))


async def _evaluate(
    plan: Plan, progress: Progress, reporter: Reporter, connector: EnvConnector, clock: Callable[[], float]
) -> Evaluation:
    reporter.phase("start")
    model = find_model(plan.model)
    with _explain_deletion(Path(model.path)):
        player = rollout_worker(plan, model, OpenEnvs(connector), clock, weights_follow=False)
    try:
        reporter.phase("eval")
        return await evaluate(_context(plan, progress, player, reporter, clock), plan.eval or Eval())
    finally:
        await player.close()


@contextmanager
def _explain_deletion(folder: Path) -> Iterator[None]:
    """Explain a failed read of a folder that a running run has deleted meanwhile."""
    try:
        yield
    except Exception as error:
        if folder.is_dir():
            raise
        raise RunError(f"checkpoint '{folder}' was deleted while being read: choose a newer one") from error


def _context(
    plan: Plan, progress: Progress, player: RolloutWorker, reporter: Reporter, clock: Callable[[], float]
) -> StageContext:
    return StageContext(
        plan=plan,
        stage=plan.stages[progress.stage].settings,
        workers=InlineWorkerGroup(player),
        progress=progress,
        reporter=reporter,
        clock=clock,
        pools={},
    )
