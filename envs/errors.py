"""Errors of environments, each with a code that survives the wire.

Two kinds: the caller's mistakes (`UnknownTask` and its siblings), which a retry cannot fix, and `EnvFault`, trouble of
the environment or of the connection to it, which says nothing about the agent: an episode that meets one is played
again or left out, never counted as a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import ClassVar

__all__ = [
    "BadOption",
    "BadRequest",
    "EnvError",
    "EnvFault",
    "EpisodeOver",
    "FaultKind",
    "NotFound",
    "NotInstalled",
    "OutOfStep",
    "ProtocolMismatch",
    "TooLarge",
    "Unauthorized",
    "UnknownEnv",
    "UnknownSession",
    "UnknownSplit",
    "UnknownTask",
    "WrongMethod",
    "error_from",
    "suggest",
]

_LISTED = 40
"""Names that a message lists, at most."""


class EnvError(Exception):
    """Anything that an environment, its server or its client reports on purpose."""

    code: ClassVar[str] = "env-error"


class UnknownEnv(EnvError):
    code = "unknown-environment"


class NotInstalled(EnvError):
    """A package that the environment needs is missing."""

    code = "not-installed"


class UnknownSplit(EnvError):
    code = "unknown-split"


class UnknownTask(EnvError):
    code = "unknown-task"


class BadOption(EnvError):
    code = "bad-option"


class EpisodeOver(EnvError):
    """A step where no episode is under way: before the reset, after the end, or after the close."""

    code = "episode-over"


class BadRequest(EnvError):
    code = "bad-request"


class NotFound(EnvError):
    code = "not-found"


class WrongMethod(EnvError):
    code = "wrong-method"


class TooLarge(EnvError):
    code = "too-large"


class Unauthorized(EnvError):
    code = "unauthorized"


class UnknownSession(EnvError):
    """Closed, expired, or lost in a restart: the server cannot tell which."""

    code = "unknown-session"


class OutOfStep(EnvError):
    """A step whose number is neither the next one nor the one just answered."""

    code = "out-of-step"


class ProtocolMismatch(EnvError):
    code = "protocol-mismatch"


class FaultKind(StrEnum):
    CRASHED = "crashed"
    """The environment raised, or its process died."""
    UNREACHABLE = "unreachable"
    """No connection, or it broke, and retries did not help."""
    DEADLINE = "deadline"
    """No answer in time."""
    GARBAGE = "garbage"
    """An answer that makes no sense."""
    LOST = "lost"
    """The session is gone: its lease ran out, or the server was restarted."""
    BUSY = "busy"
    """Every session is taken, or the server is on its way out."""


class EnvFault(EnvError):
    """Trouble that is not the agent's doing."""

    code = "env-fault"

    def __init__(self, message: str, *, kind: FaultKind = FaultKind.CRASHED) -> None:
        super().__init__(message)
        self.kind = kind


_MISTAKES: Mapping[str, type[EnvError]] = {
    error.code: error
    for error in (
        UnknownEnv,
        NotInstalled,
        UnknownSplit,
        UnknownTask,
        BadOption,
        EpisodeOver,
        BadRequest,
        NotFound,
        WrongMethod,
        TooLarge,
        Unauthorized,
        UnknownSession,
        OutOfStep,
        ProtocolMismatch,
    )
}


def error_from(code: str, message: str, kind: str | None = None) -> EnvError:
    """Make the error that a server reported; an unknown code is a fault of the server's."""
    if code == EnvFault.code:
        return EnvFault(message, kind=FaultKind(kind) if kind in set(FaultKind) else FaultKind.CRASHED)
    if code in _MISTAKES:
        return _MISTAKES[code](message)
    return EnvFault(f"{message} (unknown error code '{code[:40]}')", kind=FaultKind.GARBAGE)


def suggest(name: str, known: Iterable[str]) -> str:
    """End a message about an unknown name: the known one that it is close to, or all, unless they are too many."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; expected one of {', '.join(names)}" if len(names) <= _LISTED else ""
