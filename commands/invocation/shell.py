"""What a command may touch: its streams, folder, environment. Handed in, so that nothing else is reached for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, TextIO

from ...reporters.diagnostics.text import Style

__all__ = ["Exit", "Shell", "UsageError"]


class Exit(IntEnum):
    """What a command says to the shell that called it."""

    RIGHT = 0
    WRONG = 1
    """The recipe is wrong."""
    USAGE = 2
    """The command line is wrong."""
    RUN_FAILED = 3
    STOPPED = 4
    """A guard stopped the run."""
    INTERNAL = 70
    """A fault of agym itself."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class UsageError(Exception):
    """The command line cannot be followed; the text says why in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Where a command runs."""

    stdin: BinaryIO
    out: TextIO
    err: TextIO
    cwd: Path
    environ: Mapping[str, str]
    width: int
    """Columns of the terminal, or of the lines where there is none."""
    colour: bool
    """Whether `out` is a terminal that wants colours."""

    @property
    def style(self) -> Style:
        return Style(width=self.width, colour=self.colour)
