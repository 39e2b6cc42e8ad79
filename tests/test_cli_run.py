"""`agym run`: what it refuses before anything is started."""

from __future__ import annotations

from pathlib import Path

from .conftest import Agym

RECIPE = "agym: 1\nname: mine\nextends: quickstart\n"


def test_a_part_that_is_not_built_yet_is_refused_by_name(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RECIPE + "model: {lora: {}}\n", encoding="utf-8")
    called = agym("run", "a.yaml")
    assert called.code == 1
    assert "error[not-built]: this version cannot run 'model.lora' yet: LoRA" in called.err
    assert not (tmp_path / "runs").exists()


def test_the_same_part_is_only_a_warning_where_nothing_is_run(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RECIPE + "model: {lora: {}}\n", encoding="utf-8")
    called = agym("validate", "a.yaml")
    assert "warning[not-built]" in called.out
    assert called.code == 0


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
