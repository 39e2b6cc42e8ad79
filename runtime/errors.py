"""What ends a run by the operator's trouble, not by a fault of ours: one sentence, and what would mend it.

Whoever starts a run shows these as they are; every other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["RunError", "StepRefused", "irrevocable"]


class RunError(Exception):
    """Trouble that the operator can mend: names the op and what it needs. The run folder can be resumed."""


class StepRefused(RunError):
    """As RunError, and raised before the step has learnt anything: the state at its start is saved."""


@contextmanager
def irrevocable() -> Iterator[None]:
    """Around what learns and goes on: what is refused here is not as it was when the step began, and is not saved."""
    try:
        yield
    except StepRefused as error:
        raise RunError(str(error)) from error
