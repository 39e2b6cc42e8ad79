"""Weights & Biases, online or in `logs/wandb`. wandb itself reads the key, from WANDB_API_KEY."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import yaml

from ..reporting import MetricsRow
from .episode_table import COLUMNS, EpisodeTable
from .protocol import Opening, remember
from .registry import check_settings, import_library

__all__ = ["WandbSink"]

_INIT_TIMEOUT_S = 30.0
_STEP = "total_step"
_QUIET = {
    "silent": True,
    # metrics only: the terminal is ours, a command line may hold secrets, and sampling the machine costs time
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
}


class WandbSink:
    """Rows by `total_step`; of a step that was taken again the later row comes last."""

    def __init__(self, opening: Opening) -> None:
        settings, plan = opening.settings, opening.plan
        options = check_settings(opening)
        wandb = import_library("wandb", "wandb")
        folder = opening.folder / "logs" / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        self._run: Any = wandb.init(
            project=settings.project or plan.name,
            entity=settings.entity,
            name=plan.name,
            id=remember(opening, "wandb-run", lambda: uuid4().hex[:12]),
            resume=None if settings.offline else "allow",
            tags=list(plan.tags),
            config={
                **(yaml.safe_load(opening.recipe) or {}),
                "seed": plan.seed,
                "recipe_sha256": plan.recipe_sha256,
                **plan.choices,
            },
            dir=str(folder),
            mode="offline" if settings.offline else "online",
            settings=wandb.Settings(init_timeout=_INIT_TIMEOUT_S, **_QUIET),
            **options,
        )
        # wandb drops what is logged at an earlier step of its own than the last: rows that a restart repeats
        self._run.define_metric(_STEP)
        self._run.define_metric("*", step_metric=_STEP)
        self._teardown, self._table = wandb.teardown, wandb.Table
        self._step = 0

    def write(self, row: MetricsRow) -> None:
        self._step = int(row.get(_STEP, self._step))
        self._log(row)

    def table(self, table: EpisodeTable) -> None:
        rows = [[row[name] for name in COLUMNS] for row in table.rows]
        self._log({f"episodes/{table.name}": self._table(columns=[*COLUMNS], data=rows), _STEP: table.total_step})

    def note(self, text: str) -> None:
        self._log({"note": text})

    def _log(self, values: Mapping[str, object]) -> None:
        self._run.log({_STEP: self._step, **values})

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))
        self._teardown()  # ends the process that wandb has started
