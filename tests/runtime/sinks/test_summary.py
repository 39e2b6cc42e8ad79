"""A run's summary, built from the rows it wrote, whatever happened in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agym.runtime.storage.summary import (
    EvalResult,
    eval_results,
    model_folder,
    read_rows,
    summarise_run,
    summary_lines,
)

Make = Callable[..., Any]


def test_a_whole_run_has_a_before_and_an_after(step_row: Make, eval_row: Make, tmp_path: Path) -> None:
    rows = [eval_row(0, 0.41), *(step_row(11 + k) for k in range(20)), eval_row(20, 0.6), eval_row(30, 0.83)]
    model = tmp_path / "model"
    assert list(summary_lines(rows, "finished", model, tmp_path / "metrics.jsonl")) == [
        "finished: 30 steps in 49s, 120,000 tokens sampled, 180,000 trained on",
        "  textcraft  success 0.41 [0.31, 0.51] before, 0.83 [0.73, 0.93] after (+0.42)",
        f"  metrics  {tmp_path / 'metrics.jsonl'}",
        f"  model    {model}",
    ]


def test_one_measurement_is_no_change(eval_row: Make, tmp_path: Path) -> None:
    lines = list(summary_lines([eval_row(1, 0.41)], "interrupted", None, tmp_path))
    assert lines[0] == "interrupted: 1 step in 3s, 0 tokens sampled, 0 trained on"
    assert lines[1] == "  textcraft  success 0.41 [0.31, 0.51]"


def test_names_stand_in_a_column(eval_row: Make, tmp_path: Path) -> None:
    row = eval_row(1, 0.5, **{"eval/textcraft@4/success": 0.25})
    lines = list(summary_lines([row], "finished", None, tmp_path))
    assert lines[1:3] == ["  textcraft    success 0.50 [0.40, 0.60]", "  textcraft@4  success 0.25"]


def test_shares_by_difficulty_are_not_environments(eval_row: Make) -> None:
    assert [name for name, _ in eval_results(eval_row(1))] == ["textcraft"]


def test_an_interval_that_is_no_number_is_left_out() -> None:
    assert str(EvalResult(success=0.5, low=None, high=None)) == "0.50"


def test_a_run_without_rows_is_summarised_too(tmp_path: Path) -> None:
    rows = read_rows(tmp_path / "metrics.jsonl")
    (first, _) = summary_lines(rows, "stopped by a guard: \x1b[31m", None, tmp_path)
    assert first == "stopped by a guard: \\x1b[31m: 0 steps in 0s, 0 tokens sampled, 0 trained on"


def test_a_line_that_a_kill_cut_short_is_no_row(step_row: Make, tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(json.dumps(step_row(11)) + "\n" + '{"total_step": 12, "sta')
    assert [row["total_step"] for row in read_rows(file)] == [11]


def test_the_model_is_that_of_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    assert model_folder(tmp_path) is None
    for name in ("step-9", "step-100", ".unfinished-200", "step-150"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    for name in ("step-9", "step-100", ".unfinished-200"):
        (tmp_path / "checkpoints" / name / "model").mkdir()
    assert model_folder(tmp_path) == tmp_path / "checkpoints" / "step-100" / "model"


def test_the_last_words_are_those_of_the_folder(step_row: Make, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(step_row(11)) + "\n")
    (tmp_path / "checkpoints" / "step-11" / "model").mkdir(parents=True)
    assert list(summarise_run(tmp_path, "finished")) == [
        "finished: 11 steps in 2s, 6,000 tokens sampled, 9,000 trained on",
        f"  metrics  {tmp_path / 'metrics.jsonl'}",
        f"  model    {tmp_path / 'checkpoints' / 'step-11' / 'model'}",
    ]
