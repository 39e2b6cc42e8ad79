"""Tags of episodes and the export of those that were chosen; nothing is written into a run folder."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from agym.envs.pictures import write_png
from agym.runtime.data.dataset import read_conversations
from agym.runtime.storage.episode_reader import EPISODES, MEDIA
from agym.viewer.play.pictures import picture_routes
from agym.viewer.runs import Runs
from agym.viewer.server import create_viewer
from agym.viewer.tags.messages import export_lines, messages_of
from agym.viewer.tags.routes import tag_routes
from agym.viewer.tags.store import TagStore
from starlette.testclient import TestClient

from .served import BASE, PORT, TOKEN, append_lines, ask, episode, write_run

HEADERS = {"Origin": BASE, "Content-Type": "application/json"}


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    write_run(tmp_path / "door")
    runs = Runs([tmp_path / "door"], tmp_path / "cache")
    more = [*tag_routes(runs, TagStore(tmp_path / "data" / "tags")), *picture_routes(runs)]
    return TestClient(create_viewer(runs, port=PORT, token=TOKEN, more=more), base_url=BASE, follow_redirects=False)


def tag(client: TestClient, id_: str, name: str, on: bool = True, status: int = 200, run: str = "door") -> Any:
    body = {"run": run, "episode": id_, "tag": name, "on": on}
    answered = client.post(f"/{TOKEN}/api/tags", content=json.dumps(body), headers=HEADERS)
    assert answered.status_code == status, answered.text
    return answered.json()


def test_an_episode_is_given_tags_and_they_are_taken_away(client: TestClient, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in (tmp_path / "door").rglob("*") if path.is_file()}
    assert tag(client, "train-3-0-1", "good") == {"tags": ["good"]}
    assert tag(client, "train-3-0-1", " to discuss ") == {"tags": ["good", "to discuss"]}
    assert tag(client, "train-3-0-1", "good") == {"tags": ["to discuss", "good"]}
    assert tag(client, "eval-10-0", "good") == {"tags": ["good"]}
    assert tag(client, "train-3-0-1", "to discuss", on=False) == {"tags": ["good"]}
    tagged = {each["id"]: each["tags"] for each in ask(client, "runs/door/tags")["episodes"]}
    assert tagged == {"train-3-0-1": ["good"], "eval-10-0": ["good"]}
    tag(client, "eval-10-0", "good", on=False)
    assert [each["id"] for each in ask(client, "runs/door/tags")["episodes"]] == ["train-3-0-1"]
    # in the folder of the user, and not in that of the run
    assert len(list((tmp_path / "data" / "tags").iterdir())) == 1
    assert {path: path.read_bytes() for path in (tmp_path / "door").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("id_", "name", "run", "status"),
    [
        ("train-3-0-1", "", "door", 400),
        ("train-3-0-1", "<script>", "door", 400),
        ("train-3-0-1", "\u202egood", "door", 400),
        ("train-3-0-1", "x" * 41, "door", 400),
        ("train-3-0-9", "good", "door", 404),
        ("train-3-0-1", "good", "../door", 404),
    ],
)
def test_what_cannot_be_tagged_is_refused(
    client: TestClient, tmp_path: Path, id_: str, name: str, run: str, status: int
) -> None:
    tag(client, id_, name, status=status, run=run)
    assert not (tmp_path / "data").exists()


def test_only_a_page_of_ours_tags(client: TestClient, tmp_path: Path) -> None:
    body = json.dumps({"run": "door", "episode": "train-3-0-1", "tag": "good", "on": True})
    for path, headers in (
        ("/api/tags", HEADERS),
        (f"/{TOKEN}/api/tags", {**HEADERS, "Origin": "http://evil.example"}),
        (f"/{TOKEN}/api/tags", {"Content-Type": "application/json"}),
        (f"/{TOKEN}/api/tags", {**HEADERS, "Content-Type": "text/plain"}),
    ):
        assert client.post(path, content=body, headers=headers).status_code == 403
    assert client.get(f"/{TOKEN}/api/tags").status_code == 405
    assert not (tmp_path / "data").exists()


def test_another_episode_under_the_same_id_has_no_tag(client: TestClient, tmp_path: Path) -> None:
    tag(client, "train-3-0-1", "good")
    file = tmp_path / "door" / EPISODES / "step-000003.jsonl"
    file.unlink()
    append_lines(file, episode(score=0.5))
    assert ask(client, "runs/door/tags") == {"episodes": []}
    assert tag(client, "train-3-0-1", "new") == {"tags": ["new"]}


def test_a_damaged_file_of_tags_is_as_none(client: TestClient, tmp_path: Path) -> None:
    tag(client, "train-3-0-1", "good")
    (file,) = (tmp_path / "data" / "tags").iterdir()
    for text in ("{", "[]", '{"episodes": []}', '{"episodes": {"a": 1}}'):
        file.write_text(text)
        assert ask(client, "runs/door/tags") == {"episodes": []}


# --- exports -------------------------------------------------------------------------------------------------------


def test_tagged_episodes_are_downloaded_as_conversations_that_a_recipe_reads(
    client: TestClient, tmp_path: Path
) -> None:
    tag(client, "train-3-0-1", "good")
    answered = client.get(f"/{TOKEN}/api/runs/door/export.jsonl", params={"tag": "good", "id": "eval-10-2"})
    assert answered.status_code == 200
    assert answered.headers["content-disposition"] == 'attachment; filename="door-sft.jsonl"'
    (tmp_path / "data.jsonl").write_bytes(answered.content)
    found = read_conversations(tmp_path / "data.jsonl")
    assert [each.task.id for each in found] == ["door-2", "door-1"]
    assert [reply.text for reply in found[0].replies] == ["Action: open door"]
    assert found[0].opening[0].content == "You see a door."
    assert client.get(f"/{TOKEN}/api/runs/door/export.jsonl").status_code == 400


def test_a_reply_without_an_action_is_not_to_be_imitated() -> None:
    good = episode()["turns"][0]
    found = messages_of(episode(turns=[{**good, "action": None}, good]))
    assert found is not None
    assert [each.get("learn") for each in found["messages"] if each["role"] == "assistant"] == [False, None]


def test_an_episode_of_several_views_or_without_a_reply_is_no_conversation() -> None:
    segment = episode()["segments"][0]
    for other in (episode(segments=[segment, segment]), episode(turns=[])):
        assert export_lines([other, episode()])[1:] == (1, 1)


def test_an_export_holds_no_line_break_or_surrogate_that_ends_a_line() -> None:
    text, written, _ = export_lines([episode(opening=[{"role": "user", "content": "a\u2028b\nc\ud800"}])])
    assert written == 1
    assert text.isascii()
    assert text.count("\n") == 1


# --- pictures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["0" * 64, "..%2F..%2Frecipe.yaml", "recipe.yaml", "A" * 64])
def test_only_what_is_a_picture_under_its_hash_is_served(client: TestClient, tmp_path: Path, name: str) -> None:
    media = tmp_path / "door" / EPISODES / MEDIA
    media.mkdir()
    (media / f"{'0' * 64}.png").write_bytes(b"<svg onload='alert(1)'/>")
    assert client.get(f"/{TOKEN}/api/runs/door/pictures/{name}").status_code == 404


def test_a_picture_is_served_as_one(client: TestClient, tmp_path: Path) -> None:
    media = tmp_path / "door" / EPISODES / MEDIA
    media.mkdir()
    picture = write_png(1, 1, bytes(3))
    name = sha256(picture).hexdigest()
    (media / f"{name}.png").write_bytes(picture)
    answered = client.get(f"/{TOKEN}/api/runs/door/pictures/{name}")
    assert (answered.status_code, answered.headers["content-type"]) == (200, "image/png")
    assert answered.content == picture
