"""A damaged checkpoint is named and set aside, and the run goes on from the newest sound one, bit for bit."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import RunError
from agym.runtime.storage.checkpoint_files import find_damage, seal_files
from agym.runtime.storage.run_folder import RunFolder
from agym.runtime.storage.run_reader import RunReader

from .conftest import RECIPE, Run, plan_of
from .test_resume import MOVING, nan_now_and_then

ALL = "checkpoint={every: 2, keep: 9, best: eval/echo/success, episodes: all}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = Run(root=tmp_path_factory.mktemp("finished") / "run", plan=plan_of(RECIPE, ALL))
    run.go()
    return run


@pytest.fixture
def noted(finished: Any, tmp_path: Path) -> Any:
    """A finished run and, in `notes`, what it says when it is resumed."""

    def make() -> tuple[Any, list[str]]:
        shutil.copytree(finished.root, tmp_path / "run", ignore=shutil.ignore_patterns(".lock"))
        again, notes = finished.again(tmp_path / "run"), list[str]()
        again.reporter.note = notes.append
        return again, notes

    return make


def test_forty_random_faults_are_found_and_named_and_the_right_checkpoint_is_taken(tmp_path: Path) -> None:
    from checkpoint_faults import try_faults

    tried = list(try_faults(tmp_path / "faults", 40, seed=1))
    assert {fault.kind for fault, _ in tried} == {"flip", "cut", "zero", "remove", "swap"}
    assert [(fault, wrong) for fault, wrong in tried if wrong] == []


def test_a_run_goes_on_from_the_newest_sound_checkpoint_and_ends_as_if_nothing_had_been(noted: Any) -> None:
    again, notes = noted()
    before, episodes = again.exact(), sorted(os.listdir(again.root / "episodes"))
    for name, file in (("step-9", "progress.json"), ("step-8", "learner.npz")):
        (again.root / "checkpoints" / name / file).write_bytes(b"")
    assert again.go().kind is OutcomeKind.FINISHED
    assert again.exact() == before
    assert sorted(os.listdir(again.root / "episodes")) == episodes
    assert sorted(os.listdir(again.root / "damaged")) == ["step-8", "step-9"]
    assert [note.partition(" and was moved")[0] for note in notes] == [
        "checkpoint step-9 is damaged",
        "checkpoint step-8 is damaged",
    ]
    assert "progress.json: has 0 bytes, expected" in notes[0]
    assert "learner.npz: has 0 bytes, expected" in notes[1]


def test_where_no_checkpoint_is_sound_the_run_says_so_and_none_is_lost(noted: Any) -> None:
    again, _ = noted()
    names = again.checkpoints()
    for name in names:
        (again.root / "checkpoints" / name / "learner.npz").unlink()
    with pytest.raises(RunError, match="has no sound checkpoint left: start over with --fresh"):
        again.go()
    assert sorted(os.listdir(again.root / "damaged")) == names


def test_a_checkpoint_of_another_step_or_another_run_is_not_taken(noted: Any) -> None:
    again, _ = noted()
    folder = again.root / "checkpoints"
    shutil.rmtree(folder / "step-9")
    shutil.copytree(folder / "step-2", folder / "step-9")
    seal_files(folder / "step-8", {"step": 8, "agym": "9", "decisive_sha256": "other"})
    space = RunFolder.resume(again.root)
    space._facts = {"agym": "9", "decisive_sha256": "own"}
    assert space.find_damage(9, folder / "step-9") == "checkpoint.json: is that of a checkpoint of step 2"
    assert space.find_damage(8, folder / "step-8") == "is that of a run with another plan"
    space.close()


@pytest.mark.slow
def test_a_roll_back_does_not_load_a_damaged_checkpoint(new_run: Any) -> None:
    run, notes = new_run(*MOVING), list[str]()
    run.learner.faulty = nan_now_and_then
    damaged: list[str] = []

    def look(row: Any) -> None:
        if row["total_step"] == 2 and not damaged:
            damaged.append("step-2")
        elif damaged and (folder := run.root / "checkpoints/step-2").exists():
            (folder / "learner.npz").write_bytes(b"")

    run.reporter.row, run.reporter.note = look, notes.append
    run.go()
    assert any(note.startswith("checkpoint step-2 is damaged") for note in notes)


@pytest.mark.parametrize(
    ("name", "kind", "error"),
    [
        ("metrics.jsonl", "folder", "Is a directory"),
        ("metrics.jsonl", "link", None),
        ("episodes", "file", "Not a directory"),
        ("damaged", "file", "File exists"),
        ("damaged", "link", "File exists"),
        ("model", "file", "Not a directory"),
    ],
)
def test_whatever_lies_in_the_place_of_a_file_the_run_goes_on_or_says_what_is_wrong(
    noted: Any, name: str, kind: str, error: str | None
) -> None:
    again, _ = noted()
    place = again.root / name
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    {"folder": place.mkdir, "file": place.touch, "link": lambda: place.symlink_to("nowhere")}[kind]()
    (again.root / "checkpoints/step-9/learner.npz").write_bytes(b"")
    if error is None:
        assert again.go().kind is OutcomeKind.FINISHED
    else:
        with pytest.raises(RunError, match=f"{again.root}.*{error}"):
            again.go()


def test_a_reference_that_is_damaged_is_found(noted: Any) -> None:
    again, _ = noted()
    reference = again.root / "references/exploit"
    assert find_damage(reference) is None
    (reference / "table.npy").write_bytes(b"")
    assert "table.npy: has 0 bytes, expected" in (find_damage(reference) or "")


# --- what a run leaves ---------------------------------------------------------------------------------------------


def test_the_model_of_a_run_is_that_of_its_newest_checkpoint_and_takes_no_space(finished: Any) -> None:
    newest = finished.root / "checkpoints/step-9/model"
    assert find_damage(finished.root / "model") is None
    assert all((finished.root / "model" / path.name).samefile(path) for path in newest.iterdir())


def test_killed_while_the_model_takes_its_place_it_is_whole_after_the_resume(noted: Any) -> None:
    again, _ = noted()
    model = again.root / "model"
    model.rename(model.with_name(".replaced-model"))
    shutil.copytree(again.root / "checkpoints/step-9/model", again.root / ".unfinished-model")
    RunFolder.resume(again.root).close()
    assert find_damage(model) is None
    assert not list(again.root.glob(".*-model"))


def test_killed_between_the_last_checkpoint_and_the_model_the_resume_publishes_it(noted: Any) -> None:
    again, _ = noted()
    shutil.rmtree(again.root / "model")
    shutil.copytree(again.root / "checkpoints/step-8/model", again.root / "model")
    again.go()
    newest = again.root / "checkpoints/step-9/model"
    assert (again.root / "model/checkpoint.json").samefile(newest / "checkpoint.json")


def test_exports_of_deleted_checkpoints_are_limited_and_the_best_is_kept(new_run: Any) -> None:
    run = new_run("checkpoint={every: 1, keep: 1, keep_exports: 2, best: eval/echo/success}")
    run.go()
    assert len(list((run.root / "weights").iterdir())) <= 3
    assert RunReader(run.root).steps()[-1] == 9


def test_a_checkpoint_that_finds_no_room_ends_the_run_and_those_before_it_stay_whole(
    noted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    again, _ = noted()
    shutil.rmtree(again.root / "checkpoints/step-9")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 0))
    with pytest.raises(RunError, match=r"^save: .*: a checkpoint takes about [\d,]+ bytes and 0 are free; free space"):
        again.go()
    assert find_damage(again.root / "checkpoints/step-8", 8) is None


def test_a_run_folder_of_0_1_0_is_brought_to_this_format_and_again_after_a_kill(noted: Any) -> None:
    again, _ = noted()
    root = again.root
    for seal in root.rglob("checkpoint.json"):
        seal.unlink()
    (root / "manifest.json").write_text('{"agym": "0.1.0"}')
    (root / "checkpoints/step-9/checkpoint.json").write_text("half")  # what a kill left
    RunFolder.resume(root).close()
    assert not (root / "model").exists()
    assert find_damage(root / "start") is None
    assert find_damage(root / "checkpoints/step-9", 9) is None
    assert find_damage(root / "checkpoints/step-9/model") is None
    assert not RunReader(root).is_old
    assert asyncio.run(again.walk()).kind is OutcomeKind.FINISHED


def test_a_disk_that_is_smaller_than_what_a_run_keeps_is_told_before_the_start(
    tmp_path: Path, new_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agym.runtime.run import _check_room

    usage = namedtuple("usage", "total used free")
    plan = new_run().plan
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 1000))
    with pytest.raises(RunError, match=r"takes up to [\d,]+ bytes, and '.*' has 1,000 free: .*'checkpoint.keep'"):
        _check_room(plan, tmp_path / "not" / "there")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 10**12))
    _check_room(plan, tmp_path)
