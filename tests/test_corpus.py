"""Recipes that are wrong, each with the exact text that it must give, and recipes that are right.

A file `recipes_bad/**/CODE--what-it-is.yaml` is a test as soon as it is there; next to it, in a file with the suffix
`.txt`, is what `agym validate` prints when it is called in `recipes_bad`. A file in `recipes_good` must give nothing,
or the warnings in its `.txt`. What lies in a folder named `base` is a part of the others. What is said about each word
misspelt once, in recipes that `bench/mistakes.py` makes, is in `recipes_bad/mutations.tsv`.

    python tests/test_corpus.py --update     rewrites the texts and the table, to be read in the diff
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from agym.catalog import catalog
from agym.cli import main
from agym.dsl.check.key_suggestions import NAME, SchemaKeys
from agym.dsl.codes import CODES
from agym.dsl.compile import Compiled, compile_recipe
from agym.dsl.diagnostics import Diagnostic
from agym.dsl.model.algorithm import Preset
from agym.dsl.publish.plan_json import dump_json
from agym.dsl.source import Source
from agym.dsl.text.node import ListNode, MapNode, Node
from agym.dsl.text.tree import parse_tree
from agym.files import DiskLibrary
from agym.reporters.resolved import resolved_yaml
from agym.schemas import recipe_v1

ROOT = Path(__file__).resolve().parents[1]
# pytest has it there, this file as a program has not
sys.path.append(str(ROOT / "bench"))
from mistakes import BAD, GOOD, MUTATIONS, Mutation, one_of_each  # noqa: E402

PARTS = "base"

TOKEN = "CORPUS_TOKEN"
"""The one environment variable that these recipes may count on."""
SECRET = "not-to-be-shown"

NOT_FROM_A_FILE = {"bad-setting", "no-recipes"}
"""Codes of the command line rather than of a recipe."""
WITHOUT_A_LINE = {"empty-file", "not-utf8"}
"""Codes of files that hold nothing that could be shown."""

HEAD = re.compile(
    r"(?P<file>[^:\n]+):(?P<line>\d+):(?P<column>\d+): (?P<severity>error|warning)\[(?P<code>[a-z0-9-]+)\]: .+"
)
LINE = re.compile(r" +(?P<number>\d+) \| (?P<text>.*)")
MARKS = re.compile(r" +\| (?P<blank> *)(?P<carets>\^+)")
COUNT = re.compile(r"\d+ (error|warning|recipe)s? .*")
UNSEEMLY = re.compile(r'Traceback|internal error|File "|[A-Za-z]+Error\b|object at 0x|<class |\bNone\b|\bdict\b')


def recipes(folder: Path) -> list[str]:
    """By their paths within the folder; parts of others left out."""
    found = (path.relative_to(folder) for path in folder.rglob("*.yaml"))
    return sorted(path.as_posix() for path in found if PARTS not in path.parts)


BROKEN = recipes(BAD)
RIGHT = recipes(GOOD)
KEYS = SchemaKeys(recipe_v1())


# --- what is printed -----------------------------------------------------------------------------------------------


def validated(folder: Path, recipe: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `agym validate RECIPE` in a folder."""
    out, err = StringIO(), StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        code = main(["validate", "--format", "text", recipe])
    return code, out.getvalue(), err.getvalue()


def expected(folder: Path, recipe: str) -> str:
    file = (folder / recipe).with_suffix(".txt")
    return file.read_bytes().decode() if file.exists() else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One diagnostic, read back from the text."""

    file: str
    line: int
    column: int
    severity: str
    code: str
    block: str
    excerpt: str | None
    """The line of the file as it is shown."""
    blank: int
    """Columns before the carets."""
    carets: int


def shown(text: str) -> list[Shown]:
    blocks = [block.rstrip("\n") for block in text.split("\n\n")]
    return [_shown(block) for block in blocks if block and not COUNT.fullmatch(block)]


def _shown(block: str) -> Shown:
    head, *rest = block.split("\n")
    match = HEAD.fullmatch(head)
    assert match, f"no place, severity and code in: {head}"
    line = LINE.fullmatch(rest[0]) if rest else None
    marks = MARKS.fullmatch(rest[1]) if line else None
    assert not line or marks, f"no caret under: {rest[0]}"
    return Shown(
        file=match["file"],
        line=int(match["line"]),
        column=int(match["column"]),
        severity=match["severity"],
        code=match["code"],
        block=block,
        excerpt=line["text"] if line else None,
        blank=len(marks["blank"]) if marks else 0,
        carets=len(marks["carets"]) if marks else 0,
    )


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, SECRET)


# --- recipes that are wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", BROKEN)
def test_a_broken_recipe_gives_exactly_the_text_next_to_it(recipe: str) -> None:
    code, out, err = validated(BAD, recipe)
    assert out == expected(BAD, recipe)
    assert err == ""
    assert code == 1
    assert SECRET not in out


@pytest.mark.parametrize("recipe", BROKEN)
def test_the_text_names_the_code_and_points_at_a_token_for_each_mistake(recipe: str) -> None:
    text = expected(BAD, recipe)
    found = shown(text)
    named = Path(recipe).name.split("--")[0]
    assert named in {each.code for each in found if each.severity == "error"}
    assert not UNSEEMLY.search(text), "words of a programmer"
    for each in found:
        assert each.code in CODES
        points_at_a_token(each)
    assert in_file_order(found)


def points_at_a_token(each: Shown) -> None:
    """The line is that of the file, and the carets are under something, or where it is missing."""
    data = (BAD / each.file).read_bytes()
    if each.excerpt is None:
        assert each.code in WITHOUT_A_LINE, each.block
        return
    line = re.split(r"\r?\n", data.decode("utf-8-sig", "replace"))[each.line - 1]
    assert each.column <= len(line) + 1
    if each.excerpt.isascii() and "..." not in each.excerpt and "\t" not in line and line.isprintable():
        assert each.excerpt == line.rstrip()
        assert each.blank == each.column - 1
    marked = each.excerpt[each.blank : each.blank + each.carets]
    is_at_the_end = each.blank >= len(each.excerpt.rstrip())
    assert marked.strip() or is_at_the_end or each.code in ("expr-syntax", "tab-indentation"), each.block


def in_file_order(found: list[Shown]) -> bool:
    """Within each file by line and column; warnings come among the errors."""
    return all((a.line, a.column) <= (b.line, b.column) for a, b in pairwise(found) if a.file == b.file)


def test_there_are_three_hundred_broken_recipes() -> None:
    assert len(BROKEN) >= 330


def test_every_text_belongs_to_a_recipe() -> None:
    files = {path for folder in (BAD, GOOD) for path in folder.rglob("*.txt")}
    texts = {path.with_suffix(".yaml") for path in files if not {"data", "prompts", "tasks"} & set(path.parts)}
    assert [text for text in texts if not text.exists()] == []


def test_every_code_is_shown_by_two_recipes_or_more() -> None:
    codes = [code for recipe in BROKEN for code in {each.code for each in shown(expected(BAD, recipe))}]
    codes += [code for recipe in RIGHT for code in {each.code for each in shown(expected(GOOD, recipe))}]
    assert [code for code in CODES if codes.count(code) < 2 and code not in NOT_FROM_A_FILE] == []


# --- words that are misspelt ---------------------------------------------------------------------------------------

COLUMNS = ("recipe", "place", "code", "message", "help")


def test_each_word_misspelt_gives_exactly_the_line_of_the_table() -> None:
    assert mutations_table() == MUTATIONS.read_text(encoding="utf-8")


def test_a_misspelt_word_is_pointed_at_and_the_right_one_proposed() -> None:
    made = one_of_each(KEYS, catalog())
    for each in made:
        (error,) = diagnostics(each)
        assert (error.span.start, error.span.end, error.code) == (each.start, each.end, *each.codes)
    lines = MUTATIONS.read_text(encoding="utf-8").splitlines()[1:]
    right = [f"\tdid you mean '{each.meant}'?" in line for each, line in zip(made, lines, strict=True)]
    # 'l' may be meant for 'kl' as well as for 'lr'
    assert sum(right) >= 0.98 * len(made) >= 350


def mutations_table() -> str:
    """A line for each error of each recipe with a misspelt word; ends of places are exclusive."""
    rows = [row(mutation, each) for mutation in one_of_each(KEYS, catalog()) for each in diagnostics(mutation)]
    return "".join("\t".join(cells) + "\n" for cells in (COLUMNS, *rows))


def diagnostics(mutation: Mutation) -> tuple[Diagnostic, ...]:
    return compiled(BAD, f"{mutation.name}.yaml", mutation.text).diagnostics


def row(mutation: Mutation, each: Diagnostic) -> tuple[str, ...]:
    place = f"{each.span.line}:{each.span.column}-{each.span.end_column}"
    return (mutation.name, place, each.code, each.message, each.help or "")


# --- recipes that are right ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RIGHT)
def test_a_good_recipe_gives_nothing_but_the_warnings_next_to_it(recipe: str) -> None:
    code, out, err = validated(GOOD, recipe)
    assert warnings(out) == expected(GOOD, recipe)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("recipe", RIGHT)
def test_the_plans_of_a_good_recipe_survive_what_show_prints(recipe: str) -> None:
    runs = compiled(GOOD, recipe, (GOOD / recipe).read_bytes().decode("utf-8-sig")).variants
    assert runs
    for run in runs:
        again = compiled(GOOD, recipe, resolved_yaml(run.tree))
        # one run of a matrix is not a matrix any more
        assert [dump_json(each.plan) for each in again.variants] == [dump_json(replace(run.plan, choices={}))]


def test_the_complete_recipes_have_every_key_that_there_is() -> None:
    written = {path for recipe in RIGHT if recipe.startswith("complete-") for path in key_paths(recipe)}
    in_stages = {path[1:] for path in written if path[0] == "schedule"}
    inherited = {path for path in KEYS.known if path[0] == "schedule" and path[1:] in KEYS.known}
    # a selection of tasks is the same in both places
    alike = {path for path in KEYS.known if path[2:3] == ("tasks",) and path[-1] in ("ids", "range", "limit", "file")}
    # names what a package that is not installed here registers
    foreign = {("agent", "harness", "use")}
    assert sorted(KEYS.known.keys() - written - in_stages - inherited - alike - foreign) == []


def test_each_preset_has_a_good_recipe_of_its_own() -> None:
    assert [preset for preset in Preset if f"algorithm-{preset}.yaml" not in RIGHT] == []


def warnings(text: str) -> str:
    """What is said, without the count."""
    return "\n".join(f"{each.block}\n" for each in shown(text))


def compiled(folder: Path, recipe: str, text: str) -> Compiled:
    source = Source(recipe, text, key=str(folder / recipe))
    return compile_recipe(source, DiskLibrary(folder), (), {TOKEN: SECRET}, catalog())


def key_paths(recipe: str) -> set[tuple[str, ...]]:
    root = parse_tree(Source(recipe, (GOOD / recipe).read_text(encoding="utf-8"))).root
    assert root is not None
    return set(_paths(root, ()))


def _paths(node: Node, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(node, ListNode):
        for item in node.items:
            yield from _paths(item, path)
    for entry in node.entries if isinstance(node, MapNode) else ():
        below = (*path, entry.name) if (*path, entry.name) in KEYS.known else (*path, NAME)
        yield below
        yield from _paths(entry.value, below)


# --- writing the texts anew ----------------------------------------------------------------------------------------


def update() -> None:
    os.environ[TOKEN] = SECRET
    for recipe in BROKEN:
        write(BAD / recipe, validated(BAD, recipe)[1])
    for recipe in RIGHT:
        code, out, _ = validated(GOOD, recipe)
        if code:
            print(f"{recipe} is refused, and a good recipe must not be:\n{out}")
        else:
            write(GOOD / recipe, warnings(out))
    MUTATIONS.write_text(mutations_table(), encoding="utf-8")


def write(recipe: Path, text: str) -> None:
    file = recipe.with_suffix(".txt")
    if text:
        file.write_bytes(text.encode())
    else:
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit("python tests/test_corpus.py --update")
    update()
