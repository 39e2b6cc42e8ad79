"""Make a corpus out of packaged documentation, or an index of a corpus of your own.

    python -m agym.envs.search.build FOLDER            # Debian's packages, got by apt and unpacked, never installed
    python -m agym.envs.search.build FOLDER --index    # the passages that are there already

Writes `FOLDER/NAME.jsonl`, the passages of each package; `FOLDER/packages.json`, their versions, and what was missing
and why; and an index of all. The same packages give the same files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .corpora import INDEX
from .corpus.documents import Document, read_dictionary, read_html, read_manual, read_plain
from .corpus.index import LocalIndex
from .corpus.passages import Passage, cut_passages, read_folder
from .wordnet import make_passages, read_database

__all__ = ["PACKAGES", "Missing", "Package", "build_corpus", "main"]

MANIFEST = "packages.json"
_APT_S = 600
_SHORTEST = 40
"""Characters of a document; one with less says nothing."""


class Missing(Exception):
    """A package that is not available, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Documentation that Debian packages."""

    name: str
    files: str
    """Pattern of the files in it that are read."""
    read: Callable[[Path], Iterator[Document]] | None
    """A file's documents, which are then cut; None for WordNet, whose database has passages of its own."""


PACKAGES = (
    Package(name="wordnet-base", files="usr/share/wordnet/data.noun", read=None),
    Package(name="dict-gcide", files="usr/share/dictd/*.index", read=read_dictionary),
    Package(name="dict-foldoc", files="usr/share/dictd/*.index", read=read_dictionary),
    Package(name="python3-doc", files="usr/share/doc/python3*/html/**/*.html", read=read_html),
    Package(name="git-doc", files="usr/share/doc/git-doc/**/*.txt", read=read_plain),
    Package(name="debian-handbook", files="usr/share/doc/debian-handbook/html/en-US/*.html", read=read_html),
    Package(name="debian-reference-en", files="usr/share/debian-reference/*.en.html", read=read_html),
    Package(name="manpages", files="usr/share/man/man*/*.gz", read=read_manual),
    Package(name="manpages-dev", files="usr/share/man/man*/*.gz", read=read_manual),
    Package(name="sqlite3-doc", files="usr/share/doc/sqlite3/**/*.html", read=read_html),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="agym.envs.search.build", description="Make a corpus, and index it.")
    parser.add_argument("folder", type=Path, help="where the corpus is, or is to be")
    parser.add_argument("--index", action="store_true", help="only index what is there")
    parser.add_argument("--packages", nargs="+", metavar="NAME", choices=[each.name for each in PACKAGES])
    args = parser.parse_args(argv)
    chosen = [each for each in PACKAGES if args.packages is None or each.name in args.packages]
    missing = {} if args.index else build_corpus(args.folder, chosen)
    print(f"{_index(args.folder)} passages in {args.folder}")
    for name, why in missing.items():
        print(f"missing: {name}: {why}", file=sys.stderr)
    return 1 if missing else 0


def build_corpus(folder: Path, packages: Sequence[Package]) -> dict[str, str]:
    """Write every package's passages to a file of its own; return those that are missing, with the reason."""
    folder.mkdir(parents=True, exist_ok=True)
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    for package in packages:
        try:
            versions[package.name] = _fetch(package, folder / ".packages")
            _write(folder / f"{package.name}.jsonl", _passages(package, folder / ".packages" / package.name))
        except Missing as why:
            missing[package.name] = str(why)
    manifest = {"packages": versions, "missing": missing}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", "utf-8")
    return missing


def _index(folder: Path) -> int:
    shutil.rmtree(folder / INDEX, ignore_errors=True)
    return LocalIndex.build(read_folder(folder), folder / INDEX).num_passages


# --- getting packages ---


def _fetch(package: Package, cache: Path) -> str:
    """Download and unpack a package once; return its version."""
    inside = cache / package.name
    names = _real_names(package.name)
    for name in names:
        done = list(cache.glob(f"{name}_*.deb"))
        if not done:
            cache.mkdir(parents=True, exist_ok=True)
            _call(["apt-get", "download", name], cache)
            done = list(cache.glob(f"{name}_*.deb"))
        _call(["dpkg", "-x", str(done[0].resolve()), str(inside.resolve())], cache)
    return ", ".join(file.stem for name in names for file in cache.glob(f"{name}_*.deb"))


def _real_names(name: str) -> list[str]:
    """The package, and those of one version that it stands for: python3-doc for python3.11-doc."""
    printed = _call(["apt-cache", "depends", "--important", name], Path())
    words = [line.split() for line in printed.splitlines()]
    stem = name.partition("-")[0]
    return [
        name,
        *(word[-1] for word in words if len(word) == 2 and word[1].startswith(f"{stem}.") and "-doc" in word[1]),
    ]


def _call(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_APT_S)
    except FileNotFoundError:
        raise Missing(f"there is no {command[0]} here") from None
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took more than {_APT_S} s") from None
    if done.returncode:
        raise Missing((done.stderr or done.stdout).strip().splitlines()[0][:200])
    return done.stdout


# --- reading them ---


def _passages(package: Package, inside: Path) -> Iterator[Passage]:
    files = sorted(file for file in inside.glob(package.files) if file.is_file())
    if not files:
        raise Missing(f"it holds no {package.files}")
    if package.read is None:
        yield from make_passages(read_database(files[0].parent))
        return
    for file in files:
        for number, (title, text) in enumerate(package.read(file)):
            if len(text) >= _SHORTEST:
                yield from cut_passages(title, text, f"{package.name}/{file.relative_to(inside).as_posix()}#{number}")


def _write(file: Path, found: Iterator[Passage]) -> None:
    with file.open("w", encoding="utf-8") as lines:
        for each in found:
            row = {"title": each.title, "text": each.text, "document": each.document}
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
