"""`--resume` by a plan that is not the run's own: refused before anything starts, and the folder stays as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.model.plan import Plan
from agym.runtime.errors import RunError
from agym.runtime.run import Start, run_plan
from agym.runtime.sinks.console.console import Terminal
from agym.runtime.storage.resume_check import can_resume, decisive_sha256, list_differences
from agym.runtime.storage.run_folder import FolderError, RunFolder


def resumed(root: Path, then: Plan, now: Plan) -> str:
    """Why it is refused."""
    before = {path: path.read_bytes() for path in root.glob("*.*")}
    with pytest.raises(FolderError) as refused:
        run_plan(
            now,
            root,
            Start(recipe="agym: 1\n", folder=root, resume=then),
            terminal=Terminal(out=StringIO(), live=False),
            environ={},
            clock=float,
            wall_clock=float,
        )
    assert {path: path.read_bytes() for path in root.glob("*.*")} == before
    RunFolder.resume(root).close()  # it is not held any more
    return str(refused.value)


def test_a_run_of_another_plan_is_not_resumed(new_run: Any, tmp_path: Path) -> None:
    RunFolder.start(tmp_path / "run", "plan", "recipe", {"recipe_folder": "/"}).close()
    said = resumed(tmp_path / "run", new_run("seed=1").plan, new_run().plan)
    own = f"holds a run of another plan: resume it by its own recipe, with 'agym run {tmp_path / 'run'} --resume', or"
    assert own in said
    assert said.splitlines()[1:] == ["  'seed': 1 in the run, 0 now"]


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("algorithm.lr=1", "'algorithm.lr': 4.0 in the run, 1.0 now (stage exploit, explore)"),
        ("schedule=[{stage: other, turns: 2, until: step >= 9}]", "'turns': 2 in the run, not set now (stage exploit)"),
        ("eval.turns=3", "'eval.turns': [2, 4] in the run, [3] now"),
    ],
)
def test_each_key_that_differs_is_listed_with_both_values(new_run: Any, setting: str, line: str) -> None:
    assert line in list_differences(new_run().plan, new_run(setting).plan)


def test_what_may_differ_is_not_listed(new_run: Any) -> None:
    now = new_run("hardware.rollout.kv_cache_gb=1", "rollout={retries: 9}", "environments.echo.sessions=2").plan
    assert list_differences(new_run().plan, now) == []


def test_a_run_whose_variables_of_the_environment_have_changed_is_not_resumed(new_run: Any, tmp_path: Path) -> None:
    # both plans are made from `seed: ${env:SEED}`, after it has changed
    now = new_run("seed=1").plan
    manifest = {"recipe_folder": "/", "agym": version("agym-dsl"), "decisive_sha256": decisive_sha256(new_run().plan)}
    RunFolder.start(tmp_path / "run", "plan", "seed: ${env:SEED}", manifest).close()
    assert "other values of the environment variables in its recipe" in resumed(tmp_path / "run", now, now)


def test_a_run_of_another_version_of_its_preset_is_not_resumed(new_run: Any, tmp_path: Path) -> None:
    now = new_run("algorithm=dapo").plan
    # as version 0.1.0 left it, without a word about presets
    RunFolder.start(tmp_path / "run", "plan", "recipe", {"recipe_folder": "/", "agym": "0.1.0"}).close()
    said = resumed(tmp_path / "run", now, now)
    assert "a run by version 1 of 'dapo', and version 2 sets other values: resume it with agym 0.1.0" in said


def test_a_run_that_fails_says_why_in_its_events(new_run: Any, tmp_path: Path) -> None:
    key = "s3cr3t-of-forty-letters"
    environment = f"environments.echo={{url: 'http://127.0.0.1:9/{key}'}}"
    plan = new_run(environment, "rollout={reset_timeout_s: 1, step_timeout_s: 1}").plan
    with pytest.raises(RunError):
        run_plan(
            plan,
            tmp_path / "run",
            Start(recipe="agym: 1\n", folder=tmp_path),
            terminal=Terminal(out=StringIO(), live=False),
            environ={"A_KEY": key},
            clock=float,
            wall_clock=float,
        )
    (end,) = (json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    assert (end["kind"], end["outcome"], end["total_step"]) == ("end", "failed", 0)
    assert "http://127.0.0.1:9/***" in end["text"]


def test_how_many_checkpoints_are_kept_decides_where_earlier_ones_play(new_run: Any) -> None:
    then, now = new_run("checkpoint.keep=1").plan, new_run("checkpoint.keep=2").plan
    assert can_resume(then, now)
    then, now = replace(then, plays_earlier=True), replace(now, plays_earlier=True)
    assert not can_resume(then, now)
    assert list_differences(then, now) == ["'checkpoint.keep': 1 in the run, 2 now"]
