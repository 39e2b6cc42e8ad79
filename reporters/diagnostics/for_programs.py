"""A Report as JSON by schemas/report.v1.json, as GitHub's workflow commands, and as SARIF 2.1.0 for code scanning.

Lines and columns count from 1, in code points; ends are exclusive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ...dsl.codes import CODES
from ...dsl.diagnostics import Diagnostic, Severity
from ...dsl.source import Span
from .report import Report, extends_chain
from .text import Style, summary_line

__all__ = ["report_github", "report_json", "report_sarif"]

REPORT_VERSION = 1
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
PROPERTY = (*DATA, (":", "%3A"), (",", "%2C"))


# --- JSON ----------------------------------------------------------------------------------------------------------


def report_json(report: Report) -> str:
    return _dump(
        {
            "version": REPORT_VERSION,
            "summary": {
                "recipes": len(report.checked),
                "failed": report.failed,
                "errors": report.count(Severity.ERROR),
                "warnings": report.count(Severity.WARNING),
                "left_out": report.left_out,
            },
            "problems": [_diagnostic(each) for each in report.problems],
            "recipes": [
                {
                    "path": each.path,
                    "ok": not each.failed,
                    "base": each.base,
                    "runs": each.runs,
                    "diagnostics": [_diagnostic(one) for one in each.diagnostics],
                }
                for each in report.checked
            ],
        }
    )


def _dump(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _diagnostic(diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "help": diagnostic.help,
        **_place(diagnostic.span),
        "notes": [{"message": note.message, **_place(note.span)} for note in diagnostic.notes],
        "extended_from": [_place(step) for step in extends_chain(diagnostic.span)],
    }


def _place(span: Span) -> dict[str, Any]:
    start = {"file": span.source.name, "line": span.line, "column": span.column}
    return {**start, "end_line": span.end_line, "end_column": span.end_column}


# --- GitHub --------------------------------------------------------------------------------------------------------


def report_github(report: Report, *, quiet: bool = False) -> str:
    """Lines `::error ...::message`, which GitHub shows in a pull request; `quiet` as in `report_text`."""
    shown = report.shown(quiet)
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
    # the end is inclusive there, and the runner takes columns only within one line
    if span.end_line != span.line:
        return {"line": span.line, "endLine": span.end_line}
    last = max(span.column, span.end_column - 1)
    return {"line": span.line, "col": span.column, "endLine": span.line, "endColumn": last}


def _message(diagnostic: Diagnostic) -> Iterator[str]:
    yield _sentence(diagnostic)
    yield from (f"note: {note.span}: {note.message}" for note in diagnostic.notes)
    yield from (f"in a recipe extended from {step}" for step in extends_chain(diagnostic.span))


def _sentence(diagnostic: Diagnostic) -> str:
    return f"{diagnostic.message}\nhelp: {diagnostic.help}" if diagnostic.help else diagnostic.message


def _escaped(text: str, table: tuple[tuple[str, str], ...]) -> str:
    for character, written in table:
        text = text.replace(character, written)
    return text


# --- SARIF ---------------------------------------------------------------------------------------------------------


def report_sarif(report: Report, version: str) -> str:
    """The rules are the codes that occur."""
    codes = sorted({each.code for each in report.diagnostics})
    rules = [{"id": code, "shortDescription": {"text": CODES.get(code, code)}} for code in codes]
    run = {
        "tool": {"driver": {"name": "agym", "semanticVersion": version, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, codes.index(each.code)) for each in report.diagnostics],
    }
    return _dump({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(diagnostic: Diagnostic, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": diagnostic.severity.value,
        "message": {"text": _sentence(diagnostic)},
        "locations": [{"physicalLocation": _location(diagnostic.span)}],
    }
    places = [(note.message, note.span) for note in diagnostic.notes]
    places += [("extended from here", step) for step in extends_chain(diagnostic.span)]
    related = [
        {"id": i, "message": {"text": message}, "physicalLocation": _location(span)}
        for i, (message, span) in enumerate(places)
    ]
    return {**result, "relatedLocations": related} if related else result


def _location(span: Span) -> dict[str, Any]:
    start = {"startLine": span.line, "startColumn": span.column}
    uri = quote(span.source.name, errors="surrogateescape")
    return {
        "artifactLocation": {"uri": f"file://{uri}" if span.source.name.startswith("/") else uri},
        "region": {**start, "endLine": span.end_line, "endColumn": span.end_column},
    }
