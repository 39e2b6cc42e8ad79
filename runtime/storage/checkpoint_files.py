"""The files of a checkpoint, sealed by a list with their sizes and checksums, and checked against it.

The list holds a checksum of itself. Checkpoints of version 0.1.0 have none; their files are only checked to parse.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

__all__ = ["FORMAT", "SEAL", "find_damage", "hash_files", "read_seal", "safetensors_problem", "seal_files"]

FORMAT = 2
"""Of run folders; version 0.1.0 wrote none, which is 1."""
SEAL = "checkpoint.json"
_HASH_THREADS = 8
_WORTH_THREADS = 256 * 2**20
"""Bytes."""
_MAX_HEADER = 100 * 2**20
"""Bytes of a safetensors header; the library's own limit."""


# --- sealing -------------------------------------------------------------------------------------------------------


def seal_files(folder: Path, facts: Mapping[str, Any], known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """List all files of a folder with their sizes and checksums, along with some facts; return the list. `known` are
    files whose entries are known."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    fresh = [name for name in found if name != SEAL and name not in (known or {})]
    files = {**(known or {}), **hash_files([found[name] for name in fresh], fresh)}
    sealed = {"format": FORMAT, **facts, "files": files}
    (folder / SEAL).write_bytes(_dump({**sealed, "seal": _digest(sealed)}))
    return files


def hash_files(paths: list[Path], names: list[str]) -> dict[str, Any]:
    """Sizes and checksums of files, by their names; each is read once."""
    sizes = [path.stat().st_size for path in paths]
    # a thread started by a process short of memory may never run, and is waited for: so none unless one is needed
    if sum(sizes) < _WORTH_THREADS:
        digests = [_file_digest(path) for path in paths]
    else:
        with ThreadPoolExecutor(min(_HASH_THREADS, os.cpu_count() or 1)) as pool:
            digests = list(pool.map(_file_digest, paths))
    entries = ({"bytes": size, "sha256": each} for size, each in zip(sizes, digests, strict=True))
    return dict(zip(names, entries, strict=True))


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(sealed: Mapping[str, Any]) -> str:
    return hashlib.sha256(_dump(sealed)).hexdigest()


def _dump(sealed: Mapping[str, Any]) -> bytes:
    return json.dumps(sealed, indent=1, sort_keys=True).encode() + b"\n"


# --- checking ------------------------------------------------------------------------------------------------------


def read_seal(folder: Path) -> dict[str, Any]:
    """The list of a folder's files; ValueError where it is not as it was written."""
    path = folder / SEAL
    if path.is_symlink():
        raise ValueError(f"{SEAL}: is a link")
    try:
        data = path.read_bytes()
        sealed: dict[str, Any] = json.loads(data)
        digest = sealed.pop("seal")
        intact = data == _dump({**sealed, "seal": digest}) and digest == _digest(sealed)
    except OSError as error:
        raise ValueError(f"{SEAL}: {error.strerror}") from error
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"{SEAL}: {_json_problem(data)}") from error
    if not intact or not isinstance(sealed.get("files"), dict):
        raise ValueError(f"{SEAL}: differs from its checksum")
    if sealed.get("format") != FORMAT:
        raise ValueError(f"{SEAL}: is of format {sealed.get('format')}, this version reads {FORMAT}: use a newer agym")
    return sealed


def find_damage(
    folder: Path, step: int | None = None, *, unsealed: bool = False, without: tuple[str, ...] = ()
) -> str | None:
    """What is wrong with a checkpoint, or with another folder of files that was sealed; None where all is as it was
    written. Of an `unsealed` one, which version 0.1.0 wrote, only what cannot be read is found. Files below `without`
    are left out."""
    if not folder.is_dir() or folder.is_symlink():
        return "is not a folder"
    try:
        if unsealed:
            return next(_look_into(folder), None)
        sealed = read_seal(folder)
    except ValueError as error:
        return str(error)
    except OSError as error:
        return f"'{error.filename}': {error.strerror}"
    if step is not None and (sealed.get("step"), sealed.get("of", "checkpoint")) != (step, "checkpoint"):
        return f"{SEAL}: is that of a {sealed.get('of', 'checkpoint')} of step {sealed.get('step')}"
    files = {name: each for name, each in sealed["files"].items() if not name.startswith(without)}
    try:
        return next(_differences(folder, files), None)
    except OSError as error:
        # it may be deleted by the run while it is read
        return f"'{error.filename}': {error.strerror}"


def _differences(folder: Path, files: Mapping[str, Any]) -> Iterator[str]:
    paths, root = {name: folder / name for name in files}, folder.resolve()
    for name, path in paths.items():
        entry = files[name]
        # neither a link nor a name with '..' leads out of the folder
        if path.resolve() != root / name:
            yield f"{name}: is a link, or leads out of the folder"
        elif not path.is_file():
            yield f"{name}: is missing"
        elif not isinstance(entry, dict) or path.stat().st_size != entry.get("bytes"):
            yield f"{name}: has {path.stat().st_size} bytes, expected {dict(entry).get('bytes')}"
    for name, entry in hash_files(list(paths.values()), list(paths)).items():
        if entry["sha256"] != files[name].get("sha256"):
            yield f"{name}: {_content_problem(paths[name]) or 'differs from its checksum'}"


# --- what kind of damage -------------------------------------------------------------------------------------------


def _look_into(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        # a list is skipped: these files were written before there was one, so its damage is not theirs
        if path.is_file() and path.name != SEAL and (problem := _content_problem(path)):
            yield f"{path.relative_to(folder).as_posix()}: {problem}"


def _content_problem(path: Path) -> str | None:
    """What is wrong with a file, judging by its kind alone."""
    if path.suffix == ".json":
        return _json_problem(path.read_bytes())
    if path.suffix == ".safetensors":
        return safetensors_problem(path)
    if path.suffix in (".pt", ".npz"):
        return _zip_problem(path)
    return None


def _json_problem(data: bytes) -> str | None:
    try:
        json.loads(data)
    except RecursionError:
        return "is not JSON"
    except ValueError:
        return "is empty" if not data else "is no JSON: it is cut, or holds something else"
    return None


def _zip_problem(path: Path) -> str | None:
    try:
        with ZipFile(path) as file:
            broken = file.testzip()
    except (OSError, BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        return f"cannot be read: {error}"
    return broken and f"'{broken}' in it differs from its checksum"


def safetensors_problem(path: Path) -> str | None:
    """What is wrong with the header of a safetensors file, or with the length of its data."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_MAX_HEADER, size - 8):
            return "is not safetensors: it is cut, or its header is damaged"
        text = file.read(length)
    try:
        header = json.loads(text)
        ends = [int(each["data_offsets"][1]) for name, each in header.items() if name != "__metadata__"]
    except (ValueError, AttributeError, KeyError, IndexError, TypeError, RecursionError):
        return "is not safetensors: its header is damaged"
    if max(ends, default=0) != size - 8 - length:
        return f"has {size} bytes, its header speaks of {8 + length + max(ends, default=0)}"
    return None
