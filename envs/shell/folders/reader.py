"""Read a folder of task folders: what each asks, begins with, is solved by and is tested by.

Three forms, told apart by their files:

- terminal-bench: `task.yaml`, `Dockerfile`, `tests/`, `solution.sh`
- Harbor, terminal-bench 2: `task.toml`, `instruction.md`, `environment/Dockerfile`, `tests/`, `solution/solve.sh`
- in the manner of SWE-bench: `instance.json`, one row of such a data set, and `repo/`, the repository before the patch
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...errors import BadOption
from ..tasks import Passes, ShellTask
from .dockerfile import TESTERS, Image, read_image
from .files import HISTORY, NeedsImage, read_files, read_text

__all__ = ["TaskFolder", "read_folder"]

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")
_EACH = 5
"""Each so many is held out, where a folder does not say which."""
_LONGEST_ACTION = 3_900
_TEST_FILE = re.compile(r"test_\w+\.py|\w+_test\.py")
_NEEDED = re.compile(r"(?:uv\s+(?:add|pip\s+install)|pip3?\s+install|(?:-w|--with))[ =]+(.*)")
_USES_TESTS = re.compile(r"/tests\b|TEST_DIR")
_PLAIN_USE = re.compile(r"(?:export )?TEST_DIR=|cd |if |echo |(?:source|\.) .*setup-uv-pytest")
"""Lines of a script that mention the tests' folder, and prepare nothing there."""
_PYTEST = "python3 -I /tests/.pytest.py"
_START = "import sys; sys.path.insert(0, '/opt/pytest'); import pytest; sys.exit(pytest.main(sys.argv[1:]))\n"
_START_INSIDE = f"import sys; sys.path.insert(0, '');{_START[len('import sys;') :]}"
_OPTIONS = "-q -p no:cacheprovider -c /dev/null --rootdir=/tests --confcutdir=/tests"
_PATCH = "tests.patch"
_STEERS = ("conftest.py", "pytest.ini", "pytest.toml", "tox.ini", "setup.cfg")
"""Files that steer pytest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolder:
    splits: Mapping[str, Mapping[str, ShellTask]]
    """Tasks by id, in order, of `train` and `test`."""
    left_out: Mapping[str, str]
    """Why a task cannot be played here, by its name."""

    def find(self, task: str) -> ShellTask | None:
        return next((tasks[task] for tasks in self.splits.values() if task in tasks), None)


def read_folder(folder: Path) -> TaskFolder:
    """All tasks of a folder: its own `train` and `test`, or each fifth, by name, held out."""
    left_out = dict[str, str]()
    halves = [folder / name for name in ("train", "test")]
    if any(half.is_dir() for half in halves):
        splits = {half.name: _read_all(half, left_out) if half.is_dir() else {} for half in halves}
    else:
        tasks = _read_all(folder, left_out)
        names = {name: "train" if at % _EACH else "test" for at, name in enumerate(tasks)}
        splits = {split: {each: tasks[each] for each in tasks if names[each] == split} for split in ("train", "test")}
    if twice := splits["train"].keys() & splits["test"].keys():
        raise BadOption(f"{folder}: task '{min(twice)}' is both in 'train' and in 'test'")
    if not any(splits.values()):
        reasons = "".join(f"; {name}: {reason}" for name, reason in list(left_out.items())[:3])
        raise BadOption(f"{folder} has no task that can be played here{reasons}")
    return TaskFolder(splits=splits, left_out=left_out)


def _read_all(folder: Path, left_out: dict[str, str]) -> dict[str, ShellTask]:
    try:
        places = sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError as error:
        raise BadOption(f"{folder} cannot be read: {error.strerror}") from error
    found = dict[str, ShellTask]()
    for place in places:
        read = next((read for file, read in _FORMS.items() if (place / file).is_file()), None)
        if read is None:
            continue
        try:
            if place.is_symlink() or not _NAME.fullmatch(place.name):
                raise NeedsImage("its folder is a link, or its name is none for a task")
            found[place.name] = read(place)
        except NeedsImage as error:
            left_out[place.name] = str(error)
    return found


# --- forms ---


def _read_terminal_bench(place: Path) -> ShellTask:
    data = _mapping(_parse(yaml.safe_load, place / "task.yaml", yaml.YAMLError))
    if len(_services(place)) > 1:
        raise NeedsImage("it is made of several containers")
    image = read_image(read_text(place / "Dockerfile"), place)
    goal = data.get("instruction") or _base_description(data)
    script = place / "run-tests.sh"
    return _make_task(place, image, goal, data, place / "solution.sh", script if script.is_file() else None)


def _base_description(data: Mapping[str, Any]) -> object:
    listed = data.get("descriptions")
    first = listed[0] if isinstance(listed, list) and listed else {}
    return first.get("description") if isinstance(first, dict) else None


def _services(place: Path) -> tuple[str, ...]:
    file = place / "docker-compose.yaml"
    if not file.is_file():
        return ()
    return tuple(map(str, _mapping(_mapping(_parse(yaml.safe_load, file, yaml.YAMLError)).get("services") or {})))


def _read_harbor(place: Path) -> ShellTask:
    data = _mapping(_parse(tomllib.loads, place / "task.toml", tomllib.TOMLDecodeError))
    environment = place / "environment"
    if (environment / "docker-compose.yaml").is_file():
        raise NeedsImage("it is made of several containers")
    image = read_image(read_text(environment / "Dockerfile"), environment)
    goal, metadata = read_text(place / "instruction.md"), data.get("metadata")
    facts = metadata if isinstance(metadata, dict) else {}
    return _make_task(place, image, goal, facts, place / "solution" / "solve.sh", place / "tests" / "test.sh")


def _make_task(
    place: Path, image: Image, goal: object, data: Mapping[str, Any], solution: Path, script: Path | None
) -> ShellTask:
    tests = read_files(place, "tests")
    names = [path for path in tests if "/" not in path and _TEST_FILE.fullmatch(path)]
    if not names:
        raise NeedsImage("its tests are no files for pytest")
    if script is not None:
        _check_script(script.name, read_text(script))
    for name in names:
        _check_imports(name, tests[name], {*tests, *image.files})
    command = f"{_PYTEST} {_OPTIONS} {' '.join(f'/tests/{name}' for name in names)}"
    return ShellTask(
        id=place.name,
        group=_difficulty(data),
        goal=_text(goal),
        files=image.files,
        work=image.work,
        setup="\n".join(image.commands),
        solution=_as_action(solution),
        checks=(Passes(command=command, files={**tests, ".pytest.py": _START.encode()}),),
    )


def _check_script(name: str, script: str) -> None:
    """Tests are run by pytest here, without the script: it must have nothing else to do."""
    lines = [line.strip() for line in re.sub(r"\\[ \t]*\n", " ", script).splitlines()]
    if not any("pytest" in line and not line.startswith("#") for line in lines):
        raise NeedsImage(f"{name} runs its tests by other means than pytest")
    for line in lines:
        if (
            _USES_TESTS.search(line)
            and "pytest" not in line
            and not line.startswith("#")
            and not _PLAIN_USE.match(line)
        ):
            raise NeedsImage(f"{name} prepares its tests: {line[:60]}")
        for words in _NEEDED.findall("" if line.startswith("#") else line):
            _check_packages(words.replace('"', " ").replace("'", " ").split())


def _check_packages(words: Sequence[str]) -> None:
    for word in words:
        if word in ("pytest", "&&", "||", ";"):
            return
        if not word.startswith("-") and not TESTERS.fullmatch(word):
            raise NeedsImage(f"its tests need {word[:40]}")


def _check_imports(name: str, code: bytes, files: Collection[str]) -> None:
    """A test that cannot be imported would fail whatever the agent did."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NeedsImage(f"tests/{name} is no Python") from error
    near = {path.split("/")[0].removesuffix(".py") for path in files}
    for module in _imported(tree):
        if module not in sys.stdlib_module_names and module not in near and module != "pytest":
            raise NeedsImage(f"tests/{name} imports {module[:40]}")


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.split(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def _read_instance(place: Path) -> ShellTask:
    row = _mapping(_parse(json.loads, place / "instance.json", ValueError))
    tests = [*_list_of_tests(row, "FAIL_TO_PASS"), *_list_of_tests(row, "PASS_TO_PASS")]
    if not tests:
        raise NeedsImage("its instance.json names no test that must pass")
    files = read_files(place, "repo", without=(HISTORY,))
    solution = row.get("patch")
    return ShellTask(
        id=place.name,
        group=_difficulty(row),
        goal=_text(row.get("problem_statement")),
        files=files,
        setup="git init --quiet && git add --all && git commit --quiet --message start",
        solution=_fit(f"git apply --whitespace=nowarn <<'END_OF_PATCH'\n{solution}\nEND_OF_PATCH") if solution else (),
        checks=(_tests_of_repository(tests, str(row.get("test_patch") or ""), files),),
    )


def _tests_of_repository(tests: Sequence[str], patch: str, files: Mapping[str, bytes]) -> Passes:
    """Tests as they were at the start, and then patched: what the agent did to them does not count."""
    named = {test.partition("::")[0] for test in tests} | set(re.findall(r"^\+\+\+ b/(\S+)", patch, re.MULTILINE))
    kept = {path: data for path, data in files.items() if path in named or path.split("/")[-1] in _STEERS}
    names = " ".join(map(shlex.quote, sorted(named)))
    steps = [
        f"find . ! -path './.git/*' '(' {' -o '.join(f'-name {each}' for each in _STEERS)} ')' -delete",
        f"rm -rf -- {names}",
        *(["cp -r /tests/before/. ."] if kept else []),
        *([f"git apply --whitespace=nowarn /tests/{_PATCH}"] if patch.strip() else []),
        f"python3 -s /tests/.pytest.py -q -p no:cacheprovider -- {' '.join(map(shlex.quote, tests))}",
    ]
    before = {f"before/{path}": data for path, data in kept.items()}
    return Passes(
        command=" && ".join(steps), files={**before, ".pytest.py": _START_INSIDE.encode(), _PATCH: patch.encode()}
    )


def _list_of_tests(row: Mapping[str, Any], name: str) -> list[str]:
    """Published rows have the list as such, or as JSON."""
    found = row.get(name) or []
    try:
        found = json.loads(found) if isinstance(found, str) else found
    except ValueError:
        found = [found]
    if not isinstance(found, list) or not all(isinstance(each, str) and not each.startswith("-") for each in found):
        raise NeedsImage(f"its '{name}' is no list of tests")
    return found


_FORMS: Mapping[str, Callable[[Path], ShellTask]] = {
    "task.yaml": _read_terminal_bench,
    "task.toml": _read_harbor,
    "instance.json": _read_instance,
}


# --- values ---


def _parse(load: Callable[[str], Any], file: Path, errors: type[Exception]) -> object:
    try:
        return load(read_text(file))
    except (errors, RecursionError) as error:
        raise NeedsImage(f"{file.name} cannot be read: {str(error).splitlines()[0][:100]}") from error


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NeedsImage("its description is no mapping")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise NeedsImage("it has no instruction")
    return value.strip()


def _difficulty(data: Mapping[str, Any]) -> str:
    found = data.get("difficulty")
    return found if isinstance(found, str) and re.fullmatch(r"[\w <>-]{1,40}", found) else "unrated"


def _as_action(solution: Path) -> tuple[str, ...]:
    """A script as one command, in a shell of its own, which it may leave."""
    if not solution.is_file():
        return ()
    lines = [line for line in read_text(solution).splitlines() if not line.startswith("#")]
    return _fit("(\n" + "\n".join(lines) + "\n)")


def _fit(action: str) -> tuple[str, ...]:
    """None where it would be no action: too long, or with control characters."""
    return (action,) if len(action) <= _LONGEST_ACTION and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", action) else ()


def show(folder: Path) -> Iterator[str]:
    """A line for each task: played, or why not."""
    found = read_folder(folder)
    for split, tasks in found.splits.items():
        for name, task in tasks.items():
            solved = "with a solution" if task.solution else "without a solution that can be played"
            yield f"{split}  {name}  {task.group}, {solved}"
    yield from (f"left out  {name}  {reason}" for name, reason in found.left_out.items())
