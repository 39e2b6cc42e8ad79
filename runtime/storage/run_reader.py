"""A run folder as others see it: read while the run may be under way, never held, never changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...dsl.model.plan import Plan
from ..progress import Progress
from ..reporting import MetricsRow
from .run_folder import MODEL, PROGRESS, FolderError, checkpoints_in, weights_of
from .summary import read_rows

__all__ = ["RunReader", "SavedStep", "is_run"]


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
            return path.read_bytes()
        except OSError as error:
            raise FolderError(f"'{path}', the recipe of the run, cannot be read: {error.strerror}") from error

    @property
    def manifest(self) -> dict[str, Any]:
        try:
            made = json.loads((self.root / "manifest.json").read_text())
        except (OSError, ValueError):
            made = None
        if not isinstance(made, dict) or not isinstance(made.get("recipe_folder"), str):
            raise FolderError(f"'{self.root}' has no manifest that says where its recipe lay")
        return made

    @property
    def folder(self) -> str:
        """From which the paths in the recipe count."""
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
        best = _progress(latest[1]).best_step
        if best < 0:
            raise FolderError(f"'{self.root}' keeps no best step: its recipe sets no 'checkpoint.best'")
        return best

    def steps(self) -> list[int]:
        """Of which anything is kept."""
        weights = [int(path.name.removeprefix("step-")) for path in weights_of(self.root, 0).parent.glob("step-*")]
        return sorted({*weights, *(step for step, _ in checkpoints_in(self.root))})

    def progress(self, kept: SavedStep, plan: Plan) -> Progress:
        """Where the run stood; of a step whose checkpoint is gone, as far as its rows tell."""
        if kept.checkpoint is not None:
            return _progress(kept.checkpoint)
        row = next((row for row in self.rows() if row["total_step"] == kept.step and "step" in row), None)
        names = [stage.settings.stage for stage in plan.stages]
        if row is None:
            return Progress(total_step=kept.step)
        return Progress(total_step=kept.step, stage=names.index(str(row["stage"])), step=int(row["step"]))

    def rows(self) -> Iterator[MetricsRow]:
        return read_rows(self.root / "metrics.jsonl")

    def measurements(self, until: int) -> list[MetricsRow]:
        return [row for row in self.rows() if "eval/success" in row and int(row["total_step"]) <= until]


def _progress(checkpoint: Path) -> Progress:
    return Progress.from_json((checkpoint / PROGRESS).read_text())
