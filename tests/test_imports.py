"""Who imports whom: the package's walls, and that looking at a recipe loads no engine."""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {"dsl", "envs", "runtime", "commands", "launch", "reporters", "schemas", "recipes", "cli", "files", "catalog"}
COPIED = Path("envs/counter/env.py")
"""Made to be copied out of the package, so it imports as a plugin does."""
OUTSIDE = {"tests", "bench", "docs", "build", "dist", "locks"}
ENGINES = ("torch", "transformers", "vllm", "deepspeed", "ray")


@pytest.fixture(scope="module")
def imported() -> Mapping[Path, set[str]]:
    """The top names that each file imports by absolute name."""
    files = (file.relative_to(ROOT) for file in ROOT.rglob("*.py"))
    return {file: tops(file) for file in files if not file.parts[0].startswith((".", "build", "dist"))}


def tops(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_no_module_imports_a_package_by_its_bare_name(imported: Mapping[Path, set[str]]) -> None:
    assert len(imported) > 400
    assert {str(file): names & ROOMS for file, names in imported.items() if names & ROOMS} == {}


def test_inside_the_package_imports_are_relative(imported: Mapping[Path, set[str]]) -> None:
    inside = {file: names for file, names in imported.items() if file.parts[0] not in OUTSIDE}
    assert len(inside) > 300
    assert [str(file) for file, names in inside.items() if "agym" in names] == [str(COPIED)]


LOOK = """\
import io, sys
from contextlib import redirect_stdout, redirect_stderr
from agym.cli import main
with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
    code = main(sys.argv[1:])
print(code, *sorted(name for name in sys.modules if name.split(".")[0] in %r))
"""


def loaded(names: tuple[str, ...], *words: str) -> list[str]:
    """The exit code of a command in a process of its own, and which of the modules it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK % (names,), *words], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("validate", str(ROOT / "recipes")),
        ("plan", "quickstart"),
        ("show", "quickstart", "--origins"),
        ("schema", "--field", "algorithm"),
        ("recipes",),
        ("doctor",),
        ("completion", "bash"),
    ],
    ids=lambda words: words[0],
)
def test_looking_loads_no_engine(words: tuple[str, ...]) -> None:
    assert loaded(ENGINES, *words) == ["0"]


def test_help_loads_neither_the_yaml_reader_nor_the_checker_nor_rich() -> None:
    assert loaded(("yaml", "jsonschema", "lark", "rich", "importlib.metadata"), "--help") == ["0"]


def test_a_right_recipe_is_checked_without_the_schema_checker_and_without_a_search_for_plugins() -> None:
    found = loaded(("jsonschema", "rich", "importlib"), "validate", "quickstart")
    assert {name.split(".")[0] for name in found} == {"0", "importlib"}
    assert "importlib.metadata" not in found


def test_the_contracts_between_packages_hold(tmp_path: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=dict(os.environ),
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
