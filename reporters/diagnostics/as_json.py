"""A Report as JSON, by schemas/report.v1.json. Lines and columns count from 1; ends are exclusive; code points."""

from __future__ import annotations

import json
from typing import Any

from ...dsl.diagnostics import Diagnostic, Severity
from ...dsl.source import Span
from .report import Checked, Report, extends_chain

__all__ = ["report_json"]

VERSION = 1


def report_json(report: Report) -> str:
    return json.dumps(_report(report), indent=2, ensure_ascii=False) + "\n"


def _report(report: Report) -> dict[str, Any]:
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    return {
        "version": VERSION,
        "summary": {
            "recipes": len(report.checked),
            "failed": report.failed,
            "errors": errors,
            "warnings": warnings,
            "left_out": report.left_out,
        },
        "problems": [_diagnostic(each) for each in report.problems],
        "recipes": [_checked(each) for each in report.checked],
    }


def _checked(checked: Checked) -> dict[str, Any]:
    return {
        "path": checked.path,
        "ok": not checked.failed,
        "base": checked.base,
        "runs": checked.runs,
        "diagnostics": [_diagnostic(each) for each in checked.diagnostics],
    }


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
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {
        "file": span.source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
    }
