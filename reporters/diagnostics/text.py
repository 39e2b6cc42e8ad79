"""A Report for people: place, code and message, the line with a caret, what to write instead.

The first line of each diagnostic is `file:line:col: severity[code]: message`, which editors and CI systems recognise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...dsl.diagnostics import Diagnostic, Note, Severity
from ...dsl.source import Span
from ..quantity import plural
from .excerpt import excerpt, printable
from .report import Report, extends_chain

__all__ = ["Style", "diagnostic_text", "report_text", "summary_line"]

DEFAULT_WIDTH = 120
COLOURS = {"error": "1;31", "warning": "1;33", "bold": "1", "dim": "2", "mark": "1;31", "help": "36", "good": "32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Width and colours."""

    width: int = DEFAULT_WIDTH
    colour: bool = False

    def paint(self, name: str, text: str) -> str:
        return f"\x1b[{COLOURS[name]}m{text}\x1b[0m" if self.colour else text


def report_text(report: Report, style: Style, *, quiet: bool = False) -> str:
    """All diagnostics, then one line of counts; `quiet` leaves out warnings, and the counts where there is no error."""
    shown = report.shown(quiet)
    parts = [diagnostic_text(each, style) for each in shown]
    if not quiet or shown:
        parts.append(summary_line(report, style) + "\n")
    return "\n".join(parts)


def diagnostic_text(diagnostic: Diagnostic, style: Style) -> str:
    """One diagnostic, with a final line break."""
    return "".join(f"{line}\n" for line in _lines(diagnostic, style))


def _lines(diagnostic: Diagnostic, style: Style) -> Iterator[str]:
    label = style.paint(diagnostic.severity, f"{diagnostic.severity}[{diagnostic.code}]")
    place = style.paint("bold", f"{_place(diagnostic.span)}:")
    yield f"{place} {label}: {printable(diagnostic.message)}"
    yield from _excerpt_lines(diagnostic.span, style, diagnostic.severity)
    for step in extends_chain(diagnostic.span):
        yield style.paint("dim", f"  in a recipe extended from {_place(step)}")
    for note in diagnostic.notes:
        yield from _note_lines(note, style)
    if diagnostic.help:
        yield from _help_lines(diagnostic.help, style)


def _excerpt_lines(span: Span, style: Style, mark: str) -> Iterator[str]:
    number = str(span.line)
    gutter = f"  {number} | "
    shown = excerpt(span, style.width - len(gutter))
    if shown is None:
        return
    blank = f"  {' ' * len(number)} | "
    yield style.paint("dim", gutter) + shown.text
    carets = shown.marks.lstrip()
    yield style.paint("dim", blank) + shown.marks.removesuffix(carets) + style.paint(mark, carets)


def _note_lines(note: Note, style: Style) -> Iterator[str]:
    yield f"  note: {_place(note.span)}: {printable(note.message)}"
    yield from _excerpt_lines(note.span, style, "dim")


def _help_lines(text: str, style: Style) -> Iterator[str]:
    """A help of several lines shows what to write, line by line."""
    first, *rest = text.split("\n")
    yield f"  {style.paint('help', 'help')}: {printable(first)}"
    yield from (f"        {printable(line)}" for line in rest)


def _place(span: Span) -> str:
    return printable(str(span))


def summary_line(report: Report, style: Style) -> str:
    """`3 errors and 1 warning in 2 of 5 recipes`."""
    recipes = sum(not each.base for each in report.checked)
    bases = len(report.checked) - recipes
    looked_at = " and ".join(plural(n, word) for n, word in ((recipes, "recipe"), (bases, "base")) if n) or "0 recipes"
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    found = " and ".join(plural(n, word) for n, word in ((errors, "error"), (warnings, "warning")) if n)
    left_out = f"; {plural(report.left_out, 'other YAML file')} left out" if report.left_out else ""
    idle = sum(each.idle for each in report.checked)
    left_out += f"; {plural(idle, 'inherited key')} without effect left out (see agym show --origins)" if idle else ""
    if not errors:
        right = f"{looked_at} checked: {found or 'no mistakes'}"
        return style.paint("warning" if found else "good", right) + left_out
    among = f"in {report.failed} of {looked_at}" if len(report.checked) != 1 else f"in {plural(1, 'recipe')}"
    return style.paint("error", f"{found} {among}" if report.failed else found) + left_out
