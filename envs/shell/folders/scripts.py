"""Scripts that run the tests of a task: which tests they run, where they do nothing else that matters.

Tests are run here without their script. So each of its lines must be of a kind that makes no difference, except one
that calls pytest.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence

from .dockerfile import TESTERS, THERE
from .files import NeedsImage

__all__ = ["read_targets"]

_REWARD = r"/logs/verifier/\w+\.txt"
_ECHO = rf"""echo (?:1|0|"1"|"0") ?> ?"?{_REWARD}"?"""
_BLOCKS = (
    re.compile(r'if \[ "?\$PWD"? = "/" \]; then\s+(?:echo "[^"$`]*";?\s+)?exit 1;?\s+fi\b'),
    re.compile(rf"if \[ \"?\$(?:\?|\w+)\"? -eq 0 \]; then\s+{_ECHO};?\s+else\s+{_ECHO};?\s+fi\b"),
)
"""Whether there is a working folder, and what is written of the result."""
_PLAIN = re.compile(
    "|".join(
        (
            r"set -[euxo]+(?: pipefail)?",
            r"curl -LsSf https://astral\.sh/uv/[\w./]*install\.sh \| (?:env [\w=\"$/.]+ )?(?:ba)?sh",
            r'(?:source|\.) "?\$HOME/\.(?:local/bin|cargo)/env"?',
            r'(?:source|\.) "?(?:\$TEST_DIR/setup-uv-pytest\.sh|\.?/?(?:\.venv|\.tbench-testing)/bin/activate)"?',
            r'export PATH="?(?:\$HOME|/root)/\.(?:local|cargo)/bin:\$PATH"?',
            r"(?:export )?TEST_DIR=(?:\"?/tests\"?|\"?\$\{TEST_DIR:-/tests\}\"?)",
            r"(?:export )?(?:DEBIAN_FRONTEND|PIP_\w+|UV_\w+)=[\w./]+",
            r"mkdir -p /logs/verifier",
            rf"{_ECHO}(?: \|\| {_ECHO})?",
            r"\w+=\$\?",
            r"exit (?:0|\$\?|\$\w+)",
            r"uv (?:init|venv)(?: --?[\w-]+| \.tbench-testing)*",
        )
    )
)
_QUIET = re.compile(r"(?:\s*(?:>\s*/dev/null|2>\s*/dev/null|2>&1|\|\| true))+$")
_APT = ("update", "install", "upgrade", "clean", "autoremove")
_SHARED = re.compile(r'(?:bash|sh|source|\.) "?\$TEST_DIR/run-uv-pytest\.sh"?')
"""A script of terminal-bench itself, that runs `test_outputs.py`."""
_OPTION = re.compile(r"-rA|-v+|-q|-s|-x|--tb=\w+|--ctrf=\S+")
_INSTALLERS = (("uv", "pip"), ("uv", "add"), ("pip",), ("pip3",), ("python3", "-m", "pip"), ("python", "-m", "pip"))
_CALLERS = (("uv", "run"), ("uvx",), ("python3", "-m"), ("python", "-m"))
_WITH = ("-w", "--with")
_VALUED = ("-p", "--python")
_TEST_DIR = re.compile(r"\$(?:TEST_DIR\b|\{TEST_DIR(?::-/tests)?\})")


def read_targets(name: str, script: str, work: str, tests: Collection[str]) -> list[str]:
    """What the one call of pytest is given: `/tests`, or files and folders in it."""
    text = re.sub(r"\\[ \t]*\n", " ", script)
    text = "\n".join(line.strip() for line in text.split("\n") if not line.lstrip().startswith("#"))
    if "pytest" not in text:
        raise NeedsImage(f"{name} runs its tests by other means than pytest")
    for block in _BLOCKS:
        text = block.sub("", text)
    calls = [targets for line in text.split("\n") if line for targets in _read_line(name, line, work, tests)]
    if len(calls) != 1:
        raise NeedsImage(f"{name} runs pytest {len(calls)} times, not once")
    for target in calls[0]:
        path = target.partition("::")[0].removeprefix("/tests").strip("/")
        if path and path not in tests and not any(each.startswith(f"{path}/") for each in tests):
            raise NeedsImage(f"{name} runs {target[:60]}, which is missing")
    return calls[0]


def _read_line(name: str, line: str, work: str, tests: Collection[str]) -> Iterator[list[str]]:
    if _PLAIN.fullmatch(line):
        return
    for piece in re.split(r"\s*(?:&&|;)\s*", line.removesuffix(";")):
        command = _QUIET.sub("", piece)
        if _PLAIN.fullmatch(piece) or command == f"cd {work}":
            continue
        if _SHARED.fullmatch(command):
            if "run-uv-pytest.sh" in tests:
                raise NeedsImage(f"{name} runs a script of its own: {line[:60]}")
            yield ["/tests/test_outputs.py"]
        elif not _is_install(command):
            yield _read_call(name, line, command)


def _is_install(command: str) -> bool:
    """Whether a command installs, and nothing but what is here."""
    words = command.split()
    if words[:1] in (["apt-get"], ["apt"]):
        verb, *names = [word for word in words[1:] if not word.startswith("-")] or [""]
        _check_packages(names, lambda each: each in THERE)
        return verb in _APT
    start = next((each for each in _INSTALLERS if tuple(words[: len(each)]) == each), None)
    if start is None:
        return False
    rest = [word for word in words[len(start) :] if not word.startswith("-")]
    if start[-1] != "add" and rest[:1] != ["install"]:
        return False
    _check_packages(rest[start[-1] != "add" :])
    return True


def _is_tester(name: str) -> bool:
    return TESTERS.fullmatch(name) is not None


def _check_packages(names: Sequence[str], is_there: Callable[[str], bool] = _is_tester) -> None:
    for name in names:
        plain = name.strip("\"'")
        if not is_there(plain):
            raise NeedsImage(f"its tests need {plain[:40]}")


def _read_call(name: str, line: str, command: str) -> list[str]:
    """The targets of a call of pytest; its options must be ones that change nothing."""
    odd = NeedsImage(f"{name} does more than run pytest on its tests: {line[:60]}")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise odd from error
    words = _without_caller(words)
    if words[:1] != ["pytest"]:
        raise odd
    targets, words = list[str](), words[1:]
    while words:
        word = _TEST_DIR.sub("/tests", words.pop(0))
        if word == "--ctrf" and words:
            words.pop(0)
        elif re.fullmatch(r"/tests(?:/[\w.-]+)*/?(?:::[\w:]+)?", word) and ".." not in word:
            targets.append(word)
        elif not _OPTION.fullmatch(word):
            raise odd
    if not targets:
        raise odd
    return targets


def _without_caller(words: list[str]) -> list[str]:
    """The words after `uv run`, `uvx --with PACKAGE` and the like, as often as they come."""
    while start := next((each for each in _CALLERS if tuple(words[: len(each)]) == each), None):
        words = words[len(start) :]
        while words and words[0].startswith("-"):
            option, _, value = words.pop(0).partition("=")
            if option in (*_WITH, *_VALUED) and not value and words:
                value = words.pop(0)
            if option in _WITH:
                _check_packages([value])
            elif option not in _VALUED:
                return []
    return words
