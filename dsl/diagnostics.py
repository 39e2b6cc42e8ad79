"""Messages to the author of a recipe: one Diagnostic per mistake, collected rather than raised one by one."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from .frozen import frozen
from .source import Span

__all__ = ["Diagnostic", "Note", "Severity", "has_errors", "sort_by_place"]


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@frozen(kw_only=False)
class Note:
    """A second place that explains the first: the start of a cycle, the earlier duplicate."""

    message: str
    span: Span


@frozen
class Diagnostic:
    """One mistake: what, where, and what to do about it."""

    code: str
    """A stable kebab-case name, listed in `codes.py`."""
    message: str
    """One sentence, lower case, no full stop; says what was expected."""
    span: Span
    help: str | None = None
    """What to write instead; `did you mean 'textcraft'?`."""
    notes: tuple[Note, ...] = ()
    severity: Severity = Severity.ERROR


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(each.severity is Severity.ERROR for each in diagnostics)


def sort_by_place(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Sort by file in order of first appearance, then by place and code; drop exact repeats."""
    unique = list(dict.fromkeys(diagnostics))
    files = {name: i for i, name in enumerate(dict.fromkeys(d.span.source.name for d in unique))}
    return sorted(unique, key=lambda d: (files[d.span.source.name], d.span.start, d.span.end, d.code, d.message))
