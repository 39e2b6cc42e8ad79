"""How an environment of a recipe is reached: by its dialect, and on several servers of ours."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from agym.dsl.model.recipe import AgentGymKind, Dialect, Environment, Rollout, Transport
from agym.envs.clients.agentgym import KINDS, AgentGymEnv
from agym.envs.clients.client import HttpEnv
from agym.envs.clients.openenv import OpenEnvEnv
from agym.envs.clients.replicas import Replicas
from agym.envs.clients.supervise import ServeCommand
from agym.envs.errors import EnvFault, FaultKind
from agym.envs.protocol import Deadlines, EnvSpec, Observation, Step
from agym.runtime.errors import RunError
from agym.runtime.rollout.env_calls import ConcurrencyLimits, ConnectedEnv, open_session, with_retries
from agym.runtime.rollout.env_connections import EnvConnector, OpenEnvs
from agym.runtime.rollout.episode import Ending, Episode, Task


@pytest.mark.parametrize(
    ("settings", "client"),
    [
        (Environment(url="http://x"), HttpEnv),
        (Environment(url="http://x", dialect=Dialect.AGENTGYM, kind=AgentGymKind.BABYAI), AgentGymEnv),
        (Environment(url="http://x", dialect=Dialect.OPENENV), OpenEnvEnv),
    ],
)
def test_a_server_is_spoken_to_in_its_dialect(tmp_path: Path, settings: Environment, client: type) -> None:
    async def go() -> None:
        found = await EnvConnector(tmp_path, {}, print, Deadlines())("mine", settings)
        assert isinstance(found, client)
        await found.close()

    asyncio.run(go())


def test_every_kind_that_a_recipe_may_name_can_be_played() -> None:
    assert {kind.value for kind in AgentGymKind} == set(KINDS)


def test_a_token_that_is_not_set_is_told(tmp_path: Path) -> None:
    settings = Environment(url="http://x", dialect=Dialect.OPENENV, token="${env:NO_SUCH}")
    with pytest.raises(RunError, match="NO_SUCH"):
        asyncio.run(EnvConnector(tmp_path, {}, print, Deadlines())("mine", settings))  # type: ignore[arg-type]


def test_a_token_is_read_as_a_header_can_hold_it_or_refused_by_its_variable(tmp_path: Path) -> None:
    connector = EnvConnector(tmp_path, {"LINE": "sk-secret\n", "ODD": "sk-sécret"}, print, Deadlines())
    assert connector.read_secret("${env:LINE}") == "sk-secret"
    with pytest.raises(RunError, match=r"^the token \$\{env:ODD\}: the environment variable ODD is no key") as caught:
        connector.read_secret("${env:ODD}")
    assert "sk-" not in f"{caught.value} {caught.value.__cause__}"


def test_a_session_on_a_server_of_its_own_outlives_any_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ServeCommand] = []

    async def serve(command: ServeCommand, *_: object) -> None:
        asked.append(command)

    monkeypatch.setattr("agym.runtime.rollout.env_connections.serve", serve)
    asyncio.run(
        EnvConnector(tmp_path, {}, print, Deadlines())("mine", Environment(use="counter", transport=Transport.HTTP))
    )
    (command,) = asked
    assert float(command.arguments[command.arguments.index("--lease") + 1]) >= 12 * 3600


def test_episodes_on_replicas_are_played_again_when_one_is_killed(tmp_path: Path) -> None:
    notes: list[str] = []
    task = Task(environment="mine", id="reach-7", seed=0, difficulty="")
    timeouts = Rollout(reset_timeout_s=60, step_timeout_s=60)

    async def go() -> None:
        reach = EnvConnector(tmp_path, {}, notes.append, Deadlines(open_s=50, step_s=50))
        client = await reach("mine", Environment(use="counter", transport=Transport.AUTO, replicas=2))
        assert isinstance(client, Replicas)
        world = ConnectedEnv(name="mine", client=client, spec=await client.spec())
        all_open, opened_once = asyncio.Barrier(4), set[int]()

        async def once(index: int) -> Episode:
            async with open_session(world, task, timeouts, ConcurrencyLimits.of(timeouts)) as session:
                if index not in opened_once:
                    opened_once.add(index)
                    if await all_open.wait() == 0:
                        os.killpg(client._servers[0]._server.pid or 0, signal.SIGKILL)
                    await all_open.wait()
                steps: list[Step] = [await session.step("add 1") for _ in range(2)]
            return Episode(
                task=task, index=index, segments=(), turns=(), ending=Ending.DONE, horizon=2,
                score=steps[-1].reward, success=True,
            )  # fmt: skip

        played = await asyncio.gather(
            *(with_retries(lambda index=index: once(index), task, index, 2, 2, lambda: 0.0) for index in range(4))
        )
        await client.close()
        assert all(episode.ending is Ending.DONE for episode in played)
        assert [episode.retries for episode in played].count(1) == 2
        assert reach.num_troubles == 1

    asyncio.run(go())
    assert "server died" in notes[0]
    assert {file.name for file in tmp_path.glob("*.log")} == {"mine.0.log", "mine.1.log"}


# --- servers that take few sessions --------------------------------------------------------------------------------


class Small:
    """A server that takes few sessions at a time; `others` of them belong to somebody else."""

    def __init__(self, room: int, others: int = 0) -> None:
        self.room, self.num_open, self.most = room - others, 0, 0
        self.first = Observation(text="go")

    async def spec(self) -> EnvSpec:
        return EnvSpec(name="small", version="1", summary="", splits=())

    async def open(self, task: str, seed: int) -> Small:
        await asyncio.sleep(0)
        if self.num_open >= self.room:
            raise EnvFault("Server at capacity", kind=FaultKind.BUSY)
        self.num_open += 1
        self.most = max(self.most, self.num_open)
        return self

    async def step(self, action: str) -> Step:
        await asyncio.sleep(0.002)
        return Step(observation=Observation(text="on"))

    async def close(self) -> None:
        self.num_open -= 1


async def play_many(server: Small, settings: Environment, remark: Callable[[str], None], count: int = 12) -> list[bool]:
    async def opened(name: str, settings: Environment) -> Small:
        return server

    env = await OpenEnvs(opened, remark).get("tiny", settings)  # type: ignore[arg-type]
    task, timeouts = Task(environment="tiny", id="a", seed=0, difficulty=""), Rollout()

    async def play() -> bool:
        try:
            async with open_session(env, task, timeouts, ConcurrencyLimits.of(timeouts)) as session:
                await session.step("x")
        except EnvFault:
            return False
        return True

    return await asyncio.gather(*(play() for _ in range(count)))


def test_a_recipe_limits_how_many_sessions_are_opened() -> None:
    server, notes = Small(room=99), list[str]()
    played = asyncio.run(play_many(server, Environment(url="http://x", sessions=3), notes.append))
    assert (all(played), server.most, server.num_open, notes) == (True, 3, 0, [])


@pytest.mark.parametrize("room", [1, 2, 5])
def test_episodes_wait_for_their_turn_on_a_server_that_takes_few(room: int) -> None:
    server, notes = Small(room=room), list[str]()
    played = asyncio.run(play_many(server, Environment(url="http://x"), notes.append))
    assert (all(played), server.most, server.num_open) == (True, room, 0)
    assert notes[-1].startswith(f"environment 'tiny': its server takes {room} session")
    assert notes[-1].endswith(f"(Server at capacity); write 'environments.tiny.sessions: {room}'")


def test_a_server_that_others_leave_is_used_in_full_again() -> None:
    server, notes = Small(room=8, others=7), list[str]()

    async def go() -> None:
        playing = asyncio.create_task(play_many(server, Environment(url="http://x"), notes.append, 200))
        await asyncio.sleep(0.02)
        assert server.most == 1
        server.room = 8
        assert all(await playing)

    asyncio.run(go())
    assert (server.most > 3, len(notes)) == (True, 1)


def test_a_server_that_others_fill_is_a_fault_and_not_waited_for_without_end() -> None:
    assert not any(asyncio.run(play_many(Small(room=1, others=1), Environment(url="http://x"), print)))


def test_an_episode_given_up_while_it_waits_leaves_room_for_the_others() -> None:
    async def go() -> list[bool]:
        server = Small(room=1)
        early = asyncio.create_task(play_many(server, Environment(url="http://x", sessions=1), print, 5))
        await asyncio.sleep(0.001)
        early.cancel()
        await asyncio.wait([early])
        assert server.num_open == 0
        return await play_many(server, Environment(url="http://x", sessions=1), print, 3)

    assert asyncio.run(go()) == [True] * 3
