"""`agym report`: what the page holds, that it is whole, small, harmless, and the same each time."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from agym.runtime.storage.episode_reader import EPISODES
from agym.viewer.index import EpisodeIndex
from agym.viewer.queries import Queries
from agym.viewer.report.choosing import choose_episodes, share_out, spread
from agym.viewer.report.page import LARGEST, MARK, MOST_EPISODES, write_report

from ..conftest import Agym
from .served import append_lines, episode, metrics_row, write_run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u0007\u2028\ud800 ]]> <!--"


def hostile_run(root: Path) -> Path:
    """A run in which each text is an attack."""
    append_lines(root / "metrics.jsonl", metrics_row(1, stage=HOSTILE, **{f"train/loss{HOSTILE}": 1, "train/loss": 2}))
    append_lines(root / "metrics.jsonl", metrics_row(2, **{"train/loss": float("nan"), f"eval/{HOSTILE}/success": 1.0}))
    append_lines(root / "events.jsonl", {"time": 1e300, "total_step": 1, "kind": HOSTILE, "text": HOSTILE})
    (root / "recipe.yaml").write_text(HOSTILE.replace("\ud800", ""), encoding="utf-8")
    task = {"environment": HOSTILE, "id": HOSTILE, "seed": 1, "difficulty": HOSTILE}
    turn = {**episode()["turns"][0], "reply": HOSTILE, "action": HOSTILE, "observation": HOSTILE}
    opening = [{"role": "user", "content": HOSTILE}]
    lines = [episode(id=f"e{HOSTILE}{at}", task=task, turns=[turn] * 2, opening=opening) for at in range(3)]
    append_lines(root / EPISODES / "step-000003.jsonl", *lines)
    with (root / EPISODES / "step-000003.jsonl").open("a") as file:
        file.write('{"cut off')
    return root


def data_of(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    data: dict[str, Any] = json.loads(text)
    return data


def test_the_page_says_what_the_run_did(tmp_path: Path) -> None:
    report = write_report([write_run(tmp_path / "door")], tmp_path / "cache")
    (run,) = data_of(report.page)["runs"]
    assert (run["name"], run["ended"], run["success"]) == ("door", "finished", 0.5)
    assert run["interval"] == pytest.approx([0.4, 0.6])
    assert run["recipe"] == "agym: 1\nname: door\n"
    assert [each["text"] for each in run["events"]] == ["a note", "finished"]
    assert {each["mode"] for each in run["evals"]} == {"sampled", "greedy"}
    success = next(each for each in run["charts"] if each["title"] == "success")
    assert success["series"]["rollout/success"]["last"][:3] == [0.1, 0.2, 0.3]
    assert len(run["episodes"]) == report.num_episodes == 5
    assert run["episodes"][0]["played"][0]["reply"] == "Action: open door"
    assert report.left_out == ("tokens and pictures of episodes",)


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    roots = [write_run(tmp_path / "door"), hostile_run(tmp_path / "evil")]
    first = write_report(roots, tmp_path / "cache").page
    assert write_report(roots, tmp_path / "cache").page == first
    assert write_report(roots, tmp_path / "another-cache").page == first


def test_no_text_of_a_stranger_leaves_its_place_in_the_page(tmp_path: Path) -> None:
    root = hostile_run(tmp_path / "<b>evil & co")
    page = write_report([root], tmp_path / "cache").page
    assert re.findall(r"<script[^>]*>", page) == ['<script type="application/json" id="data">', "<script>"]
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert "<title>&lt;b&gt;evil &amp; co</title>" in page
    page.encode()
    (run,) = data_of(page)["runs"]
    assert run["episodes"][0]["played"][0]["reply"] == HOSTILE
    assert run["events"][0]["text"] == HOSTILE


def test_script_and_style_are_those_that_the_policy_names_and_nothing_else_may_load(tmp_path: Path) -> None:
    page = write_report([write_run(tmp_path / "door")], tmp_path / "cache").page
    assert page.startswith(MARK)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    hashes = [
        b64encode(sha256(re.findall(pattern, page, re.DOTALL)[0].encode()).digest()).decode()
        for pattern in (r"<script>(.*?)</script>", r"<style>(.*?)</style>")
    ]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|fetch\(|import\(", page)
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_a_large_run_fits_and_says_what_is_left_out(tmp_path: Path) -> None:
    root = write_run(tmp_path / "door")
    turn = episode()["turns"][0]
    long = [{**turn, "reply": "x" * 9000, "observation": "<" * 9000} for _ in range(10)]
    for at in range(40):
        append_lines(root / EPISODES / "step-000004.jsonl", episode(id=f"long-{at}", turns=long, group="g"))
    append_lines(root / "events.jsonl", *({"kind": "note", "text": "<" * 2000} for _ in range(2000)))
    (root / "recipe.yaml").write_text("# <" * 100_000, encoding="utf-8")
    report = write_report([root], tmp_path / "cache")
    assert len(report.page.encode()) <= LARGEST
    (run,) = data_of(report.page)["runs"]
    assert any(re.fullmatch(r"door: [\d,]+ events", each) for each in report.left_out)
    assert any(re.fullmatch(r"door: [\d,]+ characters of the recipe", each) for each in report.left_out)
    assert f"{45 - report.num_episodes} of 45 episodes" in report.left_out
    assert 0 < report.num_episodes == len(run["episodes"]) < 45
    cut = next(each for each in run["episodes"] if each["id"].startswith("long"))["played"][0]["reply"]
    assert cut == "x" * 8000 + "\n[1,000 characters are left out]"
    assert data_of(report.page)["left_out"] == list(report.left_out)


def test_at_most_two_hundred_episodes_are_shown_of_all_runs_together(tmp_path: Path) -> None:
    roots = [write_run(tmp_path / name) for name in ("a", "b")]
    for root in roots:
        lines = [episode(id=f"e{at}", group="g", success=at % 3 == 0, total_step=at) for at in range(300)]
        append_lines(root / EPISODES / "step-000004.jsonl", *lines)
    report = write_report(roots, tmp_path / "cache")
    assert report.num_episodes == MOST_EPISODES
    assert [len(run["episodes"]) for run in data_of(report.page)["runs"]] == [100, 100]
    assert "410 of 610 episodes" in report.left_out


def test_episodes_are_chosen_from_the_whole_run_failures_and_successes_alike(tmp_path: Path) -> None:
    lines = [episode(id=f"e{at}", success=at % 10 == 0, total_step=at) for at in range(1000)]
    append_lines(tmp_path / "run" / EPISODES / "step-000004.jsonl", *lines)
    with EpisodeIndex(tmp_path / "run", tmp_path / "cache") as index:
        index.update()
        chosen = choose_episodes(Queries(index), 20)
    assert [each.success for each in chosen] == [False] * 10 + [True] * 10
    assert [each.step for each in chosen if each.success] == [990, 880, 770, 660, 550, 440, 330, 220, 110, 0]
    assert len({each.id for each in chosen}) == 20


@pytest.mark.parametrize(
    ("totals", "most", "shares"),
    [
        ((0, 0), 5, [0, 0]),
        ((1, 9), 5, [1, 4]),
        ((9, 9, 9), 5, [2, 2, 1]),
        ((2, 2), 9, [2, 2]),
        ((3, 0, 100), 50, [3, 0, 47]),
    ],
)
def test_places_are_shared_out_evenly(totals: tuple[int, ...], most: int, shares: list[int]) -> None:
    assert share_out(totals, most) == shares


def test_places_are_spread_from_the_last_to_the_first() -> None:
    assert spread(0, 0) == []
    assert spread(7, 1) == [6]
    assert spread(5, 5) == [4, 3, 2, 1, 0]
    assert spread(101, 3) == [100, 50, 0]


# --- the command ---------------------------------------------------------------------------------------------------


def test_the_command_writes_one_file_and_nothing_into_the_runs(agym: Agym, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "door")
    write_run(tmp_path / "runs" / "window", success=False)
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    for _ in range(2):  # an earlier report is replaced
        called = agym("report", "runs", "-o", "out.html")
        assert (called.code, called.err) == (0, "")
        size = (tmp_path / "out.html").stat().st_size
        assert called.out.splitlines() == [
            f"wrote out.html: 2 runs, 10 episodes, {size:,} bytes",
            "left out: tokens and pictures of episodes",
        ]
    assert {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()} == before
    assert [run["name"] for run in data_of((tmp_path / "out.html").read_text())["runs"]] == ["door", "window"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nowhere",), "no run in nowhere: name the folder of a run, or of runs"),
        (("door", "-o", "door/report.html"), "--output door/report.html: nothing is written into the folder of a run"),
        (("door", "-o", "door/episodes/r.html"), "nothing is written into the folder of a run"),
        (("door", "-o", "no/report.html"), "--output no/report.html: there is no such folder"),
        (("door", "-o", "notes.txt"), "there is something else under this name; name another file"),
        (("door", "-o", "door"), "there is something else under this name; name another file"),
    ],
)
def test_where_a_report_cannot_go_is_told(agym: Agym, tmp_path: Path, words: tuple[str, ...], error: str) -> None:
    write_run(tmp_path / "door")
    (tmp_path / "notes.txt").write_text("mine")
    called = agym("report", *words)
    assert (called.code, called.out) == (2, "")
    assert error in called.err
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "report.html").exists()


def test_more_runs_than_a_report_holds_are_refused(agym: Agym, tmp_path: Path) -> None:
    for at in range(21):
        append_lines(tmp_path / "runs" / f"r{at}" / "metrics.jsonl", metrics_row(1))
    called = agym("report", "runs")
    assert called.code == 2
    assert "a report holds at most 20 runs, and these are 21: name fewer" in called.err
