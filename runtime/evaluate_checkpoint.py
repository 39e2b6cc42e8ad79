"""Evaluate a model on a recipe's eval tasks, without a learner and without a run: the row is that of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ..dsl.model.plan import Plan
from ..dsl.model.recipe import Eval
from .data.judge_client import JudgeClient
from .errors import RunError
from .progress import Progress
from .reporting import Reporter
from .rollout.env_connections import EnvConnector, OpenEnvs, make_deadlines
from .steps.evaluate import EvalObserver, Evaluation, evaluate
from .steps.stage_context import StageContext
from .storage.run_folder import JUDGE
from .workers.build import find_model, rollout_worker
from .workers.inline import InlineWorkerGroup

__all__ = ["evaluate_checkpoint"]


def evaluate_checkpoint(
    plan: Plan,
    progress: Progress,
    reporter: Reporter,
    observer: EvalObserver,
    *,
    environ: Mapping[str, str],
    clock: Callable[[], float],
) -> Evaluation:
    """Play the eval tasks with the model that the plan names by its path, as the stage of `progress` would. Where it is
    interrupted, reporter and observer have received all that was played."""
    with TemporaryDirectory(prefix="agym-eval-") as logs:
        connector = EnvConnector(Path(logs), environ, reporter.note, make_deadlines(plan.rollout))
        return asyncio.run(_evaluate(plan, progress, reporter, observer, connector, clock))


async def _evaluate(
    plan: Plan,
    progress: Progress,
    reporter: Reporter,
    observer: EvalObserver,
    connector: EnvConnector,
    clock: Callable[[], float],
) -> Evaluation:
    reporter.phase("start")
    model = find_model(plan.model)
    folder = Path(model.path)
    try:
        player = rollout_worker(plan, model, OpenEnvs(connector, connector.remark), clock, version=progress.version)
    except Exception as error:
        if folder.is_dir():
            raise
        raise RunError(f"checkpoint '{folder}' was deleted while being read: choose a newer one") from error
    judges = JudgeClient(plan, connector.logs / JUDGE, connector.read_secret, scores=False)
    context = StageContext(
        plan=plan,
        stage=plan.stages[progress.stage].settings,
        workers=InlineWorkerGroup(player),
        progress=progress,
        reporter=reporter,
        clock=clock,
        pools={},
        judges=judges,
    )
    try:
        reporter.phase("eval")
        return await evaluate(context, plan.eval or Eval(), observer)
    finally:
        await judges.close()
        await player.close()
