"""What every test may use: a call of the command line in a folder of its own."""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from agym.cli import main
from agym.runtime.backends.engine_variables import missing_variables
from hypothesis import settings

from .engine_server import EngineServer

# how long an example takes says more about the machine than about the code
settings.register_profile("agym", deadline=None)
settings.load_profile("agym")

# in the background of a shell, or under nohup, these are ignored, and would be by all that tests start and signal
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

ROOT = Path(__file__).resolve().parents[1]
ENGINES = ("deepspeed", "numpy", "ray", "tokenizers", "torch", "transformers", "vllm")
ABSENT = tuple(name for name in ENGINES if find_spec(name) is None)
NEEDS_ABSENT = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(ABSENT)})\b", re.MULTILINE)

LONGEST = (
    "runtime/test_ray.py",
    "runtime/test_cluster.py",
    "runtime/test_recovery_real.py",
    "envs/test_websites_frame.py",
    "envs/test_conformance.py",
    "runtime/test_faults_real.py",
    "runtime/test_lora_real.py",
    "runtime/test_real_run.py",
    "runtime/test_tiny_recipes.py",
    "runtime/backends/test_lora.py",
)
"""Files whose heavy tests take longest, by how long."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """A test file that needs an engine is left out where that engine is not installed; the last lines say so."""
    file = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    needs = ABSENT and file.suffix == ".py" and file.is_file() and NEEDS_ABSENT.search(file.read_text(encoding="utf-8"))
    return True if needs else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: one that begins last would keep a worker busy while the others have nothing to do."""
    places = {ROOT / "tests" / name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """What was imported by now stays: looking for garbage in it again and again takes seconds of every worker."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Nor is it looked for at the end, as in `agym.cli.entry`."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden rows of tests/runtime/golden anew")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ABSENT:
        terminalreporter.write_line(f"left out, for they are not installed: tests that need {', '.join(ABSENT)}")


@dataclass(frozen=True, slots=True)
class Called:
    """What one call gave."""

    code: int
    out: str
    err: str


class Input(io.StringIO):
    """Standard input with bytes below, as a real one has."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data.decode("utf-8", "replace"))
        self.buffer = io.BytesIO(data)


Agym = Callable[..., Called]


@pytest.fixture
def root() -> Path:
    return ROOT


@pytest.fixture
def agym(tmp_path: Path) -> Agym:
    """`agym("validate", "a.yaml", stdin=b"...")` in `tmp_path`."""

    def call(*words: str, stdin: bytes = b"", cwd: Path = tmp_path) -> Called:
        out, err, stdin_before = io.StringIO(), io.StringIO(), sys.stdin
        sys.stdin = Input(stdin)
        try:
            with chdir(cwd), redirect_stdout(out), redirect_stderr(err):
                code = main(words)
        finally:
            sys.stdin = stdin_before
        return Called(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    """`engines.start("-m", "agym", "run", "a.yaml")`: a process of its own that need not import the engines."""
    yield from _engine_server(tmp_path_factory)


@pytest.fixture(scope="session")
def other_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    """Like `engines`, but its processes hash with another seed, which must not matter."""
    yield from _engine_server(tmp_path_factory)


def _engine_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    server = EngineServer(tmp_path_factory.mktemp("engines"), missing_variables(os.environ, threads=1, cpu=True))
    yield server
    server.close()
