"""Workers as Ray actors: what crosses, what an actor tells while it plays, and real runs in which things are killed."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ray")

from agym.dsl.model.plan import Role  # noqa: E402
from agym.dsl.model.recipe import Agent, Rollout  # noqa: E402
from agym.envs.protocol import Deadlines  # noqa: E402
from agym.runtime.errors import RunError, StepRefused  # noqa: E402
from agym.runtime.protocols import SamplingSettings  # noqa: E402
from agym.runtime.rollout.env_connections import EnvConnector  # noqa: E402
from agym.runtime.rollout.episode import Ending, Episode, Group, Task  # noqa: E402
from agym.runtime.rollout.episode_runner import EpisodeLimits  # noqa: E402
from agym.runtime.rollout.groups import GroupRequest  # noqa: E402
from agym.runtime.workers.ray import (  # noqa: E402
    RayWorkerGroup,
    RolloutActor,
    Said,
    actor_variables,
    launch_ray,
    resource_claims,
)
from agym.runtime.workers.rollout_worker import PlaySettings  # noqa: E402

from .conftest import RECIPE, plan_of  # noqa: E402

# --- placement -----------------------------------------------------------------------------------------------------


def test_on_a_cpu_each_actor_claims_a_core() -> None:
    assert resource_claims(plan_of(RECIPE)) == {Role.ROLLOUT: {"CPU": 1, "GPU": 0}, Role.LEARNER: {"CPU": 1, "GPU": 0}}


def test_actors_that_take_turns_on_a_card_share_it() -> None:
    shared = resource_claims(plan_of(RECIPE, "hardware={gpus_per_node: 1, gpu: h100}"))
    assert {role: share["GPU"] for role, share in shared.items()} == {Role.ROLLOUT: 0.5, Role.LEARNER: 0.5}


def test_more_than_one_worker_of_a_kind_is_refused_by_name(tmp_path: Path) -> None:
    plan = plan_of(RECIPE, "hardware={gpus_per_node: 2, gpu: h100}")
    connector = EnvConnector(tmp_path, {}, print, Deadlines())
    with pytest.raises(RunError, match="places one worker of each kind, and the plan has also rollout/1, learner/1"):
        asyncio.run(launch_ray(plan, tmp_path, connector, time.perf_counter, print))


def test_an_actor_finds_in_its_environment_what_an_engine_in_this_process_would() -> None:
    plan = plan_of(RECIPE)
    found = actor_variables(plan, {"OMP_NUM_THREADS": "7", "SECRET": "x"})
    assert found["OMP_NUM_THREADS"] == "7"
    assert found["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert "SECRET" not in found


# --- playing -------------------------------------------------------------------------------------------------------

STYLE = PlaySettings(agent=Agent(), environments={}, sampling=SamplingSettings(), timeouts=Rollout(), slots=2)
BUDGETS = EpisodeLimits(horizon=1, tokens_per_turn=1, context_tokens=8)


def order(name: str) -> GroupRequest:
    return GroupRequest(task=Task(environment="e", id=name, seed=0), size=2, limits=BUDGETS, seed=0)


def episode(task: Task, index: int) -> Episode:
    return Episode(
        task=task, index=index, segments=(), turns=(), ending=Ending.DONE, horizon=1, score=0.0, success=False
    )


class Playing:
    """A worker that ends episodes one by one, in another order than they are asked for."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble = trouble
        self.cancelled = False

    async def play(
        self, orders: list[GroupRequest], style: PlaySettings, seen: Callable[[Episode], None]
    ) -> list[Group]:
        groups = [
            Group(task=each.task, episodes=tuple(episode(each.task, at) for at in range(each.size))) for each in orders
        ]
        try:
            for each in [one for group in groups for one in group.episodes][::-1]:
                await asyncio.sleep(0)
                seen(each)
                if self.trouble is not None:
                    raise self.trouble
            return groups
        except asyncio.CancelledError:
            self.cancelled = True
            raise


def actor(worker: Playing) -> RolloutActor:
    made = RolloutActor(
        plan_of(RECIPE), Path(), {"logs": Path(), "environ": {}, "deadlines": Deadlines()}, time.perf_counter
    )
    made._worker = cast(Any, worker)
    return made


class Here:
    """An actor's handle, with the actor in this process."""

    def __init__(self, made: RolloutActor) -> None:
        self.play = self
        self._made = made

    def options(self, **_: object) -> Here:
        return self

    async def remote(self, *words: Any) -> Any:
        async for said in self._made.play(*pickle.loads(pickle.dumps(words))):
            yield ready(pickle.loads(pickle.dumps(said)))


def ready(value: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def test_episodes_are_told_of_as_they_end_and_come_back_in_their_groups() -> None:
    heard: list[Episode] = []
    workers = RayWorkerGroup(Here(actor(Playing())), None, print)
    groups = asyncio.run(workers.play([order("a"), order("b")], STYLE, heard.append))
    assert [(each.task.id, each.index) for each in heard] == [("b", 1), ("b", 0), ("a", 1), ("a", 0)]
    assert [[(each.task.id, each.index) for each in group.episodes] for group in groups] == [
        [("a", 0), ("a", 1)],
        [("b", 0), ("b", 1)],
    ]


def test_what_an_environment_has_to_say_comes_with_the_next_news() -> None:
    notes: list[str] = []
    made = actor(Playing())
    made._notes.append("its server died")
    asyncio.run(RayWorkerGroup(Here(made), None, notes.append).play([order("a")], STYLE, lambda _: None))
    assert notes == ["its server died"]


def test_a_play_that_nobody_listens_to_any_more_is_ended() -> None:
    async def leave() -> Playing:
        worker = Playing()
        news = actor(worker).play([order("a"), order("b")], STYLE)
        assert isinstance(await anext(news), Said)
        await cast(Any, news).aclose()
        return worker

    assert asyncio.run(leave()).cancelled


def test_trouble_in_a_play_is_raised_after_what_was_seen_before_it() -> None:
    heard: list[Episode] = []
    workers = RayWorkerGroup(Here(actor(Playing(StepRefused("no sampler")))), None, print)
    with pytest.raises(StepRefused, match="no sampler"):
        asyncio.run(workers.play([order("a")], STYLE, heard.append))
    assert len(heard) == 1


# --- real runs -----------------------------------------------------------------------------------------------------

REAL = """
agym: 1
name: small
model: {init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 320}}}
environments: {textcraft: {use: textcraft, options: {world: small, terse: true}}}
agent: {format: plain, tokens_per_turn: 8, context_tokens: 192}
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, groups_per_update: 2, lr: 1e-3, kl: {coef: 0.01}}
reward: score - 0.1 * invalid_turns
schedule:
  - {stage: imitate, until: step >= 2, algorithm: {use: sft, batch_size: 16, lr: 1e-2, data: {limit: 60}}}
  - {stage: exploit, turns: 3, until: step >= 8}
eval: {every: 4, at_start: false, limit: 8, turns: 3}
checkpoint: {every: 2}
"""


class Driver:
    """A run in a process, and a session, of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "recipe.yaml").write_text(REAL)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agym", "run", "recipe.yaml", *words],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def rows(self) -> list[dict[str, Any]]:
        file = self.folder / "runs/small/metrics.jsonl"
        read = (
            [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")] if file.exists() else []
        )
        return [{key: row[key] for key in row if not key.startswith(("timing_s/", "perf/"))} for row in read]

    def wait_for_rows(self, count: int) -> None:
        deadline = time.monotonic() + 300
        while len(self.rows()) < count:
            assert self.process.poll() is None, self.process.communicate()[0][-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def actor(self, name: str) -> int:
        (found,) = [pid for pid, line in self.members() if line.startswith(f"ray::{name}")]
        return found

    def members(self) -> Iterator[tuple[int, str]]:
        """Living processes of the run's session."""
        for folder in Path("/proc").iterdir():
            try:
                state, *_, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    yield int(folder.name), (folder / "cmdline").read_text().replace("\0", " ")
            except (OSError, ValueError):
                continue

    def ended(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=300)
        # who was told to end may be on its way, on a busy machine for seconds
        self.nothing_within(30)
        return self.process.returncode, out

    def nothing_within(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while left := list(self.members()):
            assert time.monotonic() < deadline, left
            time.sleep(0.1)


ON_RAY = ("--set", "hardware.launcher=ray")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """A run whose driver is no more. The last of Ray's own tries for a minute to tell it: meanwhile other tests run."""
    driver = Driver(tmp_path_factory.mktemp("killed"), *ON_RAY)
    driver.wait_for_rows(3)
    driver.process.kill()
    driver.process.communicate()
    return driver


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory, killed: Driver) -> list[dict[str, Any]]:
    """The rows of the run with every worker in its process."""
    driver = Driver(tmp_path_factory.mktemp("inline"))
    code, out = driver.ended()
    assert code == 0, out[-3000:]
    rows = driver.rows()
    assert [row["total_step"] for row in rows] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 10]
    return rows


@pytest.mark.heavy
def test_the_same_rows_as_with_workers_in_one_process(tmp_path: Path, inline: list[dict[str, Any]]) -> None:
    driver = Driver(tmp_path / "run", *ON_RAY)
    code, out = driver.ended()
    assert code == 0, out[-3000:]
    assert driver.rows() == inline
    assert list(tmp_path.glob("run/runs/small/logs/ray/session_*/logs/raylet.out"))


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["LearnerActor", "RolloutActor"])
def test_an_actor_that_is_killed_ends_the_run_with_one_sentence_and_a_folder_to_resume(
    tmp_path: Path, inline: list[dict[str, Any]], name: str
) -> None:
    driver = Driver(tmp_path / "run", *ON_RAY)
    driver.wait_for_rows(3)
    os.kill(driver.actor(name), signal.SIGKILL)
    code, out = driver.ended()
    worker = {"LearnerActor": "the learner", "RolloutActor": "the rollout worker"}[name]
    assert code == 3
    assert out.splitlines()[-1] == (
        f"agym run: error: {worker}: its process is gone, killed or out of memory; resume to start it anew"
    )
    assert "Traceback" not in out
    assert "raylet" not in out
    resumed = Driver(tmp_path / "run", "--resume", *ON_RAY)
    code, out = resumed.ended()
    assert code == 0, out[-3000:]
    assert resumed.rows() == inline


@pytest.mark.heavy
def test_an_interrupt_from_the_terminal_finishes_the_step_and_saves(
    tmp_path: Path, inline: list[dict[str, Any]]
) -> None:
    driver = Driver(tmp_path / "run", *ON_RAY)
    driver.wait_for_rows(3)
    # a terminal sends it to the whole group
    os.killpg(driver.process.pid, signal.SIGINT)
    code, out = driver.ended()
    assert code == 130, out[-3000:]
    rows = driver.rows()
    assert rows == inline[: len(rows)]
    assert (tmp_path / f"run/runs/small/checkpoints/step-{rows[-1]['total_step']}").is_dir()


@pytest.mark.heavy
def test_nothing_outlives_a_driver_that_is_killed(killed: Driver) -> None:
    killed.nothing_within(180)
