"""A run folder as others see it: read while the run may be under way, never locked, never changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...dsl.model.plan import Plan
from ..progress import Progress
from ..reporting import MetricsRow
from .checkpoint_files import FORMAT, SEAL, find_damage
from .model_files import check_model
from .run_folder import MODEL, PROGRESS, FolderError, checkpoints_in, read_manifest, weights_in, weights_of
from .summary import read_rows

__all__ = ["RunReader", "SavedStep", "is_run", "read_progress"]


def is_run(folder: Path) -> bool:
    return (folder / "plan.json").is_file()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStep:
    """What a run keeps of a step."""

    step: int
    checkpoint: Path | None
    """With the learner's state; None where only the weights are left."""
    model: Path | None
    """A folder that other programs load; None where `checkpoint.export` was off."""


class RunReader:
    """One run folder."""

    def __init__(self, root: Path) -> None:
        if not is_run(root):
            raise FolderError(f"'{root}' holds no run: expected a folder with a plan.json")
        self.root = root

    @property
    def recipe(self) -> bytes:
        """The resolved recipe."""
        path = self.root / "recipe.yaml"
        try:
            text = path.read_bytes()
        except OSError as error:
            raise FolderError(f"'{path}', the recipe of the run, cannot be read: {error.strerror}") from error
        written = read_manifest(self.root).get("stored_recipe_sha256")
        if written not in (hashlib.sha256(text).hexdigest(), None):
            raise FolderError(f"'{path}' is not as the run wrote it: restore it, or start over with --fresh")
        return text

    @property
    def manifest(self) -> dict[str, Any]:
        made = read_manifest(self.root)
        if "recipe_folder" not in made:
            raise FolderError(f"'{self.root / 'manifest.json'}' does not say where the recipe of the run lay")
        return made

    @property
    def is_old(self) -> bool:
        """Whether version 0.1.0 wrote it, without checksums."""
        return int(read_manifest(self.root)["format"]) < FORMAT

    @property
    def folder(self) -> str:
        """Paths in the recipe are relative to it."""
        return str(self.manifest["recipe_folder"])

    def kept(self, wanted: str) -> SavedStep:
        """Of `latest`, `best`, or a step by its number."""
        checkpoints = checkpoints_in(self.root)
        if not checkpoints:
            raise FolderError(f"'{self.root}' has no checkpoint yet")
        step = self._step(wanted, checkpoints[-1])
        folder = dict(checkpoints).get(step)
        model = weights_of(self.root, step) if folder is None else folder / MODEL
        has_model = model.is_dir()
        if folder is None and not has_model:
            known = ", ".join(map(str, self.steps()))
            raise FolderError(f"'{self.root}' keeps nothing of step {step}; it keeps {known}")
        return SavedStep(step=step, checkpoint=folder, model=model if has_model else None)

    def _step(self, wanted: str, latest: tuple[int, Path]) -> int:
        if wanted == "latest":
            return latest[0]
        if wanted != "best":
            return int(wanted)
        best = read_progress(latest[1]).best_step
        if best < 0:
            raise FolderError(
                f"'{self.root}' keeps no best step: its recipe sets no 'checkpoint.best', or nothing was "
                "evaluated up to its last checkpoint"
            )
        return best

    def steps(self) -> list[int]:
        """Of which anything is kept."""
        return sorted({step for step, _ in (*weights_in(self.root), *checkpoints_in(self.root))})

    def check(self, kept: SavedStep, *, trusted: bool = False) -> None:
        """Raise FolderError if what is kept of a step is damaged, or its model could run code."""
        if kept.checkpoint is not None and (
            problem := find_damage(
                kept.checkpoint,
                kept.step,
                unsealed=self._is_unsealed(kept.checkpoint),
                # a model is checked by itself, and the learner's state is read if there is none
                without=("learner/", "critic/", "ranker/", f"{MODEL}/") if kept.model is not None else (),
            )
        ):
            known = ", ".join(map(str, self.steps()))
            raise FolderError(f"'{kept.checkpoint}' is damaged: {problem}; choose another with --checkpoint ({known})")
        if kept.model is not None:
            check_model(kept.model, trusted=trusted, unsealed=self._is_unsealed(kept.model))

    def _is_unsealed(self, folder: Path) -> bool:
        return self.is_old and not (folder / SEAL).exists()

    def progress(self, kept: SavedStep, plan: Plan) -> Progress:
        """Where the run stood; of a step whose checkpoint is gone, as far as its rows tell."""
        if kept.checkpoint is not None:
            return read_progress(kept.checkpoint)
        row = next((row for row in self.rows() if row["total_step"] == kept.step and "step" in row), None)
        names = [stage.settings.stage for stage in plan.stages]
        if row is None or row["stage"] not in names:
            return Progress(total_step=kept.step)
        return Progress(total_step=kept.step, stage=names.index(str(row["stage"])), step=int(row["step"]))

    def rows(self) -> Iterator[MetricsRow]:
        return read_rows(self.root / "metrics.jsonl")

    def measurements(self, until: int) -> list[MetricsRow]:
        return [row for row in self.rows() if "eval/success" in row and int(row["total_step"]) <= until]


def read_progress(checkpoint: Path) -> Progress:
    """The progress in a checkpoint; FolderError where it is damaged."""
    path = checkpoint / PROGRESS
    try:
        return Progress.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FolderError(f"'{path}' cannot be read: {error.strerror}; choose another checkpoint") from error
    except (ValueError, RecursionError) as error:
        raise FolderError(f"'{path}' is damaged: {error}; choose another checkpoint") from error
