"""`agym new NAME [--from RECIPE]`: a copy of a recipe that works, under a new name."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..dsl.check.paths import list_references
from ..dsl.compile import Compiled
from ..dsl.diagnostics import Diagnostic
from ..dsl.source import Source, Span
from ..dsl.text.node import get_entry
from ..dsl.text.tree import parse_tree
from ..files import STDIN, write_atomically
from .invocation.compiling import build_compiler
from .invocation.shell import Exit, Shell, UsageError, WrongRecipe
from .recipes import read_header
from .schema import schema_path

__all__ = ["add_arguments", "run"]

SUFFIX = ".yaml"
SCHEMA = "recipe.v1.json"
"""Written next to the recipe, so that its first line leads to it on every machine."""
SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
HEADER = re.compile(r"(?:#.*\n|[ \t]*\n)*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the run; NAME.yaml is written")
    parser.add_argument(
        "--from", dest="origin", default="quickstart", metavar="RECIPE", help="the recipe to copy (default: quickstart)"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    file = shell.cwd / (arguments.name.removesuffix(SUFFIX) + SUFFIX)
    name = _checked_name(file)
    compiler = build_compiler(shell)
    origin = compiler.open(arguments.origin)
    if isinstance(origin, Diagnostic):
        compiler.refuse(arguments.origin, compiler.compile(origin))
    relative = os.path.relpath(file, shell.cwd)
    copied = _list_files(compiler.compile(origin), origin, Path(compiler.library.folder(origin)))
    made = Source(relative, _rewrite(_with_own_files(origin, copied), name, relative), key=str(file))
    try:
        compiler.runs(relative, made, on_disk=False)
    except WrongRecipe:
        shell.err.write(f"agym new: '{arguments.origin}' cannot be copied to {relative}; nothing was written\n")
        raise
    _write(file, made.text, arguments.force)
    write_atomically(file.parent / SCHEMA, schema_path("recipe").read_text(encoding="utf-8"), replace=True)
    for path in dict.fromkeys(copied.values()):
        _copy(path, file.parent / path.name, arguments.force)
    copies = "".join(f" and {path.name}" for path in dict.fromkeys(copied.values()))
    shell.out.write(f"wrote {relative}{copies}; next: agym plan {relative}\n")
    return Exit.RIGHT


def _list_files(compiled: Compiled, origin: Source, folder: Path) -> dict[Span, Path]:
    """The files next to a recipe that it names itself, by the place of each name."""
    found: dict[Span, Path] = {}
    for run in compiled.variants:
        for path, value, refers in list_references(run.recipe):
            file, span = folder / value, run.bound.places.value(*path)
            is_path = not refers.hub or value.startswith(("./", "../"))
            if span.source is origin and is_path and not value.startswith(("/", "~")) and file.is_file():
                found[span] = file
    return found


def _with_own_files(origin: Source, files: Mapping[Span, Path]) -> Source:
    """The recipe with the names of the files next to it."""
    text = origin.text
    for span in sorted(files, key=lambda span: -span.start):
        # a word of a command is a path by how it begins
        here = "./" if text[span.start : span.end].startswith(("./", "../")) else ""
        text = text[: span.start] + here + files[span].name + text[span.end :]
    return replace(origin, text=text)


def _copy(file: Path, to: Path, force: bool) -> None:
    text = file.read_text(encoding="utf-8")
    if not (to.exists() and to.read_text(encoding="utf-8") == text):
        _write(to, text, force)


def _checked_name(file: Path) -> str:
    if not SLUG.fullmatch(file.stem) or file.stem == STDIN:
        raise UsageError(
            f"'{file.stem[:40]}' is not a name for a run: use lower-case letters, digits, '.', '_' and '-'"
        )
    if not file.parent.is_dir():
        raise UsageError(f"the folder {file.parent} is not there")
    return file.stem


def _rewrite(origin: Source, name: str, file: str) -> str:
    """The recipe under its new name, with a new header."""
    found = read_header(origin.text)
    lines = [
        f"# yaml-language-server: $schema={SCHEMA}",
        f"# Purpose: {found.get('purpose', 'what this run is for')}",
        *([f"# Cost:    {found['cost']}"] if "cost" in found else []),
        f"# Command: agym run {file}",
    ]
    renamed = _rename(origin, name)
    match = HEADER.match(renamed)
    return "\n".join(lines) + "\n" + renamed[match.end() if match else 0 :]


def _rename(origin: Source, name: str) -> str:
    root = parse_tree(origin).root
    own, version = get_entry(root, "name"), get_entry(root, "agym")
    if own is not None:
        return origin.text[: own.value.span.start] + name + origin.text[own.value.span.end :]
    if version is None:
        return origin.text
    end = version.value.span.end
    return f"{origin.text[:end]}\nname: {name}{origin.text[end:]}"


def _write(file: Path, text: str, force: bool) -> None:
    try:
        write_atomically(file, text, replace=force)
    except FileExistsError:
        raise UsageError(f"{file.name} is there already; --force replaces it") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {(error.strerror or str(error)).lower()}") from error
