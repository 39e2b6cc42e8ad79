"""What the documents say is true: their commands run, their recipes are right, their links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
from agym.commands import COMMANDS
from agym.commands.invocation.parser import build_parser

from .conftest import Agym

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(each for each in ROOT.glob("*/README.md")),
]
PACKAGES = ("dsl", "envs", "launch", "runtime", "schemas", "recipes", "tests", "bench")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def blocks(language: str, text: str = README) -> list[str]:
    return [match[2] for match in FENCE.finditer(text) if match[1] == language]


def commands() -> list[str]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line.split("  #")[0] for line in lines if line.startswith("agym ")]


def test_the_commands_of_the_readme_work_one_after_the_other(agym: Agym) -> None:
    assert len(commands()) >= 5
    for command in commands():
        called = agym(*shlex.split(command)[1:])
        assert called.code == 0, f"{command}\n{called.out}{called.err}"


def test_the_recipe_of_the_readme_is_right(agym: Agym) -> None:
    recipes = [block for block in blocks("yaml") if block.startswith("agym:")]
    assert len(recipes) == 1
    called = agym("validate", "-", stdin=recipes[0].encode())
    assert called.code == 0, called.out


def test_the_mistake_on_top_of_the_readme_is_shown_as_it_says(agym: Agym, tmp_path: Path) -> None:
    shown = blocks("", README)[0]
    text = (
        "agym: 1\nname: my-run\nextends: base/grpo-7b\n"
        + "\n" * 8
        + "environments:\n  textcraft:\n    use: textcarft\n"
    )
    text += "schedule: [{stage: go, turns: 10, until: step >= 10}]\n"
    (tmp_path / "my-run.yaml").write_text(text, encoding="utf-8")
    assert agym("validate", "my-run.yaml").out.startswith(shown)


def test_the_make_targets_of_the_documents_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {word for page in PAGES for word in re.findall(r"`?make ([a-z-]+)[`\s]", page.read_text(encoding="utf-8"))}
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {"setup", "test", "check", "docs"} <= named & targets
    assert {word for word in named if f"make {word}`" in README + (ROOT / "CONTRIBUTING.md").read_text()} <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_a_readme_of_at_most_25_lines(package: str) -> None:
    text = (ROOT / package / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 25
    assert "**To add**" in text


def test_every_package_readme_names_tests_that_are_there() -> None:
    for package in PACKAGES:
        text = (ROOT / package / "README.md").read_text(encoding="utf-8")
        for path in re.findall(r"`(tests/[\w./-]+)`", text):
            assert (ROOT / path).exists(), f"{package}/README.md names {path}"


def test_the_commands_of_the_editor_page_work(agym: Agym) -> None:
    page = (ROOT / "docs" / "editor.md").read_text(encoding="utf-8")
    for block in blocks("sh", page):
        words = shlex.split(block.split(">")[0])
        assert agym(*words[1:]).code == 0


def test_the_commands_of_the_cluster_page_are_ones_that_agym_takes() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    lines = [line.split("  #")[0] for block in blocks("sh", page) for line in block.splitlines()]
    words = [shlex.split(line.partition("agym ")[2]) for line in lines if re.match(r"(cd \S+ && )?agym ", line)]
    assert len(words) >= 6
    for each in words:
        build_parser(COMMANDS).parse_args(each)


def test_the_problem_matcher_of_the_editor_page_matches(agym: Agym, tmp_path: Path) -> None:
    import json

    page = (ROOT / "docs" / "editor.md").read_text(encoding="utf-8")
    tasks = next(json.loads(block) for block in blocks("json", page) if "problemMatcher" in block)
    pattern = re.compile(tasks["tasks"][0]["problemMatcher"]["pattern"]["regexp"])
    (tmp_path / "a.yaml").write_text("agym: 1\nseeed: 1\nextends: quickstart\n", encoding="utf-8")
    match = pattern.match(agym("validate", "a.yaml").out.splitlines()[0])
    assert match is not None
    assert match.groups()[:5] == ("a.yaml", "2", "1", "error", "unknown-key")
