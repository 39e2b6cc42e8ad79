"""Every shipped recipe: its head, that it is right, and that it plans (see also test_cli_plan)."""

from pathlib import Path

import pytest
from agym.commands.recipes import read_header
from agym.files import SHIPPED, is_base, shipped_names

from .conftest import Agym

NAMES = shipped_names()


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_opens_with_the_modeline_and_its_head(name: str) -> None:
    file = SHIPPED / f"{name}.yaml"
    first, *_ = file.read_text(encoding="utf-8").splitlines()
    start = "# yaml-language-server: $schema="
    assert first.startswith(start)
    assert (file.parent / first.removeprefix(start)).resolve() == (SHIPPED.parent / "schemas" / "recipe.v1.json")
    assert {"purpose", "cost", "command"} <= set(read_header(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_says_the_command_that_runs_it(name: str) -> None:
    said = read_header((SHIPPED / f"{name}.yaml").read_text(encoding="utf-8"))["command"]
    expected = f"`extends: {name}`" if is_base(f"{name}.yaml") else f"agym run {name}"
    assert expected in said


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_named_as_its_file_ends(name: str) -> None:
    text = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8")
    names = [line.removeprefix("name: ") for line in text.splitlines() if line.startswith("name: ")]
    assert names == ([] if is_base(f"{name}.yaml") else names[:1])
    assert all(each.endswith(Path(name).name) for each in names)


def test_all_recipes_are_right(agym: Agym) -> None:
    called = agym("validate", "-q", str(SHIPPED))
    assert (called.code, called.out) == (0, "")
