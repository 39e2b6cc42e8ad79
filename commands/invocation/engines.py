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
from contextlib import suppress
from io import UnsupportedOperation
from tempfile import TemporaryFile
from typing import BinaryIO

from ...dsl.model.plan import Plan
from ...runtime.backends.registry import LEARNERS, SAMPLERS

__all__ = ["has_started_again", "prepare_process", "put_back"]

_STARTED_AGAIN = "AGYM_STARTED_AGAIN"
"""Holds the number of the process, which stays the same: what it starts in its turn has another."""


def has_started_again(environ: Mapping[str, str]) -> bool:
    """Whether this process has come to `prepare_process` before, with the same words."""
    return environ.get(_STARTED_AGAIN) == str(os.getpid())


def put_back(stdin: BinaryIO, data: bytes) -> None:
    """What was read, to be read once more by this process when it has started again."""
    with suppress(UnsupportedOperation), TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        os.dup2(file.fileno(), stdin.fileno())


def prepare_process(plan: Plan, environ: Mapping[str, str]) -> None:
    """A process that lacks variables starts once more, with the same words."""
    from ...runtime.backends.engine_variables import missing_variables

    hardware = plan.hardware
    missing = missing_variables(environ, threads=hardware.threads or 1, cpu=hardware.gpus_per_node == 0)
    if missing and not has_started_again(environ):
        sys.stdout.flush()
        os.execve(
            sys.executable,
            [sys.executable, "-m", "agym", *sys.argv[1:]],
            {**environ, **missing, _STARTED_AGAIN: str(os.getpid())},
        )
    _quiet()


def _quiet() -> None:
    """The engines' words to their own developers are not for who trains an agent."""
    engines = "|".join(("torch", *SAMPLERS, *LEARNERS))
    warnings.filterwarnings("ignore", category=FutureWarning, module=rf"({engines})\b")
    warnings.filterwarnings("ignore", category=FutureWarning, message=r".*torch\.distributed\.reduce_op")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)
