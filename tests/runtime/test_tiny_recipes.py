"""Every tiny recipe's first stage up to its first update: a model made of what its environments say, and demonstrations
of its own experts in the words of that model. No engine is needed for that, and no run survives what is wrong here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers  # noqa: F401 - a model is made
from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.model.plan import Plan
from agym.dsl.model.recipe import Environment
from agym.dsl.source import Source
from agym.envs.protocol import Deadlines
from agym.files import SHIPPED, DiskLibrary, shipped_names
from agym.machine import inspect_machine
from agym.runtime.agents.chat import Chat
from agym.runtime.backends.hf_models import load_tokenizer
from agym.runtime.data.demonstrations import keep_solved
from agym.runtime.rollout.env_connections import EnvConnector, OpenEnvs
from agym.runtime.rollout.episode import Ending, Episode, Task
from agym.runtime.rollout.player import EpisodeLimits
from agym.runtime.workers.build import prepare_model
from agym.runtime.workers.rollout_worker import DemonstrationSettings, RolloutWorker, give_seeds

TINY = [name for name in shipped_names() if name.endswith("/tiny")]
BROWSED = {"miniwob/tiny", "websites/tiny", "mixture/tiny"}
SHOWN = 8
"""Of each environment."""


class Silent:
    """No sampler: imitation samples nothing."""


def planned(name: str) -> Plan:
    file = SHIPPED / f"{name}.yaml"
    compiled = compile_recipe(Source(str(file), file.read_text("utf-8")), DiskLibrary(file.parent), (), {}, catalog())
    assert not compiled.failed, [each.message for each in compiled.diagnostics]
    return compiled.variants[0].plan


async def shown(plan: Plan, folder: Path) -> Mapping[str, Sequence[Episode]]:
    envs = OpenEnvs(EnvConnector(folder, {}, print, Deadlines()))
    try:
        model = await prepare_model(plan, folder, envs)
        tokenizer = load_tokenizer(model)
        sampler: Any = Silent()
        worker = RolloutWorker(sampler, Chat(tokenizer), tokenizer.encode_known, envs, time.perf_counter)
        return {name: await by_expert(plan, worker, name) for name in plan.stages[0].settings.environments}
    finally:
        await envs.close()


async def by_expert(plan: Plan, worker: RolloutWorker, name: str) -> list[Episode]:
    stage, rollout = plan.stages[0].settings, plan.rollout
    environment: Environment = stage.environments[name]
    style = DemonstrationSettings(
        agent=stage.agent,
        environments={name: environment},
        timeouts=rollout,
        slots=SHOWN,
        noise=stage.algorithm.data.noise,
        loss_on=stage.algorithm.data.loss_on,
    )
    limits = EpisodeLimits(
        horizon=64,
        tokens_per_turn=64,
        context_tokens=stage.agent.context_tokens,
        invalid_limit=stage.agent.invalid_limit,
        on_invalid=stage.agent.on_invalid,
        observation_tokens=stage.agent.observation_tokens,
    )
    found = await worker.tasks(name, environment, environment.tasks.train, plan.seed)
    tasks = [
        Task(environment=name, id=each.id, seed=at, difficulty=each.difficulty or "")
        for at, each in enumerate(found[:: max(1, len(found) // SHOWN)][:SHOWN])
    ]
    return keep_solved(name, tasks, await worker.demonstrate(give_seeds(tasks, plan.seed), style, limits), print)


@pytest.mark.heavy
@pytest.mark.parametrize("name", TINY)
def test_what_the_experts_of_a_tiny_recipe_show_is_in_the_words_of_its_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in BROWSED and inspect_machine().browser is None:
        pytest.skip("there is no browser")
    plan = planned(name)
    monkeypatch.chdir((SHIPPED / name).parent)  # paths in a recipe count from there
    episodes = asyncio.run(shown(plan, tmp_path))
    noise = plan.stages[0].settings.algorithm.data.noise
    for each in (episode for some in episodes.values() for episode in some):
        assert each.ending.trainable, each
        assert each.sampled_tokens
        assert each.ending is not Ending.BUDGET, "it has no room for what its expert shows"
        assert noise or each.success
