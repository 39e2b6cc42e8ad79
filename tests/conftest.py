"""What every test may use: a call of the command line in a folder of its own."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from agym.cli import main

ROOT = Path(__file__).resolve().parents[1]


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
