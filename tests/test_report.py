"""The formats of a report: what each says of the same findings."""

import json
from typing import Any

import pytest
from agym.dsl.codes import CODES
from agym.dsl.diagnostics import Diagnostic, Note, Severity
from agym.dsl.source import Source, Span
from agym.reporters.diagnostics.for_programs import report_github, report_json, report_sarif
from agym.reporters.diagnostics.report import Checked, Report, report
from agym.reporters.diagnostics.text import Style, diagnostic_text, report_text
from agym.schemas import load
from jsonschema import Draft7Validator

TEXT = "agym: 1\nname: x\nenvironments:\n  craft: {use: textcarft}\n"


def span(source: Source, word: str) -> Span:
    start = source.text.index(word)
    return source.span(start, start + len(word))


def unknown(source: Source, **changes: Any) -> Diagnostic:
    facts: dict[str, Any] = {
        "code": "unknown-environment",
        "message": "environment 'textcarft' is not registered",
        "span": span(source, "textcarft"),
        "help": "did you mean 'textcraft'?",
    }
    return Diagnostic(**(facts | changes))


def checked(path: str, *diagnostics: Diagnostic, base: bool = False) -> Checked:
    failed = any(each.severity is Severity.ERROR for each in diagnostics)
    return Checked(path=path, runs=1, base=base, failed=failed, diagnostics=diagnostics)


@pytest.fixture
def recipe() -> Source:
    return Source("recipe.yaml", TEXT)


@pytest.fixture
def found(recipe: Source) -> Report:
    """One error and one warning, the first in a base of a base."""
    child = Source("child.yaml", "extends: middle\n")
    middle = Source("middle.yaml", "a: 1\nextends: recipe\n", included_from=span(child, "middle"))
    deep = Source("recipe.yaml", TEXT, included_from=span(middle, "recipe"))
    note = Note("the first is here", span(deep, "name"))
    warning = Diagnostic(
        code="cut-sampling",
        message="50% is: not, built\nyet",
        span=span(recipe, "name: x\nenv"),
        severity=Severity.WARNING,
    )
    return report([checked("child.yaml", unknown(deep, notes=(note,))), checked("recipe.yaml", warning)])


# --- the report ----------------------------------------------------------------------------------------------------


def test_a_mistake_in_a_shared_base_is_told_once_and_fails_both() -> None:
    first, second = Source("base.yaml", TEXT), Source("base.yaml", TEXT)
    both = report([checked("a.yaml", unknown(first)), checked("b.yaml", unknown(second))])
    assert both.count(Severity.ERROR) == 1
    assert both.failed == 2


def test_strict_makes_errors_of_warnings(recipe: Source) -> None:
    strict = report([checked("recipe.yaml", unknown(recipe, severity=Severity.WARNING))], strict=True)
    assert (strict.failed, strict.count(Severity.ERROR), strict.count(Severity.WARNING)) == (1, 1, 0)


def test_diagnostics_of_a_recipe_are_in_file_order(recipe: Source) -> None:
    late, early = unknown(recipe), unknown(recipe, span=span(recipe, "name"))
    assert [each.span.line for each in report([checked("r", late, early)]).diagnostics] == [2, 4]


# --- text ----------------------------------------------------------------------------------------------------------


def test_text_is_place_code_message_excerpt_and_help(recipe: Source) -> None:
    assert diagnostic_text(unknown(recipe), Style()) == (
        "recipe.yaml:4:16: error[unknown-environment]: environment 'textcarft' is not registered\n"
        "  4 |   craft: {use: textcarft}\n"
        "    |                ^^^^^^^^^\n"
        "  help: did you mean 'textcraft'?\n"
    )


def test_text_names_the_whole_chain_of_extends_nearest_first(found: Report) -> None:
    lines = diagnostic_text(next(found.diagnostics), Style()).splitlines()
    chain = [line for line in lines if "extended from" in line]
    assert chain == [
        "  in a recipe extended from middle.yaml:2:10",
        "  in a recipe extended from child.yaml:1:10",
    ]


def test_text_shows_notes_with_their_own_excerpt(found: Report) -> None:
    text = diagnostic_text(next(found.diagnostics), Style())
    assert "  note: recipe.yaml:2:1: the first is here\n  2 | name: x\n    | ^^^^\n" in text


def test_text_of_several_lines_of_help_is_indented(recipe: Source) -> None:
    text = diagnostic_text(unknown(recipe, help="write\na: 1"), Style())
    assert text.endswith("  help: write\n        a: 1\n")


def test_text_without_colour_has_no_escapes_and_with_colour_says_the_same(found: Report) -> None:
    plain, coloured = report_text(found, Style()), report_text(found, Style(colour=True))
    assert "\x1b" not in plain
    assert "\x1b[1;31m" in coloured
    for code in ("\x1b[1;31m", "\x1b[1;33m", "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[32m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


def test_text_in_a_message_cannot_steer_the_terminal(recipe: Source) -> None:
    text = diagnostic_text(unknown(recipe, message="a \x1b[2J b", help="c \x07"), Style())
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize(
    ("errors", "warnings", "others", "said"),
    [
        (0, 0, 0, "1 recipe checked: no mistakes"),
        (0, 1, 0, "1 recipe checked: 1 warning"),
        (2, 0, 0, "2 errors in 1 recipe"),
        (1, 2, 4, "1 error and 2 warnings in 1 of 5 recipes"),
    ],
)
def test_the_last_line_counts(recipe: Source, errors: int, warnings: int, others: int, said: str) -> None:
    wrong = [unknown(recipe, code=f"e{i}") for i in range(errors)]
    doubtful = [unknown(recipe, code=f"w{i}", severity=Severity.WARNING) for i in range(warnings)]
    clean = [checked(f"{i}.yaml") for i in range(others)]
    assert report_text(report([checked("r", *wrong, *doubtful), *clean]), Style()).splitlines()[-1] == said


def test_the_last_line_tells_bases_and_other_files_apart() -> None:
    text = report_text(report([checked("a"), checked("base/b", base=True)], left_out=3), Style())
    assert text == "1 recipe and 1 base checked: no mistakes; 3 other YAML files left out\n"


def test_quiet_says_nothing_where_there_is_no_error(recipe: Source) -> None:
    warned = report([checked("r", unknown(recipe, severity=Severity.WARNING))])
    assert report_text(warned, Style(), quiet=True) == ""
    assert report_github(warned, quiet=True) == ""


# --- JSON ----------------------------------------------------------------------------------------------------------


def test_json_is_as_its_schema_says(found: Report) -> None:
    Draft7Validator.check_schema(load("report.v1"))
    Draft7Validator(load("report.v1")).validate(json.loads(report_json(found)))


def test_json_has_every_place(found: Report) -> None:
    first = json.loads(report_json(found))["recipes"][0]["diagnostics"][0]
    assert (first["file"], first["line"], first["column"], first["end_line"], first["end_column"]) == (
        "recipe.yaml",
        4,
        16,
        4,
        25,
    )
    assert [place["file"] for place in first["extended_from"]] == ["middle.yaml", "child.yaml"]
    assert first["notes"][0]["line"] == 2


def test_json_counts_and_says_which_recipe_is_right(found: Report) -> None:
    data = json.loads(report_json(found))
    assert data["summary"] == {"recipes": 2, "failed": 1, "errors": 1, "warnings": 1, "left_out": 0}
    assert [each["ok"] for each in data["recipes"]] == [False, True]


# --- GitHub --------------------------------------------------------------------------------------------------------


def test_github_annotates_the_line_with_inclusive_ends(recipe: Source) -> None:
    first = report_github(report([checked("r", unknown(recipe))])).splitlines()[0]
    assert first == (
        "::error file=recipe.yaml,line=4,col=16,endLine=4,endColumn=24,title=unknown-environment"
        "::environment 'textcarft' is not registered%0Ahelp: did you mean 'textcraft'?"
    )


def test_github_gives_no_columns_across_lines_and_escapes_what_would_end_the_command(found: Report) -> None:
    warning = next(line for line in report_github(found).splitlines() if line.startswith("::warning"))
    assert warning == "::warning file=recipe.yaml,line=2,endLine=3,title=cut-sampling::50%25 is: not, built%0Ayet"


def test_github_escapes_file_names() -> None:
    odd = Source("a,b:c%.yaml", TEXT)
    assert "file=a%2Cb%3Ac%25.yaml,line" in report_github(report([checked("r", unknown(odd))]))


def test_github_marks_an_empty_span_at_its_column(recipe: Source) -> None:
    text = report_github(report([checked("r", unknown(recipe, span=recipe.span(8, 8)))]))
    assert "line=2,col=1,endLine=2,endColumn=1," in text


# --- SARIF ---------------------------------------------------------------------------------------------------------


def test_sarif_has_the_members_that_2_1_0_requires(found: Report) -> None:
    log = json.loads(report_sarif(found, "1.2.3"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert run["tool"]["driver"]["name"] == "agym"
    assert run["tool"]["driver"]["semanticVersion"] == "1.2.3"
    assert run["columnKind"] == "unicodeCodePoints"
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["level"] in ("error", "warning", "note", "none")
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        region = result["locations"][0]["physicalLocation"]["region"]
        assert min(region.values()) >= 1
        assert (region["endLine"], region["endColumn"]) >= (region["startLine"], region["startColumn"])


def test_sarif_rules_say_what_the_code_means(recipe: Source) -> None:
    code = min(CODES)
    rules = json.loads(report_sarif(report([checked("r", unknown(recipe, code=code))]), "1"))["runs"][0]["tool"]
    assert rules["driver"]["rules"] == [{"id": code, "shortDescription": {"text": CODES[code]}}]


def test_sarif_relates_notes_and_the_chain(found: Report) -> None:
    first = json.loads(report_sarif(found, "1"))["runs"][0]["results"][0]
    assert [each["message"]["text"] for each in first["relatedLocations"]] == [
        "the first is here",
        "extended from here",
        "extended from here",
    ]
    assert [each["id"] for each in first["relatedLocations"]] == [0, 1, 2]


def test_sarif_writes_paths_as_addresses() -> None:
    for name, uri in (("a b/ü.yaml", "a%20b/%C3%BC.yaml"), ("/tmp/x.yaml", "file:///tmp/x.yaml")):
        log = json.loads(report_sarif(report([checked("r", unknown(Source(name, TEXT)))]), "1"))
        place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == uri


def test_sarif_of_nothing_wrong_has_no_results(recipe: Source) -> None:
    (run,) = json.loads(report_sarif(report([checked("r")]), "1"))["runs"]
    assert run["results"] == []
    assert run["tool"]["driver"]["rules"] == []
