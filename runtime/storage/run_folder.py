"""The run folder: created, locked, written atomically, found again. Files are whole or not there.

recipe.yaml plan.json manifest.json metrics.jsonl logs/
events.jsonl            what happened to the run besides its steps, in all its resumes
judge.jsonl             a judge's answers, by the hash of the request
start/                  a model folder: what the run began from; of a model at a path, where it lay and its checksums
model/                  a model folder: the trained model, as of the newest checkpoint
checkpoints/step-N/     whole, or not there under that name; checkpoint.json lists its files with their checksums
damaged/step-N/         a checkpoint that a resume found damaged
weights/step-N/         a model folder, of a deleted checkpoint
references/STAGE/       a model folder, the KL reference
bases/STAGE/            a checkpoint of the stage's start, which rounds of retraining go back to
episodes/train.jsonl.gz      a gzip member for each step; step-N-eval.jsonl, demonstrations-STAGE.jsonl

The manifest has the format's number. Folders of version 0.1.0 have none: their `model/` is what the run began from, and
their checkpoints have no checksums; a resume brings them to this form.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import EIO, ENOENT, ENOSPC
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from ..errors import RunError, advise
from .checkpoint_files import FORMAT, SEAL, find_damage, read_seal, seal_files
from .episode_reader import EPISODES, MEDIA, TRAIN_LOG, compress_member, list_members

T = TypeVar("T")

__all__ = [
    "CHECKPOINTS",
    "JUDGE",
    "MODEL",
    "PROGRESS",
    "START",
    "FolderError",
    "JsonLines",
    "RunFolder",
    "checkpoints_in",
    "fill_folder",
    "on_disk",
    "read_manifest",
    "replace_file",
    "sealed_folder",
    "weights_in",
    "weights_of",
    "write_pictures",
]

CHECKPOINTS = "checkpoints"
JUDGE = "judge.jsonl"
MODEL = "model"
PROGRESS = "progress.json"
START = "start"
_DAMAGED = "damaged"
_METRICS = "metrics.jsonl"
_STEP = "step-"
_UNFINISHED = ".unfinished-"
_REPLACED = ".replaced-"


_DESCRIPTION = ("recipe.yaml", "manifest.json", "plan.json")
"""In the order in which they are written: if there is a plan, there are the others."""
_UNWRITTEN = (f".{name}.unfinished" for name in _DESCRIPTION)
_STARTUP_FILES = {".lock", *_DESCRIPTION[:-1], *_UNWRITTEN, CHECKPOINTS, EPISODES, "logs"}
"""Everything that may be left by a start that ended before it wrote the plan."""


class FolderError(RunError):
    """The folder cannot be used: in use, taken, or of another plan."""


class RunFolder:
    """One run's folder, locked by this process until closed."""

    def __init__(self, root: Path, lock: int) -> None:
        self.root = root
        self._lock = lock
        self._facts: dict[str, Any] = {}
        """Of the run, for its checkpoints."""

    @classmethod
    def start(
        cls,
        root: Path,
        plan: str,
        recipe: str,
        manifest: Mapping[str, Any] = MappingProxyType({}),
        *,
        fresh: bool = False,
    ) -> RunFolder:
        """A new folder; what a folder of that name held is moved aside, never deleted, under `fresh` or if the run
        there ended before it had measured or trained anything."""
        held = {path.name for path in root.iterdir()} - _STARTUP_FILES if root.exists() else set[str]()
        if "plan.json" in held:
            os.close(_lock(root))  # raises if it is in use
        if held and not fresh and not _is_barren(root):
            what = "already holds a run: resume it with --resume" if "plan.json" in held else "is not empty: empty it"
            raise FolderError(f"'{root}' {what}, or start over with --fresh")
        if held:
            _move_aside(root)
        (root / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        for name in (EPISODES, "logs"):
            (root / name).mkdir(exist_ok=True)
        space = cls(root, _lock(root))
        space.describe(plan, recipe, manifest)
        return space

    @classmethod
    def resume(cls, root: Path) -> RunFolder:
        """Open the folder of a run that ended early."""
        if not (root / "plan.json").is_file():
            raise FolderError(f"'{root}' holds no run to resume: expected a folder with a plan.json")
        space = cls(root, _lock(root))
        try:
            space._repair()
            manifest = read_manifest(root)
            space._facts = _facts(manifest)
            if manifest["format"] < FORMAT:
                space._migrate()
        except BaseException:
            space.close()
            raise
        return space

    def describe(self, plan: str, recipe: str, manifest: Mapping[str, Any]) -> None:
        """Write what the run is; of a run that is resumed, the new description replaces the old."""
        whole = {**manifest, "format": FORMAT, "stored_recipe_sha256": hashlib.sha256(recipe.encode()).hexdigest()}
        self._facts = _facts(whole)
        texts = recipe, json.dumps(whole, indent=2, sort_keys=True) + "\n", plan
        for name, text in zip(_DESCRIPTION, texts, strict=True):
            replace_file(self.root / name, text)

    def close(self) -> None:
        os.close(self._lock)

    def append_episodes(self, step: int, lines: bytes) -> None:
        """Append the training episodes of a step, on the disk before this returns."""
        member = compress_member(step, lines)
        # unbuffered: what a full disk refused must not be written again by the close
        with (self.root / EPISODES / TRAIN_LOG).open("ab", buffering=0) as file:
            if file.write(member) != len(member):
                raise OSError(ENOSPC, os.strerror(ENOSPC), str(file.name))
            os.fsync(file.fileno())

    def write_evaluation(self, step: int, lines: bytes) -> None:
        """Write the episodes of an evaluation."""
        replace_file(self.root / EPISODES / f"{_STEP}{step:06d}-eval.jsonl", lines)

    def save_pictures(self, pictures: Mapping[str, bytes]) -> None:
        """Keep pictures by their names, those that are not there yet."""
        write_pictures(self.root / EPISODES, pictures)

    def demonstrations(self, stage: str) -> Path:
        """Return the file with a sample of what a stage imitates."""
        return self.root / EPISODES / f"demonstrations-{stage}.jsonl"

    def forget_episodes(self, after: int) -> None:
        """Delete the episodes of later steps, and what a kill left of a step."""
        for file in (self.root / EPISODES).glob(f"{_STEP}*.jsonl"):
            number = file.stem.split("-")[1]
            if number.isdecimal() and int(number) > after:
                file.unlink()
        log = self.root / EPISODES / TRAIN_LOG
        if log.exists():
            kept = [0, *(member.end for member in list_members(log) if member.step <= after)]
            if kept[-1] < log.stat().st_size:
                os.truncate(log, kept[-1])

    def reference(self, stage: str) -> Path:
        return self.root / "references" / stage

    def checkpoints(self) -> list[tuple[int, Path]]:
        """List whole checkpoints by step."""
        return checkpoints_in(self.root)

    def newest_sound(
        self,
        read: Callable[[int, Path], T],
        note: Callable[[str], None],
        wanted: Callable[[int], bool] = lambda step: True,
    ) -> tuple[Path, T] | None:
        """The newest checkpoint that is as it was written, with what `read` makes of it; damaged ones that are newer
        are moved out of the way."""
        for step, folder in reversed(self.checkpoints()):
            if not wanted(step):
                continue
            problem = self.find_damage(step, folder)
            try:
                if problem is None:
                    return folder, read(step, folder)
            except RunError as error:
                problem = str(error)
            place = self._set_aside(folder)
            note(f"checkpoint {folder.name} is damaged and was moved to '{place}': {problem}")
        return None

    def find_damage(self, step: int, folder: Path) -> str | None:
        """What is wrong with a checkpoint, or with its location."""
        problem, own = find_damage(folder, step), self._facts.get("decisive_sha256")
        if problem is None and own is not None:
            sealed = read_seal(folder)
            same_version = sealed.get("agym") == self._facts.get("agym")
            if same_version and sealed.get("decisive_sha256") not in (own, None):
                problem = "is that of a run with another plan"
        return problem

    def _set_aside(self, folder: Path) -> Path:
        """Move a damaged checkpoint out of the way."""
        place, number = self.root / _DAMAGED / folder.name, 1
        while place.exists():
            number += 1
            place = place.with_name(f"{folder.name}.{number}")
        place.parent.mkdir(exist_ok=True)
        folder.rename(place)
        _sync(place.parent)
        return place

    @contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        """Create a checkpoint; it takes its name only when it is whole and on the disk. The model in it, if there is
        one, becomes the run's."""
        final = self.root / CHECKPOINTS / f"{_STEP}{step}"
        with fill_folder(final) as folder:
            yield folder
            known = {}
            if (folder / MODEL).is_dir():
                files = seal_files(folder / MODEL, {"step": step, "of": MODEL})
                known = {f"{MODEL}/{name}": each for name, each in files.items()}
            seal_files(folder, {"step": step, **self._facts}, known)
        if (final / MODEL).is_dir():
            _link_folder(final / MODEL, self.root / MODEL)

    def publish_model(self, checkpoint: Path) -> None:
        """Make the model of a checkpoint the run's model, if a kill or damage left another there."""
        source, own = checkpoint / MODEL / SEAL, self.root / MODEL / SEAL
        if source.exists() and not (own.is_file() and own.read_bytes() == source.read_bytes()):
            _link_folder(checkpoint / MODEL, self.root / MODEL)

    def check_room(self) -> None:
        """Raise OSError where the disk has no room for a checkpoint as large as the newest."""
        sizes = [path.stat().st_size for _, each in self.checkpoints()[-1:] for path in each.rglob("*")]
        free = shutil.disk_usage(self.root).free
        if sum(sizes) > free:
            needed = f"a checkpoint takes about {sum(sizes):,} bytes and {free:,} are free"
            raise OSError(ENOSPC, f"{os.strerror(ENOSPC)}: {needed}", str(self.root))

    def base(self, stage: str) -> Path:
        return self.root / "bases" / stage

    def _repair(self) -> None:
        """Clean up after a kill: remove half-written folders, restore replaced ones."""
        for leftover in (*self.root.glob(f"{_UNFINISHED}*"), *self.root.glob(f"*/{_UNFINISHED}*")):
            shutil.rmtree(leftover)
        for old in (*self.root.glob(f"{_REPLACED}*"), *self.root.glob(f"*/{_REPLACED}*")):
            final = old.with_name(old.name.removeprefix(_REPLACED))
            shutil.rmtree(old) if final.exists() else old.rename(final)

    def _migrate(self) -> None:
        """Bring a folder of version 0.1.0 to this format; if this is killed, it is done again."""
        if (self.root / MODEL).is_dir() and not (self.root / START).exists():
            (self.root / MODEL).rename(self.root / START)
        sound = [(step, folder) for step, folder in self.checkpoints() if find_damage(folder, unsealed=True) is None]
        for step, folder in (*((step, folder / MODEL) for step, folder in sound), *weights_in(self.root)):
            if folder.is_dir():
                seal_files(folder, {"step": step, "of": MODEL})
        for step, folder in sound:
            seal_files(folder, {"step": step})
        for folder in (self.root / START, *self.root.glob("references/*"), *self.root.glob("bases/*")):
            if folder.is_dir():
                seal_files(folder, {})
        manifest = read_manifest(self.root) | {"format": FORMAT}
        replace_file(self.root / "manifest.json", json.dumps(manifest, indent=2, sort_keys=True) + "\n")

    def drop(self, steps: Sequence[int], keep_exports: int = 0, protected: Sequence[int] = ()) -> None:
        """Delete checkpoints; of the models exported from deleted ones, the newest are kept, and the protected."""
        for step in steps:
            folder = self.root / CHECKPOINTS / f"{_STEP}{step}"
            if (folder / MODEL).is_dir():
                _link_folder(folder / MODEL, weights_of(self.root, step))
            if folder.is_dir():
                # a partial checkpoint must not pass for a whole one
                shutil.rmtree(folder.rename(folder.with_name(_UNFINISHED + folder.name)), ignore_errors=True)
        models = [(step, path) for step, path in weights_in(self.root) if step not in protected]
        for _, path in models[: max(0, len(models) - keep_exports)]:
            shutil.rmtree(path, ignore_errors=True)


def _facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    names = ("agym", "plan_sha256", "decisive_sha256", "packages")
    return {name: manifest[name] for name in names if name in manifest}


def read_manifest(root: Path) -> dict[str, Any]:
    """The manifest of a run folder; its `format` is 1 where version 0.1.0 wrote none."""
    path, advice = root / "manifest.json", "restore it from a copy, or start over with --fresh"
    try:
        made = json.loads(path.read_bytes())
    except OSError as error:
        raise FolderError(f"'{path}' cannot be read: {error.strerror}; {advice}") from error
    except (ValueError, RecursionError) as error:
        raise FolderError(f"'{path}' is empty, cut or no JSON; {advice}") from error
    kinds = {"format": int, "recipe_folder": str, "choices": dict, "agym": str, "decisive_sha256": str}
    if not isinstance(made, dict) or any(not isinstance(made.get(name, kind()), kind) for name, kind in kinds.items()):
        raise FolderError(f"'{path}' is not a manifest of a run; {advice}")
    made.setdefault("format", 1)
    if made["format"] > FORMAT:
        raise FolderError(f"'{root}' has format {made['format']}, this version reads up to {FORMAT}: use a newer agym")
    return made


def checkpoints_in(root: Path) -> list[tuple[int, Path]]:
    """List whole checkpoints of a run folder, by step."""
    return _by_step(root / CHECKPOINTS)


def weights_in(root: Path) -> list[tuple[int, Path]]:
    """List the models of deleted checkpoints, by step."""
    return _by_step(root / "weights")


def _by_step(folder: Path) -> list[tuple[int, Path]]:
    names = [(path.name.removeprefix(_STEP), path) for path in folder.glob(f"{_STEP}*")]
    # with other names, such as copies that somebody made, they are not part of the run
    return sorted((int(number), path) for number, path in names if number.isdecimal() and number.isascii())


def weights_of(root: Path, step: int) -> Path:
    """Return the folder that keeps the model of a deleted checkpoint."""
    return root / "weights" / f"{_STEP}{step}"


@contextmanager
def fill_folder(final: Path) -> Iterator[Path]:
    """Fill a folder that takes its name when it is whole and on the disk; an old one of that name is then removed."""
    final.parent.mkdir(exist_ok=True)
    folder, replaced = final.with_name(_UNFINISHED + final.name), final.with_name(_REPLACED + final.name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if any(words in str(error) for words in _WRITE_ERRORS):
            raise OSError(EIO, str(error), str(final)) from error
        raise
    _sync_tree(folder)
    if final.exists():
        final.rename(replaced)
    folder.rename(final)
    _sync(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def sealed_folder(final: Path, facts: Mapping[str, Any] = MappingProxyType({})) -> Iterator[Path]:
    """Fill a folder whose files are listed in it with their checksums."""
    with fill_folder(final) as folder:
        yield folder
        seal_files(folder, facts)


def _link_folder(source: Path, target: Path) -> None:
    with fill_folder(target) as folder:
        shutil.copytree(source, folder, copy_function=_link_or_copy, dirs_exist_ok=True)


def _link_or_copy(source: str, target: str) -> None:
    """One file under two names takes its space once; not every file system supports that."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


_WRITE_ERRORS = ("inline_container.cc", "iostream error", "I/O error")
"""Texts of torch's and safetensors' own errors when a disk is full or fails."""


@contextmanager
def on_disk(what: str) -> Iterator[None]:
    """Turn an error of the disk into RunError."""
    try:
        yield
    except OSError as error:
        where = f"'{error.filename}': " if error.filename else ""
        raise RunError(f"{what}: {where}{error.strerror or error}; {advise(error)}, and resume") from error


class JsonLines:
    """One object per line, appended and on the disk before `append` returns."""

    def __init__(self, path: Path, *, keep_bytes: int = 0) -> None:
        path.touch()
        with path.open("r+b") as file:
            # whole lines only: in a file that was cut, the rest of a line would spoil the next
            file.truncate(file.read(keep_bytes).rfind(b"\n") + 1)
        self.num_lost_bytes = keep_bytes - path.stat().st_size
        """Bytes that are missing from a file that was cut."""
        # unbuffered: what a full disk refused must not be written again by the close
        self._file = path.open("ab", buffering=0)

    @property
    def size(self) -> int:
        return self._file.tell()

    def append(self, row: Mapping[str, Any]) -> None:
        if os.fstat(self._file.fileno()).st_nlink == 0:
            # rows would go nowhere, without an error
            raise OSError(ENOENT, os.strerror(ENOENT), str(self._file.name))
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        # an unbuffered write to a full disk may take a part of it
        if self._file.write(line) != len(line):
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(self._file.name))
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def write_pictures(episodes: Path, pictures: Mapping[str, bytes]) -> None:
    """Write pictures into a folder of episodes, those that are not there yet."""
    for name, data in pictures.items():
        file = episodes / MEDIA / f"{name}.png"
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            replace_file(file, data)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file so that readers see the old one or the new one, also after a crash."""
    temporary = path.with_name(f".{path.name}.unfinished")
    with temporary.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync(path.parent)


def _lock(root: Path) -> int:
    handle = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise FolderError(f"'{root}' is in use by another run: wait for it, or rename this one") from None
    return handle


def _is_barren(root: Path) -> bool:
    """Return whether the run ended before its first row, first checkpoint after step 0, and first judge answer."""
    written = any(file.is_file() and file.stat().st_size for file in (root / _METRICS, root / JUDGE))
    stepped = any(step for step, _ in checkpoints_in(root))
    return (root / "plan.json").is_file() and not written and not stepped


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
