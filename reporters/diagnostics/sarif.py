"""A Report as SARIF 2.1.0, for code scanning; the rules are the codes that occur."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from ...dsl.codes import CODES
from ...dsl.diagnostics import Diagnostic
from ...dsl.source import Span
from .report import Report, extends_chain

__all__ = ["report_sarif"]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def report_sarif(report: Report, version: str) -> str:
    found = list(report.diagnostics)
    codes = sorted({each.code for each in found})
    run = {
        "tool": {"driver": {"name": "agym", "semanticVersion": version, "rules": [_rule(code) for code in codes]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, codes.index(each.code)) for each in found],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _rule(code: str) -> dict[str, Any]:
    return {"id": code, "shortDescription": {"text": CODES.get(code, code)}}


def _result(diagnostic: Diagnostic, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": diagnostic.severity.value,
        "message": {"text": _sentence(diagnostic)},
        "locations": [{"physicalLocation": _location(diagnostic.span)}],
    }
    related = list(_related(diagnostic))
    return {**result, "relatedLocations": related} if related else result


def _sentence(diagnostic: Diagnostic) -> str:
    return f"{diagnostic.message}\nhelp: {diagnostic.help}" if diagnostic.help else diagnostic.message


def _related(diagnostic: Diagnostic) -> list[dict[str, Any]]:
    places = [(note.message, note.span) for note in diagnostic.notes]
    places += [("extended from here", step) for step in extends_chain(diagnostic.span)]
    return [
        {"id": i, "message": {"text": message}, "physicalLocation": _location(span)}
        for i, (message, span) in enumerate(places)
    ]


def _location(span: Span) -> dict[str, Any]:
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
    return {"artifactLocation": {"uri": _uri(span.source.name)}, "region": region}


def _uri(path: str) -> str:
    written = quote(path, errors="surrogateescape")
    return f"file://{written}" if path.startswith("/") else written
