"""Rows of recorded episodes: both versions, only whole lines, nothing lost to what is not an episode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agym.runtime.storage.episode_reader import DamagedEpisode
from agym.viewer.reader import EpisodeRow, find_runs, read_episode, read_rows

from .conftest import lines_of


def rows(path: Path, start: int = 0) -> list[EpisodeRow]:
    return [row for read in read_rows(path, start) for row in read.rows]


def test_a_row_says_of_an_episode_what_its_line_does(run: Path) -> None:
    file = run / "episodes/train.jsonl.gz"
    records = [json.loads(line) for step in (1, 2) for line in lines_of(step).splitlines()]
    found = rows(file)
    assert len(found) == len(records) == 512
    for row, record in zip(found, records, strict=True):
        assert (row.id, row.group, row.mode, row.step) == (
            record["id"],
            record["group"],
            "sampled",
            record["total_step"],
        )
        assert (row.task, row.seed, row.reward) == (record["task"]["id"], record["task"]["seed"], record["score"])
        assert row.turns == len(record["turns"])
        assert row.invalid_turns == sum(turn["action"] is None for turn in record["turns"])
        assert row.advantage == pytest.approx(0.5 if record["success"] else -0.25)
        assert row.sampled_tokens == sum(record["segments"][0]["sampled"])
        assert record["turns"][-1]["observation"] in row.text
        assert record["opening"][0]["content"] not in row.text
    for row, record in (*zip(found, records, strict=True),)[::100]:
        assert read_episode(file, row.place) == record


def test_version_1_is_read_and_what_it_has_not_is_none(tmp_path: Path) -> None:
    record = json.loads(lines_of(1).splitlines()[0])
    for key in ("id", "group", "mode", "training", "sampled_tokens", "total_tokens"):
        del record[key]
    for turn in record["turns"]:
        turn.pop("seconds"), turn.pop("trained"), turn.pop("advantage")
    file = tmp_path / "step-000001-eval.jsonl"
    first, second = ({**record, "version": 1, "purpose": "eval", "seconds": each} for each in (1.0, 2.0))
    file.write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n")
    one, two = rows(file)
    assert one.group == two.group
    assert one.id != two.id
    assert (one.mode, one.reward, one.advantage, one.kept, one.total_tokens) == (None,) * 5
    assert one.sampled_tokens == sum(record["segments"][0]["sampled"])
    assert read_episode(file, two.place) == second


def test_a_line_that_is_not_whole_is_left_and_read_when_it_is(tmp_path: Path) -> None:
    line = lines_of(1).splitlines(keepends=True)[0]
    file = tmp_path / "step-1.jsonl"
    for size in range(0, len(line), 97):
        file.write_bytes(line + line[:size])
        (read,) = read_rows(file)
        assert (len(read.rows), read.chunk.end, read.num_damaged) == (1, len(line), 0)
        assert rows(file, read.chunk.end) == []
    file.write_bytes(line + line)
    assert len(rows(file, len(line))) == 1


HOSTILE: dict[str, Any] = {
    "no object": [1],
    "another version": {"version": 9},
    "a text for a number": {"score": "much"},
    "no turns": {"turns": 7},
    "a turn that is none": {"turns": [None]},
    "an endless number": {"total_step": 10**400},
    "an opening of numbers": {"opening": [3]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_episode_is_counted_and_the_rest_is_read(tmp_path: Path, name: str) -> None:
    good = lines_of(1).splitlines()[0]
    changes = HOSTILE[name]
    bad = json.dumps({**json.loads(good), **changes} if isinstance(changes, dict) else changes).encode()
    file = tmp_path / "step-1.jsonl"
    file.write_bytes(b"\n".join((good, bad, b"{", b"[" * 100_000, b"\xff\x00", good, b"")))
    (read,) = read_rows(file)
    if name == "another version":  # its keys may mean the same, and it is named when it is opened
        with pytest.raises(DamagedEpisode, match="expected an object of version 1 or 2, got version 9"):
            read_episode(file, read.rows[1].place)
    assert len(read.rows) + read.num_damaged == 6
    assert read.num_damaged >= 3
    assert all(read_episode(file, row.place)["score"] in (0, 1) for row in (read.rows[0], read.rows[-1]))


def test_texts_that_no_database_takes_are_made_into_some_that_it_does(tmp_path: Path) -> None:
    record = json.loads(lines_of(1).splitlines()[0])
    record["opening"][-1]["content"] = "half \ud800 of a pair, \x00, \u202e"
    record["score"] = float("nan")
    record["turns"][0]["reply"] = '", "segments": [ ,"segments":['
    file = tmp_path / "step-1.jsonl"
    file.write_text(json.dumps(record) + "\n")
    (row,) = rows(file)
    assert row.first_line.encode().startswith(b"half ? of a pair")
    assert row.score == 0
    assert row.text.endswith(record["turns"][-1]["observation"])


def test_a_damaged_member_costs_its_own_episodes_alone(run: Path) -> None:
    file = run / "episodes/train.jsonl.gz"
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    first, second = read_rows(file)
    assert (first.rows, first.num_damaged, len(second.rows)) == ([], 1, 256)
    assert "episodes of step 1 are damaged" in first.chunk.problem


def test_runs_are_found_by_their_episodes(run: Path, tmp_path: Path) -> None:
    assert find_runs(run) == find_runs(tmp_path) == [run]
    assert find_runs(tmp_path / "nowhere") == find_runs(run / "episodes") == []
