"""Model, environment and engines of a recipe in this process, warmed up a little. Shared by the speed benches."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agym.catalog import catalog
from agym.dsl.check.paths import anchor_paths
from agym.dsl.compile import compile_recipe
from agym.dsl.model.plan import Plan
from agym.dsl.model.recipe import Rollout, Stage
from agym.dsl.source import Source
from agym.envs.protocol import Deadlines
from agym.files import DiskLibrary
from agym.runtime.agents.chat import Chat
from agym.runtime.backends.engine_variables import missing_variables
from agym.runtime.backends.hf_models import load_tokenizer
from agym.runtime.engine import Engine
from agym.runtime.protocols import Sampler, SamplerSettings, SamplingSettings
from agym.runtime.reporting import Reporter, SilentReporter
from agym.runtime.rollout.env_connections import EnvConnector, OpenClient, OpenEnvs
from agym.runtime.rollout.groups import GroupRequest
from agym.runtime.rollout.player import EpisodeLimits
from agym.runtime.rollout.task_sampler import TaskPool
from agym.runtime.seeds import derive
from agym.runtime.storage.run_folder import RunFolder
from agym.runtime.workers.build import learner_worker, prepare_model, sampler_settings
from agym.runtime.workers.inline import InlineWorkerGroup
from agym.runtime.workers.learner_worker import LearnerWorker
from agym.runtime.workers.rollout_worker import PlaySettings, RolloutWorker
from agym.runtime.workers.worker_group import WorkerGroup

__all__ = ["Engines", "in_prepared_process", "quickstart", "recipe_plan", "started", "walked", "warm_up_of"]

MakeSampler = Callable[[SamplerSettings, Callable[[Sequence[int]], str]], Sampler]


def in_prepared_process(threads: int = 1) -> None:
    """Restarts this process if it lacks the variables that engines read when a process starts."""
    if missing := missing_variables(os.environ, threads=threads, cpu=True):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **missing})


def quickstart(*settings: str) -> Plan:
    """Its plan, with what is set on top of it."""
    return recipe_plan("quickstart", *settings)


def recipe_plan(name: str, *settings: str) -> Plan:
    library = DiskLibrary(Path.cwd())
    source = library.open(name)
    assert isinstance(source, Source), source
    compiled = compile_recipe(source, library, settings, {}, catalog())
    plan = compiled.variants[0].plan if compiled.variants else None
    assert plan is not None, [each.message for each in compiled.diagnostics]
    return anchor_paths(plan, library.folder(source))


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """What a run is made of."""

    plan: Plan
    rollout: RolloutWorker
    learner: LearnerWorker
    workers: InlineWorkerGroup

    @property
    def stage(self) -> Stage:
        """The last one, with the longest horizon."""
        return self.plan.stages[-1].settings

    async def orders(self, groups: int, size: int, horizon: int) -> list[GroupRequest]:
        """Groups of training tasks, always the same."""
        (name, environment), *_ = self.stage.environments.items()
        pool = TaskPool(
            environment=name, tasks=await self.rollout.tasks(name, environment, environment.tasks.train, seed=0)
        )
        agent = self.stage.agent
        tokens = int(agent.tokens_per_turn) if isinstance(agent.tokens_per_turn, int) else 16
        limits = EpisodeLimits(horizon=horizon, tokens_per_turn=tokens, context_tokens=agent.context_tokens)
        return [
            GroupRequest(task=pool.at(at, seed=0), size=size, limits=limits, seed=derive(0, "bench", at))
            for at in range(groups)
        ]

    def style(self, slots: int) -> PlaySettings:
        agent = self.stage.agent
        shown = self.plan.model.init is None if agent.show_actions is None else agent.show_actions
        return PlaySettings(
            agent=replace(agent, show_actions=shown),
            environments=self.stage.environments,
            sampling=SamplingSettings(),
            timeouts=Rollout(),
            slots=slots,
        )


@asynccontextmanager
async def started(
    plan: Plan,
    folder: Path,
    slots: int,
    sampler: MakeSampler | None = None,
    reach: Callable[[OpenClient], OpenClient] | None = None,
) -> AsyncIterator[Engines]:
    """Both engines and the environment; `sampler` and `reach` replace, or wrap, those of a run."""
    from agym.runtime.backends.vllm.sampler import VllmSampler

    opened: OpenClient = EnvConnector(folder / "logs", {}, print, Deadlines())
    envs = OpenEnvs(reach(opened) if reach else opened)
    model = await prepare_model(plan, folder, envs)
    tokenizer = load_tokenizer(model)
    context = max(stage.settings.agent.context_tokens for stage in plan.stages)
    own = sampler_settings(plan, model)
    settings = SamplerSettings(model=own.model, dtype=own.dtype, lora=own.lora, context_tokens=context, slots=slots)
    chosen = (sampler or VllmSampler)(settings, tokenizer.decode)
    rollout = RolloutWorker(chosen, Chat(tokenizer), tokenizer.encode_known, envs, time.perf_counter)
    learner = learner_worker(plan, model)
    stage = plan.stages[0].settings
    learner.offer_prompts(await rollout.prompts(stage.agent, stage.environments))
    workers = InlineWorkerGroup(rollout, learner)
    try:
        yield Engines(plan=plan, rollout=rollout, learner=learner, workers=workers)
    finally:
        await workers.close()


async def walked(
    plan: Plan,
    folder: Path,
    workers: WorkerGroup,
    reporter: Reporter | None = None,
    watch: Callable[[Engine], None] = lambda engine: None,
) -> None:
    """Goes through a plan's stages as a run does, in a folder of its own."""
    space = RunFolder.start(folder / "run", "{}", "")
    try:
        engine = Engine(plan, space, workers, reporter or SilentReporter(), time.perf_counter, wall_clock=time.time)
        watch(engine)
        await engine.run()
    finally:
        space.close()


def warm_up_of(plan: Plan) -> Plan:
    """Its first stage alone, which imitates."""
    return replace(plan, stages=plan.stages[:1])
