"""A run folder read by others: which weights of which step, while the run may be under way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.publish.plan_json import dump_json
from agym.runtime.storage.run_folder import FolderError, RunFolder
from agym.runtime.storage.run_reader import RunReader


@pytest.fixture
def archived(new_run: Any) -> Any:
    def make(*settings: str) -> RunReader:
        run = new_run("checkpoint.keep=1", *settings)
        run.go()
        (run.root / "plan.json").write_text(dump_json(run.plan))
        return RunReader(run.root)

    return make


def test_latest_is_the_newest_checkpoint_and_best_the_one_with_the_highest_metric(archived: Any) -> None:
    archive = archived()
    latest, best = archive.kept("latest"), archive.kept("best")
    assert latest.step == 9
    assert latest.model == latest.checkpoint / "model"
    assert best.step == json.loads((archive.root / "checkpoints/step-9/progress.json").read_text())["best_step"]


def test_of_a_step_whose_checkpoint_is_gone_the_weights_and_the_stage_are_known(archived: Any, new_run: Any) -> None:
    archive = archived("checkpoint.keep_exports=9")
    kept = archive.kept("4")
    assert (kept.checkpoint, kept.model) == (None, archive.root / "weights/step-4")
    progress = archive.progress(kept, new_run().plan)
    assert (progress.total_step, progress.stage, progress.step) == (4, 1, 2)


def test_where_nothing_was_exported_there_is_no_model(archived: Any) -> None:
    kept = archived("checkpoint.export=false").kept("latest")
    assert kept.model is None
    assert kept.checkpoint is not None


def test_a_step_that_is_not_kept_is_told_with_those_that_are(archived: Any) -> None:
    with pytest.raises(FolderError, match="keeps nothing of step 7; it keeps 2, 4, 6, 8, 9"):
        archived("checkpoint.best=null", "checkpoint.keep_exports=9").kept("7")


def test_a_run_without_a_best_metric_has_no_best_step(archived: Any) -> None:
    with pytest.raises(FolderError, match=r"its recipe sets no 'checkpoint\.best'"):
        archived("checkpoint.best=null").kept("best")


def test_a_run_that_has_saved_nothing_has_nothing_to_give(archived: Any) -> None:
    archive = archived()
    shutil.rmtree(archive.root / "checkpoints")
    with pytest.raises(FolderError, match="has no checkpoint yet"):
        archive.kept("latest")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="holds no run"):
        RunReader(tmp_path)


def test_a_run_without_its_recipe_is_told_in_one_line(archived: Any) -> None:
    archive = archived()
    (archive.root / "recipe.yaml").unlink()
    with pytest.raises(FolderError, match=r"recipe\.yaml', the recipe of the run, cannot be read: No such file"):
        _ = archive.recipe


def test_a_run_that_is_under_way_is_read_all_the_same(archived: Any) -> None:
    archive = archived()
    space = RunFolder.resume(archive.root)
    assert archive.kept("latest").step == 9
    assert [row["total_step"] for row in archive.measurements(6)] == [0, 3, 6]
    space.close()


@pytest.mark.parametrize("manifest", [None, "{}", "{"])
def test_a_run_without_a_manifest_is_told_in_one_line(archived: Any, manifest: str | None) -> None:
    archive = archived()
    if manifest is not None:
        (archive.root / "manifest.json").write_text(manifest)
    with pytest.raises(FolderError, match=r"manifest\.json"):
        _ = archive.folder
