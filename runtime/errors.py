"""Errors that an operator can fix: one sentence each, and what to do.

The caller of a run shows these as they are; every other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["RunError", "StepRefused", "irrevocable"]


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
