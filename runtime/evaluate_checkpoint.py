"""Evaluate a model on a recipe's eval tasks, without a learner and without a run: the row is that of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..dsl.model.plan import Plan
from ..dsl.model.recipe import Environment, Eval
from ..envs.protocol import SeatModel
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

__all__ = ["evaluate_checkpoint", "leave_out_earlier"]


def evaluate_checkpoint(
    plan: Plan,
    progress: Progress,
    reporter: Reporter,
    observer: EvalObserver,
    *,
    environ: Mapping[str, str],
    clock: Callable[[], float],
    root: Path | None = None,
) -> Evaluation:
    """Play the eval tasks with the model that the plan names by its path, as the stage of `progress` would. Where it is
    interrupted, reporter and observer have received all that was played. `root` is the folder of the run whose model it
    is, where its earlier checkpoints play as they did then."""
    with TemporaryDirectory(prefix="agym-eval-") as logs:
        connector = EnvConnector(Path(logs), environ, reporter.note, make_deadlines(plan.rollout))
        return asyncio.run(_evaluate(plan, progress, reporter, observer, connector, clock, root))


async def _evaluate(
    plan: Plan,
    progress: Progress,
    reporter: Reporter,
    observer: EvalObserver,
    connector: EnvConnector,
    clock: Callable[[], float],
    root: Path | None,
) -> Evaluation:
    reporter.phase("start")
    model = find_model(plan.model)
    folder = Path(model.path)
    envs = OpenEnvs(connector, connector.remark)
    try:
        player = rollout_worker(plan, model, envs, clock, version=progress.version, root=root)
    except Exception as error:
        if folder.is_dir():
            raise
        raise RunError(f"checkpoint '{folder}' was deleted while being read: choose a newer one") from error
    judges = JudgeClient(plan, connector.logs / JUDGE, connector.read_secret, scores=False)
    stage = plan.stages[progress.stage].settings
    try:
        if not player.has_earlier:
            stage = replace(stage, environments=await leave_out_earlier(stage.environments, envs))
        context = StageContext(
            plan=plan,
            stage=stage,
            workers=InlineWorkerGroup(player),
            progress=progress,
            reporter=reporter,
            clock=clock,
            pools={},
            judges=judges,
        )
        reporter.phase("eval")
        return await evaluate(context, plan.eval or Eval(), observer)
    finally:
        await judges.close()
        await player.close()


async def leave_out_earlier(environments: Mapping[str, Environment], envs: OpenEnvs) -> dict[str, Environment]:
    """Leave out environments in which an earlier checkpoint has a seat, and say so; RunError where none is left."""
    opened = await envs.all(environments)
    kept = {name: each for name, each in environments.items() if SeatModel.EARLIER not in opened[name].spec.models}
    for name in [name for name in environments if name not in kept]:
        envs.remark(f"environment '{name}' is left out: earlier checkpoints play in it, {_NONE_HERE}")
    if environments and not kept:
        raise RunError(f"earlier checkpoints play in every environment, {_NONE_HERE}")
    return kept


_NONE_HERE = "and a model alone has none; evaluate the run's folder, or set another 'opponent'"
