"""Each answer of the viewer's API, on small run folders."""

from __future__ import annotations

import json
import threading
from math import exp
from pathlib import Path

import pytest
from agym.runtime.storage.episode_reader import EPISODES
from agym.viewer import runs as viewer_runs
from agym.viewer.runs import Runs, Signature
from starlette.testclient import TestClient

from .served import TOKEN, append_lines, ask, client_of, episode, metrics_row, write_run

VOCABULARY = {"a": 1, "b": 2, "open": 3, "door": 4, "[UNK]": 0}


@pytest.fixture
def served(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "door")


@pytest.fixture
def client(served: Path, cache: Path) -> TestClient:
    return client_of(served.parent, cache)


def test_runs_are_listed_with_their_newest_evaluation(client: TestClient) -> None:
    (run,) = ask(client, "runs")["runs"]
    assert run == {
        "id": "door", "name": "door", "stage": "explore", "step": 10, "total_step": 10, "success": 0.5,
        "interval": [0.4, 0.6], "spark": [step / 10 for step in range(1, 11)], "ended": "finished", "time": 2000.0,
        "version": 1,
    }  # fmt: skip


def test_runs_of_one_name_have_ids_of_their_own_and_a_new_run_is_found(tmp_path: Path, cache: Path) -> None:
    write_run(tmp_path / "runs" / "a b")
    client = client_of(tmp_path / "runs", cache)
    assert [run["id"] for run in ask(client, "runs")["runs"]] == ["a-b"]
    write_run(tmp_path / "runs" / "a:b")
    assert {run["id"]: run["name"] for run in ask(client, "runs")["runs"]} == {"a-b": "a b", "a-b~2": "a:b"}


def test_a_run_that_holds_its_lock_is_running(served: Path, client: TestClient) -> None:
    import fcntl

    with (served / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert ask(client, "runs")["runs"][0]["ended"] == "running"
    assert ask(client, "runs")["runs"][0]["ended"] == "finished"


def test_a_run_is_described(client: TestClient) -> None:
    run = ask(client, "runs/door")
    assert run["recipe"].startswith("agym: 1")
    assert run["stages"] == [{"name": "exploit", "from": 1, "to": 5}, {"name": "explore", "from": 6, "to": 10}]
    assert run["ops"][:2] == [
        {"stage": "exploit", "kind": "rollout", "share": 0.75},
        {"stage": "exploit", "kind": "update", "share": 0.25},
    ]
    assert [(event["kind"], event["text"]) for event in run["events"]] == [("note", "a note"), ("end", "finished")]
    names = ("environment", "mode", "success", "interval", "episodes")
    assert [tuple(each[name] for name in names) for each in run["evals"]] == [
        ("house", "sampled", 0.5, [0.4, 0.6], 4),
        ("house", "greedy", 0.25, None, None),
        (None, "sampled", 0.5, None, None),
    ]
    assert {each["total_step"] for each in run["evals"]} == {10}
    assert "rollout/success" in run["keys"]
    assert run["columns"]["purpose"] == ["eval", "train"]
    assert (run["num_episodes"], run["num_damaged"]) == (5, 0)


def test_curves_and_their_csv(client: TestClient) -> None:
    found = ask(client, "runs/door/curves", keys="rollout/success,nothing", x="tokens")
    assert found["x"][:3] == [100.0, 200.0, 300.0]
    assert found["series"]["nothing"]["last"] == [None] * len(found["x"])
    lines = client.get(f"/{TOKEN}/api/runs/door/curves.csv", params={"keys": "rollout/success"}).text.splitlines()
    assert lines[:2] == ["total_step,stage,time,rollout/success", "1,exploit,1001,0.1"]
    assert len(lines) == 11
    for wrong in ({"x": "colour"}, {"points": "0"}, {"points": "many"}):
        assert "must be" in ask(client, "runs/door/curves", 400, keys="a", **wrong)["error"]


def test_episodes_are_found_by_every_filter(client: TestClient) -> None:
    for parameters, total in (
        ({}, 5),
        ({"words": "door"}, 5),
        ({"where": "purpose == 'train' and success"}, 1),
        ({"environment": "house", "task": "door-2", "success": "true", "step_from": 10, "step_to": 10}, 1),
        ({"ending": "horizon", "purpose": "train", "mode": "sampled"}, 1),
        ({"group": "train-3-0", "words": "", "where": ""}, 2),
    ):
        found = ask(client, "runs/door/episodes", **parameters)
        assert (found["total"], found["exact"], len(found["episodes"])) == (total, True, total), parameters
    (second,) = ask(client, "runs/door/episodes", order="oldest", limit=1, offset=1)["episodes"]
    assert second["id"] == "train-3-0-1"


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"where": "succes"}, "succes\n^\nunknown name 'succes'"),
        ({"where": "turns > 1 and colour"}, "turns > 1 and colour\n              ^\n"),
        ({"success": "yes"}, "'success' must be true or false"),
        ({"order": "best"}, "'order' must be one of newest, oldest"),
        ({"limit": "100000"}, "'limit' must be a whole number from 1 to 500"),
        ({"offset": "-1"}, "'offset' must be"),
        ({"step_from": "9" * 40}, "'step_from' must be"),
        ({"words": "x" * 10_001}, "more than 10,000 characters"),
    ],
)
def test_a_wrong_question_is_told(client: TestClient, parameters: dict[str, str], error: str) -> None:
    assert error in ask(client, "runs/door/episodes", 400, **parameters)["error"]


@pytest.mark.parametrize("where", ["turns < 9999999999999999999999999", "sqrt(-turns) > 1", "10 ** 10 ** 10 > turns"])
def test_an_expression_that_no_database_computes_ends_no_server(client: TestClient, where: str) -> None:
    answered = client.get(f"/{TOKEN}/api/runs/door/episodes", params={"where": where})
    assert answered.status_code in (200, 400)


def test_an_episode_is_shown_with_its_group_and_without_a_tokenizer_has_no_tokens(client: TestClient) -> None:
    shown = ask(client, "runs/door/episodes/train-3-0-1")
    assert (shown["previous"], shown["next"]) == ("train-3-0-0", None)
    assert [each["id"] for each in shown["group"]] == ["train-3-0-0", "train-3-0-1"]
    assert shown["record"] == episode()
    (turn,) = shown["turns"]
    assert (turn["number"], turn["reply"], turn["observation"]) == (1, "Action: open door", "It is open.")
    assert turn["tokens"] is None


def write_tokenizer(run: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    (run / "start").mkdir()
    tokenizer.save(str(run / "start" / "tokenizer.json"))


def test_sampled_tokens_are_shown_with_what_is_known_of_each(served: Path, client: TestClient) -> None:
    write_tokenizer(served)
    tokens = ask(client, "runs/door/episodes/train-3-0-1")["turns"][0]["tokens"]
    assert tokens == {
        "text": ["open", " door"], "id": [3, 4], "logprob": [-1, -2], "reference": None, "learner": [-1, -1],
        "advantage": [0.5, -0.5], "ratio": [1.0, pytest.approx(exp(1))], "version": [2, 2], "trained": [True, True],
    }  # fmt: skip


def test_a_tokenizer_that_is_none_leaves_the_episode_readable(served: Path, client: TestClient) -> None:
    (served / "start").mkdir()
    (served / "start" / "tokenizer.json").write_text('{"version": "1.0", "model": 3}', encoding="utf-8")
    assert ask(client, "runs/door/episodes/train-3-0-1")["turns"][0]["tokens"] is None


def test_the_history_of_a_task(client: TestClient) -> None:
    found = ask(client, "runs/door/history", environment="house", task="door-1")["episodes"]
    assert [each["id"] for each in found] == ["train-3-0-0", "train-3-0-1", "eval-10-1"]
    assert ask(client, "runs/door/history", environment="house")["episodes"] == []


def test_two_runs_are_compared_by_their_evaluations(tmp_path: Path, served: Path, client: TestClient) -> None:
    write_run(tmp_path / "runs" / "worse", success=False)
    found = ask(client, "compare", a="worse", b="door")
    assert found["counts"] == {"a_only": 0, "b_only": 2, "both": 1, "none": 0}
    assert found["difference"]["mean"] == pytest.approx(2 / 3)
    assert 0 <= found["difference"]["low"] <= 2 / 3 <= found["difference"]["high"] <= 1
    assert found["tasks"][1] == {"environment": "house", "task": "door-1", "a": 0.0, "b": 1.0}
    assert found["recipe"][-2:] == ["-name: worse", "+name: door"]
    assert {"name": "torch", "a": "2.13", "b": "2.13"} in found["packages"]


@pytest.mark.parametrize(
    "path", ["runs/nothing", "runs/door/episodes/nothing", "runs/nothing/changes", "compare?a=door&b=x", "runs/door/x"]
)
def test_what_is_unknown_is_not_found(client: TestClient, path: str) -> None:
    assert "error" in ask(client, path, 404)


def test_a_run_that_grows_tells_so_and_shows_what_is_new(served: Path, client: TestClient) -> None:
    ask(client, "runs/door")
    before = ask(client, "runs/door/changes")["version"]
    assert ask(client, "runs/door/changes")["version"] == before
    append_lines(served / EPISODES / "step-000011.jsonl", episode(id="train-11-0-0", total_step=11))
    append_lines(served / "metrics.jsonl", metrics_row(11))
    assert ask(client, "runs/door/changes")["version"] > before
    assert ask(client, "runs/door/episodes")["episodes"][0]["id"] == "train-11-0-0"
    assert ask(client, "runs")["runs"][0]["total_step"] == 11


def test_questions_at_the_same_time_do_not_make_a_total_uncertain(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = Runs([served], tmp_path / "cache").list()
    with run.queries(wait_s=60):
        assert not run.is_reading
    seen = list[bool]()

    def look_around(root: Path) -> Signature:
        seen.append(run.is_reading)
        return signature_of(root)

    signature_of = viewer_runs._signature
    monkeypatch.setattr(viewer_runs, "_signature", look_around)
    with run.queries():
        assert seen == [False]


def test_a_broken_last_line_and_numbers_that_are_none_are_no_hindrance(served: Path, client: TestClient) -> None:
    with (served / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"total_step": 11, "rollout/success": NaN, "train/loss": Infinity, "train/kl": 1e999}\n')
        file.write('[1]\n{"total_step": 12, "rollout/suc')
    with (served / EPISODES / "step-000011.jsonl").open("w", encoding="utf-8") as file:
        file.write('{"version": 2, "purp')
    found = ask(client, "runs/door/curves", keys="rollout/success,train/loss")
    assert (found["x"][-1], found["series"]["rollout/success"]["last"][-1]) == (11, None)
    assert ask(client, "runs/door")["num_episodes"] == 5
    assert ask(client, "runs")["runs"][0]["success"] == 0.5


def test_hostile_episodes_are_text_and_numbers_of_theirs_become_null(served: Path, client: TestClient) -> None:
    write_tokenizer(served)
    evil = "</script><img src=x onerror=alert(1)>\u202e\x1b[2J"
    deep = json.loads("[" * 300 + "]" * 300)
    (turn,) = episode()["turns"]
    calls = [{"name": evil, "arguments": {"deep": deep, "big": float("inf")}}]
    segment = {"ids": [1, 2, -5, 1 << 70], "sampled": [1, 1, 1, 1], "logprobs": ["x", None, float("nan"), 1e308]}
    hostile = episode(
        id="../../etc/passwd", group=evil, task={"environment": evil, "id": evil, "seed": 1, "difficulty": evil},
        turns=[{**turn, "reply": evil + "\ud800", "end": 1 << 40, "tool_calls": calls}], index=0,
        segments=[{**segment, "versions": [[], {}, "v", 1]}],
    )  # fmt: skip
    append_lines(served / EPISODES / "step-000012.jsonl", hostile, episode(id="other", turns=[{**turn, "segment": 9}]))
    answered = client.get(f"/{TOKEN}/api/runs/door/episodes/..%2F..%2Fetc%2Fpasswd")
    assert answered.headers["content-type"] == "application/json"
    (shown,) = answered.json()["turns"]
    assert shown["reply"].startswith(evil)
    assert (shown["tokens"]["id"], shown["tokens"]["logprob"]) == ([-5, None], None)
    assert ask(client, "runs/door/episodes/other")["turns"][0]["tokens"] is None


def test_what_is_nested_too_deeply_or_counted_by_floats_ends_no_server(served: Path, client: TestClient) -> None:
    write_tokenizer(served)
    (turn,) = episode()["turns"]
    floats = {**turn, "segment": 0.0, "start": 2.0, "end": 4.0}
    append_lines(served / EPISODES / "step-000013.jsonl", episode(id="floats", turns=[floats]))
    with (served / EPISODES / "step-000014.jsonl").open("w", encoding="utf-8") as file:
        for depth in (700, 900, 950, 980):
            call = {"name": "f", "arguments": {"deep": "DEEP"}}
            line = json.dumps(episode(id=f"deep-{depth}", turns=[{**turn, "tool_calls": [call]}]))
            file.write(line.replace('"DEEP"', "[" * depth + "]" * depth) + "\n")
    assert len(ask(client, "runs/door/episodes/floats")["turns"][0]["tokens"]["id"]) == 2
    for depth in (700, 900, 950, 980):
        answered = client.get(f"/{TOKEN}/api/runs/door/episodes/deep-{depth}")
        assert answered.status_code in (200, 400, 404)
    for where in ("(" * 3000 + "1" + ")" * 3000, "not " * 2000 + "success", "-" * 5000 + "1 > 0"):
        assert "error" in ask(client, "runs/door/episodes", 400, where=where)


def test_a_run_folder_is_left_as_it_is_and_need_not_be_writable(served: Path, client: TestClient) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in served.rglob("*"))
    for folder in (served / EPISODES, served):
        folder.chmod(0o555)
    try:
        for path in ("runs", "runs/door", "runs/door/episodes", "runs/door/curves?keys=a", "compare?a=door&b=door"):
            ask(client, path)
    finally:
        for folder in (served, served / EPISODES):
            folder.chmod(0o755)
    assert sorted((path, path.stat().st_mtime_ns) for path in served.rglob("*")) == before


def test_many_ask_at_a_time(client: TestClient) -> None:
    totals = list[int]()

    def count() -> None:
        totals.append(ask(client, "runs/door/episodes", words="door")["total"])

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [5] * 8
