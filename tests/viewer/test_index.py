"""The index: what is appended is read, what was replaced is read anew, nothing is written into a run."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest
from agym.runtime.storage.episode_reader import list_members
from agym.viewer.index import EpisodeIndex
from agym.viewer.queries import EpisodeFilter, Queries

from .conftest import append, bench, lines_of


def count(run: Path, cache: Path) -> int:
    with EpisodeIndex(run, cache) as index:
        return index.update()


def test_a_second_look_reads_what_was_appended_and_nothing_else(run: Path, cache: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with EpisodeIndex(run, cache) as index:
        assert index.update() == 512
        numbers = [each.number for each in Queries(index).find(EpisodeFilter(), limit=600).episodes]
    append(run, 3)
    with EpisodeIndex(run, cache) as index:
        assert index.count == 512
        assert index.update() == index.update() == 768
        again = Queries(index).find(EpisodeFilter(last_step=2), limit=600).episodes
    assert [each.number for each in again] == numbers
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}.keys() == before.keys()


def test_a_member_that_is_being_written_is_left_for_the_next_look(run: Path, cache: Path) -> None:
    log = run / "episodes/train.jsonl.gz"
    whole = log.read_bytes()
    middle = list_members(log)[0].end
    for size in (0, 10, middle - 1, middle, middle + 40, len(whole) - 1, len(whole)):
        with log.open("r+b") as file:  # the same file, as an append leaves it
            file.write(whole[:size])
            file.truncate()
        assert count(run, cache) == (size >= middle) * 256 + (size == len(whole)) * 256


@pytest.mark.parametrize("same_file", [True, False])
def test_a_log_that_a_resume_has_cut_is_read_anew(run: Path, cache: Path, same_file: bool) -> None:
    assert count(run, cache) == 512
    log = run / "episodes/train.jsonl.gz"
    first = log.read_bytes()[: list_members(log)[0].end]
    if not same_file:
        log.unlink()
    log.write_bytes(first)
    append(run, 3)
    append(run, 4)
    with EpisodeIndex(run, cache) as index:
        assert index.update() == 768
        queries = Queries(index)
        assert queries.find(EpisodeFilter(first_step=2, last_step=2)).total == 0
        assert queries.find(EpisodeFilter(first_step=3)).total == 512
        assert queries.find(EpisodeFilter(words="copyright")).total > 0


def test_an_evaluation_that_was_written_again_replaces_its_episodes(run: Path, cache: Path) -> None:
    file = run / "episodes/step-000002-eval.jsonl"
    for step in (1, 2):
        file.unlink(missing_ok=True)
        file.write_bytes(b"".join(lines_of(step).splitlines(keepends=True)[: 10 * step]))
        assert count(run, cache) == 512 + 10 * step


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + b"\xff" * 5000])
def test_an_index_that_is_none_is_made_again(run: Path, cache: Path, content: bytes) -> None:
    assert count(run, cache) == 512
    (file,) = cache.glob("*.sqlite")
    for other in cache.iterdir():
        other.unlink()
    file.write_bytes(content)
    assert count(run, cache) == 512


def test_an_index_of_another_format_is_made_again(run: Path, cache: Path) -> None:
    assert count(run, cache) == 512
    (file,) = cache.glob("*.sqlite")
    database = sqlite3.connect(file)
    with database:
        database.execute("UPDATE about SET format = 0")
        database.execute("DELETE FROM episodes")
    database.close()
    assert count(run, cache) == 512


def test_without_a_place_for_a_cache_an_index_lasts_as_long_as_it_is_open(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert count(run, tmp_path / "file" / "cache") == 512
    assert os.listdir(tmp_path / "run") == ["episodes"]


def test_two_who_read_the_same_run_write_each_episode_once(run: Path, cache: Path) -> None:
    with EpisodeIndex(run, cache) as one, EpisodeIndex(run, cache) as two:
        assert one.update() == two.update() == 512
        append(run, 3)
        assert two.update() == one.update() == 768


def test_lines_that_are_no_episodes_are_counted_once(run: Path, cache: Path) -> None:
    (run / "episodes/step-9-eval.jsonl").write_bytes(b"{}\nno\n" + lines_of(1).splitlines()[0] + b"\n{}")
    with EpisodeIndex(run, cache) as index:
        assert (index.update(), index.update(), index.num_damaged) == (513, 513, 2)


@pytest.mark.slow
def test_twenty_thousand_episodes_take_few_bytes_each_and_a_page_of_them_little_time(tmp_path: Path) -> None:
    bench().write_run(tmp_path / "run", 20_000, distinct=8)
    with EpisodeIndex(tmp_path / "run", tmp_path / "cache") as index:
        total = index.update()
        assert total >= 20_000
        index.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert sum(file.stat().st_size for file in (tmp_path / "cache").iterdir()) < 500 * total
        queries = Queries(index)
        for name, wanted in {**bench().FILTERS, **bench().SEARCHES}.items():
            # a fiftieth of the million whose limit is 200 ms, on a machine that may do other things
            assert max(bench().timed(lambda wanted=wanted: queries.find(wanted), 3)) < 60, name
        chosen = queries.find(EpisodeFilter(where="turns == 3"), offset=100, limit=5)
        for each in chosen.episodes:
            assert json.dumps(queries.record(each)["id"]) == json.dumps(each.id)
