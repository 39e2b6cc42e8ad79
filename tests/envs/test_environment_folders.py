"""Environments in folders: what of them is imported, and what is said where that fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from agym.envs.errors import BadOption, EnvFault, NotInstalled, UnknownEnv
from agym.envs.registry import factory, is_folder, short_name

COUNTER = Path(__file__).resolve().parents[2] / "envs" / "counter"


def copied(folder: Path, *files: str) -> Path:
    folder.mkdir()
    for file in files or ("env.py", "env.json"):
        shutil.copy(COUNTER / file, folder)
    return folder


@pytest.mark.parametrize(
    ("name", "is_path"), [("./a", True), ("../a", True), ("/a", True), ("~/a", True), ("a", False)]
)
def test_a_path_is_told_from_a_name(name: str, is_path: bool) -> None:
    assert is_folder(name) == is_path


def test_a_folder_is_called_by_its_last_part() -> None:
    assert [short_name(name) for name in ("/x/my env", "./x/..//mine/", "counter")] == ["my_env", "mine", "counter"]


def test_a_folder_without_init_reads_its_own_options(tmp_path: Path) -> None:
    folder = copied(tmp_path / "count-alone")
    assert "reach-5" in factory(str(folder), {"largest": 5})().tasks("train")
    with pytest.raises(BadOption, match="no option 'larges'; did you mean 'largest'"):
        factory(str(folder), {"larges": 5})()


def test_modules_of_a_folder_find_each_other_by_both_ways_of_import(tmp_path: Path) -> None:
    folder = copied(tmp_path / "count_with_others", "env.json")
    shutil.copy(COUNTER / "env.py", folder / "inner.py")
    (folder / "__init__.py").write_text('"""Of its own."""\nSAID = 1\n')
    (folder / "env.py").write_text(
        "from . import SAID\nfrom .inner import create\nfrom count_with_others.inner import create as again\n"
        "assert create is again and SAID\n"
    )
    assert factory(str(folder))().tasks("test")


def test_a_folder_loaded_twice_is_the_same(tmp_path: Path) -> None:
    folder = copied(tmp_path / "count_twice")
    assert type(factory(str(folder))()) is type(factory(str(folder))())


@pytest.mark.parametrize(
    ("name", "code", "error", "said"),
    [
        ("broken_word", "def create(options):\n    return 3 +\n", UnknownEnv, r"SyntaxError: .* \(env\.py, line 2\)"),
        ("broken_sum", "a = 1\nb = a / 0\n", UnknownEnv, r"ZeroDivisionError: .* \(env\.py, line 2\)"),
        ("broken_import", "import not_there_at_all\n", NotInstalled, r"module 'not_there_at_all' \(env\.py, line 1\)"),
        ("broken_end", "import sys\nsys.exit('bye')\n", UnknownEnv, r"SystemExit: bye \(env\.py, line 2\)"),
        ("broken_nothing", "", UnknownEnv, r"no function create\(options\)"),
        ("random", "", UnknownEnv, "the name of a module of Python"),
        ("__main__", "", UnknownEnv, "the name of a module of Python"),
        ("pytest", "", UnknownEnv, "the name of the Python package 'pytest'"),
    ],
)
def test_what_cannot_be_imported_is_said_in_one_line(
    tmp_path: Path, name: str, code: str, error: type[Exception], said: str
) -> None:
    folder = copied(tmp_path / name, "env.json")
    (folder / "env.py").write_text(code)
    with pytest.raises(error, match=said):
        factory(str(folder))


def test_a_module_missing_only_when_the_environment_is_made_is_named(tmp_path: Path) -> None:
    folder = copied(tmp_path / "lazy_import")
    (folder / "env.json").write_text("{}")
    (folder / "env.py").write_text("def create(options):\n    import not_there_at_all\n")
    with pytest.raises(NotInstalled, match=r"module 'not_there_at_all' \(env\.py, line 2\): install its package"):
        factory(str(folder))()


@pytest.mark.parametrize(("line", "said"), [("raise ValueError('no board')", "ValueError: no board"), ("exit(3)", "3")])
def test_what_keeps_an_environment_from_being_made_is_said_in_one_line(tmp_path: Path, line: str, said: str) -> None:
    folder = copied(tmp_path / f"makes_nothing_{said[-1]}", "env.json")
    (folder / "env.py").write_text(f"def create(options):\n    {line}\n")
    with pytest.raises(EnvFault, match=rf"cannot be made: .*{said} \(env\.py, line 2\)"):
        factory(str(folder))()


def test_a_folder_of_the_same_name_where_one_is_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    first, second = copied(tmp_path / "count_both"), copied(tmp_path / "one" / "count_both")
    (first / "__init__.py").write_text("raise RuntimeError('the other one')\n")
    code = f"from agym.envs.registry import factory\nassert factory('{second}')().tasks('test')\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_folder_without_code_is_no_environment(tmp_path: Path) -> None:
    with pytest.raises(UnknownEnv, match=r"it needs env\.py"):
        factory(str(copied(tmp_path / "count_data", "env.json")))
