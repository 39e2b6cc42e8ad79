"""Curves keep their extremes, and a log is read on rather than again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agym.viewer.json_log import JsonLog, dump_json
from agym.viewer.metric_table import MetricLog, MetricTable
from agym.viewer.metrics import curves, curves_csv, metric_names

from .served import append_lines

ROWS: list[dict[str, Any]] = [
    {"total_step": step, "time": 50.0 + step, "loss": float(step % 7), "rollout/tokens": 10} for step in range(10_000)
]


@pytest.mark.parametrize("axis", ["step", "tokens", "time"])
def test_no_extreme_is_lost(axis: str) -> None:
    rows = [*ROWS]
    rows[5003] = {**rows[5003], "loss": 1e6}
    rows[7777] = {**rows[7777], "loss": -1e6}
    found = curves(MetricTable.of(rows), ["loss"], axis, 100)
    loss = found["series"]["loss"]
    assert len(found["x"]) == 100
    assert (max(loss["high"]), min(loss["low"])) == (1e6, -1e6)
    assert loss["last"][-1] == float(9999 % 7)
    assert found["x"] == sorted(found["x"])


def test_few_points_stay_as_they_are_and_rows_of_a_step_are_joined() -> None:
    rows = [{"total_step": 1, "a": 1}, {"total_step": 1, "b": 5}, {"total_step": 2, "a": 3}, {"a": 9}]
    found = curves(MetricTable.of(rows), ["a", "b"], "step", 10)
    assert found["x"] == [1, 2]
    assert found["series"]["a"]["last"] == [1, 3]
    assert found["series"]["b"]["last"] == [5, None]
    assert curves(MetricTable.of([]), ["a"], "time", 10) == {
        "x": [],
        "series": {"a": {"low": [], "high": [], "last": []}},
    }


def test_places_that_no_width_divides_are_divided_by_their_order() -> None:
    for places in ([-1e308, 0.0, 1e308], [0.0, 5e-324, 1e-323]):
        rows = [{"total_step": place, "a": number} for number, place in enumerate(places)]
        found = curves(MetricTable.of(rows), ["a"], "step", 2)["series"]["a"]
        assert (len(found["low"]), min(found["low"]), max(found["high"]), found["last"][-1]) == (2, 0, 2, 2)


def test_what_is_no_finite_number_is_no_metric() -> None:
    rows: list[dict[str, Any]] = [{"total_step": 1, "a": float("nan"), "b": True, "c": "1", "d": 10**400, "e": 2}]
    assert metric_names(MetricTable.of(rows)) == ["e"]
    assert json.loads(dump_json({"a": [float("nan"), {"b": float("-inf")}]})) == {"a": [None, {"b": None}]}


def test_a_csv_holds_no_formula() -> None:
    text = curves_csv(MetricTable.of([{"total_step": 1, "stage": "=cmd()", "=x": 1}]), ["=x"])
    assert text.splitlines() == ["total_step,stage,time,'=x", "1,'=cmd(),,1"]


def test_a_log_is_read_on_and_read_anew_where_it_was_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = JsonLog(path)
    assert log.rows() == []
    append_lines(path, {"a": 1}, {"a": 2})
    assert log.rows() == [{"a": 1}, {"a": 2}]
    with path.open("a") as file:
        file.write('{"a": ')
    assert log.rows() == [{"a": 1}, {"a": 2}]
    with path.open("a") as file:
        file.write("3}\n")
    assert log.rows()[-1] == {"a": 3}
    path.write_text('{"a": 7}\n{"a": 8}\n{"a": 9}\n', encoding="utf-8")
    assert log.rows() == [{"a": 7}, {"a": 8}, {"a": 9}]
    path.write_text('{"a": 0}\n', encoding="utf-8")
    assert log.rows() == [{"a": 0}]


def test_a_table_is_kept_and_read_on(tmp_path: Path) -> None:
    path, cache = tmp_path / "metrics.jsonl", tmp_path / "cache"
    append_lines(path, *({"total_step": step, "stage": "a", "loss": step / 3} for step in range(2000)))
    before = MetricLog(path, cache).table()
    (kept,) = cache.iterdir()
    assert kept.suffix == ".metrics"
    append_lines(path, {"total_step": 2000, "stage": "b", "new": 1})
    table = MetricLog(path, cache).table()
    assert table.column("loss")[:2000] == before.column("loss")
    assert (table.count, table.number("new", 2000), table.number("loss", 2000)) == (2001, 1, None)
    assert list(table.stages()) == [("a", 0, 2000), ("b", 2000, 2001)]
    assert before.count == len(before.column("loss")) == 2000


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"[1]\n", b"\xff\n", None])
def test_a_kept_table_that_is_damaged_or_of_another_file_is_read_anew(tmp_path: Path, damage: bytes | None) -> None:
    path, cache = tmp_path / "metrics.jsonl", tmp_path / "cache"
    append_lines(path, *({"total_step": step, "loss": 1} for step in range(1000)))
    MetricLog(path, cache).table()
    (kept,) = cache.iterdir()
    if damage is None:
        kept.write_bytes(kept.read_bytes()[:-8])
    else:
        kept.write_bytes(damage)
    assert MetricLog(path, cache).table().count == 1000
    path.unlink()
    append_lines(path, *({"total_step": step, "loss": 2} for step in range(1001)))
    table = MetricLog(path, cache).table()
    assert (table.count, table.number("loss", 0)) == (1001, 2)


def test_a_table_without_a_place_to_be_kept_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_lines(path, *({"total_step": step} for step in range(1000)))
    assert MetricLog(path, path / "below a file").table().count == 1000
