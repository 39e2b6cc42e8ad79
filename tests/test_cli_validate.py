"""`agym validate`: what it looks at, what it says, and with which code it ends."""

import json
import socket
from pathlib import Path

import pytest

from .conftest import Agym

RIGHT = "agym: 1\nname: mine\nextends: quickstart\nenvironments: {craft: textcraft}\n"
RIGHT += "schedule: [{stage: go, turns: 10, until: step >= 10}]\n"
WRONG = RIGHT.replace("craft: textcraft", "craft: textcarft")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "right.yaml").write_text(RIGHT, encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text(WRONG, encoding="utf-8")
    return tmp_path


# --- what it says --------------------------------------------------------------------------------------------------


def test_a_right_recipe_gives_one_line_and_0(agym: Agym, folder: Path) -> None:
    called = agym("validate", "right.yaml")
    assert (called.code, called.out, called.err) == (0, "1 recipe checked: no mistakes\n", "")


def test_a_wrong_recipe_is_shown_where_it_is_wrong_and_gives_1(agym: Agym, folder: Path) -> None:
    called = agym("validate", "wrong.yaml")
    assert called.code == 1
    assert called.out == (
        "wrong.yaml:4:23: error[unknown-environment]: environment 'textcarft' is not registered\n"
        "  4 | environments: {craft: textcarft}\n"
        "    |                       ^^^^^^^^^\n"
        "  help: did you mean 'textcraft'?\n"
        "\n"
        "1 error in 1 recipe\n"
    )


def test_all_mistakes_of_all_phases_are_told_at_once(agym: Agym, folder: Path) -> None:
    text = RIGHT.replace("until: step >= 10", "until: setp >= 10") + "algoritm: {use: grpo}\nseed: x\n"
    (folder / "many.yaml").write_text(text, encoding="utf-8")
    called = agym("validate", "many.yaml", "--format", "json")
    lines = {each["line"] for each in json.loads(called.out)["recipes"][0]["diagnostics"]}
    assert lines >= {5, 6, 7}


def test_quiet_says_nothing_when_all_is_right(agym: Agym, folder: Path) -> None:
    assert agym("validate", "-q", "right.yaml").out == ""


def test_a_mistake_in_an_extended_file_names_the_chain(agym: Agym, folder: Path) -> None:
    (folder / "child.yaml").write_text("agym: 1\nname: child\nextends: ./wrong.yaml\n", encoding="utf-8")
    called = agym("validate", "child.yaml")
    assert "wrong.yaml:4:23: error[unknown-environment]" in called.out
    assert "  in a recipe extended from child.yaml:3:10\n" in called.out


def test_a_mistake_in_a_shared_file_is_told_once_and_counts_for_each(agym: Agym, folder: Path) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(f"agym: 1\nname: {name}\nextends: ./wrong.yaml\n", encoding="utf-8")
    called = agym("validate", "a.yaml", "b.yaml")
    assert called.out.count("error[") == 1
    assert called.out.endswith("1 error in 2 of 2 recipes\n")


def test_settings_are_laid_over_every_recipe(agym: Agym, folder: Path) -> None:
    assert agym("validate", "right.yaml", "--set", "seed=7", "--set", "algorithm.lr=1e-5").code == 0
    called = agym("validate", "right.yaml", "--set", "algorithm.group_szie=4")
    assert called.code == 1
    assert "did you mean 'group_size'?" in called.out


def test_warnings_are_errors_only_under_strict(agym: Agym, folder: Path) -> None:
    (folder / "far.yaml").write_text(f"{RIGHT}sampling: {{top_p: 0.9}}\n", encoding="utf-8")
    assert agym("validate", "far.yaml").code == 0
    assert "warning[cut-sampling]" in agym("validate", "far.yaml").out
    called = agym("validate", "--strict", "far.yaml")
    assert called.code == 1
    assert "error[cut-sampling]" in called.out


def test_text_for_no_terminal_has_no_colour(agym: Agym, folder: Path) -> None:
    assert "\x1b" not in agym("validate", "wrong.yaml").out


# --- formats -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif"])
def test_every_format_ends_with_the_same_code(agym: Agym, folder: Path, form: str) -> None:
    assert agym("validate", "--format", form, "right.yaml").code == 0
    assert agym("validate", "--format", form, "right.yaml", "wrong.yaml").code == 1


def test_machine_formats_are_json_whatever_is_wrong(agym: Agym, folder: Path) -> None:
    for form in ("json", "sarif"):
        for words in (["right.yaml"], ["wrong.yaml"], ["missing.yaml"], ["-"]):
            assert isinstance(json.loads(agym("validate", "--format", form, *words).out), dict)


def test_github_annotates(agym: Agym, folder: Path) -> None:
    out = agym("validate", "--format", "github", "wrong.yaml").out
    assert out.startswith("::error file=wrong.yaml,line=4,col=23,endLine=4,endColumn=31,title=unknown-environment::")


# --- what it looks at ----------------------------------------------------------------------------------------------


def test_folders_are_searched_and_other_files_counted(agym: Agym, folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "more.yml").write_text(RIGHT, encoding="utf-8")
    (folder / "deep" / "compose.yaml").write_text("services: {}\n", encoding="utf-8")
    called = agym("validate", ".")
    assert called.code == 1
    assert called.out.endswith("1 error in 1 of 3 recipes; 1 other YAML file left out\n")


def test_a_base_may_lack_what_a_recipe_needs_but_not_be_wrong(agym: Agym, folder: Path) -> None:
    (folder / "base").mkdir()
    (folder / "base" / "part.yaml").write_text("agym: 1\nalgorithm: {use: grpo, lr: 1e-5}\n", encoding="utf-8")
    called = agym("validate", "base")
    assert (called.code, called.out) == (0, "1 base checked: no mistakes\n")
    (folder / "base" / "part.yaml").write_text("agym: 1\nalgorithm: {use: grpo, lr: -1}\n", encoding="utf-8")
    assert agym("validate", "base/part.yaml").code == 1


def test_the_same_text_outside_a_folder_named_base_is_not_complete(agym: Agym, folder: Path) -> None:
    (folder / "part.yaml").write_text("agym: 1\nalgorithm: {use: grpo, lr: 1e-5}\n", encoding="utf-8")
    called = agym("validate", "part.yaml")
    assert called.code == 1
    assert "error[missing-key]" in called.out


def test_standard_input_is_a_recipe_of_this_folder(agym: Agym, folder: Path) -> None:
    assert agym("validate", "-", stdin=RIGHT.encode()).code == 0
    child = b"agym: 1\nname: child\nextends: ./wrong.yaml\n"
    called = agym("validate", "-", stdin=child)
    assert called.code == 1
    assert "extended from <stdin>:3:10" in called.out


def test_shipped_recipes_are_known_by_name(agym: Agym, folder: Path) -> None:
    assert agym("validate", "quickstart").code == 0


def test_arguments_without_a_recipe_give_2_and_the_others_are_checked_all_the_same(agym: Agym, folder: Path) -> None:
    called = agym("validate", "wrong.yam", "right.yaml", "nothing/*.yaml")
    assert called.code == 2
    assert (
        "wrong.yam:1:1: error[file-not-found]: 'wrong.yam' is not there\n  help: did you mean 'wrong.yaml'?"
        in called.out
    )
    assert "error[no-recipes]: no file matches 'nothing/*.yaml'" in called.out
    assert called.out.endswith("2 errors\n")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty-file"),
        (b"# only comments\n", "empty-file"),
        (b"agym: 1\n---\nagym: 1\n", "several-documents"),
        (b"\xff\xfe\x00", "not-utf8"),
        (b"\x00\x01\x02", "control-character"),
        (b"# " + b"x" * 10_000_000, "too-large"),
        (b"- 1\n", "wrong-type"),
        (b"agym: 1\nname: [\n", "unclosed-bracket"),
    ],
)
def test_any_file_gives_diagnostics_and_1(agym: Agym, folder: Path, data: bytes, code: str) -> None:
    (folder / "odd.yaml").write_bytes(data)
    called = agym("validate", "odd.yaml", "--format", "json")
    codes = [each["code"] for each in json.loads(called.out)["recipes"][0]["diagnostics"]]
    assert (called.code, codes) == (1, [code])
    assert called.err == ""


def test_what_cannot_be_read_gives_1(agym: Agym, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "odd.yaml"))
        called = agym("validate", "odd.yaml")
    assert called.code == 1
    assert "error[file-refused]: 'odd.yaml' cannot be read" in called.out


def test_a_link_that_leads_nowhere_is_not_there(agym: Agym, folder: Path) -> None:
    (folder / "link.yaml").symlink_to(folder / "gone.yaml")
    called = agym("validate", "link.yaml")
    assert called.code == 1
    assert "error[file-not-found]" in called.out


def test_looking_writes_nothing(agym: Agym, folder: Path) -> None:
    def snapshot() -> dict[str, bytes]:
        return {str(each): each.read_bytes() for each in folder.rglob("*") if each.is_file()}

    before = snapshot()
    for words in (("validate", "."), ("plan", "right.yaml"), ("show", "right.yaml"), ("plan", "wrong.yaml")):
        agym(*words)
    assert snapshot() == before


def test_recipes_that_extend_a_changed_base_are_checked_with_it(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "base/b.yaml").write_text("agym: 1\nextends: quickstart\nalgorithm: {groups_per_step: 9}\n")
    (tmp_path / "a.yaml").write_text("agym: 1\nname: a\nextends: base/b\n")
    (tmp_path / "far.yaml").write_text("agym: 1\nname: far\nextends: a\nseed: 1\n")
    (tmp_path / "other.yaml").write_text("agym: 1\nname: other\nextends: quickstart\nseed: x\n")
    called = agym("validate", "base/b.yaml", "--dependents", "--format", "json")
    assert called.code == 1
    assert [each["path"] for each in json.loads(called.out)["recipes"]] == ["base/b.yaml", "a.yaml", "far.yaml"]


def test_the_action_annotates_before_it_uploads(root: Path) -> None:
    import yaml

    steps = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    names = [step.get("name") for step in steps]
    assert names.index("validate") < names.index("upload SARIF")
    assert steps[names.index("upload SARIF")]["continue-on-error"] is True


def test_inherited_keys_that_are_left_out_are_a_note(agym: Agym) -> None:
    called = agym("validate", "agentgym-rl/textcraft-fixed", "--set", "hardware.gpus_per_node=0")
    assert (called.code, called.out.count("\n")) == (0, 1)
    assert "1 inherited key without effect left out (see agym show --origins)" in called.out
    shown = agym("show", "agentgym-rl/textcraft-fixed", "--set", "hardware.gpus_per_node=0", "--origins").out
    assert "# left out: hardware.gpu from " in shown
