"""`agym plan` and `agym show`: what would happen, and what the recipe is after everything was put together."""

import json
import re
from pathlib import Path

import pytest
from agym.files import SHIPPED, shipped_names

from .conftest import Agym

RECIPES = [name for name in shipped_names() if not name.startswith("base/")]

MATRIX = """\
agym: 1
name: study
extends: base/grpo-7b
vars: {last: 30}
environments: {craft: textcraft}
schedule:
  - {stage: first, turns: 10, until: step >= 10}
  - {stage: growing, turns: "min(10 + 5 * (step // 50), 20)", until: "step >= 200"}
  - {stage: last, turns: "${vars.last}", until: "mean(success, 10) >= 0.9"}
matrix:
  seed: [0, 1]
  vars.last: [20, 30]
agent: {context_tokens: 30720}
"""

SERVED = "{craft: {use: textcraft, transport: http, replicas: 2}, play: {use: textcraft, transport: http}}"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    file = tmp_path / "study.yaml"
    file.write_text(MATRIX, encoding="utf-8")
    return file


# --- plan ----------------------------------------------------------------------------------------------------------


def test_the_tree_shows_stages_with_their_cost(agym: Agym) -> None:
    called = agym("plan", "quickstart")
    assert called.code == 0
    for part in ("quickstart", "imitate  sft", "explore  gigpo", "horizon", "128 per step, 16 groups of 8", "in all"):
        assert part in called.out


def test_the_tree_shows_the_table_of_a_growing_horizon(agym: Agym, study: Path) -> None:
    out = agym("plan", "study.yaml", "--run", "2").out
    assert "10 from step 0, 15 from step 50, 20 from step 100" in out
    assert "no bound by count" in out
    assert "or more steps" in out


def test_the_tree_shows_placement_and_memory_per_gpu(agym: Agym, study: Path) -> None:
    out = agym("plan", "study.yaml", "--run", "1").out
    assert "1 node, 8 GPUs each (h100), colocated, launched by ray" in out
    assert "learner/0 to learner/7" in out
    assert "peak per GPU" in out


def test_the_tree_shows_that_ranks_divide_rows(agym: Agym) -> None:
    assert "learner       8 ranks, rows divided between 8, ZeRO stage 3" in agym("plan", "scale/long-context").out


def test_the_tree_shows_the_servers_of_each_environment(agym: Agym, study: Path) -> None:
    text = MATRIX.split("matrix:")[0].replace("{craft: textcraft}", SERVED)
    study.write_text(text, encoding="utf-8")
    out = agym("plan", "study.yaml").out
    assert "environment/craft/0 to environment/craft/" in out
    assert "environment/play/0" in out
    assert "environment/craft/0 to environment/play" not in out


def test_a_matrix_is_a_table_of_its_runs(agym: Agym, study: Path) -> None:
    lines = agym("plan", "study.yaml").out.splitlines()
    assert lines[0].split()[:3] == ["run", "seed", "vars.last"]
    assert [line.split()[:3] for line in lines[1:5]] == [
        ["1", "0", "20"],
        ["2", "0", "30"],
        ["3", "1", "20"],
        ["4", "1", "30"],
    ]
    assert lines[-1] == "4 runs; for the plan of one: agym plan study.yaml --run 1"


@pytest.mark.parametrize("command", ["plan", "show"])
@pytest.mark.parametrize("number", ["0", "5", "-1"])
def test_a_run_that_is_not_there_is_a_wrong_command_line(agym: Agym, study: Path, command: str, number: str) -> None:
    called = agym(command, "study.yaml", f"--run={number}")
    assert called.code == 2
    assert "has 4 runs, numbered from 1" in called.err


@pytest.mark.parametrize("form", ["mermaid", "dot"])
def test_formats_of_one_plan_ask_which_run_is_meant(agym: Agym, study: Path, form: str) -> None:
    called = agym("plan", "study.yaml", "--format", form)
    assert (called.code, called.out) == (2, "")
    assert "choose one with --run 1 to --run 4" in called.err


@pytest.mark.parametrize("name", RECIPES)
def test_every_shipped_recipe_has_a_plan_as_json(agym: Agym, name: str) -> None:
    called = agym("plan", name, "--run", "1", "--format", "json")
    assert called.code == 0
    assert json.dumps(json.loads(called.out), indent=2, ensure_ascii=False) + "\n" == called.out


def test_the_plan_says_what_the_matrix_chose(agym: Agym, study: Path) -> None:
    plan = json.loads(agym("plan", "study.yaml", "--run", "4", "--format", "json").out)
    assert plan["choices"] == {"seed": "1", "vars.last": "30"}
    assert plan["seed"] == 1


def test_mermaid_has_a_box_per_stage_and_dashes_where_a_wire_comes_from_the_step_before(agym: Agym) -> None:
    out = agym("plan", "quickstart", "--format", "mermaid").out
    assert out.startswith("flowchart LR\n")
    assert out.count("subgraph") == out.count("  end\n") == 3
    assert "s1_update -.->|weights| s1_sync" in out
    assert "s0 ==> s1" in out


def test_dot_is_balanced_and_names_every_op(agym: Agym) -> None:
    out = agym("plan", "quickstart", "--format", "dot").out
    assert out.startswith('digraph "quickstart" {')
    assert out.count("{") == out.count("}")
    assert 's1_advantage [label="advantage"];' in out
    assert '[label="weights", style=dashed]' in out


@pytest.mark.parametrize("command", ["plan", "show", "doctor"])
def test_a_wrong_recipe_gives_its_diagnostics_on_standard_error_and_1(agym: Agym, study: Path, command: str) -> None:
    study.write_text(MATRIX.replace("textcraft", "textcarft"), encoding="utf-8")
    called = agym(command, "study.yaml")
    assert (called.code, called.out) == (1, "")
    assert "did you mean 'textcraft'?" in called.err


@pytest.mark.parametrize("command", ["plan", "show", "doctor"])
def test_a_recipe_that_is_not_there_gives_1_and_the_nearest_name(agym: Agym, tmp_path: Path, command: str) -> None:
    called = agym(command, "quickstrat")
    assert (called.code, called.out) == (1, "")
    assert "did you mean 'quickstart'?" in called.err


# --- show ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_what_show_prints_is_right_and_gives_the_same_plan(agym: Agym, tmp_path: Path, name: str, form: str) -> None:
    for file in (*SHIPPED.rglob("*.txt"), *SHIPPED.rglob("*.py"), *SHIPPED.rglob("*.jinja")):
        (tmp_path / file.name).write_text("Give one command.")
    shown = agym("show", name, "--run", "1", "--format", form)
    assert shown.code == 0
    first = json.loads(
        agym("plan", name, "--run", "1", "--format", "json")
        .out.replace("../tiny", "tiny")
        .replace("../smollm2/", "")
        .replace("../harness/", "")
    )
    moved = shown.out.replace("../tiny", "tiny").replace("../smollm2/", "").replace("../harness/", "").encode()
    again = json.loads(agym("plan", "-", "--format", "json", stdin=moved).out)
    # a recipe that was a matrix no longer says what it chose, and the hash of one with a file is that of its path
    other = {"choices": {}} | ({"recipe_sha256": ""} if moved != shown.out.encode() else {})
    assert again | other == first | other


def test_show_has_neither_extends_nor_vars_nor_references(agym: Agym, study: Path) -> None:
    out = agym("show", "study.yaml", "--run", "1").out
    assert not any(word in out for word in ("extends", "vars", "matrix", "${"))
    assert "    turns: 20\n" in out


def test_origins_tell_file_and_line_of_each_value(agym: Agym, study: Path) -> None:
    lines = agym("show", "study.yaml", "--run", "1", "--origins", "--set", "checkpoint.every=7").out.splitlines()
    said = {line.split("#")[0].strip(): line.rsplit("# ", 1)[1] for line in lines if "# " in line}
    assert said["name: study"] == "study.yaml:2"
    assert said["turns: 20"] == "study.yaml:12"
    assert said["every: 7"].startswith("--set")
    assert said["dtype: bf16"].endswith("grpo-7b.yaml:7")


def test_origins_and_json_do_not_go_together(agym: Agym) -> None:
    called = agym("show", "quickstart", "--origins", "--format", "json")
    assert called.code == 2
    assert "comments" in called.err


def test_a_secret_is_shown_as_the_reference_that_it_is_read_from(agym: Agym, tmp_path: Path) -> None:
    text = MATRIX.split("matrix:")[0].replace(
        "{craft: textcraft}", "{craft: {url: 'http://127.0.0.1:1', token: '${env:HOME}'}}"
    )
    (tmp_path / "secret.yaml").write_text(text, encoding="utf-8")
    for words in (("show",), ("show", "--format", "json"), ("plan", "--format", "json")):
        called = agym(words[0], "secret.yaml", *words[1:])
        assert called.code == 0, called.err
        assert str(Path.home()) not in called.out
    assert 'token: "${env:HOME}"' in agym("show", "secret.yaml").out


def test_text_that_yaml_would_take_for_something_else_is_quoted(agym: Agym, study: Path) -> None:
    study.write_text(MATRIX.split("matrix:")[0] + "description: 'on: off #1'\ntags: ['yes', '1e3', 'a, b']\n")
    out = agym("show", "study.yaml").out
    assert 'description: "on: off #1"\n' in out
    assert 'tags: ["yes", "1e3", "a, b"]\n' in out


def test_diff_is_key_by_key_and_does_not_repeat_what_stages_inherit(agym: Agym, study: Path) -> None:
    other = study.with_name("other.yaml")
    text = MATRIX.split("matrix:")[0]
    study.write_text(text, encoding="utf-8")
    other.write_text(
        text.replace("until: step >= 10", "until: step >= 20") + "algorithm: {lr: 2e-6}\n", encoding="utf-8"
    )
    called = agym("show", "study.yaml", "--diff", "other.yaml")
    assert called.code == 0
    assert called.out == (
        "--- study.yaml\n"
        "+++ other.yaml\n"
        "- algorithm.lr: 1e-06\n"
        "+ algorithm.lr: 2e-06\n"
        '- schedule.first.until: "step >= 10"\n'
        '+ schedule.first.until: "step >= 20"\n'
    )
    assert json.loads(agym("show", "study.yaml", "--diff", "other.yaml", "--format", "json").out)[0] == {
        "key": "algorithm.lr",
        "before": 1e-06,
        "after": 2e-06,
    }


def test_diff_of_the_same_says_so(agym: Agym) -> None:
    assert agym("show", "quickstart", "--diff", "quickstart").out == "quickstart and quickstart are the same\n"


def test_the_plans_of_a_matrix_are_a_list_in_json(agym: Agym, study: Path) -> None:
    plans = json.loads(agym("plan", "study.yaml", "--format", "json").out)
    assert [plan["choices"]["seed"] for plan in plans] == ["0", "0", "1", "1"]
    assert json.loads(agym("plan", "study.yaml", "--format", "json", "--run", "1").out) == plans[0]


def test_the_cache_that_fills_what_is_left_is_no_part_of_the_peak(agym: Agym, study: Path) -> None:
    (line,) = [each for each in agym("plan", "study.yaml", "--run", "1").out.splitlines() if "peak per GPU" in each]
    share = int(re.search(r"(\d+)%", line)[1])  # type: ignore[index]
    assert share < 100
    assert "headroom" in line
