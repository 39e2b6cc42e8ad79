"""An environment of your own in a folder, from `agym envs new` to an agent trained in it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import ROOT, Agym
from .engine_server import EngineServer

PAGE = (ROOT / "docs" / "your-environment.md").read_text(encoding="utf-8")
USE = "environments.my_env.use"
MARKED = "from pathlib import Path\nPath(__file__).with_name('imported').write_text('')\n"
SHORT = {
    "model.init.hidden": "32",
    "model.init.heads": "1",
    "model.init.kv_heads": "1",
    "model.init.intermediate": "32",
    "schedule.0.until": "step >= 2",
    "schedule.0.eval_every": "2",
    "schedule.0.algorithm.data.limit": "8",
    "schedule.1.until": "step >= 2",
    "schedule.1.turns": "2",
    "algorithm.groups_per_step": "2",
    "algorithm.group_size": "2",
    "algorithm.groups_per_update": "2",
    "eval.every": "2",
    "eval.limit": "2",
    "eval.turns": "2",
}


def commands() -> Iterator[list[str]]:
    """What the page lets one type."""
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    return (shlex.split(line, comments=True) for line in block.splitlines())


@pytest.fixture
def project(agym: Agym, tmp_path: Path) -> Path:
    assert agym("envs", "new", "my-env").code == 0
    return tmp_path / "my-env"


def settings(values: dict[str, str]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def test_the_page_needs_six_commands_and_those_of_agym_are_there(agym: Agym, project: Path) -> None:
    typed = list(commands())
    assert len(typed) <= 6
    assert [words[1:] for words in typed if words[0] == "agym"] == [
        ["envs", "new", "my-env"],
        ["envs", "check", "./my_env"],
        ["run", "recipe.yaml"],
    ]
    assert agym("envs", "list", "./my_env", cwd=project).code == 0


def test_a_check_and_a_plan_never_import_the_environment(agym: Agym, project: Path) -> None:
    code = project / "my_env" / "env.py"
    code.write_text(MARKED + code.read_text("utf-8").replace("from __future__", "# from __future__"), "utf-8")
    for words in (("validate", "recipe.yaml"), ("plan", "recipe.yaml"), ("show", "recipe.yaml")):
        assert agym(*words, cwd=project).code == 0
    assert agym("envs", "list", "./my_env", cwd=project).code == 0
    assert not (project / "my_env" / "imported").exists()


def test_a_path_on_the_command_line_counts_from_where_one_is(agym: Agym, project: Path) -> None:
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    called = agym("validate", "../recipe.yaml", "--set", f"{USE}=../my_env", cwd=elsewhere)
    assert called.code == 0, called.out
    called = agym("validate", "../recipe.yaml", "--set", f"{USE}=./my_env", cwd=elsewhere)
    assert (called.code, "no folder" in called.out) == (1, True)


def test_an_option_that_is_a_path_counts_from_the_recipe_that_names_it(agym: Agym, project: Path) -> None:
    data = project / "my_env" / "env.json"
    described = json.loads(data.read_text("utf-8"))
    described["options"]["words"] = {"type": "string", "format": "path", "description": "A file with words."}
    data.write_text(json.dumps(described), "utf-8")
    (project / "base").mkdir()
    recipe = (project / "recipe.yaml").read_text("utf-8")
    base = recipe.replace("use: ./my_env", "use: ../my_env").replace("{length: 4}", "{length: 4, words: words.txt}")
    (project / "base" / "part.yaml").write_text(base, "utf-8")
    (project / "recipe.yaml").write_text("extends: base/part.yaml\nagym: 1\nname: mine\n", "utf-8")
    missing = agym("validate", "recipe.yaml", cwd=project)
    assert (missing.code, "there is no file or folder 'base/words.txt'" in missing.out) == (1, True), missing.out
    (project / "base" / "words.txt").write_text("a\n", "utf-8")
    assert agym("validate", "recipe.yaml", cwd=project).code == 0


@pytest.mark.parametrize("action", ["list", "check", "play"])
def test_the_folder_is_meant_by_its_path(agym: Agym, project: Path, action: str) -> None:
    called = agym("envs", action, "my_env", cwd=project)
    assert (called.code, "for the folder, write ./my_env" in called.err) == (2, True), called.err
    called = agym("envs", action, "../my-env", cwd=project)
    assert (called.code, "a folder in it has: write ./../my-env/my_env" in called.err) == (2, True), called.err
    called = agym("envs", action, "./nothing", cwd=project)
    assert (called.code, "no folder './nothing'" in called.err) == (2, True), called.err


@pytest.mark.heavy
def test_what_is_written_trains_and_its_run_asks_for_the_code_again(engines: EngineServer, project: Path) -> None:
    done = engines.run("-m", "agym", "run", "recipe.yaml", *settings(SHORT), cwd=project)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "4 steps in" in done.stdout, done.stdout
    assert (project / "runs/my-env/logs/my_env.log").is_file()
    refused = engines.run("-m", "agym", "eval", "runs/my-env", cwd=project)
    assert (refused.returncode, f"'{USE}' of the recipe" in refused.stderr) == (3, True), refused.stderr
    repeated = engines.run("-m", "agym", "eval", "runs/my-env", "--set", f"{USE}=./my_env", cwd=project)
    assert repeated.returncode == 0, (repeated.stdout + repeated.stderr)[-3000:]
