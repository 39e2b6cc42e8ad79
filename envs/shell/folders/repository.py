"""Tests of a repository, in the style of SWE-bench: those of the start, patched, whatever the agent did to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..tasks import Passes
from .files import NeedsImage
from .testing import CONFIGS, RUN, check_imports, write_runner

__all__ = ["make_check"]

_PATCH = "tests.patch"
_CONFTEST = "conftest.py"
_STEERS = (_CONFTEST, *CONFIGS)
"""Files that steer pytest."""
_TEST_FOLDERS = ("test", "tests")
_TOUCHED = re.compile(r"^(?:--- a/|\+\+\+ b/|rename from |rename to )(\S+)", re.MULTILINE)


def make_check(tests: Sequence[str], test_patch: str, solution: str, files: Mapping[str, bytes]) -> Passes:
    """A check that these tests pass; the agent's files count, except tests, what helps them and what steers pytest."""
    named = {test.partition("::")[0] for test in tests}
    touched = {*_TOUCHED.findall(test_patch)}
    _check_tests(tests, named, touched, files)
    folders = tuple(_own_folders(named | touched, _TOUCHED.findall(solution)))
    kept = {path: data for path, data in files.items() if _is_of_tests(path, named | touched, folders)}
    steps = [
        f"find . ! -path './.git/*' '(' {' -o '.join(f'-name {each}' for each in _STEERS)} ')' -delete",
        "xargs -0 -a /tests/.names rm -rf --",
        *(["cp -r /tests/before/. ."] if kept else []),
        # no repository is looked for: the agent may have made its folder one, in which the patch goes nowhere
        *([f"GIT_DIR=/nonexistent git apply --whitespace=nowarn /tests/{_PATCH}"] if test_patch.strip() else []),
        RUN,
    ]
    before = {f"before/{path}": data for path, data in kept.items()}
    names = "\0".join(sorted({*named, *touched, *folders})).encode()
    patch = test_patch if test_patch.endswith("\n") else f"{test_patch}\n"
    runner = write_runner(["--", *tests], path=[""])
    return Passes(command=" && ".join(steps), files={**before, **runner, ".names": names, _PATCH: patch.encode()})


def _check_tests(tests: Sequence[str], named: set[str], touched: set[str], files: Mapping[str, bytes]) -> None:
    for test in tests:
        path = test.partition("::")[0]
        if not path.endswith(".py") or path not in {*files, *touched}:
            raise NeedsImage(f"its test '{test[:60]}' is in no file of its repository")
    near = {part.removesuffix(".py") for path in files for part in path.split("/")}
    for path in sorted(files):
        folder, _, name = path.rpartition("/")
        steers = not folder or any(each.startswith(f"{folder}/") for each in named)
        if path in named or (steers and name == _CONFTEST):
            check_imports(path, files[path], near, whole=False)
        if steers and name in CONFIGS and _needs_plugin(files[path]):
            raise NeedsImage(f"{path} gives pytest options of a plugin")


def _needs_plugin(config: bytes) -> bool:
    return b"addopts" in config and re.search(rb"""[\s"'=](?:-p\b|--cov)""", config) is not None


def _own_folders(named: set[str], solved: Sequence[str]) -> Iterator[str]:
    """Folders that are the tests' alone: their helpers are put back too. Not one that the solution works in."""
    for path in named:
        parts = path.split("/")[:-1]
        at = next((at for at, part in enumerate(parts) if part in _TEST_FOLDERS), None)
        folder = "/".join(parts[: at + 1]) if at is not None else ""
        if folder and not any(each.startswith(f"{folder}/") for each in solved):
            yield folder


def _is_of_tests(path: str, named: set[str], folders: tuple[str, ...]) -> bool:
    return (
        path in named
        or path.rpartition("/")[2] in _STEERS
        or path.startswith(tuple(f"{folder}/" for folder in folders))
    )
