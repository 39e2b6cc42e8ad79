"""Several servers of one environment, workers of a server, several environments at one address."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from agym.envs.clients import replicas
from agym.envs.clients.client import HttpEnv, InlineEnv
from agym.envs.clients.replicas import Replicas, Served, serve
from agym.envs.clients.supervise import ServeCommand, ServerEvent
from agym.envs.conformance import Subject, run_checks
from agym.envs.errors import EnvFault, EpisodeOver, FaultKind
from agym.envs.protocol import Deadlines
from agym.envs.registry import factory
from agym.envs.serving.arguments import add_arguments
from agym.envs.serving.remote_pool import Distant
from agym.envs.serving.serve import _worker
from agym.envs.serving.server import EnvServer, MultiEnvServer, ServerSettings

COUNTER = ServeCommand(env="counter")
PATIENT = Deadlines(open_s=30, step_s=30)


def log_in(folder: Path) -> Any:
    return lambda number: folder / f"{number}.log"


async def replicas_of(command: ServeCommand, folder: Path, report: Any = lambda event: None) -> Replicas:
    client = await serve(command, 2, log_in(folder), report, PATIENT)
    assert isinstance(client, Replicas)
    return client


async def test_sessions_are_spread_over_the_servers(tmp_path: Path) -> None:
    client = await replicas_of(COUNTER, tmp_path)
    sessions = [await client.open("reach-7", seed) for seed in range(6)]
    held = [(await HttpEnv(server._server.url).health())["sessions"] for server in client._servers]
    assert held == [3, 3]
    for session in sessions[::2]:
        await session.close()
    again = [await client.open("reach-7", 0) for _ in range(3)]
    held = [(await HttpEnv(server._server.url).health())["sessions"] for server in client._servers]
    assert held == [3, 3]
    for session in (*sessions, *again):
        await session.close()
    assert list(client._busy.values()) == [0, 0]
    assert (await client.spec()).name == "counter"
    assert len(await client.tasks("train")) > 0
    await client.close()


async def test_one_that_dies_is_started_again_and_what_was_lost_can_be_played_again(tmp_path: Path) -> None:
    told: list[ServerEvent] = []
    client = await replicas_of(COUNTER, tmp_path, told.append)
    sessions = [await client.open("reach-7", 0) for _ in range(4)]
    victim = client._servers[0]._server
    os.killpg(victim.pid or 0, signal.SIGKILL)
    ended = await asyncio.gather(*(session.step("add 1") for session in sessions), return_exceptions=True)
    lost = [each for each in ended if isinstance(each, EnvFault)]
    assert [fault.kind for fault in lost] == [FaultKind.LOST] * 2
    for session in sessions:
        await session.close()
    again = [await client.open("reach-7", 0) for _ in range(4)]
    for session in again:
        await session.step("add 1")
        await session.close()
    assert [event.trouble.value for event in told] == ["died"]
    await client.close()


class Standing(Served):
    def __init__(self, given_up: bool) -> None:
        self._down = given_up
        self._client = InlineEnv(factory("counter"))  # type: ignore[assignment]

    @property
    def given_up(self) -> bool:
        return self._down

    @property
    def _target(self) -> Any:
        if self._down:
            raise EnvFault("given up after 5 restarts")
        return self._client


async def test_one_that_was_given_up_is_left_out() -> None:
    client = Replicas([Standing(True), Standing(False)])
    sessions = [await client.open("reach-7", 0) for _ in range(3)]
    assert list(client._busy.values()) == [0, 3]
    for session in sessions:
        await session.close()
    with pytest.raises(EnvFault, match="given up"):
        await Replicas([Standing(True)]).open("reach-7", 0)


async def test_if_one_does_not_start_none_is_left(tmp_path: Path) -> None:
    with pytest.raises(EnvFault, match="did not start"):
        await serve(ServeCommand(env="counter", options={"no": 1}), 2, log_in(tmp_path), lambda event: None)


async def test_if_the_start_is_broken_off_none_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[Path] = []
    one_runs = asyncio.Event()

    class Process:
        """The first one starts at once, the other never."""

        url = "http://env"

        def __init__(self, command: ServeCommand, *, log: Path, report: object) -> None:
            self._log = log

        async def __aenter__(self) -> Any:
            if running:
                await asyncio.Event().wait()
            running.append(self._log)
            one_runs.set()
            return self

        async def __aexit__(self, *_: object) -> None:
            running.remove(self._log)

    monkeypatch.setattr(replicas, "ServerProcess", Process)
    starting = asyncio.create_task(serve(COUNTER, 2, log_in(tmp_path), lambda event: None))
    await one_runs.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert running == []


# --- an environment behind a client, served again ---


async def test_what_is_played_elsewhere_conforms_when_it_is_served() -> None:
    inline = InlineEnv(factory("counter"))
    app = EnvServer(Distant(inline, await inline.spec()))
    client = HttpEnv("http://env", transport=httpx.ASGITransport(app))
    results = await run_checks(Subject(client=client, num_tasks=3))
    assert all(result.passed for result in results), results
    await client.close()
    await app.stop()


@pytest.mark.parametrize(("down", "status"), [((True, True), "stuck"), ((True, False), "ok")])
async def test_a_server_all_of_whose_workers_were_given_up_says_so(down: tuple[bool, ...], status: str) -> None:
    app = EnvServer(Distant(Replicas([Standing(each) for each in down]), factory("counter")().spec))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env") as http:
        assert (await http.get("/health")).json()["status"] == status


def test_a_worker_keeps_a_session_for_longer_than_the_process_that_speaks() -> None:
    command = _worker("counter", {}, ServerSettings(lease_s=3600))
    parser = ArgumentParser()
    add_arguments(parser)
    assert parser.parse_args(["counter", *command.arguments]).lease == 7200


async def test_nothing_is_stepped_before_it_is_reset() -> None:
    inline = InlineEnv(factory("counter"))
    loan = await Distant(inline, await inline.spec()).take()
    with pytest.raises(EpisodeOver):
        await loan.step("add 1")
    await loan.give_back()
    await inline.close()


# --- processes as a user starts them ---


@contextmanager
def started(*words: str) -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    argv = [sys.executable, "-m", "agym.envs.serving.serve", *words, "--port", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline()), server
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0


def children(pid: int) -> list[int]:
    return [int(word) for file in Path(f"/proc/{pid}/task").glob("*/children") for word in file.read_text().split()]


@pytest.mark.slow
async def test_workers_play_and_one_that_is_killed_comes_back() -> None:
    with started("counter", "--workers", "2") as (said, server):
        client = HttpEnv(said["url"], deadlines=PATIENT)
        (front,) = children(server.pid)
        assert len(children(front)) == 2
        sessions = [await client.open("reach-7", 0) for _ in range(4)]
        firsts = {session.first.text for session in sessions}
        assert len(firsts) == 1
        os.killpg(children(front)[0], signal.SIGKILL)
        ended = await asyncio.gather(*(session.step("add 1") for session in sessions), return_exceptions=True)
        assert sum(isinstance(each, EnvFault) for each in ended) == 2
        session = await client.open("reach-7", 0)
        await session.step("add 1")
        await session.close()
        await client.close()
        workers = children(front)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


async def test_several_environments_at_one_address() -> None:
    options = json.dumps({"textcraft": {"world": "small", "terse": True}})
    with started("counter", "textcraft", "--options", options) as (said, _):
        assert set(said["environments"]) == {"counter", "textcraft"}
        client = HttpEnv(said["environments"]["textcraft"])
        (task, *_) = await client.tasks("train")
        session = await client.open(task.id, 0)
        assert task.id.startswith("small/")
        await session.step("inventory")
        await session.close()
        await client.close()
        async with httpx.AsyncClient(base_url=said["url"]) as http:
            assert (await http.get("/health")).json() == {"status": "ok", "environments": ["counter", "textcraft"]}
            lines = (await http.get("/metrics")).text.splitlines()
            assert 'agym_env_steps_total{env="textcraft"} 1' in lines
            assert 'agym_env_steps_total{env="counter"} 0' in lines
            assert (await http.get("/nowhere/schema")).status_code == 404


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("counter", "counter"), "served once"),
        (("counter", "textcraft", "--options", '{"babyai": {}}'), "by their names; 'babyai'"),
        (("counter", "--options", "{"), "not JSON"),
        (("cuonter",), "did you mean 'counter'"),
        (("counter", "--agentgym", "none"), "no family 'none'"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_line(words: tuple[str, ...], said: str) -> None:
    argv = [sys.executable, "-m", "agym.envs.serving.serve", *words, "--port", "0"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_all_at_one_address_ask_for_the_same_token() -> None:
    servers = {name: EnvServer(factory(name), ServerSettings(token="right")) for name in ("counter", "textcraft")}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(MultiEnvServer(servers)), base_url="http://env") as http:
        for path in ("/metrics", "/openapi.json", "/counter/schema", "/textcraft/metrics", "/nowhere"):
            assert (await http.get(path)).status_code == 401 or path == "/nowhere"
        assert (await http.get("/health")).status_code == 200
        right = {"authorization": "Bearer right"}
        assert (await http.get("/counter/schema", headers=right)).status_code == 200
        assert (await http.get("/metrics", headers=right)).status_code == 200


async def test_several_at_one_address_are_described_together() -> None:
    servers = {name: EnvServer(factory(name), ServerSettings(token="right")) for name in ("counter", "textcraft")}
    right = {"authorization": "Bearer right"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(MultiEnvServer(servers)), base_url="http://env") as http:
        together = (await http.get("/openapi.json", headers=right)).json()
        for name in servers:
            alone = (await http.get(f"/{name}/openapi.json", headers=right)).json()
            assert {name + path: each for path, each in alone["paths"].items()} == {
                path.removeprefix("/"): each for path, each in together["paths"].items() if path.startswith(f"/{name}/")
            }
            assert (alone["openapi"], alone["security"]) == (together["openapi"], together["security"])
        asked = [path for path, operations in together["paths"].items() if "get" in operations and "{" not in path]
        found = {path: (await http.get(path, headers=right)).status_code for path in asked}
    assert set(found.values()) <= {200, 400, 404}
    assert {path for path, status in found.items() if status == 200} >= {"/counter/schema", "/textcraft/openenv/health"}
    assert "counter, textcraft" in together["info"]["summary"]
