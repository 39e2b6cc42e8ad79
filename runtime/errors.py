"""Errors that an operator can fix: one sentence each, and what to do.

The caller of a run shows these as they are; every other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EIO, EMFILE, ENFILE, ENOENT, ENOMEM, ENOSPC, EROFS
from pathlib import Path

__all__ = [
    "LearnerLost",
    "RunError",
    "SamplerLost",
    "StepRefused",
    "advise",
    "explain_shortage",
    "irrevocable",
    "read_text",
]


class RunError(Exception):
    """An error that the operator can fix: names the op and what it needs. The run folder can be resumed."""


class StepRefused(RunError):
    """A RunError raised before the step has changed any weights: the state at its start is saved."""


class SamplerLost(StepRefused):
    """A sampling engine has failed, and takes no more requests; where it has a process of its own, it is replaced."""


class LearnerLost(RunError):
    """A learner is gone or has missed a deadline, and all training since the last checkpoint is lost with it.
    `WorkerGroup.restart_learner` starts another."""


@contextmanager
def irrevocable() -> Iterator[None]:
    """Turn StepRefused into RunError, once weights have changed and the step's start can no longer be saved."""
    try:
        yield
    except StepRefused as error:
        raise RunError(str(error)) from error


_FILES = "raise the limit of open files, for example with 'ulimit -n 65536'"
_SHORTAGES = {
    ENOSPC: "free space on that disk",
    EDQUOT: "free space within your quota",
    EMFILE: _FILES,
    ENFILE: _FILES,
    ENOMEM: "free memory, or use a smaller model, fewer 'rollout.slots' or a smaller 'hardware.rollout.kv_cache_gb'",
}
_ADVICE = {
    **_SHORTAGES,
    ENOENT: "the folder was removed while it was in use: put it back",
    EIO: "free space, or repair that disk",
    EACCES: "make it writable for this user",
    EROFS: "make that disk writable",
}


def advise(error: OSError) -> str:
    """Return what to do about an error of the system, before the run is resumed."""
    return _ADVICE.get(error.errno or 0, "fix it")


def explain_shortage(error: Exception) -> str | None:
    """Say what this machine is short of, and what to do; None for any other error."""
    if isinstance(error, MemoryError):
        return f"not enough memory: {_SHORTAGES[ENOMEM]}"
    if isinstance(error, OSError) and error.errno in _SHORTAGES:
        where = f"'{error.filename}': " if error.filename else ""
        return f"{where}{error.strerror}: {_SHORTAGES[error.errno]}"
    return None


def read_text(path: str, key: str = "") -> str:
    """Read a file that the recipe names, under `key`; RunError where it cannot be read."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{key and f'{key}: '}'{path}' cannot be read: {error}") from error
