"""Files of a task that a stranger may have written: plain ones, below its folder, and not too much of them."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["HISTORY", "NeedsImage", "read_files", "read_text"]

_MOST_FILES = 2000
_MOST_BYTES = 16 << 20
_LONGEST_TEXT = 1 << 18
_DEEPEST = 50
_CACHES = ("__pycache__", ".pytest_cache", ".DS_Store")
HISTORY = ".git"


class NeedsImage(Exception):
    """Why a task cannot be played here, in words that follow its name."""


def read_files(folder: Path, path: str, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    """A file, as the one entry with an empty name, or the files below a folder by their paths in it; caches, and what
    is named in `without`, are left out."""
    relative = posixpath.normpath(path.removeprefix("/"))
    if relative.startswith("..") or posixpath.isabs(relative):
        raise NeedsImage(f"{path[:60]} leads out of its folder")
    if any(part in relative for part in "*?["):
        raise NeedsImage(f"it copies {path[:60]}")
    place = _find(folder, relative)
    if not place.is_dir():
        return {"": _read(place, folder)}
    return _bounded(_walk(place, folder, (*_CACHES, *without), _DEEPEST))


def read_text(folder: Path, path: str) -> str:
    """A text that a task needs."""
    data = _read(_find(folder, path), folder, _LONGEST_TEXT)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NeedsImage(f"{path} is no text in UTF-8") from error


def _find(folder: Path, relative: str) -> Path:
    """Where a path leads, none of its parts being a link."""
    place = folder
    for part in () if relative == "." else relative.split("/"):
        place /= part
        _refuse_link(place, folder)
    return place


def _walk(place: Path, folder: Path, without: tuple[str, ...], levels: int) -> Iterator[tuple[str, bytes]]:
    """Files, and, so that they count too, folders, whose paths end with a slash."""
    if not levels:
        raise NeedsImage(f"its folders are more than {_DEEPEST} levels deep")
    for name in sorted(os.listdir(place)):
        entry = place / name
        if name in without:
            continue
        if name == HISTORY:
            raise NeedsImage(f"{entry.relative_to(folder)} is the history of a repository")
        _refuse_link(entry, folder)
        if entry.is_dir():
            yield f"{name}/", b""
            for path, data in _walk(entry, folder, without, levels - 1):
                yield f"{name}/{path}", data
        else:
            yield name, _read(entry, folder)


def _bounded(entries: Iterator[tuple[str, bytes]]) -> dict[str, bytes]:
    found, left = dict[str, bytes](), _MOST_BYTES
    for path, data in entries:
        found[path] = data
        left -= len(data)
        if left < 0 or len(found) > _MOST_FILES:
            raise NeedsImage(f"it has more than {_MOST_FILES} files and folders or {_MOST_BYTES >> 20} MiB")
    return {path: data for path, data in found.items() if not path.endswith("/")}


def _refuse_link(place: Path, folder: Path) -> None:
    try:
        mode = os.lstat(place).st_mode
    except (OSError, ValueError) as error:
        raise NeedsImage(f"{place.name[:60]} is missing") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise NeedsImage(f"{place.relative_to(folder)} is neither a file nor a folder")


def _read(file: Path, folder: Path, most: int = _MOST_BYTES) -> bytes:
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            data = opened.read(most + 1)
    except OSError as error:
        raise NeedsImage(f"{file.relative_to(folder)} cannot be read: {error.strerror}") from error
    if len(data) > most:
        raise NeedsImage(f"{file.relative_to(folder)} is larger than {most} bytes")
    return data
