"""MLflow: the server or folder at `uri`, else at MLFLOW_TRACKING_URI, else (or offline) the folder `logs/mlflow`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..reporting import MetricsRow
from .episode_table import EpisodeTable, markdown
from .protocol import Opening, remember
from .registry import check_settings, flat_recipe, import_library

__all__ = ["MlflowSink", "metric_name"]

_IN_A_NAME = re.compile(r"[^\w\-. :/]", re.ASCII)
_BATCH = 1000
_NOTE = 4000
_PARAMS = 100
_PARAM = 500
"""Characters that every server takes."""
_SWITCHES = {
    # no usage reports on a user's behalf
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # an offline run writes a folder
    "MLFLOW_ALLOW_FILE_STORE": "true",
    # else an unreachable server delays the start by minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""MLflow reads these from the environment of its process alone; what a user has set stays."""


def _address(opening: Opening) -> str:
    settings, folder = opening.settings, (opening.folder / "logs" / "mlflow").absolute().as_uri()
    if not settings.offline:
        return settings.uri or opening.environ.get("MLFLOW_TRACKING_URI") or folder
    if settings.uri is None:
        return folder
    if not settings.uri.startswith(("file:", "sqlite:")) and "://" in settings.uri:
        raise RunError("logging: 'mlflow' is offline and has the address of a server: leave out one of the two")
    return settings.uri if ":" in settings.uri else Path(settings.uri).absolute().as_uri()


def metric_name(name: str) -> str:
    """A name that MLflow takes: no `@`, and only the first slash, as in a folder no name may continue another."""
    group, slash, rest = _IN_A_NAME.sub("_", name.replace("@", "_at_")).partition("/")
    return group + slash + rest.replace("/", ".")


class MlflowSink:
    """Finite numbers by `total_step`; texts as tags."""

    def __init__(self, opening: Opening) -> None:
        check_settings(opening)
        uri, plan = _address(opening), opening.plan
        for name, value in _SWITCHES.items():
            os.environ.setdefault(name, value)
        client = import_library("mlflow.tracking", "mlflow").MlflowClient(tracking_uri=uri)
        name = opening.settings.project or plan.name
        known = client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else client.create_experiment(name)
        tags = {
            "seed": str(plan.seed),
            "recipe_sha256": plan.recipe_sha256,
            **plan.choices,
            **dict.fromkeys(plan.tags, ""),
        }
        entities = import_library("mlflow.entities", "mlflow")

        def create() -> str:
            run = str(client.create_run(experiment, run_name=plan.name, tags=tags).info.run_id)
            # once: parameters of a run never change, and a resume may differ in those that decide nothing
            params = [entities.Param(metric_name(key), value[:_PARAM]) for key, value in flat_recipe(opening).items()]
            for start in range(0, len(params), _PARAMS):
                client.log_batch(run, params=params[start : start + _PARAMS])
            return run

        self._run = remember(opening, "mlflow-run", create)
        client.update_run(self._run, status="RUNNING")
        self._client: Any = client
        self._wall_clock = opening.wall_clock
        self._metric: Any = entities.Metric
        self._texts: Mapping[str, str] = {}
        self._notes = 0

    def write(self, row: MetricsRow) -> None:
        step, now = int(row.get("total_step", 0)), int(self._wall_clock() * 1000)
        metrics = [
            self._metric(metric_name(name), float(value), now, step)
            for name, value in row.items()
            # a server takes no NaN, and a missing point says the same
            if isinstance(value, (int, float)) and isfinite(value) and name != "total_step"
        ]
        for start in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._run, metrics=metrics[start : start + _BATCH])
        texts = {name: value for name, value in row.items() if isinstance(value, str)}
        for name, value in texts.items():
            if self._texts.get(name) != value:
                self._client.set_tag(self._run, metric_name(name), value)
        self._texts = {**self._texts, **texts}

    def table(self, table: EpisodeTable) -> None:
        self._client.log_text(self._run, markdown(table), f"episodes/step-{table.total_step:06}-{table.name}.md")

    def note(self, text: str) -> None:
        self._notes += 1
        self._client.set_tag(self._run, f"note.{self._notes:04}", text[:_NOTE])

    def close(self, *, failed: bool) -> None:
        self._client.set_terminated(self._run, status="FAILED" if failed else "FINISHED")
