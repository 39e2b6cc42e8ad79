"""Claim: one key of a shipped recipe may be set to anything: the result is a plan, or an error at what was set.

For every shipped recipe: every `algorithm.use`, each flag flipped, and null for each key, by `--set` and as an axis of
a matrix. All in one process; what was done is kept in a file, and skipped the next time.

    python bench/ablations.py [--done build/ablations.tsv] [--share 1/10]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from agym.catalog import catalog
from agym.dsl.catalog import Catalog
from agym.dsl.compile import Compiled, compile_recipe
from agym.dsl.diagnostics import Diagnostic, Severity
from agym.dsl.model.algorithm import Preset
from agym.dsl.model.recipe import Recipe
from agym.dsl.model.reflect import Flag, Record, Series, Table, Type, record
from agym.files import DiskLibrary, is_base, shipped_names

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Ablation:
    """One key of one recipe, set to one value."""

    recipe: str
    key: str
    value: str
    matrix: bool

    @property
    def setting(self) -> str:
        return f"matrix.{self.key}=[{self.value}]" if self.matrix else f"{self.key}={self.value}"

    @property
    def name(self) -> str:
        return f"{self.recipe}\t{self.setting}"


def ablations(names: Iterator[str] | None = None) -> Iterator[Ablation]:
    for name in names or (each for each in shipped_names() if not is_base(f"{each}.yaml")):
        recipe = compiled(name).variants[0].recipe
        swept = {key for each in compiled(name).variants for key, _ in each.choices}
        for key, value in changes(recipe):
            if not any(key == axis or key.startswith(f"{axis}.") or axis.startswith(f"{key}.") for axis in swept):
                yield from (Ablation(name, key, value, matrix) for matrix in (False, True))


def changes(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Each key with the values that it is set to."""
    yield from (("algorithm.use", str(preset)) for preset in Preset)
    yield from _changes(recipe, record(Recipe), "")


def _changes(value: Any, type_: Type, at: str) -> Iterator[tuple[str, str]]:
    match type_:
        case Record():
            for name, field in type_.fields.items():
                key = f"{at}.{name}" if at else name
                yield key, "null"
                inner = getattr(value, name)
                if inner is not None:
                    yield from _changes(inner, field.type, key)
        case Table():
            for name, item in value.items():
                yield f"{at}.{name}", "null"
                yield from _changes(item, type_.item, f"{at}.{name}")
        case Series() if isinstance(type_.item, Record):
            for index, item in enumerate(value):
                yield from _changes(item, type_.item, f"{at}[{index}]")
        case Flag():
            yield at, str(not value).lower()


@cache
def shared() -> tuple[DiskLibrary, Catalog]:
    return DiskLibrary(ROOT), catalog()


def compiled(name: str, *settings: str) -> Compiled:
    library, known = shared()
    source = library.open(name)
    assert not isinstance(source, Diagnostic), source
    return compile_recipe(source, library, settings, {}, known)


def judge(ablation: Ablation) -> str | None:
    """What is wrong with how an ablation is answered; None if nothing is."""
    try:
        made = compiled(ablation.recipe, ablation.setting)
        plans = [variant.draft for variant in made.variants]
    except Exception as error:  # what a user would see as exit code 70
        return f"{type(error).__name__}: {error}"
    errors = [each for each in made.diagnostics if each.severity is Severity.ERROR]
    elsewhere = next((each for each in errors if not each.span.source.name.startswith("--set")), None)
    if elsewhere:
        return f"{elsewhere.message} at {elsewhere.span}"
    return None if plans or errors else "neither a plan nor an error"


def chosen(every: Iterator[Ablation], share: tuple[int, int]) -> Iterator[Ablation]:
    """A fixed share of all, the same on every machine."""
    part, parts = share
    return (each for each in every if crc32(each.name.encode()) % parts < part)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--done", type=Path, default=ROOT / "build" / "ablations.tsv", help="what was judged before")
    parser.add_argument("--share", default="1/1", help="such as 1/10 for a fixed tenth")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.share.split("/"))
    before: Mapping[str, str] = read(arguments.done)
    arguments.done.parent.mkdir(parents=True, exist_ok=True)
    right = wrong = 0
    with arguments.done.open("a", encoding="utf-8") as file:
        for each in chosen(ablations(), (part, parts)):
            if before.get(each.name) != "":
                answer = judge(each)
                file.write(f"{each.name}\t{answer or ''}\n")
                if answer:
                    print(f"{each.name.replace(chr(9), '  ')}: {answer}", flush=True)
                wrong, right = wrong + bool(answer), right + (not answer)
            else:
                right += 1
    print(f"{right + wrong:,} ablations, {wrong} answered wrongly  limit 0")
    return 1 if wrong else 0


def read(file: Path) -> Mapping[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {"\t".join(parts[:2]): "\t".join(parts[2:]) for parts in (line.split("\t") for line in lines)}


if __name__ == "__main__":
    sys.exit(main())
