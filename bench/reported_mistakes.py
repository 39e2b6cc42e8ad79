"""Claim: mistakes that users of five other trainers reported are one error each, at the word, with advice that fits.

The sets `data/reported_mistakes.yaml`, `data/reported_mistakes_2.yaml`, ... hold them: a recipe, one edit, where the
error should be and what it should suggest. Each was written by somebody who had not read the rules, and before its
first run. Limits of a set: located 97 %, suggestion 93 %, one error 97 %, internal errors none.

    python bench/reported_mistakes.py [--set N] [--list] [ID...]     all sets, or these; --list shows what failed
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from agym.cli import main as run_agym

DATA = Path(__file__).resolve().parent / "data"
LIMITS = {"located": 0.97, "suggested": 0.93, "alone": 0.97}
INTERNAL_ERROR = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A recipe with one mistake in it, and what should be said about it."""

    id: str
    trainer: str
    text: str
    key: str
    places: frozenset[tuple[int, int]]
    """Lines and columns, from 1, at which the error may start."""
    echoes: tuple[str, ...]
    """What the message may quote without having suggested anything."""
    help: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one mistake."""

    mistake: Mistake
    errors: list[dict[str, Any]]
    exit_code: int

    @property
    def located(self) -> bool:
        return any(_place(error) in self.mistake.places for error in self.errors)

    @property
    def suggested(self) -> bool:
        at_the_word = [error for error in self.errors if _place(error) in self.mistake.places]
        said = "\n".join(f"{error['message']}\n{error['help'] or ''}" for error in at_the_word or self.errors)
        for echo in self.mistake.echoes:
            said = said.replace(f"'{echo}'", "")
        return any(text.lower() in said.lower() for text in self.mistake.help)

    @property
    def alone(self) -> bool:
        return len(self.errors) == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = find_sets()
    parser.add_argument("ids", nargs="*", metavar="ID")
    parser.add_argument("--set", type=int, action="append", choices=sets, help="only this set; may be repeated")
    parser.add_argument("--list", action="store_true", help="show what failed, and what was said")
    arguments = parser.parse_args()
    chosen = {number: read_mistakes(sets[number]) for number in arguments.set or sets}
    wanted = {
        number: [each for each in mistakes if not arguments.ids or each.id in arguments.ids]
        for number, mistakes in chosen.items()
    }
    if not any(wanted.values()):
        parser.error(f"no mistake is called {' or '.join(arguments.ids)}")
    results = [report_set(number, judge(mistakes), arguments) for number, mistakes in wanted.items() if mistakes]
    return 0 if all(results) else 1


def report_set(number: int, verdicts: Sequence[Verdict], arguments: argparse.Namespace) -> bool:
    """Print the figures of a set, and what failed if that was asked for; whether it is within the limits."""
    print(f"set {number}")
    for verdict in verdicts:
        if arguments.ids or (arguments.list and failures(verdict)):
            print(describe(verdict))
    good = True
    for name, limit in LIMITS.items():
        share = sum(getattr(verdict, name) for verdict in verdicts) / len(verdicts)
        good &= share >= limit
        print(f"{name:10} {share:6.1%} of {len(verdicts)} (at least {limit:.0%})")
    crashed = [verdict.mistake.id for verdict in verdicts if verdict.exit_code == INTERNAL_ERROR]
    print(f"internal errors {len(crashed)} {' '.join(crashed)}".rstrip())
    return good and not crashed


def find_sets() -> dict[int, Path]:
    """The files of mistakes by their numbers; the first has none in its name."""
    names = ((re.fullmatch(r"reported_mistakes(?:_(\d+))?", path.stem), path) for path in DATA.glob("*.yaml"))
    return dict(sorted((int(name[1] or 1), path) for name, path in names if name))


def read_mistakes(path: Path) -> list[Mistake]:
    """All mistakes of a file, as recipes."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    bases = {name: build_base(data["bases"], name) for name in data["bases"]}
    return [build_mistake(bases[entry["base"]], entry) for entry in data["mistakes"]]


def build_base(bases: Mapping[str, Any], name: str) -> str:
    """The text of a base recipe; it may be another one with edits."""
    base = bases[name]
    return base["text"] if "text" in base else edit(build_base(bases, base["of"]), base)[0]


def build_mistake(base: str, entry: Mapping[str, Any]) -> Mistake:
    """The recipe with the edit, and the places of the wrong word in it."""
    text, start, end = edit(base, entry)
    last = re.split(r"[.\[]", entry["at"].rstrip("]"))[-1]
    words = entry.get("word", last)
    words = [words] if isinstance(words, str) else words
    offsets = [at for word in words for at in _find(word, text, start, end) or _find(word, text, 0, len(text))]
    assert offsets, f"{entry['id']}: {words} is not in the recipe"
    return Mistake(
        id=entry["id"],
        trainer=entry["from"].partition("#")[0],
        text=text,
        key=entry["at"],
        places=frozenset((text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)) for at in offsets),
        echoes=(entry["at"], last, *words),
        help=tuple(entry["help"]),
    )


def edit(text: str, entry: Mapping[str, Any]) -> tuple[str, int, int]:
    """The text after the edits of an entry, and from where to where the last of them reaches."""
    start = end = 0
    for old, new in entry.get("swap", {}).items():
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        start = text.index(old)
        end = start + len(new)
        text = text.replace(old, new)
    for path, lines in entry.get("add", {}).items():
        at, indent = _below(text, path)
        block = "".join(f"{indent}{line}\n" for line in lines.splitlines())
        text, start, end = text[:at] + block + text[at:], at, at + len(block)
    return text, start, end


def judge(mistakes: Sequence[Mistake]) -> list[Verdict]:
    """Validate all recipes in one call, or one by one if that ends in an internal error."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for mistake in mistakes:
            paths.append(Path(folder) / f"{mistake.id}.yaml")
            paths[-1].write_text(mistake.text, encoding="utf-8")
        code, found = validate(paths)
        if code == INTERNAL_ERROR:
            return [_verdict(mistake, path, *validate([path])) for mistake, path in zip(mistakes, paths, strict=True)]
        return [_verdict(mistake, path, code, found) for mistake, path in zip(mistakes, paths, strict=True)]


def validate(paths: Sequence[Path]) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """What `agym validate` returns and finds, by the name of the file."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = run_agym(["validate", "--format", "json", *map(str, paths)])
    if code == INTERNAL_ERROR:
        return code, {}
    return code, {Path(each["path"]).name: each["diagnostics"] for each in json.loads(out.getvalue())["recipes"]}


def failures(verdict: Verdict) -> list[str]:
    """What is not as it should be."""
    return [name for name in LIMITS if not getattr(verdict, name)]


def describe(verdict: Verdict) -> str:
    """The mistake, what failed, and each error that was reported."""
    mistake = verdict.mistake
    lines = [f"{mistake.id}: not {', '.join(failures(verdict))}; expected at {_places(mistake)}: {mistake.help}"]
    lines += [f"    {_place(error)} {error['code']}: {error['message']}; {error['help']}" for error in verdict.errors]
    return "\n".join(lines)


def _verdict(mistake: Mistake, path: Path, code: int, found: Mapping[str, list[dict[str, Any]]]) -> Verdict:
    errors = [each for each in found.get(path.name, []) if each["severity"] == "error"]
    return Verdict(mistake=mistake, errors=errors, exit_code=code)


def _places(mistake: Mistake) -> str:
    return " or ".join(map(str, sorted(mistake.places)))


def _place(error: Mapping[str, Any]) -> tuple[int, int]:
    return error["line"], error["column"]


def _below(text: str, path: str) -> tuple[int, str]:
    """Where the first key below the key at a dotted path stands, and its indentation; the end for the top level."""
    if not path:
        return len(text), ""
    at = 0
    for depth, name in enumerate(path.split(".")):
        match = re.compile(rf"^{'  ' * depth}{re.escape(name)}:.*\n", re.MULTILINE).search(text, at)
        assert match, f"{path} is not in the recipe"
        at = match.end()
    return at, "  " * (path.count(".") + 1)


def _find(word: str, text: str, start: int, end: int) -> list[int]:
    """Where a word stands alone."""
    before = r"(?<![\w.-])" if word[0].isalnum() else ""
    after = r"(?![\w-])" if word[-1].isalnum() else ""
    return [match.start() for match in re.compile(before + re.escape(word) + after).finditer(text, start, end)]


if __name__ == "__main__":
    sys.exit(main())
