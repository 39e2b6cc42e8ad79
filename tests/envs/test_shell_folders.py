"""Folders of tasks for terminal-bench, for Harbor and in the manner of SWE-bench: what is played and what is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from agym.envs.errors import BadOption, UnknownTask
from agym.envs.protocol import Step
from agym.envs.shell import Shell, create
from agym.envs.shell.folders.__main__ import main
from agym.envs.shell.terminal import explain_unavailable
from agym.envs.shell.texts import DONE

needs_jail = pytest.mark.skipif(
    explain_unavailable() is not None, reason=f"no terminal can be started here: {explain_unavailable()}"
)

YAML = """\
# a mark that tells training data apart
instruction: |-
  Write the largest number of numbers.txt to /app/largest.txt.
author_name: anonymous
author_email: anonymous
difficulty: easy
category: file-operations
tags: [text]
parser_name: pytest
max_agent_timeout_sec: 360.0
max_test_timeout_sec: 60.0
run_tests_in_same_shell: false
"""
DOCKERFILE = """\
FROM ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624
# what is looked on with
RUN apt-get update && \\
    apt-get install -y --no-install-recommends tmux asciinema && rm -rf /var/lib/apt/lists/*
COPY data/ /app/
COPY extra.txt ./notes/first.txt
RUN mkdir -p notes/old && chmod 600 numbers.txt
"""
COMPOSE = """\
services:
  client:
    build: {dockerfile: Dockerfile}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    command: ["sh", "-c", "sleep infinity"]
"""
RUN_TESTS = """\
#!/bin/bash
# Install curl
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.7.13/install.sh | sh
source $HOME/.local/bin/env
if [ "$PWD" = "/" ]; then
    echo "Error: No working directory set."
    exit 1
fi
uv init
uv add pytest==8.4.1
uv run pytest $TEST_DIR/test_outputs.py -rA
"""
TEST_SH = """\
#!/bin/bash
apt-get install -y curl
uvx \\
  -p 3.13 \\
  -w pytest==8.4.1 \\
  -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
TESTS = """\
from pathlib import Path
from pytest import fixture
import expected

@fixture
def found():
    return Path("/app/largest.txt").read_text()

def test_the_largest_is_there(found):
    assert found.strip() == expected.LARGEST

def test_what_was_there_still_is():
    assert Path("notes/first.txt").read_text() == "first\\n"
    assert Path("/app/notes/old").is_dir()
"""
BENCH = {
    "task.yaml": YAML,
    "Dockerfile": DOCKERFILE,
    "docker-compose.yaml": COMPOSE,
    "run-tests.sh": RUN_TESTS,
    "solution.sh": "#!/bin/bash\nset -e\nsort -n numbers.txt | tail -n 1 > largest.txt\nexit 0\n",
    "data/numbers.txt": "3\n17\n5\n",
    "extra.txt": "first\n",
    "tests/test_outputs.py": TESTS,
    "tests/expected.py": "LARGEST = '17'\n",
}
HARBOR = {
    "task.toml": 'version = "1.0"\n[metadata]\ndifficulty = "medium"\n[verifier]\ntimeout_sec = 900.0\n',
    "instruction.md": "Write the largest number of numbers.txt to /app/largest.txt.\n",
    "environment/Dockerfile": 'FROM ubuntu:24.04\nWORKDIR /app\nCOPY ["numbers.txt", "/app/"]\nCMD ["bash"]\n',
    "environment/numbers.txt": "3\n17\n5\n",
    "solution/solve.sh": "#!/bin/bash\nsort -n numbers.txt | tail -n 1 > /app/largest.txt\n",
    "tests/test.sh": TEST_SH,
    "tests/test_outputs.py": "def test_it():\n    assert open('/app/largest.txt').read() == '17\\n'\n",
}
COPIED = {"environment/Dockerfile": "FROM ubuntu\nWORKDIR /app\nCOPY . .\n"}
PATCH = """\
--- a/shapes.py
+++ b/shapes.py
@@ -1,2 +1,2 @@
 def area(width, height):
-    return width + height
+    return width * height
"""
TEST_PATCH = """\
--- a/tests/test_shapes.py
+++ b/tests/test_shapes.py
@@ -3,3 +3,7 @@

 def test_a_square_of_two():
     same(area(2, 2), 4)
+
+
+def test_a_flat_one():
+    same(area(0, 5), 0)
"""
SWE = {
    "instance.json": json.dumps(
        {
            "instance_id": "shapes__shapes-1",
            "repo": "shapes/shapes",
            "base_commit": "0" * 40,
            "problem_statement": "area(0, 5) should be 0.",
            "patch": PATCH,
            "test_patch": TEST_PATCH,
            "FAIL_TO_PASS": json.dumps(["tests/test_shapes.py::test_a_flat_one"]),
            "PASS_TO_PASS": ["tests/test_shapes.py::test_a_square_of_two"],
        }
    ),
    "repo/shapes.py": "def area(width, height):\n    return width + height\n",
    "repo/tests/test_shapes.py": (
        "from shapes import area\nfrom util import same\n\ndef test_a_square_of_two():\n    same(area(2, 2), 4)\n"
    ),
    "repo/tests/util.py": "def same(found, right):\n    assert found == right\n",
    "repo/.git/config": "[core]\n\tfsmonitor = touch /tmp/mark\n",
}
FORMS = {"largest": BENCH, "largest-2": HARBOR, "shapes": SWE}


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    for name, files in FORMS.items():
        write(tmp_path / "train" / name, files)
    return tmp_path


@pytest.fixture
def shell(tasks: Path) -> Iterator[Shell]:
    shell = create({"tasks_folder": str(tasks)})
    yield shell
    shell.close()


def play(shell: Shell, task: str, *actions: str) -> Step:
    shell.reset(task, 0)
    for action in actions:
        step = shell.step(action)
    return step


def left_out(folder: Path, files: Mapping[str, str]) -> str:
    """Why a task is left out, with another that is not."""
    write(folder / "fine", HARBOR)
    write(folder / "odd", files)
    shell = create({"tasks_folder": str(folder)})
    assert shell.tasks("test") == ("fine",)
    assert shell._folder is not None
    return shell._folder.left_out["odd"]


# --- playing -------------------------------------------------------------------------------------------------------


@needs_jail
@pytest.mark.slow
@pytest.mark.parametrize("task", FORMS)
def test_a_task_of_each_form_is_solved_by_its_solution_and_not_by_doing_nothing(shell: Shell, task: str) -> None:
    solution = shell.expert(task, 0)
    assert solution is not None
    step = play(shell, task, *solution)
    assert (step.reward, step.terminated) == (1.0, True), step.observation.text
    assert play(shell, task, DONE).reward == 0.0


@needs_jail
@pytest.mark.slow
def test_the_agent_sees_its_files_and_no_test(shell: Shell) -> None:
    first = shell.reset("largest", 0)
    assert first.text.endswith("Write the largest number of numbers.txt to /app/largest.txt.\nYou are in /app.")
    assert shell.step("pwd; cat numbers.txt; stat -c %a numbers.txt").observation.text == "/app\n3\n17\n5\n600"
    assert shell.step("ls -a; ls /tests /opt").observation.text.split()[:4] == [".", "..", "notes", "numbers.txt"]
    assert "No such file" in shell.step("ls /tests").observation.text
    shell.reset("shapes", 0)
    assert shell.step("git log --format=%s; git status --short; ls .git/fsmonitor*").observation.text.startswith(
        "start\n"
    )


@needs_jail
@pytest.mark.slow
@pytest.mark.parametrize(
    "action",
    [
        "echo 16 > largest.txt",
        "printf 'def pytest_sessionfinish(session): session.exitstatus = 0\\n' > conftest.py",
        "printf 'import os; os._exit(0)\\n' > pytest.py; cp pytest.py sitecustomize.py; mv pytest.py expected.py",
        "printf '[pytest]\\naddopts = --co\\n' > pytest.ini",
        "mkdir -p .git/hooks; ln -s /dev/zero largest.txt",
    ],
)
def test_what_is_no_solution_does_not_pass(shell: Shell, action: str) -> None:
    assert play(shell, "largest", action, DONE).reward == 0.0


@needs_jail
@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "reward"),
    [
        ("printf 'def test_a_square_of_two(): 0\\ndef test_a_flat_one(): 0\\n' > tests/test_shapes.py", 0.0),
        ("printf 'def pytest_sessionfinish(session): session.exitstatus = 0\\n' > conftest.py", 0.0),
        ("printf 'import os; os._exit(0)\\n' > pytest.py; cp pytest.py sitecustomize.py", 0.0),
        ("rm -r .git", 0.0),
        ("printf '[tool.pytest.ini_options]\\naddopts = \"-k square\"\\n' > pyproject.toml", 0.0),
        (
            "printf '[pytest]\\naddopts = -k square\\n' > .pytest.ini",
            0.0,
        ),
        ("printf 'import os; os._exit(0)\\n' | tee argparse.py difflib.py pluggy.py > tests/difflib.py", 0.0),
        (
            (
                "printf 'import os; os._exit(0)\\n' > odd.py; mkdir odd-1.dist-info; cd odd-1.dist-info; "
                "printf '[pytest11]\\nodd = odd\\n' > entry_points.txt; printf 'Name: odd\\nVersion: 1\\n' > METADATA"
            ),
            0.0,
        ),
        ("printf 'def same(*given): pass\\n' > tests/util.py", 0.0),
        ("sed -i s/+/*/ shapes.py; printf '[apply]\\n\\twhitespace = odd\\n' > .gitconfig", 1.0),
        ("sed -i s/+/*/ shapes.py; git commit -qam right; rm tests/test_shapes.py", 1.0),
        ("sed -i s/+/*/ shapes.py; rm -r .git; touch tests/conftest.py", 1.0),
    ],
)
def test_tests_of_a_repository_are_those_of_the_start(shell: Shell, action: str, reward: float) -> None:
    assert play(shell, "shapes", action, DONE).reward == reward


@needs_jail
@pytest.mark.slow
def test_the_patch_of_the_tests_is_applied_whatever_repository_the_folder_has_become(tmp_path: Path) -> None:
    patch = "--- a/tests/test_shapes.py\n+++ b/tests/test_shapes.py\n@@ -1,3 +1,3 @@\n from shapes import area\n"
    patch += "-assert area(1, 3) == 4\n+assert area(1, 3) == 3\n def test_it(): pass\n"
    code = "from shapes import area\nassert area(1, 3) == 4\ndef test_it(): pass\n"
    row = json.loads(SWE["instance.json"]) | {"test_patch": patch, "PASS_TO_PASS": []}
    row["FAIL_TO_PASS"] = ["tests/test_shapes.py::test_it"]
    write(tmp_path / "train" / "bare", SWE | {"instance.json": json.dumps(row), "repo/tests/test_shapes.py": code})
    shell = create({"tasks_folder": str(tmp_path)})
    action = "cp -r .git/HEAD .git/objects .git/refs .; rm -rf .git; printf '[core]\\n\\trepositoryformatversion = 0"
    assert play(shell, "bare", f"{action}\\n\\tworktree = /\\n' > config", DONE).reward == 0.0
    solution = shell.expert("bare", 0)
    assert solution is not None
    assert play(shell, "bare", *solution).reward == 1.0
    shell.close()


# --- splits --------------------------------------------------------------------------------------------------------


def test_each_fifth_is_held_out_unless_the_folder_says_which(tmp_path: Path) -> None:
    for number in range(11):
        write(tmp_path / f"task-{number:02}", HARBOR)
    (tmp_path / "README.md").write_text("no task")
    (tmp_path / "pictures").mkdir()
    shell = create({"tasks_folder": str(tmp_path)})
    assert shell.tasks("test") == ("task-00", "task-05", "task-10")
    assert len(shell.tasks("train")) == 8
    assert shell.difficulty("task-00") == "medium"
    with pytest.raises(UnknownTask, match="no task 'task-11'"):
        shell.reset("task-11", 0)


def test_a_name_in_both_halves_is_refused(tmp_path: Path) -> None:
    for half in ("train", "test"):
        write(tmp_path / half / "same", HARBOR)
    with pytest.raises(BadOption, match="task 'same' is both in 'train' and in 'test'"):
        create({"tasks_folder": str(tmp_path)})


def test_a_folder_without_a_task_says_why(tmp_path: Path) -> None:
    write(tmp_path / "odd", HARBOR | {"environment/Dockerfile": "FROM nvidia/cuda:12.4.0"})
    with pytest.raises(BadOption, match="no task that can be played here; odd: its image is made from nvidia/cuda"):
        create({"tasks_folder": str(tmp_path)})
    with pytest.raises(BadOption, match="cannot be read: No such file"):
        create({"tasks_folder": str(tmp_path / "nothing")})


def test_a_command_lists_what_is_played_and_what_is_not(
    tasks: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write(tmp_path / "train" / "odd", HARBOR | {"instruction.md": " "})
    assert main([str(tasks)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "train  largest  easy, with a solution",
        "train  largest-2  medium, with a solution",
        "train  shapes  unrated, with a solution",
        "left out  odd  it has no instruction",
    ]
    write(tmp_path / "train" / "\x1b[2J", HARBOR)
    assert main([str(tasks)]) == 0
    assert "left out  '\\x1b[2J'  its folder is a link" in capsys.readouterr().out
    assert main([str(tmp_path / "nothing")]) == 1
    assert main([]) == 2


# --- what needs an image, or is hostile ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("FROM python:3.13-slim\nRUN pip install numpy==2.3.1", "its image installs numpy==2.3.1"),
        ("FROM ubuntu\nRUN apt-get update && apt-get install -y gcc make", "its image installs gcc"),
        ("FROM ubuntu AS build\nFROM ubuntu\nCOPY --from=build /a /b", "several stages"),
        ("FROM ubuntu\nCOPY numbers.txt /etc/numbers.txt", "outside its working folder"),
        ("FROM ubuntu\nCOPY ../../secret.txt .", "leads out of its folder"),
        ("FROM ubuntu\nCOPY missing.txt .", "missing.txt is missing"),
        ("FROM ubuntu\nADD https://example.org/x.tar .", "its Dockerfile copies https"),
        ("FROM ubuntu\nRUN curl -O https://example.org/x", "its Dockerfile runs curl"),
        ("FROM ubuntu\nRUN echo $(id) > x", "its Dockerfile runs echo"),
        ("FROM ubuntu\nRUN echo 1 > /etc/flag", "uses /etc/flag, outside its working folder"),
        ("FROM ubuntu\nWORKDIR /usr", "its working folder is /usr"),
        ("FROM ubuntu\nENV API_KEY=1", "its image sets API_KEY"),
        ("FROM ubuntu\nUSER nobody", "the user nobody"),
        ("FROM ubuntu\nCMD python3 server.py", "its image starts python3 server.py"),
        ("FROM ubuntu\nRUN cat <<EOF > x\nhello\nEOF", "text in place of files"),
        ("FROM ubuntu\nONBUILD RUN ls", "its Dockerfile has ONBUILD"),
        ("FROM ubuntu\nHEALTHCHECK CMD true", "its Dockerfile has HEALTHCHECK"),
        ("WORKDIR /app\nCOPY numbers.txt .", "names no image or no working folder"),
        ("FROM ubuntu\nCOPY numbers.txt .", "names no image or no working folder"),
        ("FROM ubuntu\nRUN touch x\nCOPY numbers.txt .", "copies files after it has run commands"),
        ("FROM ubuntu\nCOPY --chmod=600 numbers.txt .", "copies files with --chmod=600"),
        ("FROM ubuntu\nADD numbers.tar.gz .", "it unpacks numbers.tar.gz"),
        ("FROM ubuntu\nARG N=3\nRUN echo $N > x", "its image sets N"),
        ("FROM ubuntu\nENV LANG=C.UTF-8 API_KEY=1", "its image sets API_KEY"),
        ("FROM ubuntu\nENV PYTHONPATH=/app/src", "its image sets PYTHONPATH"),
        ("FROM ubuntu\nRUN git clone https://example.org/x.git", "uses https://example.org/x.git"),
        ("FROM ubuntu\nRUN git clone git@example.org:x.git", "uses git@example.org"),
        ("FROM ubuntu\nRUN python3 -m pip install numpy", "its Dockerfile runs python3 -m pip"),
        ("FROM ubuntu\nRUN uv add numpy", "its image runs add numpy"),
        ("FROM ubuntu\nRUN dd if=/dev/null of=/etc/x", "uses of=/etc/x, outside"),
        ("FROM ubuntu\nRUN echo 1 2>/etc/x", "uses 2>/etc/x, outside"),
        ("FROM ubuntu\nRUN cp numbers.txt /tmp/x", "uses /tmp/x, outside"),
    ],
)
def test_a_dockerfile_that_does_more_than_can_be_done_here_is_left_out(tmp_path: Path, lines: str, reason: str) -> None:
    assert reason in left_out(tmp_path, HARBOR | {"environment/Dockerfile": lines})


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"tests/test.sh": "pip install pandas pytest\npytest /tests"}, "its tests need pandas"),
        (
            {"tests/test.sh": "uv pip install pytest==8.2.2 pyyaml==6.0.2\npytest /tests"},
            "its tests need pyyaml==6.0.2",
        ),
        ({"tests/test.sh": "cargo test"}, "test.sh runs its tests by other means than pytest"),
        ({"tests/test.sh": "cp -r /tests/. /app\npytest"}, "test.sh does more than run pytest on its tests: cp -r"),
        ({"tests/test_outputs.py": "import numpy\n"}, "tests/test_outputs.py imports numpy"),
        ({"tests/test_outputs.py": "def ("}, "tests/test_outputs.py is no Python"),
        ({"task.toml": "version ="}, "task.toml cannot be read: "),
        ({"environment/docker-compose.yaml": COMPOSE}, "several containers"),
        ({"environment/.dockerignore": "tests"}, "its image leaves out what .dockerignore names"),
        ({"environment/compose.yml": COMPOSE}, "several containers"),
        ({"task.toml": "[environment]\ngpus = 1\n"}, "its task.toml sets gpus"),
        ({"task.toml": "[environment.env]\nKEY = '1'\n"}, "its task.toml sets env"),
        ({"instruction.md": "Write to /tmp/x."}, "its instruction names /tmp"),
        ({"tests/helper.py": "open('/tmp/x')"}, "tests/helper.py names /tmp"),
        ({"tests/helper.py": "run(['git', 'remote', '-v'])"}, "tests/helper.py looks at settings of git"),
        ({"tests/helper.py": "import numbers_1", "environment/numbers_1.py": "", **COPIED}, "imports numbers_1"),
        ({"tests/pytest.ini": "[pytest]\npython_functions = check_*\n"}, "tests/pytest.ini configures pytest"),
        ({"tests/helper.py": "import numpy\n"}, "tests/helper.py imports numpy"),
        ({f"tests/{'a/' * 60}x": ""}, "its folders are more than 50 levels deep"),
    ],
)
def test_a_task_whose_tests_need_more_is_left_out(tmp_path: Path, files: Mapping[str, str], reason: str) -> None:
    assert reason in left_out(tmp_path, HARBOR | files)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {"Dockerfile": DOCKERFILE.replace("COPY extra", "COPY tests/ /app/tests/\nCOPY extra")},
            "it copies tests/, which the agent must not see",
        ),
        (
            {"Dockerfile": DOCKERFILE.replace("COPY extra", "COPY ./solution.sh .\nCOPY extra")},
            "it copies ./solution.sh, which the agent must not see",
        ),
        ({"docker-compose.yml": COMPOSE}, "its containers are described in docker-compose.yml"),
        ({"docker-compose.yaml": f"{COMPOSE}    privileged: true\n"}, "its docker-compose.yaml sets privileged"),
        ({"docker-compose.yaml": f"{COMPOSE}  other: {{}}\n"}, "it is made of several containers"),
        ({"task.yaml": YAML.replace("parser_name: pytest", "parser_name: odd")}, "its tests are read by odd"),
        ({"task.yaml": f"{YAML}created: 2024-02-30\n"}, "it cannot be read: day is out of range"),
        ({"task.yaml": f"{YAML}odd: !!timestamp foo\n"}, "it cannot be read"),
        ({"task.yaml": f"{YAML}odd: {'1' * 5000}\n"}, "it cannot be read: Exceeds the limit"),
        ({"task.yaml": f"{YAML}a: &a [1]\nb: *a\n"}, "task.yaml cannot be read: it has aliases"),
        ({"Dockerfile": "FROM ubuntu\nCOPY it's.txt .\n"}, "it cannot be read: No closing quotation"),
    ],
)
def test_an_odd_task_for_terminal_bench_is_left_out(tmp_path: Path, files: Mapping[str, str], reason: str) -> None:
    assert reason in left_out(tmp_path, BENCH | files)


@pytest.mark.parametrize(
    ("files", "solution"),
    [
        ({}, ("(\nsort -n numbers.txt | tail -n 1 > /app/largest.txt\n\n)",)),
        ({"solution/solve.sh": "cat > x <<END\n# 1\u2028\nEND\n"}, ("(\ncat > x <<END\n# 1\u2028\nEND\n\n)",)),
        ({"solution/solve.sh": "cp /solution/x .\n"}, ()),
        ({"solution/answer.txt": "17"}, ()),
    ],
)
def test_a_solution_is_played_as_it_is_or_not_at_all(
    tmp_path: Path, files: Mapping[str, str], solution: tuple[str, ...]
) -> None:
    write(tmp_path / "train" / "task", HARBOR | files)
    assert create({"tasks_folder": str(tmp_path)})._find("task").solution == solution


def test_an_instruction_of_a_dockerfile_begins_in_the_working_folder(tmp_path: Path) -> None:
    lines = "RUN mkdir sub && cd sub && echo a > a.txt\nRUN echo b > b.txt\n"
    write(tmp_path / "train" / "task", HARBOR | {"environment/Dockerfile": f"FROM ubuntu\nWORKDIR /app\n{lines}"})
    setup = create({"tasks_folder": str(tmp_path)})._find("task").setup
    assert setup == "(\nmkdir sub\ncd sub\necho a > a.txt\n)\n(\necho b > b.txt\n)"


def test_a_copy_of_the_whole_task_holds_neither_tests_nor_solution(tmp_path: Path) -> None:
    write(
        tmp_path / "train" / "all", BENCH | {"Dockerfile": DOCKERFILE.replace("COPY extra", "COPY . /app\nCOPY extra")}
    )
    shell = create({"tasks_folder": str(tmp_path)})
    assert set(shell._find("all").files) == {"numbers.txt", "notes/first.txt", "data/numbers.txt", "extra.txt"}


def link(name: str, target: str) -> Callable[[Path], None]:
    def make(task: Path) -> None:
        (task / name).rename(task / "moved")
        (task / name).symlink_to(target)

    return make


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (link("environment/numbers.txt", "/etc/passwd"), "numbers.txt is neither a file nor a folder"),
        (link("tests/test.sh", "/etc/passwd"), "test.sh is neither a file nor a folder"),
        (link("instruction.md", "/etc/passwd"), "instruction.md is neither a file nor a folder"),
        (link("environment", "moved"), "environment is neither a file nor a folder"),
        (lambda task: [(task / f"tests/{n}").mkdir() for n in range(2001)], "more than 2000 files and folders"),
        (lambda task: (task / "environment/numbers.txt").write_bytes(bytes(17 << 20)), "is larger than"),
        (lambda task: (task / "instruction.md").write_bytes(b"\xff\xfe"), "instruction.md is no text in UTF-8"),
        (lambda task: (task / "task.toml").write_text("x = " + "[" * 100_000), "task.toml cannot be read"),
    ],
)
def test_a_hostile_folder_is_left_out(tmp_path: Path, change: Callable[[Path], None], reason: str) -> None:
    change(write(tmp_path / "odd", HARBOR))
    write(tmp_path / "fine", HARBOR)
    shell = create({"tasks_folder": str(tmp_path)})
    assert shell._folder is not None
    assert reason in shell._folder.left_out["odd"]
    assert shell.tasks("test") == ("fine",)


def test_options_of_the_tests_are_bounded() -> None:
    with pytest.raises(BadOption, match="tests_s"):
        create({"tests_s": 0})
