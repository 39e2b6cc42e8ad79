"""Prepares this process for an engine: the environment variables that it reads at start, and its warnings hidden."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from io import UnsupportedOperation
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from ...dsl.model.plan import Plan
from .shell import UsageError

__all__ = ["check_model_folder", "has_started_again", "prepare_engine", "prepare_process", "put_back"]

_STARTED_AGAIN = "AGYM_STARTED_AGAIN"
"""Holds the id of the process, which a restart keeps; a child process has another."""


def has_started_again(environ: Mapping[str, str]) -> bool:
    """True where `prepare_process` has restarted this process before."""
    return environ.get(_STARTED_AGAIN) == str(os.getpid())


def put_back(stdin: BinaryIO, data: bytes) -> None:
    """Make what was read readable again, after a restart of this process."""
    with suppress(UnsupportedOperation), TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        os.dup2(file.fileno(), stdin.fileno())


def check_model_folder(folder: Path, given: str) -> None:
    """Refuse a folder without a model, and say what there is in it."""
    if (folder / "config.json").is_file():
        return
    hint = ""
    if (folder / "adapter_config.json").is_file():
        hint = "; these are adapters alone, to be merged into their base model"
    elif (folder / "model").is_dir():
        hint = " (its model is the folder 'model' in it)"
    raise UsageError(f"'{given}' holds no model: there is no config.json in it{hint}")


def prepare_process(plan: Plan, environ: Mapping[str, str]) -> None:
    """Prepare this process for the engines of a plan."""
    prepare_engine(environ, threads=plan.hardware.threads or 1, cpu=plan.hardware.gpus_per_node == 0)


def prepare_engine(environ: Mapping[str, str], *, threads: int, cpu: bool) -> None:
    """Restart this process with the same arguments where it lacks environment variables."""
    from ...runtime.backends.engine_variables import missing_variables

    missing = missing_variables(environ, threads=threads, cpu=cpu)
    if missing and not has_started_again(environ):
        sys.stdout.flush()
        os.execve(
            sys.executable,
            [sys.executable, "-m", "agym", *sys.argv[1:]],
            {**environ, **missing, _STARTED_AGAIN: str(os.getpid())},
        )
    _hide_engine_warnings()


def _hide_engine_warnings() -> None:
    """Hide warnings that are meant for the developers of the engines."""
    from ...runtime.backends.registry import LEARNERS, SAMPLERS

    engines = "|".join(("torch", *SAMPLERS, *LEARNERS))
    warnings.filterwarnings("ignore", category=FutureWarning, module=rf"({engines})\b")
    warnings.filterwarnings("ignore", category=FutureWarning, message=r".*torch\.distributed\.reduce_op")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)
