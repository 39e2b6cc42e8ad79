"""The built wheel holds every package and data file, and nothing else."""

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {"tests", "bench", "docker", "docs", "build", "dist", "locks", "runs"}
"""Folders of the checkout that are not part of the package."""
NOT_SHIPPED = {
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "Makefile", "pyproject.toml", "action.yml"),
    *("package.json", "package-lock.json"),
}
UPLOT = {f"viewer/node_modules/uplot/{name}" for name in ("LICENSE", "dist/uPlot.iife.min.js", "dist/uPlot.min.css")}
"""What the viewer's pages draw charts with, and its licence: all of what `make setup` fetches that is packed."""


def package_files() -> Iterator[str]:
    """What belongs into the wheel, by its path below `agym/`: code and data, but no room cards and no caches."""
    for file in sorted(ROOT.rglob("*")):
        inside = file.relative_to(ROOT)
        if not file.is_file() or inside.parts[0] in OUTSIDE or "__pycache__" in inside.parts:
            continue
        if any(part.startswith(".") or part.endswith(".egg-info") for part in inside.parts):
            continue
        if "node_modules" in inside.parts:
            if inside.as_posix() in UPLOT:
                yield inside.as_posix()
        elif inside.name not in NOT_SHIPPED:
            yield inside.as_posix()


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Built from a copy, so that the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "checkout"
    for inside in [*package_files(), "README.md", "LICENSE", "pyproject.toml"]:
        (copy / inside).parent.mkdir(parents=True, exist_ok=True)
        (copy / inside).write_bytes((ROOT / inside).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(copy)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("agym_dsl-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        return opened.namelist()


def test_the_wheel_holds_every_file_of_the_package_and_no_other(names: list[str]) -> None:
    shipped = {name.removeprefix("agym/") for name in names if name.startswith("agym/")}
    assert shipped == set(package_files())


def test_the_wheel_has_what_charts_are_drawn_with_and_its_licence(names: list[str]) -> None:
    assert {f"agym/{name}" for name in UPLOT} <= set(names)


def test_the_wheel_has_the_licence_and_the_console_script(names: list[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("entry_points.txt") for name in names)


def test_the_list_of_packages_is_that_of_the_folders() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {Path(file).parent for file in package_files() if file.endswith(".py")}
    named = {".".join(("agym", *folder.parts)) for folder in folders}
    # a folder of data alone needs no code to be a package
    assert named <= set(project["tool"]["setuptools"]["packages"])
    assert all((ROOT / Path(*name.split(".")[1:])).is_dir() for name in project["tool"]["setuptools"]["packages"])


def test_base_dependencies_are_few_and_light() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {line.split(">")[0] for line in project["dependencies"]} == {"pyyaml", "jsonschema", "lark", "rich", "shtab"}
