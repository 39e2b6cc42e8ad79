"""What a command does before it starts an engine in its own process.

Enters: a plan, the environment. Leaves: a process that has the variables that engines read when one starts, and in
which they keep to themselves what is for their own developers.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping

from ..dsl.plan import Plan

__all__ = ["prepare_process"]

_STARTED_AGAIN = "AGYM_STARTED_AGAIN"


def prepare_process(plan: Plan, environ: Mapping[str, str]) -> None:
    """A process that lacks variables starts once more, with the same words."""
    from ..runtime.backends.environment import missing_variables

    hardware = plan.hardware
    missing = missing_variables(environ, threads=hardware.threads or 1, cpu=hardware.gpus_per_node == 0)
    if missing and _STARTED_AGAIN not in environ:
        sys.stdout.flush()
        os.execve(
            sys.executable,
            [sys.executable, "-m", "agym", *sys.argv[1:]],
            {**environ, **missing, _STARTED_AGAIN: "1"},
        )
    _quiet()


def _quiet() -> None:
    """The engines' words to their own developers are not for who trains an agent."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(vllm|torch|deepspeed)\b")
    warnings.filterwarnings("ignore", category=FutureWarning, message=r".*torch\.distributed\.reduce_op")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)
