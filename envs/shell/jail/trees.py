"""Folders as bytes and back: what is in them with modes, times and links, in order of their paths."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

__all__ = ["CLOCK", "encode_files", "pack_tree", "read_entry", "unpack_tree"]

CLOCK = 1_936_872_000
"""Time of every file at the start: 2031-05-18 12:00 UTC."""


def encode_files(files: Mapping[str, str | bytes]) -> bytes:
    """Pack files with these contents; one that begins with `#!` is a program."""
    entries = []
    for path in sorted(files):
        content = files[path]
        data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        mode = 0o755 if data.startswith(b"#!") else 0o644
        entries.append({"path": path, "kind": "file", "mode": mode, "time": CLOCK, "data": _to_text(data)})
    return json.dumps(entries).encode()


def read_entry(entry: Mapping[str, Any]) -> bytes:
    """Return what a packed file holds."""
    return base64.b64decode(entry["data"])


def pack_tree(root: str, limit: int) -> bytes:
    """Pack what a folder holds; ValueError where its files have more than `limit` bytes together."""
    entries, left = list[dict[str, Any]](), limit
    for entry in _walk(root):
        entries.append(entry)
        left -= len(entry.get("data", ""))
        if left < 0:
            raise ValueError(f"it holds more than {limit} bytes")
    return json.dumps(entries).encode()


def _walk(root: str) -> Iterator[dict[str, Any]]:
    """Describe what a folder holds; what cannot be read, or is not a file, folder or link, is left out."""
    folders = [""]
    while folders:
        below, inner = folders.pop(), list[str]()
        for path in _list(root, below):
            with suppress(OSError):
                entry = _describe(os.path.join(root, path), path)
                inner += [path] if entry["kind"] == "folder" else []
                yield entry
        folders += reversed(inner)


def _list(root: str, below: str) -> list[str]:
    try:
        return [os.path.join(below, name) for name in sorted(os.listdir(os.path.join(root, below)))]
    except OSError:
        return []


def _describe(full: str, path: str) -> dict[str, Any]:
    state = os.lstat(full)
    entry: dict[str, Any] = {"path": path, "mode": stat.S_IMODE(state.st_mode) & 0o777, "time": int(state.st_mtime)}
    if stat.S_ISLNK(state.st_mode):
        return {**entry, "kind": "link", "data": os.readlink(full)}
    if stat.S_ISDIR(state.st_mode):
        return {**entry, "kind": "folder"}
    if not stat.S_ISREG(state.st_mode):
        raise OSError("neither file, folder nor link")
    with open(full, "rb") as file:
        return {**entry, "kind": "file", "data": _to_text(file.read())}


def unpack_tree(root: str, packed: bytes) -> None:
    """Write what was packed below a folder; what is there already is replaced."""
    entries = json.loads(packed)
    for entry in entries:
        full = os.path.join(root, entry["path"])
        os.makedirs(os.path.dirname(full) or "/", exist_ok=True)
        _WRITERS[entry["kind"]](full, entry)
    # last and from the innermost: a folder may be closed to writing, and its time changes with what it holds
    for entry in reversed(entries):
        if entry["kind"] != "link":
            full = os.path.join(root, entry["path"])
            os.chmod(full, entry["mode"])
            os.utime(full, (entry["time"], entry["time"]))


def _write_file(full: str, entry: Mapping[str, Any]) -> None:
    with suppress(FileNotFoundError):
        os.unlink(full)
    with open(full, "xb") as file:
        file.write(read_entry(entry))


def _make_folder(full: str, entry: Mapping[str, Any]) -> None:
    os.makedirs(full, exist_ok=True)


def _make_link(full: str, entry: Mapping[str, Any]) -> None:
    os.symlink(entry["data"], full)


_WRITERS = {"file": _write_file, "folder": _make_folder, "link": _make_link}


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()
