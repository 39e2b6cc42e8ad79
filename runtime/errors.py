"""Errors that an operator can fix: one sentence each, and what to do.

The caller of a run shows these as they are; every other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["RunError", "StepRefused", "irrevocable", "read_text"]


class RunError(Exception):
    """An error that the operator can fix: names the op and what it needs. The run folder can be resumed."""


class StepRefused(RunError):
    """A RunError raised before the step has changed any weights: the state at its start is saved."""


@contextmanager
def irrevocable() -> Iterator[None]:
    """Turn StepRefused into RunError, once weights have changed and the step's start can no longer be saved."""
    try:
        yield
    except StepRefused as error:
        raise RunError(str(error)) from error


def read_text(path: str, key: str = "") -> str:
    """Read a file that the recipe names, under `key`; RunError where it cannot be read."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{key and f'{key}: '}'{path}' cannot be read: {error}") from error
