"""The run folder: begun, locked, written whole or not at all, repaired after a kill."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from agym.runtime.storage.episode_reader import list_members, read_chunks
from agym.runtime.storage.run_folder import FolderError, JsonLines, RunFolder, replace_file


def test_a_folder_in_use_is_refused_and_free_again_after_the_close(tmp_path: Path) -> None:
    space = RunFolder.start(tmp_path / "run", "plan", "recipe")
    with pytest.raises(FolderError, match="is in use by another run"):
        RunFolder.resume(tmp_path / "run")
    space.close()
    RunFolder.resume(tmp_path / "run").close()


def test_a_second_start_on_a_run_says_how_to_go_on(tmp_path: Path) -> None:
    RunFolder.start(tmp_path / "run", "plan", "recipe").close()
    (tmp_path / "run/metrics.jsonl").write_text("{}\n")
    with pytest.raises(FolderError, match="resume it with --resume, or start over with --fresh"):
        RunFolder.start(tmp_path / "run", "plan", "recipe")


def test_a_run_that_ended_before_its_first_row_is_in_nobodys_way_and_not_deleted(tmp_path: Path) -> None:
    RunFolder.start(tmp_path / "run", "plan 0", "recipe").close()
    RunFolder.start(tmp_path / "run", "plan 1", "recipe").close()
    assert (tmp_path / "run/plan.json").read_text() == "plan 1"
    assert (tmp_path / "run.old-1/plan.json").read_text() == "plan 0"


def test_fresh_moves_the_old_run_aside_and_deletes_nothing(tmp_path: Path) -> None:
    for number in range(3):
        RunFolder.start(tmp_path / "run", f"plan {number}", "recipe", fresh=True).close()
    assert (tmp_path / "run/plan.json").read_text() == "plan 2"
    assert (tmp_path / "run.old-1/plan.json").read_text() == "plan 0"
    assert (tmp_path / "run.old-2/plan.json").read_text() == "plan 1"


def test_a_start_that_was_killed_before_its_plan_was_written_is_begun_again(tmp_path: Path) -> None:
    RunFolder.start(tmp_path / "run", "plan", "recipe").close()
    (tmp_path / "run/plan.json").unlink()
    with pytest.raises(FolderError, match="holds no run to resume"):
        RunFolder.resume(tmp_path / "run")
    RunFolder.start(tmp_path / "run", "plan", "recipe").close()


def test_a_folder_with_things_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(FolderError, match="is not empty: empty it, or start over with --fresh"):
        RunFolder.start(tmp_path, "plan", "recipe")


def test_a_checkpoint_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    space = RunFolder.start(tmp_path / "run", "plan", "recipe")

    def broken() -> None:
        with space.checkpoint(3) as folder:
            (folder / "half").write_text("x")
            assert space.checkpoints() == []
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - any
        broken()
    assert list((space.root / "checkpoints").iterdir()) == []
    with space.checkpoint(10) as folder:
        (folder / "all").write_text("x")
    with space.checkpoint(9) as folder:
        (folder / "all").write_text("x")
    assert [step for step, _ in space.checkpoints()] == [9, 10]


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        ({".unfinished-step-4": "half"}, {}),
        ({".replaced-step-4": "old"}, {"step-4": "old"}),
        ({".replaced-step-4": "old", "step-4": "new"}, {"step-4": "new"}),
        ({".unfinished-step-4": "half", "step-4": "old"}, {"step-4": "old"}),
    ],
    ids=["half", "between the names", "before the old one is gone", "half of a second one"],
)
@pytest.mark.parametrize("where", ["checkpoints", "references"])
def test_what_a_kill_inside_a_save_leaves_is_repaired(
    tmp_path: Path, where: str, left: dict[str, str], kept: dict[str, str]
) -> None:
    RunFolder.start(tmp_path / "run", "plan", "recipe").close()
    for name, text in left.items():
        (tmp_path / "run" / where / name).mkdir(parents=True)
        (tmp_path / "run" / where / name / "content").write_text(text)
    RunFolder.resume(tmp_path / "run").close()
    found = {path.name: (path / "content").read_text() for path in (tmp_path / "run" / where).iterdir()}
    assert found == kept


def test_dropped_checkpoints_leave_their_model(tmp_path: Path) -> None:
    space = RunFolder.start(tmp_path / "run", "plan", "recipe")
    for step in (1, 2):
        with space.checkpoint(step) as folder:
            (folder / "model").mkdir()
            (folder / "model/weights").write_text(str(step))
            (folder / "optimizer").write_text("large")
    space.drop([1], keep_exports=1)
    space.drop([1], keep_exports=1)
    assert [step for step, _ in space.checkpoints()] == [2]
    assert (space.root / "weights/step-1/weights").read_text() == "1"


def test_rows_after_the_checkpoint_are_forgotten_and_torn_ones_too(tmp_path: Path) -> None:
    metrics = JsonLines(tmp_path / "metrics.jsonl")
    metrics.append({"total_step": 1})
    kept = metrics.size
    metrics.append({"total_step": 2})
    metrics.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"total_st')
    again = JsonLines(tmp_path / "metrics.jsonl", keep_bytes=kept)
    again.append({"total_step": 2, "x": 0.1})
    again.close()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{"total_step": 1}, {"total_step": 2, "x": 0.1}]


def test_rows_that_somebody_deleted_do_not_come_back_as_zeros(tmp_path: Path) -> None:
    metrics = JsonLines(tmp_path / "metrics.jsonl", keep_bytes=99)
    metrics.append({"total_step": 4})
    metrics.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"total_step": 4}\n'


def test_a_row_that_json_cannot_say_is_an_error(tmp_path: Path) -> None:
    metrics = JsonLines(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        metrics.append({"x": float("nan")})
    metrics.close()


def test_episodes_of_steps_to_come_are_forgotten(tmp_path: Path) -> None:
    space = RunFolder.start(tmp_path / "run", "plan", "recipe")
    for step in (8, 9, 10, 11):
        (space.root / f"episodes/step-{step:06d}.jsonl").write_text("{}\n")  # as version 0.1.0 wrote them
        space.append_episodes(step, b"{}\n")
        space.write_evaluation(step, b"{}\n")
    space.forget_episodes(after=9)
    names = sorted(path.name for path in (space.root / "episodes").iterdir())
    assert names == [
        "step-000008-eval.jsonl",
        "step-000008.jsonl",
        "step-000009-eval.jsonl",
        "step-000009.jsonl",
        "train.jsonl.gz",
    ]
    assert [member.step for member in list_members(space.root / "episodes/train.jsonl.gz")] == [8, 9]


def test_a_log_cut_at_any_byte_is_whole_again_after_the_steps_that_it_held(tmp_path: Path) -> None:
    space = RunFolder.start(tmp_path / "run", "plan", "recipe")
    for step in (1, 2, 3):
        space.append_episodes(step, b'{"step": %d}\n' % step * step)
    log = space.root / "episodes/train.jsonl.gz"
    whole, members = log.read_bytes(), list_members(log)
    assert gzip.decompress(whole).count(b"\n") == 6  # other programs read it too
    for size in range(len(whole)):
        log.write_bytes(whole[:size])
        space.forget_episodes(after=9)
        kept = [member for member in members if member.end <= size]
        assert log.stat().st_size == max((member.end for member in kept), default=0)
        space.append_episodes(7, b'{"step": 7}\n')
        assert [json.loads(line)["step"] for chunk in read_chunks(log) for line in chunk.data.splitlines()] == [
            *(member.step for member in kept for _ in range(member.step)),
            7,
        ]


def test_a_file_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    replace_file(tmp_path / "file", "old")
    os.link(tmp_path / "file", tmp_path / "reader")
    replace_file(tmp_path / "file", "new")
    assert (tmp_path / "reader").read_text() == "old"
    assert (tmp_path / "file").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "reader"]
