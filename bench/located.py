"""Claim: a mistake in a recipe is shown where it is, and a slip of the pen with the word that was meant (95 % of them).

Of each mistake that `mistakes.py` makes it is known exactly where it stands, and what was meant. Prints how many were
reported at just that place, with the right suggestion, and alone. Below: how many mistakes of the whole corpus in
tests/recipes_bad have a place with a caret.

    python bench/located.py             measures
    python bench/located.py --write     writes tests/recipes_bad/mutations anew, one recipe for each word
    python bench/located.py --check     says whether those files are what --write would write
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agym.catalog import catalog
from agym.dsl.catalog import Catalog
from agym.dsl.check.key_suggestions import Keys
from agym.dsl.compile import compile_recipe
from agym.dsl.diagnostics import Diagnostic, Severity
from agym.dsl.source import Source
from agym.dsl.text.decode import decode
from agym.files import DiskLibrary
from agym.reporters.diagnostics.excerpt import excerpt
from agym.schemas import recipe_v1
from mistakes import GOOD, ROOT, Mutation, misspelt_keys, misspelt_names, misspelt_values, small_keys, wrong_kinds

BAD = ROOT / "tests" / "recipes_bad"
MUTATIONS = BAD / "mutations"
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


def corpus(checker: Checker) -> tuple[int, int, int]:
    """Broken recipes, their errors, and how many of these have a place with a caret under it."""
    recipes = [path for path in sorted(BAD.rglob("*.yaml")) if "base" not in path.relative_to(BAD).parts]
    errors = [error for path in recipes for error in errors_of(checker, path)]
    return len(recipes), len(errors), sum(has_caret(each) for each in errors)


def errors_of(checker: Checker, path: Path) -> list[Diagnostic]:
    source = decode(path.name, path.read_bytes(), key=str(path))
    return [source] if isinstance(source, Diagnostic) else checker.errors(source)


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


# --- the committed recipes -----------------------------------------------------------------------------------------


def committed(known: Keys, registered: Catalog) -> dict[str, str]:
    """Text by file name, without its suffix."""
    made: dict[str, str] = {}
    for mutation in (
        *small_keys(known),
        *misspelt_values(known, all_kinds=False),
        *misspelt_names(registered, all_kinds=False),
    ):
        assert mutation.name not in made, mutation.name
        made[mutation.name] = mutation.text
    return made


def write(made: Mapping[str, str]) -> int:
    MUTATIONS.mkdir(exist_ok=True)
    for path in MUTATIONS.glob("*"):
        if path.stem not in made:
            path.unlink()
    for name, text in made.items():
        (MUTATIONS / f"{name}.yaml").write_text(text, encoding="utf-8")
    print(f"{len(made)} recipes in {MUTATIONS.relative_to(ROOT)}; now: python tests/test_corpus.py --update")
    return 0


def check(made: Mapping[str, str]) -> int:
    there = {path.stem: path.read_text(encoding="utf-8") for path in MUTATIONS.glob("*.yaml")}
    stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    for name in stale:
        print(f"{name}.yaml is not what it should be: python bench/located.py --write")
    return 1 if stale else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the misspelt recipes of the corpus anew")
    parser.add_argument("--check", action="store_true", help="say whether they are fresh")
    parser.add_argument("--misses", action="store_true", help="also list what was not as it should be")
    arguments = parser.parse_args()
    known, registered = Keys(recipe_v1()), catalog()
    if arguments.write or arguments.check:
        return (write if arguments.write else check)(committed(known, registered))
    checker = Checker(DiskLibrary(GOOD), registered)
    rows = measure(checker, misspelt_keys(known))
    rows |= measure(checker, small_keys(known))
    rows |= measure(checker, misspelt_values(known, all_kinds=True))
    rows |= measure(checker, misspelt_names(registered, all_kinds=True))
    rows |= measure(checker, wrong_kinds(known))
    report(rows, arguments.misses)
    recipes, errors, located = corpus(checker)
    with_caret = f"{located} with a caret ({share(located, errors).strip()})"
    print(f"\ncorpus: {recipes} broken recipes, {errors} errors, {with_caret}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
