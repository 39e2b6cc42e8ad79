"""The part of `harnesses.py` that measures how quick the endpoint is, and what both parts start from."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import httpx
import numpy as np
from agym.catalog import catalog
from agym.dsl.check.paths import anchor_paths
from agym.dsl.compile import compile_recipe
from agym.dsl.model.plan import Plan
from agym.dsl.model.recipe import Agent, Harness, Model, Rollout, TokenizerInit
from agym.dsl.source import Source
from agym.envs.protocol import Deadlines
from agym.files import DiskLibrary
from agym.runtime.agents.chat import Chat
from agym.runtime.backends.hf_models import ModelTokenizer, load_tokenizer, make_tokenizer
from agym.runtime.harness.registry import HarnessTask
from agym.runtime.harness.running import RunningEndpoint
from agym.runtime.policy_endpoint.policy import Policy
from agym.runtime.protocols import FinishReason, Sampled, SampleRequest, SamplingSettings
from agym.runtime.rollout.env_connections import EnvConnector, OpenEnvs
from agym.runtime.rollout.episode import Episode
from agym.runtime.rollout.groups import GroupRequest
from agym.runtime.rollout.player import EpisodeLimits
from agym.runtime.rollout.task_sampler import TaskPool
from agym.runtime.seeds import derive
from agym.runtime.storage.run_folder import RunFolder
from agym.runtime.workers.build import find_model, learner_worker, prepare_model, rollout_worker
from agym.runtime.workers.inline import InlineWorkerGroup
from agym.runtime.workers.learner_worker import LearnerWorker
from agym.runtime.workers.rollout_worker import PlaySettings, RolloutWorker
from paired import Spent, alternated, ratio

__all__ = ["GROUP", "MODELS", "ROOT", "engines_of", "orders_of", "plan_of", "play_plainly", "speed", "style_of"]

ROOT = Path(__file__).resolve().parents[1]
GROUP = 8
"""Episodes of a group."""
_MOST_CPU_S = 5e-3
_LEAST_SHARE = 0.8


def plan_of(name: str, *settings: str) -> Plan:
    library = DiskLibrary(ROOT)
    source = library.open(name)
    assert isinstance(source, Source), source
    compiled = compile_recipe(source, library, settings, {}, catalog())
    if not compiled.variants:
        raise SystemExit("\n".join(f"{each.span}: {each.message}" for each in compiled.diagnostics))
    return anchor_paths(compiled.variants[0].plan, compiled.variants[0].folder)


@asynccontextmanager
async def engines_of(plan: Plan) -> AsyncIterator[tuple[RolloutWorker, InlineWorkerGroup, RunFolder]]:
    """Both engines of a plan, and a run folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="agym-harnesses-") as folder:
        space = RunFolder.start(Path(folder) / "run", "{}", "")
        envs = OpenEnvs(EnvConnector(space.root / "logs", os.environ, print, Deadlines()))
        model = await prepare_model(plan, space.root, envs)
        rollout = rollout_worker(plan, model, envs, perf_counter)
        workers = InlineWorkerGroup(rollout, learner_worker(plan, model))
        stage = plan.stages[-1].settings
        try:
            prompts = await rollout.prompts(stage.agent, stage.environments)
            await workers.learner(LearnerWorker.offer_prompts, prompts)
            yield rollout, workers, space
        finally:
            await workers.close()
            space.close()


async def orders_of(plan: Plan, rollout: RolloutWorker, groups: range, horizon: int) -> list[GroupRequest]:
    """Groups of training tasks by their numbers, always the same."""
    stage = plan.stages[-1].settings
    (name, environment), *_ = stage.environments.items()
    pool = TaskPool(environment=name, tasks=await rollout.tasks(name, environment, environment.tasks.train, seed=0))
    limits = EpisodeLimits(
        horizon=horizon, tokens_per_turn=tokens_of(stage.agent), context_tokens=stage.agent.context_tokens
    )
    return [
        GroupRequest(task=pool.at(at, seed=0), size=GROUP, limits=limits, seed=derive(0, "bench", at)) for at in groups
    ]


def tokens_of(agent: Agent) -> int:
    assert isinstance(agent.tokens_per_turn, int), "these recipes give a number"
    return agent.tokens_per_turn


def style_of(plan: Plan, agent: Agent, slots: int) -> PlaySettings:
    return PlaySettings(
        agent=agent,
        environments=plan.stages[-1].settings.environments,
        sampling=SamplingSettings(),
        timeouts=Rollout(),
        slots=slots,
        tokens_per_turn=tokens_of(agent),
    )


# --- speed ---------------------------------------------------------------------------------------------------------

MODELS: Mapping[str, tuple[str, int, int]] = {
    "tiny": ("harness/plain", 16, 32),
    "smollm2": ("smollm2/textcraft", 4, 16),
}
"""The recipe of each, how many groups are played, and how many episodes at a time."""
_NAME = "bench-plain"


async def play_plainly(task: HarnessTask) -> None:
    """An agent as a coroutine: a plain loop."""
    session, headers = task.session, {"authorization": f"Bearer {task.api_key}"}
    messages = [{"role": "system", "content": session.prompt}] if session.prompt else []
    messages.append({"role": "user", "content": session.first})
    async with httpx.AsyncClient(base_url=task.base_url, headers=headers, timeout=600, verify=False) as client:
        while not session.ended:
            reply = await client.post("/chat/completions", json={"model": task.model, "messages": messages})
            reply.raise_for_status()
            said = reply.json()["choices"][0]["message"]["content"]
            step = await session.step(said)
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": step["observation"]}]


async def speed(arguments: argparse.Namespace) -> int:
    name, groups, slots = MODELS[arguments.model]
    plan = plan_of(name, "model.dtype=fp32") if arguments.model == "tiny" else plan_of(name)
    with tempfile.TemporaryDirectory() as packages:
        _register(Path(packages))
        async with engines_of(plan) as (rollout, workers, _):
            await workers.sync(0)
            spent = await _compare(plan, rollout, workers, range(groups), slots, arguments.rounds)
    episodes = groups * GROUP
    share = _show_speed(spent, episodes, arguments.model)
    cost = await measure_cost(arguments.model)
    print(f"\nprocessor time of the endpoint per request: {1000 * cost:.2f} ms (at most {1000 * _MOST_CPU_S:g})")
    return 0 if (share >= _LEAST_SHARE or arguments.model == "tiny") and cost <= _MOST_CPU_S else 1


def _register(folder: Path) -> None:
    """Register the coroutine as an installed package does."""
    info = folder / "agym_bench_harness-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: agym-bench-harness\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[agym.harnesses]\n{_NAME} = harness_speed:play_plainly\n")
    sys.path.append(str(folder))


async def _compare(
    plan: Plan, rollout: RolloutWorker, workers: InlineWorkerGroup, groups: range, slots: int, rounds: int
) -> dict[str, list[Spent]]:
    # the same prompt for all: a harness gets the environment's own
    agent = replace(plan.stages[0].settings.agent, harness=None, prompt=None)
    orders = await orders_of(plan, rollout, groups, 4)
    script = Harness(command=("python", str(ROOT / "recipes/harness/plain.py")))
    agents = {
        "our own agent": agent,
        "a coroutine": replace(agent, harness=Harness(use=_NAME)),
        "a process per episode": replace(agent, harness=script),
    }

    def play_by(agent: Agent) -> Callable[[], Awaitable[object]]:
        return lambda: workers.play(orders, style_of(plan, agent, slots), _check)

    return await alternated({name: play_by(each) for name, each in agents.items()}, rounds)


def _check(episode: Episode) -> None:
    assert not episode.faults, episode.fault


def _show_speed(spent: Mapping[str, Sequence[Spent]], episodes: int, model: str) -> float:
    native = spent["our own agent"]
    print(f"{model}, {episodes} episodes\n\n| | episodes/s, median | of our own agent's, paired |\n|---|---|---|")
    for name, found in spent.items():
        print(f"| {name} | {episodes / median(each.wall for each in found):.2f} | {ratio(found, native, 'wall'):.3f} |")
    return ratio(spent["a coroutine"], native, "wall")


# --- what a request costs ------------------------------------------------------------------------------------------

_EPISODES, _TURNS, _REPLY = 200, 6, 16
_CLIENT = """
import http.client, json, sys
from concurrent.futures import ThreadPoolExecutor
port, turns, *keys = sys.argv[1:]
def play(key):
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    messages = [{"role": "system", "content": "You craft things. " * 10}, {"role": "user", "content": "Begin."}]
    for turn in range(int(turns)):
        body = json.dumps({"model": "policy", "messages": messages})
        headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        said = json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Number %d." % turn}]
    connection.close()
with ThreadPoolExecutor(4) as pool:
    list(pool.map(play, keys))
"""


@dataclass(slots=True, kw_only=True)
class Instant:
    """A sampler that takes no time."""

    vocabulary: int

    async def sample(self, request: SampleRequest) -> Sampled:
        ids = (
            np.random.Generator(np.random.PCG64(request.seed))
            .integers(self.vocabulary // 2, self.vocabulary, _REPLY)
            .tolist()
        )
        ids = [*ids, request.sampling.stop_ids[0]]
        return Sampled(ids=tuple(ids), logprobs=(-1.0,) * len(ids), versions=(0,) * len(ids), finish=FinishReason.STOP)


async def measure_cost(model: str) -> float:
    """Processor seconds of this process per request, whose clients are another process."""
    if model == "tiny":
        tokenizer = ModelTokenizer(make_tokenizer(TokenizerInit(vocab=512), ["You craft things. Number 1."]))
    else:
        tokenizer = load_tokenizer(find_model(Model(path=model)))
    sampler: Any = Instant(vocabulary=min(len(tokenizer.vocabulary), 40_000))
    running = await RunningEndpoint.start()
    policy = Policy(
        sampler,
        Chat(tokenizer),
        sampling=SamplingSettings(),
        context_tokens=8192,
        tokens_per_reply=64,
        queue=running.queue_for(8),
        clock=perf_counter,
    )
    try:
        return await _time_requests(running, policy)
    finally:
        await running.close()


async def _time_requests(running: RunningEndpoint, policy: Policy) -> float:
    with ExitStack() as stack:
        keys = [stack.enter_context(running.endpoint.open_episode(policy, seed=at)).key for at in range(_EPISODES)]
        port = running.endpoint.url.rpartition(":")[2]
        before = process_time()
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", _CLIENT, port, str(_TURNS), *keys)
        if await client.wait():
            raise SystemExit("the client of the requests failed")
        return (process_time() - before) / (_EPISODES * _TURNS)
