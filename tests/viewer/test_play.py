"""Play over HTTP: who may, what an episode is like, and how it is saved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.model.recipe import Agent
from agym.envs.clients.client import InlineEnv
from agym.envs.counter import Counter
from agym.envs.pictures import write_png
from agym.envs.protocol import Observation, Step
from agym.runtime.agents.formats import format_for
from agym.runtime.data.dataset import read_conversations
from agym.runtime.storage.episode_reader import EPISODES, MEDIA
from agym.schemas import load
from agym.viewer.play.room import Room
from agym.viewer.play.routes import play_routes
from agym.viewer.runs import Runs
from agym.viewer.server import create_viewer
from anyio.from_thread import start_blocking_portal
from jsonschema import Draft7Validator
from starlette.testclient import TestClient

from .served import BASE, PORT, TOKEN

PICTURE = write_png(2, 1, bytes(6))
NAME = sha256(PICTURE).hexdigest()


class DrawnCounter(Counter):
    """Its observations have a picture; the second has one that is not a PNG."""

    def reset(self, task: str, seed: int) -> Observation:
        return replace(super().reset(task, seed), picture=PICTURE)

    def step(self, action: str) -> Step:
        step = super().step(action)
        return replace(step, observation=replace(step.observation, picture=b"<svg onload='alert(1)'/>"))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    client = InlineEnv(DrawnCounter)
    ticks = count()
    room = Room(
        name="counter",
        client=client,
        form=format_for(Agent()),
        folder=tmp_path / "played",
        clock=lambda: float(next(ticks)),
        wall_clock=lambda: 1000.0,
        first_split="train",
        first_task="reach-7",
    )
    application = create_viewer(
        Runs([], tmp_path / "cache"), port=PORT, token=TOKEN, more=play_routes(room), abilities=("play",)
    )
    asking = TestClient(application, base_url=BASE, follow_redirects=False)
    # all requests in one loop, as a server has them
    with start_blocking_portal() as portal:
        asking.portal = portal
        yield asking
        portal.call(room.close)


def post(
    client: TestClient, what: str, status: int = 200, headers: Mapping[str, str] | None = None, **body: Any
) -> Any:
    sent = {"Origin": BASE, "Content-Type": "application/json"} if headers is None else headers
    answered = client.post(f"/{TOKEN}/api/play/{what}", content=json.dumps(body), headers=sent)
    assert answered.status_code == status, answered.text
    return answered.json()


def get(client: TestClient, path: str, status: int = 200) -> Any:
    answered = client.get(f"/{TOKEN}/api/{path}")
    assert answered.status_code == status, answered.text
    return answered


# --- who may -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["begin", "act", "advise", "save"])
def test_without_the_token_nobody_plays(client: TestClient, what: str) -> None:
    for token in ("", "/a-tokem", "/A-TOKEN"):
        headers = {"Origin": BASE, "Content-Type": "application/json"}
        assert client.post(f"{token}/api/play/{what}", json={}, headers=headers).status_code == 403
    assert get(client, "play").json()["episode"] is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json"},
        {"Content-Type": "application/json", "Origin": "http://evil.example"},
        {"Content-Type": "application/json", "Origin": f"https://127.0.0.1:{PORT}"},
        {"Content-Type": "application/json", "Origin": "null"},
        {"Content-Type": "text/plain", "Origin": BASE},
        {"Content-Type": "application/x-www-form-urlencoded", "Origin": BASE},
        {"Content-Type": "application/json", "Origin": BASE, "Host": "evil.example"},
    ],
    ids=["no origin", "another origin", "another scheme", "no page", "text", "form", "another host"],
)
def test_the_page_of_a_stranger_does_not_play_even_with_the_token(
    client: TestClient, headers: Mapping[str, str]
) -> None:
    post(client, "begin", 403, headers, task="reach-7")
    assert get(client, "play").json()["episode"] is None


def test_playing_is_not_a_matter_of_reading(client: TestClient) -> None:
    get(client, "play/begin", 405)
    assert client.put(f"/{TOKEN}/api/play/begin").status_code == 405
    assert get(client, "abilities").json() == {"abilities": ["play"]}


# --- an episode ----------------------------------------------------------------------------------------------------


def test_an_episode_is_played_with_advice_score_and_pictures(client: TestClient) -> None:
    room = get(client, "play").json()
    assert (room["name"], room["splits"]) == ("counter", ["train", "test"])
    assert room["first"] == {"split": "train", "task": "reach-7", "seed": 0}
    listed = get(client, "play/tasks?split=train&words=REACH-7").json()
    assert listed == {"total": 1, "tasks": [{"id": "reach-7", "difficulty": "near"}]}
    begun = post(client, "begin", task="reach-7")
    assert (begun["task"], begun["turns"], begun["over"], begun["opening_picture"]) == ("reach-7", [], False, NAME)
    assert begun["valid_actions"] == ["add 1", "add 5", "take 1"]
    assert get(client, f"play/media/{NAME}").content == PICTURE
    get(client, f"play/media/{'0' * 64}", 404)
    turn = 0
    while not begun["over"]:
        turn += 1
        advised = post(client, "advise")["action"]
        begun = post(client, "act", action=advised, turn=turn)
    assert begun["score"] == 1
    assert len(begun["turns"]) == turn
    assert begun["dropped_pictures"] == turn
    assert {each["picture"] for each in begun["turns"]} == {None}
    assert post(client, "advise")["action"] is None
    assert post(client, "act", 400, action="add 1", turn=turn + 1) == {"error": "the episode is over: begin another"}


def test_a_second_click_does_nothing(client: TestClient) -> None:
    post(client, "begin", task="reach-7")
    first = post(client, "act", action="add 1", turn=1)
    assert post(client, "act", action="add 1", turn=1) == first
    assert len(first["turns"]) == 1


@pytest.mark.parametrize(
    ("what", "body", "error"),
    [
        ("begin", {"task": "nothing"}, "counter has no task 'nothing'"),
        ("begin", {"task": 7}, "'task' must be a text"),
        ("begin", {"task": "reach-7", "seed": True}, "'seed' must be a whole number"),
        ("begin", {"task": "reach-7", "seed": -1}, "a seed is a whole number from 0 to"),
        ("act", {"action": "add 1", "turn": 1}, "no episode is under way: begin one"),
        ("save", {"as": "episode"}, "no episode is under way: begin one"),
    ],
)
def test_what_cannot_be_done_is_told(client: TestClient, what: str, body: Mapping[str, Any], error: str) -> None:
    assert error in post(client, what, 400, **body)["error"]


def test_a_request_that_is_no_object_or_too_large_is_refused(client: TestClient) -> None:
    headers = {"Origin": BASE, "Content-Type": "application/json"}
    for content, status in (("[]", 400), ("{", 400), ("[" * 100_000, 400), (f'"{"x" * (1 << 20)}"', 413)):
        assert client.post(f"/{TOKEN}/api/play/act", content=content, headers=headers).status_code == status


# --- saving --------------------------------------------------------------------------------------------------------


def solve(client: TestClient) -> int:
    episode, turn = post(client, "begin", task="reach-7"), 0
    while not episode["over"]:
        turn += 1
        episode = post(client, "act", action=post(client, "advise")["action"], turn=turn)
    return turn


def test_what_was_played_is_saved_as_an_episode_that_can_be_viewed(client: TestClient, tmp_path: Path) -> None:
    turns = solve(client)
    assert post(client, "save", **{"as": "episode"})["file"] == str(tmp_path / "played/episodes/played.jsonl")
    assert post(client, "save", 400, **{"as": "episode"}) == {"error": "that is saved already"}
    (line,) = (tmp_path / "played/episodes/played.jsonl").read_text().splitlines()
    record = json.loads(line)
    Draft7Validator(load("episode.v2")).validate(record)
    assert (record["purpose"], record["success"], len(record["turns"])) == ("demonstration", True, turns)
    assert (record["picture"], record["dropped_pictures"]) == (NAME, turns)
    assert (tmp_path / "played" / EPISODES / MEDIA / f"{NAME}.png").read_bytes() == PICTURE
    viewer = TestClient(
        create_viewer(Runs([tmp_path / "played"], tmp_path / "cache"), port=PORT, token=TOKEN), base_url=BASE
    )
    shown = viewer.get(f"/{TOKEN}/api/runs/played/episodes").json()
    assert [each["id"] for each in shown["episodes"]] == [record["id"]]


def test_what_was_played_is_saved_as_a_demonstration_that_can_be_imitated(client: TestClient, tmp_path: Path) -> None:
    turns = solve(client)
    saved = post(client, "save", **{"as": "demonstration"})["file"]
    assert saved == str(tmp_path / "played/demonstrations.jsonl")
    (conversation,) = read_conversations(Path(saved))
    assert (conversation.task.environment, conversation.task.id) == ("counter", "reach-7")
    assert conversation.success
    assert len(conversation.replies) == turns
    assert all(reply.trained for reply in conversation.replies)
    parsed = [format_for(Agent()).read(reply.text) for reply in conversation.replies]
    assert {action for each in parsed for action in each.actions} <= {"add 1", "add 5", "take 1"}


def test_nothing_is_saved_of_an_episode_without_a_turn_or_in_another_way(client: TestClient, tmp_path: Path) -> None:
    post(client, "begin", task="reach-7")
    assert post(client, "save", 400, **{"as": "episode"}) == {"error": "nothing was played yet"}
    assert "saved as one of episode, demonstration" in post(client, "save", 400, **{"as": "../x"})["error"]
    assert not (tmp_path / "played").exists()


def test_a_folder_that_cannot_be_written_is_told(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "played").write_text("")
    solve(client)
    assert "cannot be written" in post(client, "save", 400, **{"as": "demonstration"})["error"]
