"""Read a folder of task folders: what each asks, begins with, is solved by and is tested by.

Three forms, told apart by their files:

- terminal-bench: `task.yaml`, `Dockerfile`, `tests/`, `solution.sh`
- Harbor, terminal-bench 2: `task.toml`, `instruction.md`, `environment/Dockerfile`, `tests/`, `solution/solve.sh`
- in the style of SWE-bench: `instance.json`, one row of such a data set, and `repo/`, the repository before the patch
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...errors import BadOption
from ..tasks import Passes, ShellTask
from .dockerfile import Image, read_image
from .files import HISTORY, NeedsImage, read_files, read_text
from .repository import make_check
from .scripts import read_targets
from .testing import CONFIGS, RUN, check_imports, write_runner

__all__ = ["TaskFolder", "read_folder"]

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")
_EACH = 5
"""One in so many is held out, where a folder does not say which."""
_LONGEST_ACTION = 3_900
_HIDDEN = ("Dockerfile", "docker-compose.yaml", "run-tests.sh", "solution.sh", "solution.yaml", "task.yaml", "tests")
"""What the agent must not see of a task for terminal-bench."""
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
_PLAIN_KEYS: Mapping[str, Callable[[Any], bool]] = {
    "build": lambda value: value in (".", {"dockerfile": "Dockerfile"}, {"context": ".", "dockerfile": "Dockerfile"}),
    "image": lambda value: str(value).startswith("${T_BENCH_"),
    "container_name": lambda value: str(value).startswith("${T_BENCH_"),
    "command": lambda value: value == ["sh", "-c", "sleep infinity"],
    "environment": lambda value: value == ["TEST_DIR=${T_BENCH_TEST_DIR}"],
    "volumes": lambda value: all(str(each).startswith("${T_BENCH_") for each in value),
}
"""What terminal-bench's own template sets, and to what."""
_MORE = ("env", "gpus", "healthcheck", "mcp_servers", "steps")
"""What a description for Harbor may ask for that is not available here."""
_OPTIONS = ("-c", "/dev/null", "--rootdir=/tests", "--confcutdir=/tests")
_TEMPORARY = re.compile(rb"/tmp\b")
_GIT_SETTINGS = re.compile(rb"\.git/(?:hooks|config|info)|\bgit\b[^\n]{0,40}\b(?:remote|config)\b")
_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, RecursionError, MemoryError)
"""Errors that texts and folders that are no task's raise in whatever reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolder:
    splits: Mapping[str, Mapping[str, ShellTask]]
    """Tasks by id, in order, of `train` and `test`."""
    left_out: Mapping[str, str]
    """Why a task cannot be played here, by its name."""

    def find(self, task: str) -> ShellTask | None:
        return next((tasks[task] for tasks in self.splits.values() if task in tasks), None)


def read_folder(folder: Path) -> TaskFolder:
    """All tasks of a folder: its own `train` and `test`, or every fifth, by name, held out."""
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
        reasons = "".join(f"; {_plain(name)}: {_plain(reason)}" for name, reason in list(left_out.items())[:3])
        raise BadOption(f"{folder} has no task that can be played here{reasons}")
    return TaskFolder(splits=splits, left_out=left_out)


def _read_all(folder: Path, left_out: dict[str, str]) -> dict[str, ShellTask]:
    try:
        places = sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError as error:
        raise BadOption(f"{folder} cannot be read: {error.strerror}") from error
    found = dict[str, ShellTask]()
    for place in places:
        try:
            read = next((read for file, read in _FORMS.items() if (place / file).is_file()), None)
            if read is None:
                continue
            if place.is_symlink() or not _NAME.fullmatch(place.name):
                raise NeedsImage("its folder is a link, or its name is none for a task")
            found[place.name] = read(place)
        except NeedsImage as error:
            left_out[place.name] = str(error)
        except _UNREADABLE as error:
            left_out[place.name] = f"it cannot be read: {str(error)[:100] or type(error).__name__}"
    return found


# --- forms ---


def _read_terminal_bench(place: Path) -> ShellTask:
    data = _mapping(_parse(_load_yaml, place, "task.yaml", yaml.YAMLError))
    _check_compose(place)
    if data.get("parser_name", "pytest") != "pytest":
        raise NeedsImage(f"its tests are read by {str(data['parser_name'])[:40]}")
    image = read_image(read_text(place, "Dockerfile"), place, _HIDDEN)
    goal = data.get("instruction") or _base_description(data)
    script = "run-tests.sh" if (place / "run-tests.sh").is_file() else None
    return _make_task(place, image, goal, data, "solution.sh", script)


def _base_description(data: Mapping[str, Any]) -> object:
    listed = data.get("descriptions")
    first = listed[0] if isinstance(listed, list) and listed else {}
    return first.get("description") if isinstance(first, dict) else None


def _check_compose(place: Path) -> None:
    """One container, as in terminal-bench's own template."""
    if other := next((name for name in _COMPOSE[1:] if os.path.lexists(place / name)), None):
        raise NeedsImage(f"its containers are described in {other}")
    if not os.path.lexists(place / _COMPOSE[0]):
        return
    services = _mapping(_mapping(_parse(_load_yaml, place, _COMPOSE[0], yaml.YAMLError)).get("services") or {})
    if len(services) > 1:
        raise NeedsImage("it is made of several containers")
    for key, value in (entry for service in services.values() for entry in _mapping(service).items()):
        if not (key in _PLAIN_KEYS and _PLAIN_KEYS[key](value)):
            raise NeedsImage(f"its {_COMPOSE[0]} sets {str(key)[:40]}")


def _read_harbor(place: Path) -> ShellTask:
    data = _mapping(_parse(tomllib.loads, place, "task.toml", tomllib.TOMLDecodeError))
    environment = place / "environment"
    if any(os.path.lexists(environment / name) for name in _COMPOSE):
        raise NeedsImage("it is made of several containers")
    for part in (data, *(data.get(name) for name in ("environment", "verifier", "solution"))):
        if isinstance(part, dict) and (key := next((key for key in _MORE if part.get(key)), None)):
            raise NeedsImage(f"its task.toml sets {key}")
    image = read_image(read_text(place, "environment/Dockerfile"), environment)
    goal, metadata = read_text(place, "instruction.md"), data.get("metadata")
    facts = metadata if isinstance(metadata, dict) else {}
    return _make_task(place, image, goal, facts, "solution/solve.sh", "tests/test.sh")


def _make_task(
    place: Path, image: Image, goal: object, data: Mapping[str, Any], solution: str, script: str | None
) -> ShellTask:
    tests = read_files(place, "tests")
    targets = read_targets(script, read_text(place, script), image.work, tests) if script else ["/tests"]
    names = [path for path in tests if path.endswith(".py")]
    if not names:
        raise NeedsImage("its tests are no files for pytest")
    if config := next((path for path in tests if path.split("/")[-1] in CONFIGS), None):
        raise NeedsImage(f"tests/{config[:60]} configures pytest")
    _check_places(_text(goal), tests)
    found = (*tests, *image.files) if any(b"sys.path" in tests[name] for name in names) else tests
    near = {part.removesuffix(".py") for path in found for part in path.split("/")}
    for name in names:
        check_imports(f"tests/{name}", tests[name], near)
    return ShellTask(
        id=place.name,
        group=_difficulty(data),
        goal=_text(goal),
        files=image.files,
        work=image.work,
        setup="\n".join(image.commands),
        solution=_as_action(place, solution),
        checks=(Passes(command=f"TEST_DIR=/tests {RUN}", files={**tests, **write_runner([*_OPTIONS, *targets])}),),
    )


def _check_places(goal: str, tests: Mapping[str, bytes]) -> None:
    """Only the working folder reaches the tests, and of a repository in it only its history."""
    for name, data in {"its instruction": goal.encode(), **{f"tests/{path}": tests[path] for path in tests}}.items():
        if _TEMPORARY.search(data):
            raise NeedsImage(f"{name[:60]} names /tmp, which does not reach the tests")
        if name.endswith(".py") and _GIT_SETTINGS.search(data):
            raise NeedsImage(f"{name[:60]} looks at settings of git, which do not reach the tests")


def _read_instance(place: Path) -> ShellTask:
    row = _mapping(_parse(json.loads, place, "instance.json", ValueError))
    tests = [*_list_of_tests(row, "FAIL_TO_PASS"), *_list_of_tests(row, "PASS_TO_PASS")]
    if not tests:
        raise NeedsImage("its instance.json names no test that must pass")
    files = read_files(place, "repo", without=(HISTORY,))
    solution = str(row.get("patch") or "")
    return ShellTask(
        id=place.name,
        group=_difficulty(row),
        goal=_text(row.get("problem_statement")),
        files=files,
        setup="git init --quiet && git add --all && git commit --quiet --message start",
        solution=_fit(f"git apply --whitespace=nowarn <<'END_OF_PATCH'\n{solution}\nEND_OF_PATCH") if solution else (),
        checks=(make_check(tests, str(row.get("test_patch") or ""), solution, files),),
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


class _PlainLoader(yaml.SafeLoader):
    """Without aliases, by which a short text can become a huge one."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has aliases")
        return super().compose_node(parent, index)


def _load_yaml(text: str) -> Any:
    return yaml.load(text, _PlainLoader)


def _parse(load: Callable[[str], Any], place: Path, name: str, errors: type[Exception]) -> object:
    try:
        return load(read_text(place, name))
    except (errors, RecursionError) as error:
        raise NeedsImage(f"{name} cannot be read: {str(error).splitlines()[0][:100]}") from error


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


def _as_action(place: Path, solution: str) -> tuple[str, ...]:
    """A script as one command, in a shell of its own, which it may leave; none where it needs further files."""
    folder = solution.rpartition("/")[0]
    if not (place / solution).is_file() or (folder and len(os.listdir(place / folder)) > 1):
        return ()
    first, _, rest = read_text(place, solution).partition("\n")
    script = rest if first.startswith("#!") else f"{first}\n{rest}"
    return () if "/solution" in script else _fit(f"(\n{script}\n)")


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
    yield from (f"left out  {_plain(name)}  {_plain(reason)}" for name, reason in found.left_out.items())


def _plain(text: str) -> str:
    """A text as it is, or escaped where it could do more to a screen than to be read."""
    return text if text.isprintable() else ascii(text)
