"""Event files for TensorBoard in `logs/tensorboard`, by its own writer: no torch, no TensorFlow."""

from __future__ import annotations

from typing import Any

from ..reporting import MetricsRow
from .episode_table import EpisodeTable, markdown
from .protocol import Opening
from .registry import check_settings, import_library

__all__ = ["TensorBoardSink"]

_FLUSH_S = 10
_QUEUE = 100


class TensorBoardSink:
    """One scalar per number; notes as text."""

    def __init__(self, opening: Opening) -> None:
        check_settings(opening)
        writers = import_library("tensorboard.summary.writer.event_file_writer", "tensorboard")
        folder = opening.folder / "logs" / "tensorboard"
        self._writer: Any = writers.EventFileWriter(str(folder), max_queue_size=_QUEUE, flush_secs=_FLUSH_S)
        self._wall_clock = opening.wall_clock
        self._events: Any = import_library("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summaries: Any = import_library("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._tensors: Any = import_library("tensorboard.compat.proto.tensor_pb2", "tensorboard")
        self._types: Any = import_library("tensorboard.compat.proto.types_pb2", "tensorboard")
        self._step: int | None = None
        if opening.recipe:
            self._text("recipe", "\n".join(f"    {line}" for line in opening.recipe.splitlines()), 0)

    def write(self, row: MetricsRow) -> None:
        step = int(row.get("total_step", 0))
        if self._step is None or step < self._step:
            # TensorBoard then drops later steps, which a run takes again that was resumed or restarted its learner
            log = self._events.SessionLog
            self._add(step, session_log=log(status=log.START))
        self._step = step
        value = self._summaries.Summary.Value
        self._add(
            step,
            summary=self._summaries.Summary(
                value=[
                    value(tag=name, simple_value=float(number))
                    for name, number in row.items()
                    if isinstance(number, (int, float)) and name != "total_step"
                ]
            ),
        )

    def table(self, table: EpisodeTable) -> None:
        self._text(f"episodes/{table.name}", markdown(table), table.total_step)

    def note(self, text: str) -> None:
        self._text("note", text, self._step or 0)

    def _text(self, tag: str, text: str, step: int) -> None:
        plugin = self._summaries.SummaryMetadata.PluginData(plugin_name="text")
        value = self._summaries.Summary.Value(
            tag=tag,
            metadata=self._summaries.SummaryMetadata(plugin_data=plugin),
            tensor=self._tensors.TensorProto(
                dtype=self._types.DT_STRING,
                string_val=[text.encode()],
                tensor_shape={"dim": [{"size": 1}]},
            ),
        )
        self._add(step, summary=self._summaries.Summary(value=[value]))

    def close(self, *, failed: bool) -> None:
        self._writer.close()

    def _add(self, step: int, **content: Any) -> None:
        self._writer.add_event(self._events.Event(wall_time=self._wall_clock(), step=step, **content))
