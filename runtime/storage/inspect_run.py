"""What a run folder holds, part by part, and what is wrong with it. Nothing is changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import RunError
from .checkpoint_files import SEAL, find_damage
from .episode_reader import EPISODES, episode_files, read_chunks
from .events import EVENTS
from .model_files import find_model_problem
from .run_folder import (
    JUDGE,
    MODEL,
    START,
    FolderError,
    checkpoints_in,
    read_manifest,
    weights_in,
)
from .run_reader import RunReader, read_progress
from .summary import read_rows

__all__ = ["inspect_run"]


def inspect_run(root: Path) -> Iterator[tuple[str, str | None]]:
    """Name each part of a run folder, with what is wrong with it or None."""
    if not any((root / name).exists() for name in ("plan.json", "manifest.json", "checkpoints")):
        raise FolderError(f"'{root}' holds no run: expected a folder with a plan.json")
    yield "manifest.json", _said(lambda: read_manifest(root))
    is_old = _said(lambda: read_manifest(root)) is None and RunReader(root).is_old
    yield "recipe.yaml", _said(lambda: RunReader(root).recipe)
    yield "plan.json", _said(lambda: _check_plan(root))
    yield "metrics.jsonl", _said(lambda: [*read_rows(root / "metrics.jsonl")])
    for step, folder in checkpoints_in(root):
        unsealed = is_old and not (folder / SEAL).exists()
        problem = find_damage(folder, step, unsealed=unsealed) or _said(lambda folder=folder: read_progress(folder))  # type: ignore[misc]
        yield f"checkpoints/{folder.name}", problem
    models = [root / START, root / MODEL, *(path for _, path in weights_in(root)), *sorted(root.glob("references/*"))]
    for folder in models:
        if folder.exists():
            unsealed = is_old and not (folder / SEAL).exists()
            problem = find_damage(folder, unsealed=unsealed) or next(find_model_problem(folder, trusted=True), None)
            yield folder.relative_to(root).as_posix(), problem
    for folder in sorted(root.glob("bases/*")):
        yield folder.relative_to(root).as_posix(), find_damage(folder, unsealed=is_old)
    for file in (*episode_files(root / EPISODES), *root.glob(JUDGE), *root.glob(EVENTS)):
        yield file.relative_to(root).as_posix(), _file_problem(file)


def _said(check: Callable[[], object]) -> str | None:
    """What an operation says is wrong."""
    try:
        check()
    except RunError as error:
        return str(error)
    return None


def _check_plan(root: Path) -> None:
    path, written = root / "plan.json", read_manifest(root).get("plan_sha256")
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise FolderError(f"'{path}' cannot be read: {error.strerror}; a resume writes it again") from error
    if written not in (found, None):
        raise FolderError(f"'{path}' is not as the run wrote it; a resume writes it again")


def _file_problem(file: Path) -> str | None:
    if file.suffix != ".gz":
        return _line_problem(file.read_bytes())
    end = 0
    for chunk in read_chunks(file):
        end = chunk.end
        if problem := chunk.problem or _line_problem(chunk.data):
            return problem
    return "the episodes of its last step are cut off; a resume removes them" if end < file.stat().st_size else None


def _line_problem(data: bytes) -> str | None:
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            if line and not isinstance(json.loads(line), dict):
                return f"line {number} is no object"
        except (ValueError, RecursionError):
            return f"line {number} is no JSON; nothing that runs reads it, delete the line"
    return None
