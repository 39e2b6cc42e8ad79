"""`agym run`: what it refuses before anything is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Agym

RECIPE = "agym: 1\nname: mine\nextends: quickstart\n"


def test_a_wrong_recipe_starts_nothing(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RECIPE + "sead: 1\n", encoding="utf-8")
    called = agym("run", "a.yaml")
    assert called.code == 1
    assert "did you mean 'seed'?" in called.err
    assert not (tmp_path / "runs").exists()


def test_a_run_of_a_matrix_that_is_not_there_is_a_mistake_of_usage(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RECIPE + "matrix: {seed: [0, 1]}\n", encoding="utf-8")
    called = agym("run", "a.yaml", "--run", "3")
    assert called.code == 2
    assert "has 2 runs, there is no run 3" in called.err


@pytest.mark.parametrize("reference", ["a.yaml", "-"])
def test_a_process_that_starts_itself_again_tells_of_warnings_once(tmp_path: Path, reference: str) -> None:
    pytest.importorskip("numpy")
    recipe = RECIPE + "sampling: {top_p: 0.9}\n"
    (tmp_path / "a.yaml").write_text(recipe, encoding="utf-8")
    (tmp_path / "runs/mine").mkdir(parents=True)
    (tmp_path / "runs/mine/plan.json").touch()
    (tmp_path / "runs/mine/metrics.jsonl").write_text("{}\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "OMP_"))}
    # a process above this one that did so says nothing of this one
    called = subprocess.run(
        [sys.executable, "-m", "agym", "run", reference],
        cwd=tmp_path,
        env=environ | {"AGYM_STARTED_AGAIN": str(os.getpid())},
        input=recipe,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert called.returncode == 3, called.stderr
    assert called.stderr.count("warning[cut-sampling]") == 1


def test_a_folder_of_a_run_is_resumed_and_never_trained_as_a_recipe(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "runs/mine").mkdir(parents=True)
    (tmp_path / "runs/mine/plan.json").touch()
    called = agym("run", "runs/mine")
    assert called.code == 2
    assert "'runs/mine' is the folder of a run: continue it with --resume, or name a recipe" in called.err
