"""Tests of tasks in folders: which their scripts run, how they are counted, and what of a repository is put back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from agym.envs.shell.folders.files import NeedsImage
from agym.envs.shell.folders.repository import make_check
from agym.envs.shell.folders.scripts import read_targets
from agym.envs.shell.folders.testing import write_runner

TESTS = ("test_outputs.py", "check_value.py", "unit/test_value.py")


def targets(script: str) -> list[str]:
    return read_targets("test.sh", script, "/app", TESTS)


# --- scripts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("pytest /tests", ["/tests"]),
        ("pip install pytest && pytest -rA /tests/", ["/tests/"]),
        ("cd /app\npip3 install -q pytest > /dev/null 2>&1 || true\npython3 -m pytest -v $TEST_DIR", ["/tests"]),
        (
            "uv run pytest /tests/test_outputs.py /tests/check_value.py -rA",
            ["/tests/test_outputs.py", "/tests/check_value.py"],
        ),
        ("uvx -p 3.13 --with pytest==8.4.1 pytest --ctrf /logs/x.json /tests/unit -q", ["/tests/unit"]),
        ("source $TEST_DIR/setup-uv-pytest.sh\nbash $TEST_DIR/run-uv-pytest.sh", ["/tests/test_outputs.py"]),
        ('pytest "${TEST_DIR}/test_outputs.py::test_it"\nexit $?', ["/tests/test_outputs.py::test_it"]),
        (
            (
                "pytest /tests\nif [ $? -eq 0 ]; then\n  echo 1 > /logs/verifier/reward.txt\n"
                "else\n  echo 0 > /logs/verifier/reward.txt\nfi\n"
            ),
            ["/tests"],
        ),
    ],
)
def test_a_script_that_does_no_more_tells_which_tests_are_run(script: str, found: list[str]) -> None:
    assert targets(script) == found


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "pip install pytest\ncd /app && make check && node verify.js",
            "does more than run pytest on its tests: cd /app &&",
        ),
        ("cd /app; bash run.sh; pytest /tests", "does more than run pytest"),
        ("bash run.sh\npytest /tests", "does more than run pytest on its tests: bash run.sh"),
        ("pytest /tests/test_outputs.py -k 'not old'", "does more than run pytest"),
        ("pytest /tests -p odd", "does more than run pytest"),
        ("pytest", "does more than run pytest"),
        ("pytest /app/tests", "does more than run pytest"),
        ("pytest /tests/../app", "does more than run pytest"),
        ("pytest /tests || true; node verify.js", "does more than run pytest"),
        ("pytest /tests/test_outputs.py\npytest /tests/check_value.py", "runs pytest 2 times, not once"),
        ("pip install pytest", "runs pytest 0 times, not once"),
        ("pytest /tests/test_missing.py", "runs /tests/test_missing.py, which is missing"),
        ("apt-get update && apt-get install -y nodejs\npytest /tests", "its tests need nodejs"),
        ("pip install pytest numpy pandas\npytest /tests", "its tests need numpy"),
        ("uvx -w pytest -w numpy==2.0 pytest /tests", "its tests need numpy==2.0"),
        ("uv run --with numpy pytest /tests", "its tests need numpy"),
        ("python3 -m pip install numpy\npytest /tests", "its tests need numpy"),
        ("pip install -r /tests/requirements.txt\npytest /tests", "its tests need /tests/requirements.txt"),
        ("pip install pytest $(touch x)\npytest /tests", "its tests need"),
        ("if [ -f x ]; then\npytest /tests\nfi", "does more than run pytest on its tests: if"),
    ],
)
def test_a_script_that_does_more_is_refused_with_the_line(script: str, reason: str) -> None:
    with pytest.raises(NeedsImage) as refused:
        targets(script)
    assert reason in str(refused.value)


# --- counting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("def test_it(): pass", True),
        ("def test_it(): assert 0", False),
        ("import pytest\n@pytest.mark.xfail\ndef test_odd(): assert 0\ndef test_it(): pass", True),
        ("import pytest\ndef test_it(): pytest.importorskip('no_such_module')", False),
        ("import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass", False),
        ("import pytest\n@pytest.mark.skipif(True, reason='')\ndef test_odd(): pass\ndef test_it(): pass", False),
        ("", False),
    ],
)
def test_a_skipped_test_has_not_passed(tmp_path: Path, code: str, passes: bool) -> None:
    (tmp_path / "test_it.py").write_text(code)
    runner = write_runner(["-c", "/dev/null", f"--rootdir={tmp_path}", str(tmp_path / "test_it.py")])
    # the places of a jail, as they are here
    program = runner[".pytest.py"].decode().replace("/tests/.pytest.json", str(tmp_path / "given.json"))
    (tmp_path / "given.json").write_bytes(runner[".pytest.json"])
    (tmp_path / "run.py").write_text(program.replace("/opt/pytest", str(Path(pytest.__file__).parents[1])))
    result = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "run.py")], capture_output=True, text=True, check=False
    )
    assert (result.returncode == 0) is passes, result.stdout + result.stderr


# --- repositories --------------------------------------------------------------------------------------------------

FILES = {
    "shapes.py": b"import numpy\n",
    "tests/test_shapes.py": b"import util, shapes\n",
    "tests/util.py": b"",
    "tests/data/one.txt": b"1",
    "lib/test_lib.py": b"",
    "lib/code.py": b"",
}
TEST = "tests/test_shapes.py::test_it"


def test_helpers_in_a_folder_of_tests_are_put_back_and_code_is_not() -> None:
    files = make_check([TEST, "lib/test_lib.py::test_it"], "", "", FILES).files
    assert {name for name in files if name.startswith("before/")} == {
        "before/tests/test_shapes.py",
        "before/tests/util.py",
        "before/tests/data/one.txt",
        "before/lib/test_lib.py",
    }
    assert files[".names"] == b"lib/test_lib.py\0tests\0tests/test_shapes.py"


def test_a_folder_of_tests_in_which_the_solution_works_keeps_what_the_agent_made() -> None:
    files = make_check([TEST], "", "--- a/tests/util.py\n+++ b/tests/util.py\n", FILES).files
    assert {name for name in files if name.startswith("before/")} == {"before/tests/test_shapes.py"}


def test_a_test_that_a_patch_moves_is_taken_from_the_start() -> None:
    patch = "rename from lib/test_lib.py\nrename to tests/test_lib.py\n--- a/lib/test_lib.py\n+++ b/tests/test_lib.py"
    files = make_check(["tests/test_lib.py::test_it"], patch, "", FILES).files
    assert {"before/lib/test_lib.py", "before/tests/util.py"} < files.keys()
    assert files["tests.patch"].endswith(b"test_lib.py\n")


def test_any_number_of_tests_is_given_in_a_file() -> None:
    tests = [f"{TEST}[{'x' * 50}-{number}]" for number in range(2000)]
    check = make_check(tests, "", "", FILES)
    assert len(check.command) < 1000
    assert json.loads(check.files[".pytest.json"])["arguments"][-2000:] == tests


@pytest.mark.parametrize(
    ("test", "more", "reason"),
    [
        ("test_it", {}, "its test 'test_it' is in no file"),
        ("test_it (tests.test_shapes.Shapes)", {}, "is in no file"),
        ("tests", {}, "its test 'tests' is in no file"),
        ("tests/test_other.py::test_it", {}, "is in no file"),
        (TEST, {"conftest.py": b"import requests_mock"}, "conftest.py imports requests_mock"),
        (TEST, {"tests/test_shapes.py": b"import numpy"}, "tests/test_shapes.py imports numpy"),
        (TEST, {"pyproject.toml": b'[tool.pytest.ini_options]\naddopts = "--cov=shapes"\n'}, "options of a plugin"),
        (TEST, {"setup.cfg": b"[tool:pytest]\naddopts = -q -p odd\n"}, "setup.cfg gives pytest options of a plugin"),
    ],
)
def test_tests_of_a_repository_that_can_never_pass_are_refused(test: str, more: dict[str, bytes], reason: str) -> None:
    with pytest.raises(NeedsImage) as refused:
        make_check([test], "", "", FILES | more)
    assert reason in str(refused.value)
