"""Trackio: the server at `uri`, else what TRACKIO_SPACE_ID or TRACKIO_SERVER_URL name, else its local folder.

The folder is trackio's own, TRACKIO_DIR or `trackio` in Hugging Face's cache, so that its dashboard shows all runs.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from contextvars import copy_context
from typing import Any
from uuid import uuid4

import yaml

from ..errors import RunError
from ..reporting import MetricsRow
from .episode_table import COLUMNS, EpisodeTable
from .protocol import Opening, remember
from .registry import check_settings, import_library

__all__ = ["TrackioSink"]

_TOKEN = "TRACKIO_WRITE_TOKEN"


class TrackioSink:
    """Rows by `total_step`."""

    def __init__(self, opening: Opening) -> None:
        settings, plan = opening.settings, opening.plan
        options = check_settings(opening)
        if settings.uri and not settings.uri.startswith(("http://", "https://")):
            raise RunError("logging: 'trackio' takes the whole address of a server, such as http://localhost:7860")
        if settings.uri and not opening.environ.get(_TOKEN):
            raise RunError(f"logging: 'trackio' needs the server's key in {_TOKEN}; set it, or leave out 'uri'")
        trackio = import_library("trackio", "trackio")
        name = remember(opening, "trackio-run", lambda: f"{plan.name}-{uuid4().hex[:8]}")
        # it prints, and at exit ends the run that its context holds a second time: it gets a context of its own
        with redirect_stdout(io.StringIO()):
            self._run: Any = copy_context().run(
                trackio.init,
                project=settings.project or plan.name,
                name=name,
                resume="allow",
                server_url=settings.uri,
                config={
                    **(yaml.safe_load(opening.recipe) or {}),
                    "seed": plan.seed,
                    "recipe_sha256": plan.recipe_sha256,
                    "tags": list(plan.tags),
                    **plan.choices,
                },
                embed=False,
                # metrics of the run only, as in every other sink
                auto_log_gpu=False,
                auto_log_cpu=False,
                **options,
            )
        self._table = trackio.Table
        self._step = 0

    def write(self, row: MetricsRow) -> None:
        self._step = int(row.get("total_step", self._step))
        # `step` is a name of its own: that of the axis
        values = {"stage_step" if name == "step" else name: value for name, value in row.items()}
        del values["total_step"]
        self._log(values, self._step)

    def table(self, table: EpisodeTable) -> None:
        rows = [[row[name] for name in COLUMNS] for row in table.rows]
        self._log({f"episodes/{table.name}": self._table(columns=list(COLUMNS), data=rows)}, table.total_step)

    def note(self, text: str) -> None:
        self._log({"note": text}, self._step)

    def close(self, *, failed: bool) -> None:
        self._log({"ended": "failed" if failed else "finished"}, self._step)
        self._run.finish()

    def _log(self, values: dict[str, Any], step: int) -> None:
        self._run.log(values, step=step)
