"""The run folder: made, locked, written atomically, found again.

Enters: a plan's canonical text and what is to be kept. Leaves: files that are whole or not there.

    <output>/<name>/recipe.yaml plan.json manifest.json metrics.jsonl episodes/ checkpoints/step-N/ logs/
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["CHECKPOINTS", "FolderError", "Metrics", "Workspace", "write_atomically"]

CHECKPOINTS = "checkpoints"
_STEP = "step-"
_UNFINISHED = ".unfinished-"
_REPLACED = ".replaced-"


class FolderError(Exception):
    """The folder cannot be used: in use, taken, or of another plan."""


class Workspace:
    """One run's folder, held by this process alone until closed."""

    def __init__(self, root: Path, lock: int) -> None:
        self.root = root
        self._lock = lock

    @classmethod
    def start(cls, root: Path, plan: str, recipe: str, *, fresh: bool = False) -> Workspace:
        """A new folder; what a folder of that name held is moved aside under `fresh`, never deleted."""
        if root.exists() and any(root.iterdir()):
            if not fresh:
                raise FolderError(f"'{root}' holds a run already: resume it with --resume, or start anew with --fresh")
            os.close(_lock(root))
            _move_aside(root)
        (root / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        for name in ("episodes", "logs"):
            (root / name).mkdir(exist_ok=True)
        space = cls(root, _lock(root))
        write_atomically(root / "recipe.yaml", recipe)
        write_atomically(root / "plan.json", plan)
        return space

    @classmethod
    def resume(cls, root: Path, plan: str | None = None) -> Workspace:
        """The folder of a run that ended early; with `plan`, only if it is that plan's."""
        if not (root / "plan.json").is_file():
            raise FolderError(f"'{root}' holds no run to resume: expected a folder with a plan.json")
        space = cls(root, _lock(root))
        if plan is not None and space.plan != plan:
            space.close()
            raise FolderError(f"'{root}' holds a run of another plan: resume it by its own recipe, or use --fresh")
        space._mend()
        return space

    @property
    def plan(self) -> str:
        return (self.root / "plan.json").read_text()

    def close(self) -> None:
        os.close(self._lock)

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_atomically(self.root / "manifest.json", json.dumps(manifest, indent=2, sort_keys=True) + "\n")

    def write_episodes(self, name: str, lines: list[str]) -> None:
        write_atomically(self.root / "episodes" / f"{name}.jsonl", "".join(line + "\n" for line in lines))

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Whole checkpoints, by step."""
        found = (self.root / CHECKPOINTS).glob(f"{_STEP}*")
        return sorted((int(path.name.removeprefix(_STEP)), path) for path in found)

    @contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        """A folder to fill; it takes its name only when it is whole and on the disk."""
        folder = self.root / CHECKPOINTS / f"{_UNFINISHED}{step}"
        final = self.root / CHECKPOINTS / f"{_STEP}{step}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        _sync_tree(folder)
        replaced = self.root / CHECKPOINTS / f"{_REPLACED}{step}"
        if final.exists():
            final.rename(replaced)
        folder.rename(final)
        _sync(final.parent)
        shutil.rmtree(replaced, ignore_errors=True)

    def _mend(self) -> None:
        """After a kill: no half-written checkpoint stays, no replaced one is lost."""
        folder = self.root / CHECKPOINTS
        for left in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left)
        for old in folder.glob(f"{_REPLACED}*"):
            final = folder / f"{_STEP}{old.name.removeprefix(_REPLACED)}"
            shutil.rmtree(old) if final.exists() else old.rename(final)

    def drop(self, steps: list[int]) -> None:
        for step in steps:
            shutil.rmtree(self.root / CHECKPOINTS / f"{_STEP}{step}", ignore_errors=True)


class Metrics:
    """`metrics.jsonl`: one object per line, appended and on the disk before `append` returns."""

    def __init__(self, path: Path, *, keep_bytes: int = 0) -> None:
        path.touch()
        with path.open("r+b") as file:
            file.truncate(keep_bytes)
        self._file = path.open("ab")

    @property
    def size(self) -> int:
        return self._file.tell()

    def append(self, row: Mapping[str, float | int | str]) -> None:
        self._file.write(json.dumps(row, allow_nan=True).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def write_atomically(path: Path, text: str) -> None:
    """Readers see the old file or the new one, also after a crash."""
    beside = path.with_name(f".{path.name}.unfinished")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    _sync(path.parent)


def _lock(root: Path) -> int:
    handle = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise FolderError(f"'{root}' is in use by another run: wait for it, or give this one another name") from None
    return handle


def _move_aside(root: Path) -> None:
    number = 1
    while (aside := root.with_name(f"{root.name}.old-{number}")).exists():
        number += 1
    root.rename(aside)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        _sync(path)
    _sync(folder)
