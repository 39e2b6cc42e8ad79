from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from agym.envs.errors import BadOption
from agym.envs.protocol import Env, Observation, Score, Status, Step
from agym.envs.serving.agentgym import choose_family
from agym.envs.serving.server import EnvServer, ServerSettings

from .conftest import Scripted

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


async def number_of_another(http: httpx.AsyncClient) -> int:
    answer = await asked(http, "/create", {})
    number = next(answer[name] for name in ("id", "env_idx") if name in answer) if isinstance(answer, dict) else answer
    assert isinstance(number, int)
    return number


async def test_an_episode_as_its_clients_play_it(scripted: Make) -> None:
    async with serving(scripted) as http:
        assert isinstance((await http.get("/")).json(), str)
        created = await asked(http, "/create", {"minecraft_dir": "anywhere/", "commands": None, "goal": None})
        number = created["id"]
        assert created == {"id": number, "observation": "train-0 begins", "done": False, "reward": 0}
        reset = await asked(http, "/reset", {"id": number, "data_idx": 4})
        assert reset == {"id": number, "observation": "test-1 begins", "done": False, "reward": 0}
        assert await asked(http, "/step", {"id": number, "action": "hello"}) == {
            "observation": "echo hello",
            "reward": 0.0,
            "done": False,
        }
        assert (await http.get("/observation", params={"id": number})).json() == "echo hello"
        assert (await asked(http, "/step", {"id": number, "action": "win"}))["done"] is True
        assert await asked(http, "/close", {"id": number}) is True


# --- families: exactly the fields that their clients read, and no others ---


@pytest.mark.parametrize(
    ("family", "created"),
    [
        ("textcraft", lambda number: {"id": number, "observation": "train-1 begins", "done": False, "reward": 0}),
        ("babyai", lambda number: {"id": number}),
        ("sciworld", lambda number: {"id": number}),
        ("webarena", lambda number: {"env_idx": number}),
        ("searchqa", lambda number: number),
    ],
)
async def test_what_is_created_is_told_in_the_familys_shape(
    scripted: Make, family: str, created: Callable[[int], object]
) -> None:
    async with serving(scripted, agentgym=family) as http:
        number = await number_of_another(http)
        assert await asked(http, "/create", {}) == created(number + 1)


class Told(Scripted):
    """Says what is to be done before what is seen, and earns half of it on the way."""

    def reset(self, task: str, seed: int) -> Observation:
        super().reset(task, seed)
        return Observation(text=f"Do {task}.\n\nA room.", valid_actions=("win",))

    def tasks(self, split: str) -> tuple[str, ...]:
        return tuple(f"{split}/{number}" for number in range(3))

    def step(self, action: str) -> Step:
        step = super().step(action)
        step = replace(step, status=Status.INVALID) if action == "hm" else step
        return replace(step, reward=0.5) if action == "half" else step


BEGUN = {"reward": 0, "score": 0, "deleted": False, "done": False}


@pytest.mark.parametrize(
    ("family", "number", "sent", "begun", "stepped", "seen", "closed"),
    [
        (
            "babyai",
            "id",
            {"data_idx": 1},
            {"observation": 'Do train/1.\n\nA room.\nAvailable actions: ["win"]', **BEGUN},
            {"observation": "echo half", "reward": 0.5, "score": 0.5, "done": False},
            "echo half",
            True,
        ),
        (
            "sciworld",
            "id",
            {"data_idx": 4},
            {"task_name": "test", "var_num": 1, "task_description": "Do test/1.", "observation": "A room.", **BEGUN},
            {"observation": "echo half", "reward": 50, "score": 50, "done": False},
            "echo half",
            True,
        ),
        (
            "webarena",
            "env_idx",
            {"seed": 0, "idx": 1},
            {"observation": "\nA room.", "sites": [], "object": "Do train/1."},
            {
                "observation": "echo half",
                "reward": 0.5,
                "terminated": False,
                "truncated": False,
                "info": {"length": 4},
            },
            "echo half",
            {"closed": "closed"},
        ),
        (
            "searchqa",
            "env_idx",
            {"id": 1},
            "Do train/1.\n\nA room.",
            {"observation": "<information>echo half</information>", "reward": 0.5, "done": False, "info": None},
            "Do train/1.\n\nA room.",
            True,
        ),
    ],
)
async def test_each_family_has_its_own_shapes(
    family: str, number: str, sent: dict[str, Any], begun: object, stepped: object, seen: str, closed: object
) -> None:
    async with serving(Told, agentgym=family) as http:
        which = {number: await number_of_another(http)}
        assert await asked(http, "/reset", {**which, **sent}) == begun
        assert await asked(http, "/step", {**which, "action": "half"}) == stepped
        assert (await http.get("/observation", params=which)).json() == seen
        won = await asked(http, "/step", {**which, "action": "win"})
        assert won.get("done", won.get("terminated")) is True
        assert await asked(http, "/close", which) == closed
        refused = await http.post("/step", json={**which, "action": "half"})
        assert (refused.status_code, list(refused.json())) == (200 if number == "id" else 404, ["error"])


async def test_what_a_step_earns_in_sciworld_is_told_in_points(scripted: Make) -> None:
    def last() -> Env:
        env = Told()
        env.spec = replace(env.spec, score=Score.LAST)
        return env

    async with serving(last, agentgym="sciworld") as http:
        number = await number_of_another(http)
        await asked(http, "/reset", {"id": number, "data_idx": 0})
        steps = [await asked(http, "/step", {"id": number, "action": action}) for action in ("half", "half", "win")]
    assert [(step["reward"], step["score"]) for step in steps] == [(50, 50), (0, 50), (50, 100)]


@pytest.mark.parametrize("action", ["hm", "win"])
async def test_only_what_was_found_is_called_information(action: str) -> None:
    async with serving(Told, agentgym="searchqa") as http:
        number = await asked(http, "/create", {"id": 0})
        assert (await asked(http, "/step", {"env_idx": number, "action": action}))["observation"] == f"echo {action}"


@pytest.mark.parametrize(
    ("family", "said", "done"),
    [
        ("webarena", "In summary, I will ```click [7]```", "click [7]"),
        ("webarena", "```\nstop [42]\n```", "stop [42]"),
        ("webarena", "click it", "click it"),
        ("searchqa", "<think>hm</think><search> who was it </search>", "search who was it"),
        ("searchqa", "<answer>Ada</answer> or <answer>Eve</answer>", "answer Ada"),
        ("searchqa", "Ada", "Ada"),
        ("textcraft", "```get 1 log```", "```get 1 log```"),
    ],
)
async def test_the_action_is_found_where_the_clients_leave_that_to_the_server(
    scripted: Make, journal: list[str], family: str, said: str, done: str
) -> None:
    number = "id" if family == "textcraft" else "env_idx"
    async with serving(scripted, agentgym=family) as http:
        which = {number: await number_of_another(http)}
        await asked(http, "/reset", which)
        await asked(http, "/step", {**which, "action": said})
    assert done in journal


async def test_what_is_created_holds_no_instance_until_it_is_reset(scripted: Make, journal: list[str]) -> None:
    async with serving(scripted, agentgym="webarena") as http:
        number = await number_of_another(http)
        assert journal == []
        refused = await http.post("/step", json={"env_idx": number, "action": "hello"})
        assert "reset it first" in refused.json()["error"]
        assert (await http.get("/health")).json()["sessions"] == 1
        await asked(http, "/reset", {"env_idx": number, "idx": 0, "seed": 0})
        assert journal == ["reset train-0 0"]


async def test_a_creation_that_fails_leaves_nothing_behind(scripted: Make) -> None:
    async with serving(scripted, agentgym="searchqa") as http:
        refused = await http.post("/create", json={"id": 99})
        assert (refused.status_code, list(refused.json())) == (404, ["error"])
        assert (await http.get("/health")).json()["sessions"] == 0


async def test_a_family_that_is_none_is_refused(scripted: Make) -> None:
    with pytest.raises(BadOption, match="no family 'alfworld' here, only textcraft, babyai"):
        EnvServer(scripted, ServerSettings(agentgym="alfworld"))


@pytest.mark.parametrize(
    ("env", "family"), [("search", "searchqa"), ("websites", "webarena"), ("counter", "textcraft")]
)
def test_the_family_follows_from_the_environments_name(env: str, family: str) -> None:
    assert choose_family(env) == family


async def test_environments_are_numbered_one_after_the_other(scripted: Make) -> None:
    async with serving(scripted) as http:
        numbers = [await number_of_another(http) for _ in range(3)]
        assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


@pytest.mark.parametrize("family", ["textcraft", "babyai"])
async def test_a_number_from_before_a_restart_names_nothing_after_it(scripted: Make, family: str) -> None:
    async with serving(scripted, agentgym=family) as http:
        before = await number_of_another(http)
    async with serving(scripted, agentgym=family) as http:
        await number_of_another(http)
        for path, more in (("/reset", {"data_idx": 0}), ("/step", {"action": "hello"})):
            assert "no environment" in (await asked(http, path, {"id": before, **more}))["error"]


async def test_without_a_task_there_is_nothing_to_create_and_nothing_is_left(scripted: Make) -> None:
    class Empty(Scripted):
        def tasks(self, split: str) -> tuple[str, ...]:
            return ()

    async with serving(Empty, agentgym="textcraft") as http:
        assert "no tasks" in (await asked(http, "/create", {}))["error"]
        assert (await http.get("/health")).json()["sessions"] == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/step", {"id": -7, "action": "hello"}),
        ("/step", {"id": "0", "action": "hello"}),
        ("/step", {}),
        ("/reset", {"data_idx": 6}),
        ("/reset", {"data_idx": -1}),
        ("/reset", {"id": -7, "data_idx": 0}),
        ("/step", {"action": "raise"}),
    ],
)
async def test_errors_come_under_status_200_where_clients_look_for_what_is_missing(
    scripted: Make, path: str, body: dict[str, Any]
) -> None:
    async with serving(scripted) as http:
        number = await number_of_another(http)
        assert list(await asked(http, path, {"id": number, **body})) == ["error"]


@pytest.mark.parametrize("family", ["webarena", "searchqa"])
async def test_errors_have_a_status_where_clients_look_at_nothing_else(scripted: Make, family: str) -> None:
    index = {"webarena": "idx", "searchqa": "id"}[family]
    async with serving(scripted, agentgym=family, max_sessions=1) as http:
        number = await number_of_another(http)
        asks = [
            await http.post("/create", json={}),
            await http.post("/reset", json={"env_idx": number, index: 99}),
            await http.post("/step", json={"env_idx": number + 7, "action": "hello"}),
            await http.get("/observation", params={"env_idx": number + 7}),
        ]
    assert [(each.status_code, list(each.json())) for each in asks] == [(503, ["error"]), *[(404, ["error"])] * 3]


async def test_a_page_that_does_not_open_is_told_as_its_clients_look_for_it(scripted: Make) -> None:
    class Broken(Scripted):
        def reset(self, task: str, seed: int) -> Observation:
            raise RuntimeError("no page")

    async with serving(Broken, agentgym="webarena") as http:
        number = await number_of_another(http)
        told = await asked(http, "/reset", {"env_idx": number, "seed": 0, "idx": 0})
        assert told == {"observation": "TimeoutError", "sites": "Error", "object": "Error"}
        assert 'agym_env_faults_total{env="scripted",kind="crashed"} 1' in (await http.get("/metrics")).text


@pytest.mark.parametrize(
    ("family", "told"), [("textcraft", False), ("searchqa", False), ("webarena", {"closed": "closed"})]
)
async def test_to_close_what_is_not_there_is_no_error(scripted: Make, family: str, told: object) -> None:
    number = "id" if family == "textcraft" else "env_idx"
    async with serving(scripted, agentgym=family) as http:
        which = {number: await number_of_another(http)}
        await asked(http, "/close", which)
        assert await asked(http, "/close", which) == told
        assert await asked(http, "/close", {number: which[number] + 7}) == told


@pytest.mark.parametrize("query", ["", "id=7", "id=x", "id=" + "9" * 30, "id=²"])
async def test_an_observation_of_nothing_is_an_error(scripted: Make, query: str) -> None:
    async with serving(scripted) as http:
        response = await http.get(f"/observation?{query}")
        assert (response.status_code, list(response.json())) == (200, ["error"])


async def test_a_step_after_the_end_is_an_error_until_the_reset(scripted: Make) -> None:
    async with serving(scripted) as http:
        number = await number_of_another(http)
        await asked(http, "/step", {"id": number, "action": "win"})
        assert "error" in await asked(http, "/step", {"id": number, "action": "hello"})
        await asked(http, "/reset", {"id": number, "data_idx": 0})
        assert "error" not in await asked(http, "/step", {"id": number, "action": "hello"})


async def test_clients_that_never_close_are_forgotten(scripted: Make) -> None:
    async with serving(scripted, lease_s=0.05) as http:
        first, *_ = [await number_of_another(http) for _ in range(5)]
        while (await http.get("/health")).json()["sessions"]:
            await asyncio.sleep(0.01)
        assert "error" in await asked(http, "/step", {"id": first, "action": "hello"})
        assert await number_of_another(http) == first + 5


async def test_an_environment_whose_lease_ran_out_is_there_again_when_it_is_reset(scripted: Make) -> None:
    now = [0.0]
    app = EnvServer(scripted, ServerSettings(lease_s=600), clock=lambda: now[0])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env") as http:
        number = await number_of_another(http)
        now[0] = 601
        assert await app.sessions.expire() == 1
        assert "error" in await asked(http, "/step", {"id": number, "action": "hello"})
        assert (await asked(http, "/reset", {"id": number, "data_idx": 1}))["observation"] == "train-1 begins"
        assert (await asked(http, "/step", {"id": number, "action": "win"}))["done"] is True
        assert "error" in await asked(http, "/reset", {"id": number + 1, "data_idx": 0})
    await app.stop()
