"""The streams, folder and environment variables that a command may use, handed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, TextIO

from ...reporters.diagnostics.text import Style

__all__ = ["Exit", "Shell", "UsageError", "WrongRecipe"]


class Exit(IntEnum):
    """Exit codes."""

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
    """A wrong command line; the text says why in one line."""


class WrongRecipe(Exception):
    """A recipe whose mistakes have been shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Surroundings of a command."""

    stdin: BinaryIO
    out: TextIO
    err: TextIO
    cwd: Path
    environ: Mapping[str, str]
    width: int
    """Columns of the terminal, or of lines where there is none."""
    colour: bool
    """`out` is a terminal with colours."""

    @property
    def style(self) -> Style:
        return Style(width=self.width, colour=self.colour)
