"""A Report as workflow commands, `::error ...::message`, which GitHub shows on the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from ...dsl.diagnostics import Diagnostic, Severity
from ...dsl.source import Span
from .report import Report, extends_chain
from .text import Style, summary_line

__all__ = ["report_github"]

DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
PROPERTY = (*DATA, (":", "%3A"), (",", "%2C"))


def report_github(report: Report, *, quiet: bool = False) -> str:
    """`quiet` leaves out warnings, and the counts where there is no error."""
    shown = [each for each in report.diagnostics if not quiet or each.severity is Severity.ERROR]
    lines = [_command(each) for each in shown]
    if not quiet or shown:
        lines.append(summary_line(report, Style()))
    return "".join(f"{line}\n" for line in lines)


def _command(diagnostic: Diagnostic) -> str:
    properties = {"file": diagnostic.span.source.name, **_region(diagnostic.span), "title": diagnostic.code}
    written = ",".join(f"{name}={_escaped(str(value), PROPERTY)}" for name, value in properties.items())
    message = _escaped("\n".join(_message(diagnostic)), DATA)
    return f"::{diagnostic.severity} {written}::{message}"


def _region(span: Span) -> dict[str, int]:
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    # the end is inclusive there, and the runner takes columns only within one line
    if end_line != line:
        return {"line": line, "endLine": end_line}
    return {"line": line, "col": column, "endLine": line, "endColumn": max(column, end_column - 1)}


def _message(diagnostic: Diagnostic) -> Iterator[str]:
    yield diagnostic.message
    if diagnostic.help:
        yield f"help: {diagnostic.help}"
    yield from (f"note: {note.span}: {note.message}" for note in diagnostic.notes)
    yield from (f"in a recipe extended from {step}" for step in extends_chain(diagnostic.span))


def _escaped(text: str, table: tuple[tuple[str, str], ...]) -> str:
    for character, written in table:
        text = text.replace(character, written)
    return text
