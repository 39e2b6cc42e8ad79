"""Claim: a mistake in a recipe is shown where it is, and a typo with the word that was meant (95 % of them).

For each mistake that `mistakes.py` makes, it is known exactly where it is and what was meant. Prints how many were
reported at just that place, with the right suggestion, and alone. Below: how many mistakes of the whole corpus, the
files in tests/recipes_bad and one misspelling of each word, have a place with a caret.

    python bench/located.py [--misses]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agym.catalog import catalog
from agym.dsl.catalog import Catalog
from agym.dsl.check.key_suggestions import SchemaKeys
from agym.dsl.compile import compile_recipe
from agym.dsl.diagnostics import Diagnostic, Severity
from agym.dsl.source import Source
from agym.dsl.text.decode import decode
from agym.files import DiskLibrary
from agym.reporters.diagnostics.excerpt import excerpt
from agym.schemas import recipe_v1
from mistakes import (
    BAD,
    GOOD,
    Mutation,
    misspelt_keys,
    misspelt_names,
    misspelt_values,
    one_of_each,
    small_keys,
    wrong_kinds,
)

ENVIRON = {"CORPUS_TOKEN": "not-to-be-shown"}
WIDTH = 100


# --- measuring -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """What became of the mutations of one sort."""

    made: int = 0
    reported: int = 0
    located: int = 0
    suggested: int = 0
    alone: int = 0
    with_suggestion: int = 0
    """Mutations for which there is something to suggest."""
    misses: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Checker:
    """The language, with what is registered here."""

    library: DiskLibrary
    catalog: Catalog

    def errors(self, source: Source) -> list[Diagnostic]:
        compiled = compile_recipe(source, self.library, (), ENVIRON, self.catalog)
        return [each for each in compiled.diagnostics if each.severity is Severity.ERROR]

    def count(self, mutation: Mutation, row: Row) -> None:
        errors = self.errors(Source("mutation.yaml", mutation.text, key=str(GOOD / "mutation.yaml")))
        named = [each for each in errors if not mutation.codes or each.code in mutation.codes]
        at_it = [each for each in named if is_at(each, mutation)]
        right = [each for each in at_it if mutation.meant and suggests(each.help, mutation.meant)]
        row.made += 1
        row.reported += bool(named)
        row.located += bool(at_it)
        row.with_suggestion += mutation.meant is not None
        row.suggested += bool(right)
        row.alone += len(errors) == 1
        if not at_it or (mutation.meant and not right) or len(errors) > 1:
            row.misses.append(f"{mutation.name}: {mutation.text[mutation.start : mutation.end]!r} {told(errors)}")


def is_at(each: Diagnostic, mutation: Mutation) -> bool:
    """Exactly at the word; a value of another kind may be pointed at by a part of it."""
    span = each.span
    if mutation.meant is None:
        return mutation.start <= span.start and span.end <= mutation.end
    return (span.start, span.end) == (mutation.start, mutation.end)


def suggests(help_line: str | None, meant: str) -> bool:
    return help_line is not None and help_line.startswith(f"did you mean '{meant}'?")


def told(errors: Sequence[Diagnostic]) -> str:
    return " | ".join(f"{each.code}@{each.span.line}:{each.span.column} ({each.help})" for each in errors) or "nothing"


def measure(checker: Checker, mutations: Iterator[Mutation]) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for mutation in mutations:
        checker.count(mutation, rows.setdefault(mutation.what, Row()))
    return rows


def corpus(checker: Checker, misspelt: Sequence[Mutation]) -> tuple[int, int, int]:
    """Broken recipes, their errors, and how many of these have a place with a caret under it."""
    recipes = [path for path in sorted(BAD.rglob("*.yaml")) if "base" not in path.relative_to(BAD).parts]
    sources = [decode(path.name, path.read_bytes(), key=str(path)) for path in recipes]
    sources += [Source(each.name, each.text, key=str(BAD / each.name)) for each in misspelt]
    errors = [error for each in sources for error in ([each] if isinstance(each, Diagnostic) else checker.errors(each))]
    return len(sources), len(errors), sum(has_caret(each) for each in errors)


def has_caret(error: Diagnostic) -> bool:
    shown = excerpt(error.span, WIDTH)
    return shown is not None and "^" in shown.marks


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:6.1f} %" if whole else "      - "


def report(rows: Mapping[str, Row], verbose: bool) -> None:
    print(f"{'what':<28}{'made':>6}  {'reported':>9} {'at the word':>12} {'suggestion':>11} {'alone':>9}")
    for what, row in rows.items():
        print(
            f"{what:<28}{row.made:>6}  {share(row.reported, row.made):>9} {share(row.located, row.made):>12}"
            f" {share(row.suggested, row.with_suggestion):>11} {share(row.alone, row.made):>9}"
        )
    for what, row in rows.items() if verbose else ():
        print(f"\n{what}:")
        print("\n".join(f"  {miss}" for miss in row.misses))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misses", action="store_true", help="also list what was not as it should be")
    arguments = parser.parse_args()
    known, registered = SchemaKeys(recipe_v1()), catalog()
    checker = Checker(DiskLibrary(GOOD), registered)
    rows = measure(checker, misspelt_keys(known))
    rows |= measure(checker, small_keys(known))
    rows |= measure(checker, misspelt_values(known, all_kinds=True))
    rows |= measure(checker, misspelt_names(registered, all_kinds=True))
    rows |= measure(checker, wrong_kinds(known))
    report(rows, arguments.misses)
    recipes, errors, located = corpus(checker, one_of_each(known, registered))
    with_caret = f"{located} with a caret ({share(located, errors).strip()})"
    print(f"\ncorpus: {recipes} broken recipes, {errors} errors, {with_caret}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
