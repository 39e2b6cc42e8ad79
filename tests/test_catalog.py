"""What is registered: the data of every environment, and plugins found without importing them."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from agym.catalog import ENVS, BadEnvironment, Registered, catalog, find_data_file, read_environment
from agym.dsl.catalog import EnvironmentInfo
from agym.schemas import load
from jsonschema import Draft7Validator

FILES = sorted(ENVS.glob("*/env.json"))
NAMES = {
    "babyai",
    "desk",
    "gymnasium",
    "mcp",
    "miniwob",
    "reasoning_gym",
    "sciworld",
    "search",
    "shell",
    "textarena",
    "textcraft",
    "textworld",
    "verifiers",
    "webarena",
    "websites",
}


@pytest.mark.parametrize("file", FILES, ids=[file.parent.name for file in FILES])
def test_every_data_file_is_as_the_schema_says_and_named_as_its_folder(file: Path) -> None:
    data = json.loads(file.read_text(encoding="utf-8"))
    Draft7Validator(load("env.v1")).validate(data)
    assert data["name"] == file.parent.name
    for option in data["options"].values():
        Draft7Validator.check_schema(option)
        if "default" in option:
            Draft7Validator(option).validate(option["default"])


def test_every_environment_of_the_package_is_registered() -> None:
    assert set(catalog().environments.own) >= NAMES  # type: ignore[attr-defined]


def test_every_environment_can_be_trained_on_and_measured_on() -> None:
    for name in NAMES:
        assert {"train", "test"} <= set(catalog().environments[name].splits)


def test_solutions_are_fixed_where_an_expert_gives_no_advice() -> None:
    def defines(name: str, method: str) -> bool:
        return any(f"def {method}(" in file.read_text(encoding="utf-8") for file in (ENVS / name).glob("*.py"))

    fixed = {name for name in NAMES if defines(name, "expert") and not defines(name, "advice")}
    assert {name for name in NAMES if catalog().environments[name].fixed_solutions} == fixed


def test_extras_of_environments_are_those_of_the_package(root: Path) -> None:
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {catalog().environments[name].extra for name in NAMES} - {None}
    assert wanted <= set(project["optional-dependencies"])
    assert all(f"{extra}" in project["optional-dependencies"]["envs"][0] for extra in wanted)


def test_a_bad_data_file_is_told_by_name(tmp_path: Path) -> None:
    file = tmp_path / "env.json"
    whole = '"name": "x", "summary": "x", "splits": {"train": 1}'
    unknown, mute = '"required": ["id"]', '"options": {"id": {}}, "required": ["id"]'
    for text in ("{", "[]", "{}", f"{{{whole}, {unknown}}}", f"{{{whole}, {mute}}}"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(BadEnvironment, match=r"env\.json"):
            read_environment(file)


# --- plugins -------------------------------------------------------------------------------------------------------


class Search:
    """Stands for the search through installed packages, and counts how often it is made."""

    def __init__(self, found: Mapping[str, str]) -> None:
        self.found = found
        self.times = 0

    def __call__(self) -> Mapping[str, str]:
        self.times += 1
        return self.found


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{\n  oops", r"is not JSON: expecting property name enclosed in double quotes \(line 2, column 3\)"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"[" * 100_000, "does not describe an environment: values are nested too deep"),
    ],
)
def test_what_is_no_data_is_told_in_one_short_line(tmp_path: Path, data: bytes, said: str) -> None:
    file = tmp_path / "env.json"
    file.write_bytes(data)
    with pytest.raises(BadEnvironment, match=said) as caught:
        read_environment(file)
    assert len(str(caught.value)) < 200 + len(str(file))


def test_plugins_are_searched_only_for_names_that_are_not_ours() -> None:
    search = Search({"theirs": "b"})
    names = Registered({"ours": "a"}, search)
    assert names["ours"] == "a"
    assert "ours" in names
    assert names.get("") is None
    assert search.times == 0
    assert names["theirs"] == "b"
    assert "nobody's" not in names
    assert search.times == 1


def test_our_names_win_and_stand_once() -> None:
    names = Registered({"ours": "a"}, Search({"ours": "x", "theirs": "b"}))
    assert dict(names) == {"ours": "a", "theirs": "b"}
    assert len(names) == 2


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    """A package on the path that fails when it is imported."""
    package = tmp_path / "agym_test_plugin" / "maze"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    (package / "env.json").write_text(
        json.dumps({"version": 1, "name": "maze", "summary": "find the way out", "splits": {"train": 10}}),
        encoding="utf-8",
    )
    sys.path.insert(0, str(tmp_path))
    yield package
    sys.path.remove(str(tmp_path))


def test_the_data_of_a_plugin_is_found_without_importing_it(plugin: Path) -> None:
    file = find_data_file("agym_test_plugin.maze")
    assert file == plugin / "env.json"
    assert read_environment(file) == EnvironmentInfo(name="maze", summary="find the way out", splits={"train": 10})
    assert find_data_file("agym_test_plugin.maze.env") == file
    assert not any(name.startswith("agym_test_plugin") for name in sys.modules)


def test_a_plugin_without_data_has_none(plugin: Path) -> None:
    assert find_data_file("agym_test_plugin") is None
    assert find_data_file("no_such_package_at_all.env") is None


def test_an_installed_plugin_is_in_the_catalog(plugin: Path) -> None:
    folder = plugin.parents[1] / "agym_test_plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: agym-test-plugin\nVersion: 1.0\nSummary: mazes\n")
    points = (
        "[agym.envs]\nmaze = agym_test_plugin.maze:create\nbare = agym_test_plugin:create\n[agym.sinks]\npaper = p:S\n"
    )
    (folder / "entry_points.txt").write_text(points)
    known = catalog()
    assert known.environments["maze"].splits == {"train": 10}
    assert known.environments["bare"].summary == "mazes"
    assert known.sinks["paper"].summary == "mazes"
