"""Episodes that are replayed: the first difference is shown, and there is none where nothing changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from agym.commands.invocation.environments import _refuse_danger
from agym.dsl.model.recipe import Agent, Environment
from agym.envs.clients.client import InlineEnv
from agym.envs.counter import Counter
from agym.envs.protocol import EnvClient, TaskInfo
from agym.reporters.replay import replay_text
from agym.runtime.agents.chat import LEFT_OUT
from agym.runtime.agents.formats import format_for
from agym.runtime.errors import RunError
from agym.viewer.play.pictures import picture_routes
from agym.viewer.play.replay import Replayed, replay_episode
from agym.viewer.play.routes import replay_routes
from agym.viewer.play.saving import save_episode
from agym.viewer.play.table import Table
from agym.viewer.runs import Runs
from agym.viewer.server import create_viewer
from starlette.testclient import TestClient

from .served import BASE, PORT, TOKEN

ACTIONS = ("add 1", "jump", "add 5", "take 1")


async def play() -> dict[str, Any]:
    client = InlineEnv(Counter)
    session = await client.open("reach-20", 3)
    table = Table(
        environment="counter",
        spec=await client.spec(),
        task=TaskInfo(id="reach-20"),
        seed=3,
        client=client,
        session=session,
        clock=lambda: 0.0,
    )
    for action in ACTIONS:
        await table.act(action)
    await table.close()
    await client.close()
    return table.record("played-1", format_for(Agent()))


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return asyncio.run(play())


def replay(record: dict[str, Any], **changes: Any) -> Replayed:
    async def go() -> Replayed:
        client = InlineEnv(Counter)
        try:
            return await replay_episode(client, record | changes)
        finally:
            await client.close()

    return asyncio.run(go())


def test_an_episode_is_the_same_again(recorded: dict[str, Any]) -> None:
    found = replay(recorded)
    assert (found.turns, found.skipped, found.difference) == (3, 1, None)
    text = replay_text("played-1", found, 80)
    assert text == "played-1: 3 turns played again without a difference, 1 turn without an action passed over\n"


Change = Callable[[dict[str, Any]], None]


def say_another_first(record: dict[str, Any]) -> None:
    record["opening"][-1]["content"] = "The number is a thousand."


def say_another(record: dict[str, Any]) -> None:
    record["turns"][2]["observation"] = "The number is \x1b[2J."


def give_another(record: dict[str, Any]) -> None:
    record["turns"][3]["reward"] += 0.25


@pytest.mark.parametrize(
    ("change", "turn", "what"),
    [(say_another_first, 0, "observation"), (say_another, 3, "observation"), (give_another, 4, "reward")],
)
def test_the_first_difference_is_found(recorded: dict[str, Any], change: Change, turn: int, what: str) -> None:
    record = deepcopy(recorded)
    change(record)
    found = replay(record).difference
    assert found is not None
    assert (found.turn, found.what) == (turn, what)


def test_a_difference_is_printed_with_what_was_and_what_is(recorded: dict[str, Any]) -> None:
    record = deepcopy(recorded)
    say_another(record)
    text = replay_text("played-1", replay(record), 80)
    assert "the first difference is the observation of turn 3\n  - as recorded, + now\n" in text
    assert "  - The number is \\x1b[2J.\n" in text
    assert "  + The number is " in text


def test_another_seed_is_another_episode(recorded: dict[str, Any]) -> None:
    found = replay(recorded, task={**recorded["task"], "seed": 4}).difference
    assert found is not None
    assert found.turn == 0


def test_an_episode_that_ended_earlier_is_told(recorded: dict[str, Any]) -> None:
    record = deepcopy(recorded)
    good = record["turns"][0]
    won = {**good, "action": "add 1", "observation": "", "reward": 0.0}
    found = replay({**record, "turns": [won] * 60}).difference
    assert found is not None
    assert found.what in ("ending", "reward")


def test_a_text_that_a_limit_cut_is_compared_by_what_is_left_of_it(recorded: dict[str, Any]) -> None:
    record = deepcopy(recorded)
    told = record["turns"][2]["observation"]
    record["turns"][2]["observation"] = f"{told[:6]}{LEFT_OUT}{told[-3:]}"
    assert replay(record).difference is None
    record["turns"][2]["observation"] = f"{told[:6]}{LEFT_OUT}x.."
    assert replay(record).difference is not None


# --- over HTTP -----------------------------------------------------------------------------------------------------


def ask_again(tmp_path: Path, opened: EnvClient | Exception, **body: Any) -> tuple[int, Any]:
    async def open_recorded(root: Path, name: str, stage: str) -> EnvClient:
        assert (root.name, name, stage) == ("played", "counter", "played")
        if isinstance(opened, Exception):
            raise opened
        return opened

    runs = Runs([tmp_path / "played"], tmp_path / "cache")
    more = [*replay_routes(runs, open_recorded), *picture_routes(runs)]
    client = TestClient(create_viewer(runs, port=PORT, token=TOKEN, more=more), base_url=BASE)
    headers = {"Origin": BASE, "Content-Type": "application/json"}
    answered = client.post(f"/{TOKEN}/api/replay", content=json.dumps(body), headers=headers)
    assert client.post("/api/replay", content=json.dumps(body), headers=headers).status_code == 403
    assert client.get(f"/{TOKEN}/api/replay").status_code == 405
    return answered.status_code, answered.json()


def test_a_page_asks_for_a_replay_by_ids(recorded: dict[str, Any], tmp_path: Path) -> None:
    save_episode(tmp_path / "played", recorded, {})
    status, answer = ask_again(tmp_path, InlineEnv(Counter), run="played", episode="played-1")
    assert (status, answer) == (200, {"turns": 3, "skipped": 1, "difference": None})
    assert ask_again(tmp_path, RunError("no"), run="played", episode="played-1") == (400, {"error": "no"})
    assert ask_again(tmp_path, RunError("no"), run="played", episode="other")[0] == 404
    assert ask_again(tmp_path, RunError("no"), run="..", episode="played-1")[0] == 404
    assert [file.name for file in (tmp_path / "played").rglob("*") if file.is_file()] == ["played.jsonl"]


# --- what may be opened --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "typed", "said"),
    [
        (Environment(use="mcp", options={"command": ["rm", "-r"]}), True, "options.command' of the recipe in 'run'"),
        (Environment(use="gymnasium", options={"id": "evil:Env-v0"}), True, "options.id' of the recipe in 'run'"),
        (Environment(url="http://evil.example"), False, "asks a server that the run's recipe names"),
        (Environment(use="mcp", options={"url": "http://evil.example"}), False, "asks a server"),
        (Environment(use="search", options={"x": [{"url": "HTTP://evil.example"}]}), False, "asks a server"),
        (Environment(use="webarena"), False, "replay it at the terminal, with 'agym view RUN --replay ID'"),
    ],
)  # fmt: skip
def test_what_a_strangers_recipe_could_do_harm_with_is_not_opened(
    settings: Environment, typed: bool, said: str
) -> None:
    with pytest.raises(RunError) as refused:
        _refuse_danger(Path("run"), "house", settings, typed=typed)
    assert said in str(refused.value)


def test_what_runs_here_is_opened_for_a_page_and_a_server_for_a_command() -> None:
    _refuse_danger(Path("run"), "house", Environment(use="counter", options={"largest": 9}), typed=False)
    _refuse_danger(Path("run"), "house", Environment(url="http://127.0.0.1:8000"), typed=True)
