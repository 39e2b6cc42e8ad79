"""`agym models`, and what is said about a recipe whose model is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Agym

MISSING = "model: 'smollm2' is not on this machine: run 'agym models get smollm2'"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_list_shows_each_model_with_its_licence_and_what_is_to_get(agym: Agym) -> None:
    called = agym("models", "list")
    assert called.code == 0
    (line,) = called.out.splitlines()
    assert line.startswith("smollm2  93 MB to get")
    assert "quantised to Q4_1 (apache-2.0, from HuggingFaceTB/SmolLM2-135M-Instruct)" in line


def test_path_of_a_model_that_is_not_there_says_how_to_get_it(agym: Agym) -> None:
    called = agym("models", "path", "smollm2")
    assert (called.code, called.out) == (3, "")
    assert called.err == f"agym models: error: {MISSING}\n"


@pytest.mark.parametrize(("name", "said"), [("smolm2", "did you mean 'smollm2'?"), ("gpt", "known: smollm2")])
def test_an_unknown_model_is_named(agym: Agym, name: str, said: str) -> None:
    called = agym("models", "get", name)
    assert called.code == 2
    assert f"no model is called '{name}'; {said}" in called.err


def test_a_run_without_its_model_says_so_before_there_is_a_run_folder(agym: Agym, tmp_path: Path) -> None:
    called = agym("run", "smollm2/babyai")
    assert (called.code, called.err) == (2, f"agym run: error: {MISSING}\n")
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_what_model_is_missing_and_a_plan_needs_none(agym: Agym) -> None:
    called = agym("doctor", "smollm2/babyai")
    assert called.code == 1
    assert MISSING in called.out
    assert "139 M parameters" in agym("plan", "smollm2/babyai").out
