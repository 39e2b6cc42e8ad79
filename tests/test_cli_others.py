"""`agym schema`, `recipes`, `new`, `doctor`."""

import json
import os
import re
from pathlib import Path

import pytest
from agym.catalog import catalog
from agym.commands.invocation import requirements
from agym.commands.invocation.requirements import (
    ENV_PACKAGES,
    ENV_TOOLS,
    Requirement,
    check_installed,
    list_requirements,
)
from agym.commands.invocation.shell import UsageError
from agym.commands.recipes import read_header
from agym.dsl.compile import compile_recipe
from agym.dsl.model.algorithm import Preset
from agym.dsl.model.plan import Plan
from agym.dsl.source import Source
from agym.files import DiskLibrary, shipped_names
from agym.machine import GpuInfo, inspect_machine, parse_gpu
from agym.runtime.backends.registry import installed_versions
from agym.schemas import load

from .conftest import Agym

# --- schema --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["recipe", "report", "env"])
def test_schema_prints_the_file_that_is_shipped(agym: Agym, name: str) -> None:
    assert json.loads(agym("schema", name).out) == load(f"{name}.v1")


def test_schema_is_that_of_recipes_unless_another_is_named(agym: Agym) -> None:
    assert agym("schema").out == agym("schema", "recipe").out


def test_a_field_is_explained_with_type_default_example_and_keys(agym: Agym) -> None:
    out = agym("schema", "--field", "algorithm.kl").out
    assert out.startswith("algorithm.kl\n  KL penalty towards a reference policy")
    assert "  keys\n    coef" in out
    assert "number" in agym("schema", "--field", "algorithm.kl.coef").out


def test_every_algorithm_is_explained_with_its_source(agym: Agym) -> None:
    lines = agym("schema", "--field", "algorithm.use").out.splitlines()
    named = {line.split()[0] for line in lines if line.startswith("    ") and line[4] != " "}
    assert named == {preset.value for preset in Preset}
    assert " ".join(lines).count("From:") == len(Preset)


def test_what_an_algorithm_sets_is_listed_with_where_it_is_from(agym: Agym) -> None:
    out = agym("schema", "--field", "algorithm.use").out
    (dapo,) = re.findall(r"^    dapo .*?(?=^    \w)", out, re.MULTILINE | re.DOTALL)
    assert re.search(r"^      updates_per_pass: 16\s+arXiv 2503\.14476, section 4\.1", dapo, re.MULTILINE)
    assert re.search(r"^      loss\.clip\.high: 0\.28\s+volcengine/verl@03150d4 recipe/dapo/", dapo, re.MULTILINE)


def test_fields_are_those_of_recipes_only(agym: Agym) -> None:
    assert agym("schema", "env", "--field", "name").code == 2


@pytest.mark.parametrize(
    ("key", "head"),
    [
        ("environments.anything.tasks.train", "environments.NAME.tasks.train"),
        ("environments.*.use", "environments.NAME.use"),
        ("schedule.turns", "schedule.turns"),
        ("schedule[0].algorithm.lr", "schedule.algorithm.lr"),
        ("matrix", "matrix"),
    ],
)
def test_fields_are_found_through_lists_and_maps_of_ones_own_names(agym: Agym, key: str, head: str) -> None:
    called = agym("schema", "--field", key)
    assert called.code == 0
    assert called.out.startswith(f"{head}\n  ")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("algoritm.kl", "no key 'algoritm': did you mean 'algorithm'?"),
        ("algorithm.kl.coeff", "'algorithm.kl' has no key 'coeff': did you mean 'coef'?"),
        ("name.first", "'name' has no key 'first'"),
    ],
)
def test_a_field_that_is_not_there_gives_2_and_the_one_that_was_meant(agym: Agym, key: str, said: str) -> None:
    called = agym("schema", "--field", key)
    assert (called.code, called.out) == (2, "")
    assert said in called.err


# --- recipes -------------------------------------------------------------------------------------------------------


def test_recipes_lists_each_with_its_purpose_and_no_base(agym: Agym) -> None:
    lines = agym("recipes").out.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == [name for name in shipped_names() if not name.startswith("base/")]
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in lines)


def test_recipes_as_json_have_name_purpose_and_cost(agym: Agym) -> None:
    listed = json.loads(agym("recipes", "--format", "json", "--bases").out)
    assert {each["name"] for each in listed} == set(shipped_names())
    assert all(set(each) == {"name", "purpose", "cost"} and all(each.values()) for each in listed)


def test_a_header_may_go_on_over_lines_and_ends_with_the_comments() -> None:
    text = "# yaml-language-server: $schema=x\n# Purpose: to show\n#   how\n# Cost: none\nagym: 1\n# Later: no\n"
    assert read_header(text) == {"purpose": "to show how", "cost": "none"}


# --- new -----------------------------------------------------------------------------------------------------------


def test_new_writes_a_recipe_that_is_right_under_its_own_name(agym: Agym, tmp_path: Path) -> None:
    called = agym("new", "my-run")
    assert (called.code, called.out) == (0, "wrote my-run.yaml; next: agym plan my-run.yaml\n")
    text = (tmp_path / "my-run.yaml").read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=recipe.v1.json\n")
    assert json.loads((tmp_path / "recipe.v1.json").read_text(encoding="utf-8"))["title"] == "agym recipe, version 1"
    assert "\nname: my-run\n" in text
    assert "# Command: agym run my-run.yaml\n" in text
    assert agym("validate", "--strict", "my-run.yaml").code == 0


@pytest.mark.parametrize("name", [name for name in shipped_names() if not name.startswith("base/")])
def test_new_copies_every_shipped_recipe(agym: Agym, tmp_path: Path, name: str) -> None:
    assert agym("new", "copy", "--from", name).code == 0
    assert agym("validate", "copy.yaml").code == 0
    before = json.loads(_name_prompts(agym("plan", name, "--run", "1", "--format", "json").out))
    after = json.loads(_name_prompts(agym("plan", "copy.yaml", "--run", "1", "--format", "json").out))
    assert after == before | {"name": "copy", "recipe_sha256": after["recipe_sha256"]}


def _name_prompts(plan: str) -> str:
    """A plan with the names of prompt files alone: a copy stands elsewhere, and so their paths differ."""
    return re.sub(r'"[^"]*/([\w-]+\.(?:txt|py|jinja))"', r'"\1"', plan)


def test_new_copies_a_recipe_that_inherits_its_name(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text("agym: 1\nextends: quickstart\nseed: 3\n", encoding="utf-8")
    assert agym("new", "other", "--from", "child.yaml").code == 0
    assert "agym: 1\nname: other\nextends: quickstart\n" in (tmp_path / "other.yaml").read_text(encoding="utf-8")


def test_new_does_not_overwrite_unless_forced(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("precious\n", encoding="utf-8")
    called = agym("new", "mine")
    assert (called.code, called.out) == (2, "")
    assert "--force" in called.err
    assert (tmp_path / "mine.yaml").read_text(encoding="utf-8") == "precious\n"
    assert agym("new", "mine", "--force").code == 0


@pytest.mark.parametrize("name", ["My Run", "-x", "a/b/c", "", "..", "x" * 101])
def test_new_refuses_what_is_no_name(agym: Agym, tmp_path: Path, name: str) -> None:
    assert agym("new", "--", name).code == 2
    assert list(tmp_path.iterdir()) == []


def test_new_writes_nothing_from_a_recipe_that_is_wrong_or_would_be_there(agym: Agym, tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "part.yaml").write_text("agym: 1\n", encoding="utf-8")
    (deep / "bad.yaml").write_text("agym: 1\nname: x\nalgoritm: {}\n", encoding="utf-8")
    (deep / "far.yaml").write_text("agym: 1\nname: x\nextends: [quickstart, ./part]\n", encoding="utf-8")
    for origin in ("deep/bad.yaml", "deep/far.yaml", "nowhere"):
        called = agym("new", "mine", "--from", origin)
        assert (called.code, called.out) == (1, "")
        assert "error[" in called.err
    assert [each.name for each in tmp_path.iterdir()] == ["deep"]


# --- doctor --------------------------------------------------------------------------------------------------------


def planned(text: str) -> Plan:
    cwd = Path.cwd()
    compiled = compile_recipe(Source("r.yaml", text), DiskLibrary(cwd), (), {}, catalog())
    assert not compiled.failed, [each.message for each in compiled.diagnostics]
    return compiled.variants[0].plan


CPU = "agym: 1\nname: x\nextends: quickstart\n"
GPU = "agym: 1\nname: x\nextends: agentgym-rl/babyai-fixed\n"


def test_doctor_tells_of_the_machine(agym: Agym) -> None:
    called = agym("doctor")
    assert called.code == 0
    assert [line.split()[0] for line in called.out.splitlines()][:5] == ["python", "system", "cores", "memory", "yaml"]


def test_doctor_gives_1_and_the_line_to_install_exactly_when_something_is_missing(agym: Agym) -> None:
    called = agym("doctor", "agentgym-rl/babyai-fixed", "--set", "hardware.gpus_per_node=4096")
    assert called.code == 1
    assert "the recipe needs 4096 GPUs per node" in called.out
    missing = {
        need.extra
        for need in list_requirements(planned(GPU), catalog())
        if not any(installed_versions(need.packages).values())
    }
    assert ("pip install 'agym-dsl[" in called.out) == bool(missing)
    assert all(extra in called.out.split("pip install", 1)[1] for extra in missing)


def test_what_a_recipe_needs_follows_from_its_plan() -> None:
    on_cpu, on_gpu = list_requirements(planned(CPU), catalog()), list_requirements(planned(GPU), catalog())
    assert {need.extra for need in on_cpu} == {"cpu"}
    assert {need.extra for need in on_gpu} == {"cuda", "ray", "tensorboard", "babyai"}
    assert Requirement(("ray",), "hardware.launcher: ray", "ray") in on_gpu


def test_doctor_asks_for_a_browser_exactly_where_web_pages_are_played_and_there_is_none(agym: Agym) -> None:
    web, other = (agym("doctor", recipe).out for recipe in ("agentgym-rl/webarena-fixed", "quickstart"))
    assert ("apt-get install chromium-headless-shell" in web) == (inspect_machine().browser is None)
    assert "apt-get" not in other


def test_doctor_names_the_variable_that_a_sink_lacks(
    agym: Agym, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    line = "logging to wandb: the environment variable WANDB_API_KEY is not set"
    for sink, lacks in (("wandb", True), ("{use: wandb, offline: true}", False)):
        (tmp_path / "r.yaml").write_text(f"agym: 1\nname: x\nextends: quickstart\nlogging: [{sink}]\n")
        assert (line in agym("doctor", "r.yaml").out) == lacks


def test_doctor_names_each_file_that_is_not_there_once(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("Give one command.")
    recipe = "agym: 1\nname: x\nextends: quickstart\nagent: {prompt: there.txt}\nmodel: {init: null, path: ./gone}\n"
    (tmp_path / "r.yaml").write_text(recipe)
    called = agym("doctor", "r.yaml")
    assert called.code == 1
    assert [line for line in called.out.splitlines() if line.endswith("does not exist")] == [
        f"model.path: '{tmp_path / 'gone'}' does not exist"
    ]


def test_a_recipe_that_only_measures_needs_nothing_to_learn_with() -> None:
    measuring = "agym: 1\nname: x\nmodel: {init: {}}\nenvironments: {craft: textcraft}\n"
    measuring += "schedule: [{stage: look, turns: 5, algorithm: {use: eval}}]\n"
    assert not [need for need in list_requirements(planned(measuring), catalog()) if "deepspeed" in need.packages]


def test_the_packages_of_every_extra_of_an_environment_are_known() -> None:
    assert {each.extra for each in catalog().environments.values() if each.extra} == set(ENV_PACKAGES)


def test_a_run_whose_pages_have_no_browser_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = "agym: 1\nname: x\nextends: miniwob/tiny\n"
    monkeypatch.setattr(requirements, "find_missing", lambda required: ())
    monkeypatch.setitem(ENV_TOOLS, "web", (lambda: None, ENV_TOOLS["web"][1]))
    with pytest.raises(UsageError, match="miniwob needs a browser; on Debian: apt-get install chromium-headless-shell"):
        check_installed(planned(recipe), catalog())
    check_installed(planned(CPU), catalog())
    # its environments start on the cluster's nodes, but an evaluation of it plays here
    on_nodes = planned(recipe + "hardware: {launcher: ray}\n")
    check_installed(on_nodes, catalog())
    with pytest.raises(UsageError, match="needs a browser"):
        check_installed(on_nodes, catalog(), trains=False)


def test_every_extra_that_doctor_names_is_one_of_the_package(root: Path) -> None:
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {"cpu", "cuda", "ray", "serve", "tensorboard", "wandb", "mlflow", "trackio", *ENV_PACKAGES}
    assert extras <= set(project["optional-dependencies"])


def test_a_look_at_the_machine_imports_no_engine() -> None:
    import subprocess
    import sys

    code = "import sys, agym.machine as m; m.inspect_machine(); print(*{'torch', 'vllm', 'ray'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == "\n"


def test_a_look_counts_what_this_process_may_use() -> None:
    machine = inspect_machine()
    assert machine.cores >= 1
    assert machine.python.startswith("3.")
    assert bool(machine.gpus) != bool(machine.gpus_note)


def test_cards_are_read_from_the_lines_of_their_tool() -> None:
    assert parse_gpu("NVIDIA H100 80GB HBM3, 81559") == GpuInfo(name="NVIDIA H100 80GB HBM3", memory_mib=81559)
    assert parse_gpu("odd, name, [N/A]") == GpuInfo(name="odd, name", memory_mib=0)
