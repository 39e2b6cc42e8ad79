from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from agym.envs.protocol import Env
from agym.envs.server import EnvServer, ServerSettings

Make = Callable[[], Env]


@asynccontextmanager
async def serving(make: Make, **chosen: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = EnvServer(make, ServerSettings(**chosen))
    await app.start()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env") as http:
        yield http
    await app.stop()


async def asked(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> Any:
    response = await http.post(path, json=body)
    assert response.status_code == 200
    return response.json()


async def test_an_episode_as_its_clients_play_it(scripted: Make) -> None:
    async with serving(scripted) as http:
        assert isinstance((await http.get("/")).json(), str)
        created = await asked(http, "/create", {"minecraft_dir": "anywhere/", "commands": None, "goal": None})
        assert created == {"id": 0, "observation": "train-0 begins", "done": False, "reward": 0}
        reset = await asked(http, "/reset", {"id": 0, "data_idx": 4})
        assert reset == {"id": 0, "observation": "test-1 begins", "done": False, "reward": 0}
        assert await asked(http, "/step", {"id": 0, "action": "hello"}) == {
            "observation": "echo hello",
            "reward": 0.0,
            "done": False,
        }
        assert (await http.get("/observation", params={"id": 0})).json() == "echo hello"
        assert (await asked(http, "/step", {"id": 0, "action": "win"}))["done"] is True
        assert await asked(http, "/close", {"id": 0}) == {"closed": True, "id": 0}


async def test_environments_are_numbered_from_0(scripted: Make) -> None:
    async with serving(scripted) as http:
        assert [(await asked(http, "/create", {}))["id"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/step", {"id": 7, "action": "hello"}),
        ("/step", {"id": "0", "action": "hello"}),
        ("/step", {"id": 0}),
        ("/reset", {"id": 0, "data_idx": 6}),
        ("/reset", {"id": 0, "data_idx": -1}),
        ("/reset", {"id": 7, "data_idx": 0}),
        ("/close", {"id": 7}),
        ("/step", {"id": 0, "action": "raise"}),
    ],
)
async def test_errors_come_under_status_200(scripted: Make, path: str, body: dict[str, Any]) -> None:
    async with serving(scripted) as http:
        await asked(http, "/create", {})
        assert list(await asked(http, path, body)) == ["error"]


@pytest.mark.parametrize("query", ["", "id=7", "id=x", "id=" + "9" * 30, "id=²"])
async def test_an_observation_of_nothing_is_an_error(scripted: Make, query: str) -> None:
    async with serving(scripted) as http:
        response = await http.get(f"/observation?{query}")
        assert (response.status_code, list(response.json())) == (200, ["error"])


async def test_a_step_after_the_end_is_an_error_until_the_reset(scripted: Make) -> None:
    async with serving(scripted) as http:
        await asked(http, "/create", {})
        await asked(http, "/step", {"id": 0, "action": "win"})
        assert "error" in await asked(http, "/step", {"id": 0, "action": "hello"})
        await asked(http, "/reset", {"id": 0, "data_idx": 0})
        assert "error" not in await asked(http, "/step", {"id": 0, "action": "hello"})


async def test_clients_that_never_close_are_forgotten(scripted: Make) -> None:
    async with serving(scripted, lease_s=0.05) as http:
        for _ in range(5):
            await asked(http, "/create", {})
        while (await http.get("/health")).json()["sessions"]:
            await asyncio.sleep(0.01)
        assert "error" in await asked(http, "/step", {"id": 0, "action": "hello"})
        assert (await asked(http, "/create", {}))["id"] == 5
