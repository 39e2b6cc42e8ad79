"""What ends a run by the operator's trouble, not by a fault of ours: one sentence, and what would mend it.

Whoever starts a run shows these as they are; every other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

__all__ = ["RunError", "StepRefused"]


class RunError(Exception):
    """Trouble that the operator can mend: names the op and what it needs. The run folder can be resumed."""


class StepRefused(RunError):
    """As RunError, and raised before the step has learnt anything: the state at its start is saved."""
