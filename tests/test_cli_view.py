"""`agym view`: what `--text` prints, that it is safe, and what is refused."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from agym.commands.invocation.pages import writable_cache

from .conftest import Agym


def line(**changes: Any) -> bytes:
    turn = {
        "segment": 0, "start": 2, "end": 4, "reply": "Action: open door", "action": "open door",
        "observation": "It is open.", "reward": 0.5, "state": "", "purpose": "act", "role": "user",
        "seconds": {"sampling": 0.25, "environment": 0.5}, "trained": True, "advantage": [0.5, -0.5],
    }  # fmt: skip
    segment = {"ids": [1, 2, 3, 4], "sampled": [0, 0, 1, 1], "logprobs": [0, 0, -1, -2], "versions": [-1, -1, 2, 2]}
    record = {
        "version": 2, "purpose": "train", "total_step": 3, "stage": "explore", "id": "train-3-0-1",
        "group": "train-3-0", "mode": "sampled", "index": 1, "horizon": 4, "ending": "done",
        "task": {"environment": "house", "id": "door-1", "seed": 7, "difficulty": ""},
        "score": 1.0, "success": True, "fault": "", "retries": 0, "seconds": 1.5,
        "sampled_tokens": 2, "total_tokens": 4, "training": {"reward": 0.75, "kept": True, "reason": ""},
        "opening": [{"role": "user", "content": "You see a door."}], "turns": [turn],
        "segments": [segment],
    }  # fmt: skip
    return json.dumps(record | changes).encode() + b"\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs/door/episodes"
    folder.mkdir(parents=True)
    lost = line(id="train-3-0-2", index=2, success=False, score=0, ending="horizon", training={"reward": 0})
    (folder / "step-000003.jsonl").write_bytes(line() + lost)
    return tmp_path / "runs/door"


SHOWN = """\
train-3-0-1  house, task door-1, seed 7  step 3, stage explore  sampled
done after 1 of 4 turns, 0 invalid; score 1, success; 2 tokens in 1.5 s
reward 0.75, advantage 0, trained on: yes

  user:
    You see a door.

turn 1/1  action 'open door'  reward 0.5  advantage -0.5 to 0.5  0.25 s + 0.5 s
  reply:
    Action: open door
  user:
    It is open.

door: 1 of 1 episodes
"""


def test_an_episode_is_printed_turn_by_turn_and_nothing_is_written_next_to_it(agym: Agym, run: Path) -> None:
    for where in ("runs", "runs/door"):
        called = agym("view", where, "--text", "--where", "success")
        assert (called.code, called.out, called.err) == (0, SHOWN, "")
    assert [path.name for path in run.rglob("*")] == ["episodes", "step-000003.jsonl"]


def test_what_was_not_recorded_is_said_to_be_so(agym: Agym, run: Path) -> None:
    called = agym("view", "runs/door", "--text", "--where", "not success")
    assert "reward 0, advantage 0, trained on: not recorded" in called.out


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ((), "2 of 2"),
        (("--limit", "1"), "1 of 2"),
        (("--task", "door-1", "--step", "3"), "2 of 2"),
        (("--task", "door-2"), "0 of 0"),
        (("--step", "4"), "0 of 0"),
        (("--words", "DOOR ope"), "2 of 2"),
        (("--words", "window"), "0 of 0"),
    ],
)
def test_filters_choose_the_episodes(agym: Agym, run: Path, words: tuple[str, ...], shown: str) -> None:
    called = agym("view", "runs/door", "--text", *words)
    assert (called.code, called.out.splitlines()[-1]) == (0, f"door: {shown} episodes")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "no run in nowhere: name the folder of a run, or of runs"),
        (("runs/door", "--limit", "9"), "--limit goes with --text"),
        (("runs/door", "--port", "70000"), "--port must be from 1 to 65535"),
        (("runs/door", "--text", "--port", "8000"), "--port and --no-browser are of the server"),
        (("nowhere", "--text"), "no recorded episodes in nowhere: name the folder of a run, or of runs"),
        (("runs/door", "--text", "--where", "succes"), "unknown name 'succes'; did you mean 'success'?"),
        (("runs/door", "--text", "--limit", "0"), "--limit must be at least 1"),
    ],
)
def test_what_is_wrong_is_told(agym: Agym, run: Path, words: tuple[str, ...], said: str) -> None:
    called = agym("view", *words)
    assert called.code == 2
    assert said in called.err


# --- replays and exports -------------------------------------------------------------------------------------------


@pytest.fixture
def played(agym: Agym, tmp_path: Path) -> Path:
    """An episode that somebody played at the terminal."""
    called = agym(
        "envs", "play", "counter", "--task", "reach-7", "--save", "played", stdin=b"add 5\nfly\nadd 1\nquit\n"
    )
    assert called.code == 0
    assert called.out.endswith(f"saved in {tmp_path / 'played/episodes/played.jsonl'}\n")
    return tmp_path / "played"


def id_of(played: Path) -> str:
    (record,) = map(json.loads, (played / "episodes/played.jsonl").read_text().splitlines())
    return str(record["id"])


def test_an_episode_is_played_again_without_a_difference(agym: Agym, played: Path) -> None:
    called = agym("view", "played", "--replay", id_of(played))
    assert (called.code, called.err) == (0, "")
    assert called.out == (
        f"{id_of(played)}: 2 turns played again without a difference, 1 turn without an action passed over\n"
    )


def test_the_first_difference_is_shown_and_is_a_failure(agym: Agym, played: Path) -> None:
    file = played / "episodes/played.jsonl"
    record = json.loads(file.read_text())
    record["turns"][2]["observation"] = "The number is \x1b[2J.\nNo more."
    file.write_text(json.dumps(record) + "\n")
    called = agym("view", "played", "--replay", record["id"])
    assert called.code == 3
    assert "the first difference is the observation of turn 3\n  - as recorded, + now\n" in called.out
    assert "  - No more.\n" in called.out
    assert "\x1b" not in called.out


def test_an_episode_of_a_run_without_a_recipe_or_by_another_id_is_not_replayed(agym: Agym, run: Path) -> None:
    called = agym("view", "runs/door", "--replay", "train-3-0-1")
    assert called.code == 3
    assert "holds no recipe, which would say what environment 'house' is" in called.err
    called = agym("view", "runs/door", "--replay", "no-such")
    assert called.code == 2
    assert "no episode 'no-such' in runs/door: --text lists their ids" in called.err


def test_chosen_episodes_are_exported_as_conversations(agym: Agym, run: Path, tmp_path: Path) -> None:
    called = agym("view", "runs/door", "--export", "sft.jsonl", "--where", "success")
    assert (called.code, called.out, called.err) == (0, "wrote 1 conversation to sft.jsonl\n", "")
    (conversation,) = map(json.loads, (tmp_path / "sft.jsonl").read_text().splitlines())
    assert conversation["messages"][:2] == [
        {"role": "user", "content": "You see a door."},
        {"role": "assistant", "content": "Action: open door"},
    ]
    assert conversation["success"]


def test_episodes_are_tagged_at_the_terminal_and_found_by_their_tags(agym: Agym, run: Path, tmp_path: Path) -> None:
    tagged = agym("view", "runs", "--text", "--where", "success", "--add-tag", "good")
    assert (tagged.code, tagged.out.splitlines()[-3:]) == (0, ["tags: good", "", "door: 1 of 1 episodes"])
    found = agym("view", "runs", "--text", "--tag", "good", "--tag", "other")
    assert found.out.splitlines()[0].startswith("train-3-0-1  ")
    assert found.out.splitlines()[-1] == "door: 1 of 1 episodes"
    exported = agym("view", "runs", "--export", "sft.jsonl", "--tag", "good")
    assert exported.out == "wrote 1 conversation to sft.jsonl\n"
    agym("view", "runs", "--text", "--tag", "good", "--remove-tag", "good")
    assert agym("view", "runs", "--text", "--tag", "good").out == "door: 0 of 0 episodes\n"
    assert agym("view", "runs", "--text", "--add-tag", "<b>").code == 2
    assert [path.name for path in run.rglob("*")] == ["episodes", "step-000003.jsonl"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--add-tag", "good"), "--add-tag goes with --text"),
        (("--export", "sft.jsonl", "--remove-tag", "x"), "--remove-tag goes with the pages or --text"),
        (("--export", "runs/door/sft.jsonl"), "nothing is written into the folder of a run"),
        (("--export", "there.jsonl"), "name a new file in a folder that is there"),
        (("--export", "no/sft.jsonl"), "name a new file in a folder that is there"),
        (("--export", "sft.jsonl", "--task", "none"), "no episode that was chosen is a conversation"),
        (("--export", "sft.jsonl", "--tag", "good"), "no episode that was chosen is a conversation"),
        (("--export", "sft.jsonl", "--port", "8000"), "--port goes with the pages or --text, and not with --export"),
        (("--export", "sft.jsonl", "--text"), "--text and --export do not go together"),
        (("--replay", "train-3-0-1", "--task", "x"), "--task goes with the pages, --text or --export"),
    ],
)
def test_what_cannot_be_exported_is_told_and_not_written(
    agym: Agym, run: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "there.jsonl").write_text("mine")
    called = agym("view", "runs/door", *words)
    assert called.code == 2
    assert said in called.err
    assert (tmp_path / "there.jsonl").read_text() == "mine"
    assert not (tmp_path / "sft.jsonl").exists()
    assert [path.name for path in run.rglob("*")] == ["episodes", "step-000003.jsonl"]


def test_more_episodes_than_are_asked_for_at_once_are_exported(agym: Agym, run: Path, tmp_path: Path) -> None:
    with (run / "episodes/step-000004.jsonl").open("wb") as file:
        file.writelines(line(id=f"e{number}", segments=[], group="g") for number in range(5100))
    called = agym("view", "runs/door", "--export", "sft.jsonl")
    assert called.out == "wrote 5102 conversations to sft.jsonl\n"
    ids = (tmp_path / "sft.jsonl").read_text().count("\n")
    assert ids == 5102


def test_where_the_cache_cannot_be_written_the_server_has_a_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with writable_cache(tmp_path / "file" / "cache") as folder:
        assert folder.is_dir()
    assert not folder.exists()
    with writable_cache(tmp_path / "new" / "cache") as folder:
        assert folder == tmp_path / "new" / "cache"
    assert folder.is_dir()


def test_a_port_that_is_taken_is_told(agym: Agym, run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        called = agym("view", "runs/door", "--no-browser", "--port", str(port))
    assert (called.code, called.out) == (2, "")
    assert f"--port {port}: Address already in use; without --port a free one is taken" in called.err


def test_no_text_of_a_stranger_reaches_the_terminal_as_more_than_text(agym: Agym, run: Path) -> None:
    evil = "\x1b[2Jgone \u202egnp.exe\u202c \x07 \r over \ud800"
    task = {"environment": evil, "id": evil, "seed": 7, "difficulty": evil}
    (run / "episodes/step-000004.jsonl").write_bytes(
        line(task=task, stage=evil, opening=[{"role": "user", "content": evil}]) + line(turns=[{}]) + b"{}\n{"
    )
    called = agym("view", "runs/door", "--text", "--limit", "9")
    assert called.code == 0
    assert not set(called.out) & set("\x1b\u202e\u202c\x07\r\ud800")
    assert r"\x1b[2Jgone \u202egnp.exe\u202c \x07 \r over" in called.out
    assert called.err == "agym view: door: 2 lines hold no episode and were left out\n"
