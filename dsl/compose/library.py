"""Access to files: resolves `extends` and other references in a recipe.

The rules about paths are here and pure; only reading itself is left to implementations of Library.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from ..diagnostics import Diagnostic
from ..frozen import frozen
from ..source import Source, Span
from ..suggest import find_nearest, quote

__all__ = [
    "SUFFIXES",
    "FileKind",
    "Found",
    "Library",
    "Refusal",
    "Trouble",
    "explain_refusal",
    "is_inside",
    "list_candidates",
]


class Trouble(StrEnum):
    """Why a reference cannot be read."""

    MISSING = "missing"
    FOLDER = "folder"
    URL = "url"
    ABSOLUTE = "absolute"
    OUTSIDE = "outside"
    UNREADABLE = "unreadable"
    BAD_NAME = "bad-name"


class FileKind(StrEnum):
    """What a path leads to."""

    FILE = "file"
    FOLDER = "folder"


@frozen
class Found:
    """A file that was read."""

    name: str
    """What a person sees: a path like the one they wrote, or the name of a shipped recipe."""
    key: str
    """The same for the same file, however it was referred to."""
    data: bytes


@frozen
class Refusal:
    """A reference that was not read."""

    trouble: Trouble
    detail: str = ""
    """What the system said."""
    known: tuple[str, ...] = ()
    """Names that would have been found."""


class Library(Protocol):
    """A source of recipes and the texts they refer to."""

    def read(self, reference: str, base: Source | None) -> Found | Refusal:
        """Read `reference` as written in `base`; None for one from the command line, which may lead anywhere."""
        ...

    def find(self, path: str, base: Source) -> FileKind | None:
        """What is at a path that a recipe names, relative to the folder of `base`; None if nothing is."""
        ...

    def folder(self, source: Source) -> str:
        """The folder to which the paths in a source are relative; absolute, or all relative to one place."""
        ...


URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
SUFFIXES = (".yaml", ".yml")


def list_candidates(reference: str, folder: str, project: str) -> tuple[str, ...] | Trouble:
    """List the paths where a reference may be, best first; none of them outside `project`.

    Paths are absolute or all relative to one place, with '/'. `folder` is that of the referring file.
    """
    trouble = _not_a_path(reference)
    if trouble is not None:
        return trouble
    path = posixpath.normpath(posixpath.join(folder, reference))
    if not is_inside(path, project):
        return Trouble.OUTSIDE
    has_suffix = posixpath.splitext(path)[1] in SUFFIXES
    return (path,) if has_suffix else (path, *(path + suffix for suffix in SUFFIXES))


def _not_a_path(reference: str) -> Trouble | None:
    if not reference.strip() or CONTROL.search(reference) or len(reference) > 1000:
        return Trouble.BAD_NAME
    if URL.match(reference):
        return Trouble.URL
    is_absolute = reference.startswith(("/", "~")) or DRIVE.match(reference)
    return Trouble.ABSOLUTE if is_absolute else None


def is_inside(path: str, project: str) -> bool:
    """Whether a path is a folder or below it."""
    project = posixpath.normpath(project)
    if project == ".":
        return not path.startswith(("../", "/")) and path != ".."
    return path == project or path.startswith(project.rstrip("/") + "/")


WORDS: Mapping[Trouble, tuple[str, str]] = {
    Trouble.MISSING: ("no file or shipped recipe {what}", "paths are relative to the folder of this file"),
    Trouble.FOLDER: ("{what} is a folder, expected a file", "name a file in it"),
    Trouble.URL: ("{what} is a URL, and recipes are never fetched", "save a copy next to this file and name that"),
    Trouble.ABSOLUTE: (
        "{what} is an absolute path, which differs from machine to machine",
        "write a path relative to the folder of this file",
    ),
    Trouble.OUTSIDE: (
        "{what} is outside the project",
        "the project is the nearest folder above the recipe with .git or pyproject.toml, else its own folder",
    ),
    Trouble.UNREADABLE: ("{what} cannot be read", "check its permissions"),
    Trouble.BAD_NAME: ("{what} is not a file name", "write a path like base.yaml"),
}
"""Message and help; `{what}` is the reference."""


def explain_refusal(refusal: Refusal, reference: str, span: Span, advice: str | None = None) -> Diagnostic:
    """Make the diagnostic of a refused reference; `advice` replaces the default help."""
    message, default = WORDS[refusal.trouble]
    missing = refusal.trouble is Trouble.MISSING
    near = find_nearest(reference, refusal.known) if missing else None
    detail = f": {refusal.detail}" if refusal.detail else ""
    return Diagnostic(
        code="file-not-found" if missing else "file-refused",
        message=message.format(what=quote(reference)) + detail,
        span=span,
        help=f"did you mean '{near}'?" if near else advice or default,
    )
